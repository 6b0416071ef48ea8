// What users write, what listings say, and digests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/hub/digest.h"
#include "runtime/hub/listing.h"
#include "tests/support/refusal.h"

namespace bloomery::hub {
namespace {

TEST(ReferenceTest, OwnerNameAndQuant) {
  const Reference both = ParseReference("own.er/na_me-1:Q4_K_M");
  EXPECT_EQ(both.Repo(), "own.er/na_me-1");
  EXPECT_EQ(both.quant, "Q4_K_M");
  EXPECT_EQ(ParseReference("a/b").quant, "");
}

TEST(ReferenceTest, WhatCouldBeAPathOrTwoNamesIsRefused) {
  for (const char* text : {"", "a", "/b", "a/", "a/b/c", "../b", "a/..", "a/b:", "a/b:c:d", "a:b/c",
                           "a b/c", "a/b\n", ".a/b", "a/b:..", "a/b:../c"}) {
    EXPECT_EQ(test::RefusalOf([&] { ParseReference(text); }).kind, ErrorKind::kUsage) << text;
  }
}

TEST(ListingTest, SizeAndDigestAreTheLargeFilesOwnOrGits) {
  const auto files = ParseListing(
      R"([{"type":"directory","path":"d","oid":"0","size":0},
          {"type":"file","path":"d/a.gguf","oid":"1","size":130,
           "lfs":{"oid":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                  "size":3,"pointerSize":130}},
          {"type":"file","path":"b","oid":"ce013625030ba8dba906f756967f9e9ca394464a","size":6}])",
      "page");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].bytes, 3U);
  EXPECT_TRUE(files[0].digest.starts_with("sha256:ba78"));
  EXPECT_EQ(files[1].digest, "git:ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(ListingTest, TheNextPageIsTheLinkNamedNext) {
  EXPECT_EQ(NextPage(R"(<https://h/a?b>; rel="next")"), "https://h/a?b");
  EXPECT_EQ(NextPage(R"(<https://h/1>; rel="prev", <https://h/2>; rel="next")"), "https://h/2");
  EXPECT_EQ(NextPage(R"(<https://h/1>; rel="prev")"), "");
  EXPECT_EQ(NextPage("<"), "");
  EXPECT_EQ(NextPage(""), "");
}

TEST(ListingTest, PathsThatCouldLeaveTheFolderAreUnsafe) {
  for (const char* good : {"a", "a/b.gguf", "a..b", "…/x"}) EXPECT_TRUE(IsSafePath(good)) << good;
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", "\xFF"}) {
    EXPECT_FALSE(IsSafePath(bad)) << bad;
  }
}

// From FIPS 180-4's example, and `printf 'hello\n' | git hash-object --stdin`.
TEST(DigestTest, IsThePublishedOne) {
  const std::string sha = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  Digest digest(sha, 3);
  digest.Add(std::as_bytes(std::span("abc", 2)));
  digest.Add(std::as_bytes(std::span("c", 1)));
  EXPECT_EQ(digest.Finish(), sha);
  Digest git("git:", 6);
  git.Add(std::as_bytes(std::span("hello\n", 6)));
  EXPECT_EQ(git.Finish(), "git:ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_TRUE(IsDigest(sha));
  EXPECT_FALSE(IsDigest("sha256:BA"));
  EXPECT_FALSE(IsDigest("md5:00"));
}

}  // namespace
}  // namespace bloomery::hub
