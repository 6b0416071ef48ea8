// Experts from places to frames: every byte, and no other frame's.
#include "kernels-common/moe/cuda/frame_copies.h"

#include <gtest/gtest.h>

#include "tests/gpu/kernels/device.h"

namespace bloomery::kernels {
namespace {

using testing::DeviceArray;
using testing::Finish;
using testing::SameValues;
using testing::TestLaunch;

TEST(FrameCopies, EveryByteComesAndOtherFramesStay) {
  constexpr std::size_t kPlaces = 5;
  constexpr std::size_t kFrames = 4;
  // Long enough for several rounds of a thread; one matrix is no whole number of 16 bytes.
  const std::vector<std::size_t> sizes = {147'472, 48, 1'003};
  std::vector<std::vector<std::uint8_t>> from;
  std::vector<DeviceArray<std::uint8_t>> places;
  std::vector<DeviceArray<std::uint8_t>> frames;
  cuda::FrameCopies copies;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    std::vector<std::uint8_t>& bytes = from.emplace_back(kPlaces * sizes[part]);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + part);
    }
    places.emplace_back(bytes);
    frames.emplace_back(kFrames * sizes[part], 0xFF);
    copies.from[part] = reinterpret_cast<const std::byte*>(places[part].data());
    copies.to[part] = reinterpret_cast<std::byte*>(frames[part].data());
    copies.bytes[part] = sizes[part];
  }
  copies.count = 2;
  copies.place[0] = 4;
  copies.frame[0] = 1;
  copies.place[1] = 0;
  copies.frame[1] = 3;
  Finish(cuda::CopyFrames(TestLaunch(), copies));
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    std::vector<std::uint8_t> expected(kFrames * sizes[part], 0xFF);
    for (std::size_t i = 0; i < sizes[part]; ++i) {
      expected[1 * sizes[part] + i] = from[part][4 * sizes[part] + i];
      expected[3 * sizes[part] + i] = from[part][i];
    }
    EXPECT_TRUE(SameValues(frames[part].Read(), expected)) << part;
  }
}

}  // namespace
}  // namespace bloomery::kernels
