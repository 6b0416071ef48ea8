#include "runtime/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/faulty_file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery {
namespace {

using test::Fault;
using test::FaultyFileSystem;
using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::HasSubstr;

// 10,000 bytes, so that offsets past the first page are there; byte i is i mod 251.
class FileTest : public testing::Test {
 protected:
  FileTest() : path_(folder_.File("data.bin")) {
    for (size_t i = 0; i < 10'000; ++i) content_.push_back(static_cast<char>(i % 251));
    std::ofstream(path_, std::ios::binary) << content_;
  }

  std::string Read(const File& file, uint64_t offset, size_t bytes) const {
    std::string out(bytes, '\0');
    file.ReadAt(offset, std::as_writable_bytes(std::span(out)));
    return out;
  }

  test::TempDir folder_;
  std::string path_;
  std::string content_;
};

TEST_F(FileTest, ReadsAnyRange) {
  const auto file = RealFileSystem().Open(path_);
  EXPECT_EQ(file->size(), 10'000u);
  EXPECT_EQ(file->path(), path_);
  EXPECT_EQ(Read(*file, 0, 10'000), content_);
  EXPECT_EQ(Read(*file, 4'097, 13), content_.substr(4'097, 13));
  EXPECT_EQ(Read(*file, 10'000, 0), "");
}

// A File that answers direct reads by a plan and counts both kinds.
class DirectFile final : public File {
 public:
  explicit DirectFile(std::shared_ptr<const File> file)
      : File(file->path()), file_(std::move(file)) {}
  uint64_t size() const override { return file_->size(); }
  std::unique_ptr<Mapping> Map(uint64_t, uint64_t) const override { return nullptr; }

  std::error_code direct_error;
  size_t direct_most = SIZE_MAX;  // bytes of one direct read
  bool cached = false;
  mutable int direct_reads = 0;
  mutable int reads = 0;

 protected:
  size_t ReadSome(uint64_t offset, std::span<std::byte> out,
                  std::error_code& error) const override {
    ++reads;
    return ReadSomeOf(*file_, offset, out, error);
  }
  size_t ReadSomeDirect(uint64_t offset, std::span<std::byte> out,
                        std::error_code& error) const override {
    ++direct_reads;
    EXPECT_EQ(offset % kDirectAlignment, 0U);
    EXPECT_EQ(out.size() % kDirectAlignment, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(out.data()) % kDirectAlignment, 0U);
    error = direct_error;
    if (error) return 0;
    return ReadSomeOf(*file_, offset, out.first(std::min(out.size(), direct_most)), error);
  }
  bool Cached(uint64_t, uint64_t) const override { return cached; }

 private:
  std::shared_ptr<const File> file_;
};

class ReadOnceTest : public FileTest {
 protected:
  // Bytes [offset, offset + bytes) into memory `skew` bytes behind a page.
  std::string ReadOnce(const File& file, uint64_t offset, size_t bytes, size_t skew = 0) {
    const auto place = std::span(page_).subspan(skew, bytes);
    std::ranges::fill(place, std::byte{0xEE});
    direct_bytes_ = file.ReadOnceAt(offset, place);
    return {reinterpret_cast<const char*>(place.data()), place.size()};
  }

  uint64_t direct_bytes_ = 0;

 private:
  alignas(4096) std::array<std::byte, 16'384> page_;
};

TEST_F(ReadOnceTest, WholePagesComeDirectlyAndTheTailThroughTheCache) {
  const DirectFile file(RealFileSystem().Open(path_));
  EXPECT_EQ(ReadOnce(file, 4'096, 5'904), content_.substr(4'096));
  EXPECT_EQ(direct_bytes_, 4'096U);
  EXPECT_EQ(file.direct_reads, 1);
  EXPECT_EQ(file.reads, 1);
}

TEST_F(ReadOnceTest, WhatIsCachedOrNotAlignedIsNotReadDirectly) {
  DirectFile file(RealFileSystem().Open(path_));
  EXPECT_EQ(ReadOnce(file, 1, 8'192), content_.substr(1, 8'192));
  EXPECT_EQ(ReadOnce(file, 4'096, 4'096, 64), content_.substr(4'096, 4'096));
  EXPECT_EQ(ReadOnce(file, 0, 4'095), content_.substr(0, 4'095));
  file.cached = true;
  EXPECT_EQ(ReadOnce(file, 0, 8'192), content_.substr(0, 8'192));
  EXPECT_EQ(file.direct_reads, 0);
}

TEST_F(ReadOnceTest, AFileSystemWithoutDirectReadsIsReadThroughTheCache) {
  for (const auto reason : {std::errc::operation_not_supported, std::errc::invalid_argument}) {
    DirectFile file(RealFileSystem().Open(path_));
    file.direct_error = std::make_error_code(reason);
    EXPECT_EQ(ReadOnce(file, 0, 8'192), content_.substr(0, 8'192));
    EXPECT_EQ(direct_bytes_, 0U);
  }
}

TEST_F(ReadOnceTest, ShortDirectReadsAreCompleted) {
  for (const size_t most : {size_t{4'096}, size_t{512}}) {
    DirectFile file(RealFileSystem().Open(path_));
    file.direct_most = most;
    EXPECT_EQ(ReadOnce(file, 0, 8'192), content_.substr(0, 8'192));
  }
}

TEST_F(ReadOnceTest, AFailedDirectReadIsRefusedWithPathAndOffset) {
  DirectFile file(RealFileSystem().Open(path_));
  file.direct_error = std::make_error_code(std::errc::io_error);
  const Refusal refusal = RefusalOf([&] { ReadOnce(file, 4'096, 4'096); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr(path_), HasSubstr("at byte 4096")));
}

TEST_F(ReadOnceTest, RealFilesGiveTheSameBytesAndRefuseTheirEnd) {
  const auto file = RealFileSystem().Open(path_);
  EXPECT_EQ(ReadOnce(*file, 0, 10'000), content_);
  EXPECT_EQ(ReadOnce(*file, 8'192, 1'808), content_.substr(8'192));
  const Refusal refusal = RefusalOf([&] { ReadOnce(*file, 8'192, 4'096); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, HasSubstr("the file ends there"));
}

TEST_F(FileTest, MappingAtAnyOffsetEqualsReading) {
  const auto file = RealFileSystem().Open(path_);
  for (const uint64_t offset : {0, 1, 4'095, 4'096, 9'999}) {
    const auto mapping = file->Map(offset, 10'000 - offset);
    ASSERT_NE(mapping, nullptr) << offset;
    const auto bytes = mapping->bytes();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              content_.substr(offset));
  }
}

TEST_F(FileTest, MappingOutlivesTheFile) {
  auto file = RealFileSystem().Open(path_);
  const auto mapping = file->Map(5, 1);
  file.reset();
  EXPECT_EQ(mapping->bytes()[0], std::byte{5});
}

TEST_F(FileTest, MappingPastTheEndIsAbsent) {
  const auto file = RealFileSystem().Open(path_);
  EXPECT_EQ(file->Map(0, 10'001), nullptr);
  EXPECT_EQ(file->Map(10'001, 1), nullptr);
  EXPECT_EQ(file->Map(UINT64_MAX, 2), nullptr);
  EXPECT_EQ(file->Map(0, 0), nullptr);
}

TEST_F(FileTest, ReadPastTheEndNamesPathOffsetAndCount) {
  const auto file = RealFileSystem().Open(path_);
  const Refusal refusal = RefusalOf([&] { Read(*file, 9'998, 3); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr(path_), HasSubstr("3 bytes at byte 9998"),
                                     HasSubstr("after 2 of them"), HasSubstr("the file ends")));
}

TEST_F(FileTest, MissingFileNamesPathAndReason) {
  const std::string missing = folder_.File("missing.bin");
  const Refusal refusal = RefusalOf([&] { RealFileSystem().Open(missing); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr(missing), HasSubstr("No such file")));
  EXPECT_FALSE(RealFileSystem().Exists(missing));
  EXPECT_TRUE(RealFileSystem().Exists(path_));
}

TEST_F(FileTest, FolderIsRefused) {
  EXPECT_THAT(RefusalOf([&] { RealFileSystem().Open(folder_.path()); }).message,
              HasSubstr("not a regular file"));
}

TEST_F(FileTest, FifoIsRefusedWithoutWaitingForAWriter) {
  const std::string fifo = folder_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(RefusalOf([&] { RealFileSystem().Open(fifo); }).message,
              HasSubstr("not a regular file"));
}

TEST_F(FileTest, ShortReadsAreCompleted) {
  const FaultyFileSystem files(RealFileSystem(), {.fault = Fault::kShort, .nth = -1});
  EXPECT_EQ(Read(*files.Open(path_), 100, 50), content_.substr(100, 50));
  EXPECT_EQ(files.plan().reads,
            50);  // each gives one byte less than is left, so one byte remains at the end
}

TEST_F(FileTest, FailedReadNamesPathOffsetAndReason) {
  const FaultyFileSystem files(RealFileSystem(), {.fault = Fault::kFail, .nth = 1});
  const auto file = files.Open(path_);
  EXPECT_EQ(Read(*file, 0, 10), content_.substr(0, 10));
  const Refusal refusal = RefusalOf([&] { Read(*file, 77, 10); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr(path_), HasSubstr("byte 77"), HasSubstr("Input/output error")));
  EXPECT_EQ(Read(*file, 77, 10), content_.substr(77, 10));
}

TEST_F(FileTest, FileCutWhileOpenIsAnErrorAndNotGarbage) {
  const auto file = RealFileSystem().Open(path_);
  std::filesystem::resize_file(path_, 5'000);
  EXPECT_THAT(RefusalOf([&] { Read(*file, 4'990, 20); }).message, HasSubstr("the file ends"));
}

TEST_F(FileTest, TornAndDelayedReadsReachTheCaller) {
  const FaultyFileSystem torn(RealFileSystem(), {.fault = Fault::kTear});
  EXPECT_EQ(Read(*torn.Open(path_), 1, 4), std::string("\x01\x02\0\0", 4));
  int delays = 0;
  const FaultyFileSystem slow(RealFileSystem(),
                              {.fault = Fault::kDelay, .on_delay = [&] { ++delays; }});
  EXPECT_EQ(Read(*slow.Open(path_), 1, 2), "\x01\x02");
  EXPECT_EQ(delays, 1);
}

TEST(MemoryFile, ReadsMapsAndEndsAsARealOne) {
  const std::string text = "hello";
  const auto file = MakeMemoryFile("memory", std::as_bytes(std::span(text)));
  EXPECT_EQ(file->size(), 5u);
  std::string out(3, '\0');
  file->ReadAt(2, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "llo");
  EXPECT_EQ(file->Map(1, 4)->bytes().data(), std::as_bytes(std::span(text)).data() + 1);
  EXPECT_EQ(file->Map(1, 5), nullptr);
  EXPECT_THAT(RefusalOf([&] { file->ReadAt(5, std::as_writable_bytes(std::span(out))); }).message,
              AllOf(HasSubstr("memory"), HasSubstr("byte 5")));
}

TEST_F(FileTest, WholeFileIsReadAtTheLimitAndRefusedOnePastIt) {
  EXPECT_EQ(ReadWholeFile(RealFileSystem(), path_, 10'000), content_);
  const Refusal refusal = RefusalOf([&] { ReadWholeFile(RealFileSystem(), path_, 9'999); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("10000"), HasSubstr("9999")));
}

}  // namespace
}  // namespace bloomery
