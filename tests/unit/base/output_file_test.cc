#include "runtime/base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <csignal>

#include <filesystem>
#include <string>

#include "runtime/base/file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

size_t Entries(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::string Content(const std::string& path) {
  return ReadWholeFile(RealFileSystem(), path, uint64_t{1} << 20);
}

TEST(OutputFile, HasItsNameOnlyOnceCommitted) {
  const test::TempDir folder;
  const std::string path = folder.File("out");
  OutputFile out(path);
  out.Write(Bytes("one "));
  out.Write(Bytes("two"));
  EXPECT_EQ(out.size(), 7u);
  EXPECT_FALSE(std::filesystem::exists(path));
  out.Commit();
  EXPECT_EQ(Content(path), "one two");
  EXPECT_EQ(Entries(folder.path()), 1u);
}

TEST(OutputFile, LeavesNothingAndTheOldFileWhenNotCommitted) {
  const test::TempDir folder;
  const std::string path = folder.File("out");
  {
    OutputFile out(path);
    out.Write(Bytes("old"));
    out.Commit();
  }
  {
    OutputFile out(path);
    out.Write(Bytes("new"));
  }
  EXPECT_EQ(Content(path), "old");
  EXPECT_EQ(Entries(folder.path()), 1u);
}

TEST(OutputFile, FolderThatIsMissingIsRefusedWithThePath) {
  const test::TempDir folder;
  const Refusal refusal = RefusalOf([&] { OutputFile out(folder.File("none/out")); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, HasSubstr("none/out"));
}

TEST(OutputFile, WriteThatFailsIsRefusedWithItsPlaceAndLeavesNothing) {
  const test::TempDir folder;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // the write then fails instead
  const rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Refusal refusal = RefusalOf([&] {
    OutputFile out(folder.File("out"));
    out.Write(Bytes(std::string(1500, 'x')));
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, HasSubstr("at byte 1000"));
  EXPECT_EQ(Entries(folder.path()), 0u);
}

}  // namespace
}  // namespace bloomery
