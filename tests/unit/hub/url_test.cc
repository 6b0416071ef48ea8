#include "runtime/hub/url.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::hub {
namespace {

Url Parse(const char* text) { return ParseUrl(text, "address"); }

TEST(UrlTest, IsTakenApartAndHasOneOriginHoweverItIsWritten) {
  const Url url = Parse("https://Hub.Example:443/api?x=1#top");
  EXPECT_EQ(url.host, "hub.example");
  EXPECT_EQ(url.target, "/api?x=1");
  EXPECT_EQ(url.HostHeader(), "hub.example");
  EXPECT_EQ(url.Origin(), Parse("https://hub.example").Origin());
  EXPECT_NE(url.Origin(), Parse("http://hub.example:443").Origin());
  EXPECT_NE(url.Origin(), Parse("https://hub.example:444").Origin());
  EXPECT_NE(url.Origin(), Parse("https://hub.example.net").Origin());
  EXPECT_EQ(Parse("http://[::1]:8080").Origin(), "http://[::1]:8080");
  EXPECT_EQ(Parse("http://h?q").target, "/?q");
}

TEST(UrlTest, WhatCouldMeanAnotherHostOrRequestIsRefused) {
  for (const char* text :
       {"ftp://h/", "h/x", "https://", "https://u:p@h/", "https://h:port/", "https://h:123456/",
        "https://h/a b", "https://h/a\r\nX: y", "https://h\\@e/", "https://h%2f/"}) {
    EXPECT_EQ(test::RefusalOf([&] { Parse(text); }).kind, ErrorKind::kDownload) << text;
  }
}

TEST(UrlTest, RedirectsLeadWhereABrowserWouldGo) {
  const Url from = Parse("https://h/a/b?c");
  EXPECT_EQ(ResolveUrl(from, "http://o/x").Text(), "http://o/x");
  EXPECT_EQ(ResolveUrl(from, "//o/x").Text(), "https://o/x");
  EXPECT_EQ(ResolveUrl(from, "/x#y").Text(), "https://h/x");
  EXPECT_EQ(ResolveUrl(from, "x").Text(), "https://h/a/x");
  EXPECT_EQ(test::RefusalOf([&] { ResolveUrl(from, "/x\n"); }).kind, ErrorKind::kDownload);
}

TEST(UrlTest, PathsAreEscapedByByte) {
  EXPECT_EQ(EscapePath("a b/ü%.gguf"), "a%20b/%C3%BC%25.gguf");
}

}  // namespace
}  // namespace bloomery::hub
