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
  bool tls = false;
};

TEST(ParseServerUrl, TakesHostPortAndPathApart) {
  constexpr std::array kCases = {
      Case{"http://localhost", "localhost", "80", ""},
      Case{"http://localhost/", "localhost", "80", ""},
      Case{"http://10.0.0.7:8080", "10.0.0.7", "8080", ""},
      Case{"http://host:8080/prefix", "host", "8080", "/prefix"},
      Case{"http://host/a/b//", "host", "80", "/a/b"},
      Case{"http://host/a:b", "host", "80", "/a:b"},
      Case{"http://[::1]", "::1", "80", ""},
      Case{"http://[fe80::1]:8080/v", "fe80::1", "8080", "/v"},
      Case{"https://host", "host", "443", "", true},
      Case{"https://host:8443/v/", "host", "8443", "/v", true},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.url);
    const hub::Url address = ParseServerUrl(c.url);
    EXPECT_EQ(address.host, c.host);
    EXPECT_EQ(address.port, c.port);
    EXPECT_EQ(address.target, c.path);
    EXPECT_EQ(address.tls, c.tls);
  }
}

TEST(ParseServerUrl, RefusesOtherSchemesAndWhatNamesNoHostOrPort) {
  for (const char* url :
       {"", "localhost:8080", "ftp://host", "HTTP://host", "https://", "http:/host", "http://",
        "http:///path", "http://:80", "http://host:", "http://[]:80", "http://host:/path"}) {
    SCOPED_TRACE(url);
    const test::Refusal refusal = test::RefusalOf([&] { ParseServerUrl(url); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
    EXPECT_NE(refusal.message.find(std::string("--url ") + url), std::string::npos);
  }
}

TEST(ParseServerUrl, ControlCharactersOfAUrlDoNotReachTheMessage) {
  const test::Refusal refusal = test::RefusalOf([] { ParseServerUrl("ftp://\x1b[31m"); });
  EXPECT_EQ(refusal.message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace bloomery::apps
