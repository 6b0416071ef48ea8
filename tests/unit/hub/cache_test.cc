#include "runtime/hub/cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::hub {
namespace {

namespace fs = std::filesystem;

class CacheTest : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) const {
    const fs::path whole = cache_.PathOf("o/n", path);
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  test::TempDir room_;
  Cache cache_{room_.path()};
  const HubFile file_{
      .path = "q/m-Q4_0.gguf", .bytes = 3, .digest = "sha256:" + std::string(64, 'a')};
};

TEST_F(CacheTest, OnlyAMarkedAndUnchangedFileIsHere) {
  Put(file_.path, "abc");
  EXPECT_FALSE(cache_.Has("o/n", file_));
  cache_.Mark("o/n", file_);
  EXPECT_TRUE(cache_.Has("o/n", file_));
  HubFile other = file_;
  other.digest = "sha256:" + std::string(64, 'b');
  EXPECT_FALSE(cache_.Has("o/n", other));
  const auto then = fs::last_write_time(cache_.PathOf("o/n", file_.path));
  fs::last_write_time(cache_.PathOf("o/n", file_.path), then + std::chrono::seconds(1));
  EXPECT_FALSE(cache_.Has("o/n", file_));
}

TEST_F(CacheTest, ADamagedMarkerIsAsGoodAsNone) {
  Put(file_.path, "abc");
  for (const char* text : {"", "{}", "[", "{\"digest\":5}", "null"}) {
    Put(file_.path + ".verified", text);
    EXPECT_FALSE(cache_.Has("o/n", file_)) << text;
    EXPECT_TRUE(cache_.List().empty()) << text;
  }
}

TEST_F(CacheTest, PartsAreListedAndGoWithTheModel) {
  Put(file_.path, "abc");
  cache_.Mark("o/n", file_);
  Put("m-Q8_0.gguf.part", "12345");
  const auto list = cache_.List();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].set.name, "q/m-Q4_0");
  EXPECT_EQ(list[1].part_bytes, 5U);
  EXPECT_EQ(cache_.Remove(ParseReference("o/n:Q8_0")), 5U);
  EXPECT_TRUE(cache_.Has("o/n", file_));
  EXPECT_GT(cache_.Remove(ParseReference("o/n")), 3U);
  EXPECT_TRUE(fs::is_empty(room_.path()));
}

TEST_F(CacheTest, WhatIsBeingFetchedIsNotRemoved) {
  Put(file_.path, "abc");
  const auto lock = cache_.Lock("o/n", [] { FAIL(); });
  EXPECT_EQ(test::RefusalOf([&] { cache_.Remove(ParseReference("o/n")); }).kind,
            ErrorKind::kUnavailable);
  EXPECT_TRUE(fs::exists(cache_.PathOf("o/n", file_.path)));
}

TEST(CacheRootTest, OwnVariableThenTheSystemsThenHome) {
  EXPECT_EQ(CacheRoot({{"BLOOMERY_CACHE", "/a"}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/a");
  EXPECT_EQ(CacheRoot({{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/b/bloomery/hf");
  EXPECT_EQ(CacheRoot({{"HOME", "/c"}}), "/c/.cache/bloomery/hf");
  EXPECT_EQ(test::RefusalOf([] { CacheRoot({}); }).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace bloomery::hub
