#include "runtime/memory/host_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace bloomery::memory {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

TEST(HostBuffer, LargeOnesStartOnAHugePageAndEveryByteIsThere) {
  for (const uint64_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 1, uint64_t{5}}) {
    HostBuffer buffer(bytes, "test");
    ASSERT_EQ(buffer.size(), bytes);
    if (bytes >= kHugePage) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kHugePage, 0U);
    }
    EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    std::ranges::fill(buffer.bytes(), std::byte{7});
    EXPECT_EQ(buffer.bytes().back(), std::byte{7});
  }
}

TEST(HostBuffer, HugePagesAreCountedOnlyOnceTouched) {
  HostBuffer buffer(8 * kHugePage, "test");
  ASSERT_TRUE(buffer.HugeBytes().has_value());
  EXPECT_EQ(*buffer.HugeBytes(), 0U);
  std::ranges::fill(buffer.bytes(), std::byte{1});
  const uint64_t huge = *buffer.HugeBytes();
  EXPECT_LE(huge, buffer.size());
  EXPECT_EQ(huge % kHugePage, 0U);
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(setting, modes);
  if (modes.find("[never]") != std::string::npos) {
    EXPECT_EQ(huge, 0U);
  }
}

}  // namespace
}  // namespace bloomery::memory
