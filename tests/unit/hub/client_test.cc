// The client against peers that do not keep to anything; the rest is in tests/e2e/hub.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "runtime/hub/http_client.h"
#include "tests/support/refusal.h"

namespace bloomery::hub {
namespace {

using ::testing::HasSubstr;

// Takes connections on loopback; reads each request's head, says one thing, and either closes or
// stays silent until the test ends.
class Peer {
 public:
  Peer(std::string answer, bool closes) : answer_(std::move(answer)), closes_(closes) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_, 4), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    url_ = "http://127.0.0.1:" + std::to_string(::ntohs(at.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Peer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& url() const { return url_; }
  const std::string& head() const { return head_; }

 private:
  void Run() {
    std::vector<int> open;
    while (true) {
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) break;
      head_.clear();
      for (char c = 0; !head_.ends_with("\r\n\r\n") && ::recv(peer, &c, 1, 0) == 1;) {
        head_.push_back(c);
      }
      ::send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (closes_) {
        ::close(peer);
      } else {
        open.push_back(peer);
      }
    }
    for (const int peer : open) ::close(peer);
  }

  std::string answer_;
  bool closes_;
  int listener_ = -1;
  std::string url_;
  std::string head_;
  std::thread thread_;
};

HttpAnswer Get(const Peer& peer, std::string& body, HttpClientOptions options = {},
               HttpGet get = {}) {
  options.silence_max = std::chrono::milliseconds(50);
  get.url = ParseUrl(peer.url(), "url");
  return HttpClient(std::move(options))
      .Get(
          get, [](const HttpAnswer&) {},
          [&](std::span<const std::byte> bytes) {
            body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          });
}

TEST(HttpClientTest, ReadsChunksLengthsAndBodiesThatEndWithTheConnection) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.0 200 OK\r\n\r\nabc"}) {
    const Peer peer(answer, true);
    std::string body;
    EXPECT_EQ(Get(peer, body).status, 200);
    EXPECT_EQ(body, "abc");
  }
}

TEST(HttpClientTest, SilenceAndCutsAreFailuresOfTheNetwork) {
  for (const char* answer :
       {"", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    for (const bool closes : {false, true}) {
      const Peer peer(answer, closes);
      std::string body;
      EXPECT_THROW(Get(peer, body), NetworkError) << answer << closes;
    }
  }
}

TEST(HttpClientTest, WhatIsNoHttpAndHeadsWithoutEndAreRefused) {
  for (const std::string& answer :
       {std::string("SSH-2.0-x\r\n\r\n"), std::string("HTTP/1.1 2000 OK\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"}) {
    const Peer peer(answer, true);
    std::string body;
    EXPECT_EQ(test::RefusalOf([&] { Get(peer, body); }).kind, ErrorKind::kDownload);
    EXPECT_EQ(body, "");
  }
}

TEST(HttpClientTest, AsksWithTokenAndRange) {
  const Peer peer(
      "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-7/8\r\nContent-Length: 3\r\n\r\nabc",
      true);
  std::string body;
  const HttpAnswer answer = Get(peer, body, {}, {.token = "secret", .from = 5});
  EXPECT_EQ(answer.range_begin, 5U);
  EXPECT_EQ(answer.range_total, 8U);
  EXPECT_THAT(peer.head(), HasSubstr("Authorization: Bearer secret\r\n"));
  EXPECT_THAT(peer.head(), HasSubstr("Range: bytes=5-\r\n"));
  EXPECT_THAT(peer.head(), HasSubstr("Host: 127.0.0.1:"));
}

TEST(HttpClientTest, ATunnelIsAskedForWithTheProxysOwnPasswordAndSkippedWhereListed) {
  const Peer proxy("HTTP/1.1 403 Forbidden\r\n\r\n", true);
  HttpClientOptions options;
  options.environment = {{"HTTPS_PROXY", "http://me:pass@" + proxy.url().substr(7)}};
  HttpGet get{.url = ParseUrl("https://hub.invalid/x", "url"), .token = "secret"};
  const auto run = [&] {
    HttpClient(options).Get(get, [](const HttpAnswer&) {}, [](std::span<const std::byte>) {});
  };
  EXPECT_THAT(test::RefusalOf(run).message, HasSubstr("the proxy 127.0.0.1 answered"));
  EXPECT_THAT(proxy.head(), HasSubstr("CONNECT hub.invalid:443 HTTP/1.1\r\n"));
  EXPECT_THAT(proxy.head(), HasSubstr("Proxy-Authorization: Basic bWU6cGFzcw==\r\n"));
  EXPECT_THAT(proxy.head(), ::testing::Not(HasSubstr("secret")));
  options.environment["no_proxy"] = "example.org, invalid";
  EXPECT_THAT(test::RefusalOf(run).message, HasSubstr("cannot resolve hub.invalid"));
}

}  // namespace
}  // namespace bloomery::hub
