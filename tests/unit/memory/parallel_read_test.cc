#include "runtime/memory/parallel_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
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

constexpr uint64_t kRead = limits::kLoadReadBytes;

// A drive without bytes: counts its reads, and what others than the first thread ask for comes
// slowly once the drive is as deep in reads as it gets.
class SlowFile final : public File {
 public:
  explicit SlowFile(uint64_t bytes) : File("slow.bin"), bytes_(bytes) {}
  uint64_t size() const override { return bytes_; }
  std::unique_ptr<Mapping> Map(uint64_t, uint64_t) const override { return nullptr; }
  int reads() const { return reads_.load(); }
  void Release() const {
    released_.store(true);
    released_.notify_all();
  }

 protected:
  size_t ReadSome(uint64_t, std::span<std::byte> out, std::error_code&) const override {
    const int before = reads_.fetch_add(1);
    if (std::this_thread::get_id() == first_) return out.size();
    released_.wait(false);
    if (before >= limits::kLoadReadsMax) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return out.size();
  }

 private:
  uint64_t bytes_;
  std::thread::id first_ = std::this_thread::get_id();
  mutable std::atomic<int> reads_{0};
  mutable std::atomic<bool> released_{false};
};

TEST(ReadAll, EveryStretchIsReadOnceIntoItsPlaceAndNothingBeside) {
  const std::vector<std::byte> content = PatternBytes(5 * kRead + 77);
  const auto file = MakeMemoryFile("content.bin", content);
  // Starts and ends off every boundary, a stretch shorter than a read, an empty one.
  const std::array<std::array<uint64_t, 3>, 4> places = {
      {{13, 3 * kRead + 5, 100}, {3 * kRead, 2 * kRead + 77, 4 * kRead + 1}, {0, 9, 7}, {5, 0, 1}}};
  HostBuffer room(8 * kRead, "room");
  std::ranges::fill(room.bytes(), std::byte{0xff});  // not among the content
  std::vector<ReadStretch> stretches;
  uint64_t total = 0;
  for (const auto& [offset, bytes, at] : places) {
    stretches.push_back({file.get(), offset, room.bytes().subspan(at, bytes)});
    total += bytes;
  }
  std::vector<uint64_t> done;
  const ReadReport report = ReadAll(stretches, [&](uint64_t d, uint64_t in_all) {
    EXPECT_EQ(in_all, total);
    done.push_back(d);
  });
  for (const ReadStretch& stretch : stretches)
    EXPECT_TRUE(HoldsPattern(stretch.to, stretch.offset));
  uint64_t written = 0;
  for (const std::byte byte : room.bytes()) written += byte != std::byte{0xff} ? 1 : 0;
  EXPECT_EQ(written, total);
  EXPECT_EQ(report.bytes, total);
  EXPECT_EQ(report.direct_bytes, 0U);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), total);
  EXPECT_EQ(std::ranges::count(done, total), 1);
}

TEST(ReadAll, TheFailureNamesTheReadThatFailed) {
  const std::vector<std::byte> content = PatternBytes(3 * kRead);
  const auto file = MakeMemoryFile("cut.bin", content);
  HostBuffer room(4 * kRead, "room");
  // The file ends in the middle of the last read.
  const std::vector<ReadStretch> stretches = {
      {file.get(), kRead / 2, room.bytes().first(3 * kRead)}};
  const test::Refusal refusal = test::RefusalOf([&] { ReadAll(stretches); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(
      refusal.message,
      testing::AllOf(testing::HasSubstr("cut.bin"),
                     testing::HasSubstr("at byte " + std::to_string(kRead / 2 + 2 * kRead)),
                     testing::HasSubstr("after " + std::to_string(kRead / 2) + " of them")));
}

TEST(ReadAll, ShortReadsOfEveryThreadAreCompleted) {
  const std::vector<std::byte> content = PatternBytes(3 * kRead);
  // Each thread's first read gives one byte, the rest of it comes after.
  for (int nth = 0; nth < 3; ++nth) {
    struct Files final : FileSystem {
      std::shared_ptr<const File> file;
      std::shared_ptr<const File> Open(const std::string&) const override { return file; }
      bool Exists(const std::string&) const override { return true; }
    } files;
    files.file = MakeMemoryFile("short.bin", content);
    const test::FaultyFileSystem faulty(files, {.fault = test::Fault::kShort, .nth = nth});
    const auto file = faulty.Open("short.bin");
    HostBuffer room(3 * kRead, "room");
    const std::vector<ReadStretch> stretches = {{file.get(), 0, room.bytes()}};
    ReadAll(stretches);
    EXPECT_TRUE(HoldsPattern(room.bytes(), 0));
    EXPECT_EQ(faulty.plan().reads, 4);
  }
}

TEST(ReadAll, ProgressAndReportCountTheBytesThatWereRead) {
  const std::vector<std::byte> content = PatternBytes(9 * kRead);
  const auto file = MakeMemoryFile("content.bin", content);
  HostBuffer room(9 * kRead, "room");
  ASSERT_EQ(reinterpret_cast<uintptr_t>(room.data()) % kRead, 0U);
  const std::vector<ReadStretch> stretches = {{file.get(), 0, room.bytes()}};
  const ReadReport report = ReadAll(stretches, [](uint64_t done, uint64_t total) {
    EXPECT_EQ(done % kRead, 0U);  // whole reads
    EXPECT_GT(done, 0U);
    EXPECT_LE(done, total);
    EXPECT_EQ(total, 9 * kRead);
  });
  EXPECT_EQ(report.bytes, 9 * kRead);
}

TEST(ReadAll, WhatProgressThrowsEndsTheReadingAndComesOut) {
  constexpr int kReads = 128;
  const SlowFile file(kReads * kRead);
  const HostBuffer room(kReads * kRead, "room");  // never touched
  const std::vector<ReadStretch> stretches = {{&file, 0, room.bytes()}};
  const auto progress = [&](uint64_t, uint64_t) {
    file.Release();
    throw std::runtime_error("the reader has left");
  };
  EXPECT_THAT([&] { ReadAll(stretches, progress); },
              testing::ThrowsMessage<std::runtime_error>("the reader has left"));
  // One of each thread, and at most one more that began meanwhile.
  EXPECT_LE(file.reads(), 2 * limits::kLoadReadsMax);
}

}  // namespace
}  // namespace bloomery::memory
