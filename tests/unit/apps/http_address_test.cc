#include "runtime/apps/http_address.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

struct Case {
  const char* url;
  const char* host;
  const char* port;
  const char* path;
};

TEST(ParseUrl, TakesHostPortAndPathApart) {
  constexpr std::array kCases = {
      Case{"http://localhost", "localhost", "80", ""},
      Case{"http://localhost/", "localhost", "80", ""},
      Case{"http://10.0.0.7:8080", "10.0.0.7", "8080", ""},
      Case{"http://host:8080/prefix", "host", "8080", "/prefix"},
      Case{"http://host/a/b//", "host", "80", "/a/b"},
      Case{"http://host/a:b", "host", "80", "/a:b"},
      Case{"http://[::1]", "::1", "80", ""},
      Case{"http://[fe80::1]:8080/v", "fe80::1", "8080", "/v"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.url);
    const HttpAddress address = ParseUrl(c.url);
    EXPECT_EQ(address.host, c.host);
    EXPECT_EQ(address.port, c.port);
    EXPECT_EQ(address.path, c.path);
  }
}

TEST(ParseUrl, RefusesOtherSchemesAndWhatNamesNoHostOrPort) {
  for (const char* url :
       {"", "localhost:8080", "https://host", "HTTP://host", "http:/host", "http://",
        "http:///path", "http://:80", "http://host:", "http://[]:80", "http://host:/path"}) {
    SCOPED_TRACE(url);
    const test::Refusal refusal = test::RefusalOf([&] { ParseUrl(url); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
    EXPECT_NE(refusal.message.find(std::string("--url ") + url), std::string::npos);
  }
}

TEST(ParseUrl, ControlCharactersOfAUrlDoNotReachTheMessage) {
  const test::Refusal refusal = test::RefusalOf([] { ParseUrl("ftp://\x1b[31m"); });
  EXPECT_EQ(refusal.message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace bloomery::apps
