#include "runtime/memory/ring_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/memory/host_buffer.h"
#include "tests/support/faulty_file.h"
#include "tests/support/pattern_bytes.h"
#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

using test::HoldsPattern;
using test::PatternBytes;

using std::chrono::microseconds;

constexpr uint64_t kPage = File::kDirectAlignment;

// Stretches of 1 to `pages` pages of a file, one after the other, as many as it has.
std::vector<RingStretch> Cut(const File& file, uint64_t pages, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<RingStretch> stretches;
  for (uint64_t at = 0; at < file.size();) {
    const uint64_t bytes = std::min((1 + random() % pages) * kPage, file.size() - at);
    stretches.push_back({.file = &file, .offset = at, .bytes = bytes});
    at += bytes;
  }
  return stretches;
}

void AwaitAll(RingReader& reader, size_t i) {
  while (!reader.Ready(i)) reader.Await(i, microseconds(1000));
}

TEST(PlaceInRing, WhatIsThereTogetherNeverOverlapsAndIsNeverMoreThanAsked) {
  const std::vector<std::byte> content(3000 * kPage);
  const auto file = MakeMemoryFile("content.bin", content);
  for (const size_t most : {1, 3, 64}) {
    std::vector<RingStretch> stretches = Cut(*file, 7, 1);
    const uint64_t ring = 20 * kPage;
    PlaceInRing(stretches, ring, most);
    size_t together = 0;
    for (size_t i = 0; i < stretches.size(); ++i) {
      EXPECT_LE(stretches[i].at + RingBytes(stretches[i].bytes), ring);
      EXPECT_LE(stretches[i].after, i);
      EXPECT_GE(stretches[i].after, stretches[i == 0 ? 0 : i - 1].after);  // freed in order
      together = std::max(together, i + 1 - stretches[i].after);
      for (size_t old = stretches[i].after; old < i; ++old) {
        EXPECT_TRUE(stretches[old].at + RingBytes(stretches[old].bytes) <= stretches[i].at ||
                    stretches[i].at + RingBytes(stretches[i].bytes) <= stretches[old].at)
            << old << " and " << i;
      }
    }
    EXPECT_LE(together, most);
    EXPECT_GE(together, std::min<size_t>(most, 5));  // the ring is used
  }
}

TEST(RingReader, GivesEveryStretchInOrderThroughASmallRing) {
  const std::vector<std::byte> content = PatternBytes(limits::kLoadReadBytes * 9 + 17);
  const auto file = MakeMemoryFile("content.bin", content);
  // Stretches of up to 3 MiB: some are read in two parts.
  std::vector<RingStretch> stretches = Cut(*file, 768, 2);
  const HostBuffer ring(uint64_t{5} << 20, "ring");
  PlaceInRing(stretches, ring.size(), 64);
  RingReader reader(stretches, ring.bytes());
  for (size_t i = 0; i < stretches.size(); ++i) {
    AwaitAll(reader, i);
    ASSERT_TRUE(HoldsPattern(ring.bytes().subspan(stretches[i].at, stretches[i].bytes),
                             stretches[i].offset))
        << i;
    reader.Free(i + 1);
  }
}

TEST(RingReader, ReadsNothingIntoAPlaceThatIsNotFree) {
  const std::vector<std::byte> content = PatternBytes(40 * kPage);
  const auto plan = std::make_shared<test::FaultPlan>();
  const test::FaultyFile file(MakeMemoryFile("content.bin", content), plan);
  std::vector<RingStretch> stretches;
  for (uint64_t at = 0; at < file.size(); at += kPage) {
    stretches.push_back({.file = &file, .offset = at, .bytes = kPage});
  }
  const HostBuffer ring(4 * kPage, "ring");
  PlaceInRing(stretches, ring.size(), 64);
  RingReader reader(stretches, ring.bytes());
  for (size_t i = 0; i < 4; ++i) AwaitAll(reader, i);
  reader.Await(4, microseconds(2000));  // longer than readers poll
  EXPECT_FALSE(reader.Ready(4));
  EXPECT_EQ(std::atomic_ref(plan->reads).load(), 4);
  EXPECT_TRUE(HoldsPattern(ring.bytes(), 0));
  reader.Free(1);
  AwaitAll(reader, 4);
  EXPECT_FALSE(reader.Ready(5));
  EXPECT_TRUE(HoldsPattern(ring.bytes().first(kPage), 4 * kPage));
}  // and the readers that wait for room end

TEST(RingReader, AFailedReadIsThrownToWhoWaits) {
  const std::vector<std::byte> content = PatternBytes(64 * kPage);
  const auto plan =
      std::make_shared<test::FaultPlan>(test::FaultPlan{.fault = test::Fault::kFail, .nth = 9});
  const test::FaultyFile file(MakeMemoryFile("content.bin", content), plan);
  std::vector<RingStretch> stretches = Cut(file, 2, 3);
  const HostBuffer ring(16 * kPage, "ring");
  PlaceInRing(stretches, ring.size(), 64);
  const test::Refusal refusal = test::RefusalOf([&] {
    RingReader reader(stretches, ring.bytes());
    for (size_t i = 0; i < stretches.size(); ++i) {
      AwaitAll(reader, i);
      reader.Free(i + 1);
    }
  });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, testing::HasSubstr("content.bin"));
}

}  // namespace
}  // namespace bloomery::memory
