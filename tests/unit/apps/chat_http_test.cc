// The chat's client against a listener of this process: an Ask ends when it is told to.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "runtime/apps/chat_session.h"
#include "runtime/base/error.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Listener {
 public:
  explicit Listener(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(::bind(fd_, Raw(), size), 0);
    EXPECT_EQ(::listen(fd_, backlog), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  ~Listener() {
    for (const int fd : held_) ::close(fd);
    ::close(fd_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string Url() const { return "http://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }

  // Takes one connection and reads something from it.
  int Accept() {
    held_.push_back(::accept(fd_, nullptr, nullptr));
    char bytes[64];
    EXPECT_GT(::recv(held_.back(), bytes, sizeof(bytes), 0), 0);
    return held_.back();
  }

  // Connects until one connection does not come about: the next one waits too.
  void FillUp() {
    int error = 0;
    while (error != EINPROGRESS) {
      held_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      // A connect that is taken ends at once on the loopback.
      const timeval patience{.tv_sec = 0, .tv_usec = 200'000};
      ::setsockopt(held_.back(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
      error = ::connect(held_.back(), Raw(), sizeof(address_)) == 0 ? 0 : errno;
      ASSERT_TRUE(error == 0 || error == EINPROGRESS) << error;
    }
  }

 private:
  const sockaddr* Raw() const { return reinterpret_cast<const sockaddr*>(&address_); }

  int fd_;
  sockaddr_in address_{};
  std::vector<int> held_;
};

std::future<std::string> AskOnAThread(ChatBackend& backend, std::string* printed) {
  return std::async(std::launch::async, [&backend, printed] {
    return backend.Ask({{"user", "hi"}}, [printed](const std::string& text) { *printed += text; });
  });
}

TEST(ChatHttp, CancelEndsAnAnswerInProgressWithWhatCame) {
  Listener listener(4);
  const auto backend = MakeHttpBackend(listener.Url(), "");
  std::promise<void> came;
  std::future<std::string> answer = std::async(std::launch::async, [&] {
    return backend->Ask({{"user", "hi"}}, [&](const std::string&) { came.set_value(); });
  });
  const int server = listener.Accept();
  const std::string text =
      "HTTP/1.0 200 OK\r\n\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"half\"}}]}\n";
  ASSERT_EQ(::send(server, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  came.get_future().wait();
  backend->Cancel();
  ASSERT_EQ(answer.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(answer.get(), "half");
}

TEST(ChatHttp, CancelEndsAnAskThatStillConnects) {
  Listener listener(0);
  listener.FillUp();
  const auto backend = MakeHttpBackend(listener.Url(), "");
  std::string printed;
  std::future<std::string> answer = AskOnAThread(*backend, &printed);
  const auto start = std::chrono::steady_clock::now();
  // Asked again and again: the first may come before the Ask has begun.
  while (answer.wait_for(milliseconds(5)) != std::future_status::ready) backend->Cancel();
  EXPECT_EQ(answer.get(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(9));  // the limit is 10
}

std::string FailureOf(ChatBackend& backend) {
  return test::RefusalOf([&] { backend.Ask({{"user", "hi"}}, [](const std::string&) {}); }).message;
}

TEST(ChatHttp, AServerThatTakesNoConnectionIsGivenUpInTime) {
  Listener listener(0);
  listener.FillUp();
  const auto backend = MakeHttpBackend(listener.Url(), "", {.connect = milliseconds(100)});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(FailureOf(*backend), testing::HasSubstr("cannot connect to 127.0.0.1"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(9));  // the usual limit is 10
}

TEST(ChatHttp, AServerThatSaysNothingIsGivenUpInTime) {
  Listener listener(4);
  const auto backend = MakeHttpBackend(listener.Url(), "", {.silence = milliseconds(100)});
  std::future<std::string> failure =
      std::async(std::launch::async, [&] { return FailureOf(*backend); });
  listener.Accept();
  ASSERT_EQ(failure.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(failure.get(), "the server was silent for 1 seconds");
}

// Answers one Ask with `text` and closes: what the Ask gave, or its failure.
std::string AskOf(const std::string& text, std::string* printed) {
  auto listener = std::make_unique<Listener>(4);
  const auto backend = MakeHttpBackend(listener->Url(), "");
  std::future<std::string> answer = AskOnAThread(*backend, printed);
  const int server = listener->Accept();
  EXPECT_EQ(::send(server, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  ::shutdown(server, SHUT_WR);
  try {
    return answer.get();
  } catch (const Error& error) {
    return std::string("failed: ") + error.what();
  }
}

TEST(ChatHttp, AStreamThatEndsWithoutAnEndOfTheAnswerIsAFailure) {
  const std::string half =
      "HTTP/1.0 200 OK\r\n\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"half\"}, "
      "\"finish_reason\": null}]}\n";
  std::string printed;
  EXPECT_THAT(AskOf(half, &printed), testing::HasSubstr("failed: the answer is cut"));
  EXPECT_EQ(printed, "half");
  // Some servers end with one of the two only.
  EXPECT_EQ(AskOf(half + "data: [DONE]\n", &printed), "half");
  EXPECT_EQ(AskOf(half + "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n",
                  &printed),
            "half");
}

TEST(ChatHttp, AServerThatIsNotThereIsSaidWithTheReason) {
  std::string url;
  {
    const Listener gone(1);
    url = gone.Url();
  }
  EXPECT_THAT(
      FailureOf(*MakeHttpBackend(url, "")),
      testing::HasSubstr("cannot connect to 127.0.0.1:" + url.substr(17) + ": Connection refused"));
}

TEST(ChatHttp, ACancelOfAnEarlierAskDoesNotEndTheNext) {
  Listener listener(4);
  const auto backend = MakeHttpBackend(listener.Url(), "");
  backend->Cancel();
  std::string printed;
  std::future<std::string> answer = AskOnAThread(*backend, &printed);
  const int server = listener.Accept();
  const std::string text =
      "HTTP/1.0 200 OK\r\n\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"all\"}}]}\n"
      "data: [DONE]\n";
  ASSERT_EQ(::send(server, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  EXPECT_EQ(answer.get(), "all");
  EXPECT_EQ(printed, "all");
}

}  // namespace
}  // namespace bloomery::apps
