#include "runtime/serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "runtime/base/error.h"
#include "tests/unit/serve/client.h"
#include "tests/unit/serve/http_fixture.h"

namespace bloomery::serve {
namespace {

using std::chrono::milliseconds;
using test::Answer;
using test::Client;
using test::Fetch;
using test::RequestText;
using ::testing::HasSubstr;

TEST_F(HttpServerTest, PortZeroBindsAFreePortAndNamesItInTheUrl) {
  const int port = Start();
  EXPECT_GT(port, 0);
  ASSERT_EQ(server_->urls().size(), 1U);
  EXPECT_EQ(server_->urls()[0], "http://127.0.0.1:" + std::to_string(port));
}

TEST_F(HttpServerTest, BusyPortIsABindError) {
  const int port = Start();
  HttpOptions second;
  second.port = port;
  EXPECT_THROW(HttpServer(second, {}), BindError);
}

TEST_F(HttpServerTest, PortZeroWithSeveralHostsIsRefused) {
  HttpOptions two;
  two.hosts = {"127.0.0.1", "127.0.0.2"};
  EXPECT_THROW(HttpServer(two, {}), Error);
}

TEST_F(HttpServerTest, AnswerHasExactlyTheseBytes) {
  const int port = Start();
  Client client(port);
  client.Send("GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: r-1\r\nConnection: close\r\n\r\n");
  client.ReadToEnd();
  EXPECT_EQ(
      client.received(),
      "HTTP/1.1 200 OK\r\nServer: bloomery\r\nX-Request-Id: r-1\r\nContent-Type: text/plain\r\n"
      "Content-Length: 7\r\nConnection: close\r\n\r\nGET /a ");
}

TEST_F(HttpServerTest, KeepAliveServesManyRequestsOnOneConnection) {
  const int port = Start();
  Client client(port);
  for (int i = 0; i < 5; ++i) {
    client.Send(RequestText("POST", "/n", std::to_string(i)));
    EXPECT_EQ(client.Read().body, "POST /n " + std::to_string(i));
  }
  while (server_->connections() > 0) std::this_thread::yield();  // its place is given back
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  const int port = Start();
  Client client(port);
  client.Send(RequestText("POST", "/1", "one") + RequestText("GET", "/2") +
              RequestText("POST", "/3", "three"));
  EXPECT_EQ(client.Read().body, "POST /1 one");
  EXPECT_EQ(client.Read().body, "GET /2 ");
  EXPECT_EQ(client.Read().body, "POST /3 three");
}

TEST_F(HttpServerTest, PipelinedRequestSentDuringASlowAnswerIsKept) {
  std::promise<std::shared_ptr<HttpExchange>> first;
  std::atomic<int> calls{0};
  handler_ = [&, echo = handler_](std::shared_ptr<HttpExchange> exchange) {
    if (calls++ == 0) {
      first.set_value(std::move(exchange));
    } else {
      echo(std::move(exchange));
    }
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/slow"));
  const auto exchange = first.get_future().get();
  const std::string second = RequestText("POST", "/next", "body");
  client.Send(second.substr(0, 20));  // only part of the head is here when the answer ends
  HttpResponse response;
  response.body = "slow";
  exchange->Reply(response);
  EXPECT_EQ(client.Read().body, "slow");
  client.Send(second.substr(20));
  EXPECT_EQ(client.Read().body, "POST /next body");
}

TEST_F(HttpServerTest, WhatAClientThatEndedItsSideLeftUnfinishedIsNotWaitedFor) {
  options_.head_time_max = std::chrono::minutes(5);
  const int port = Start();
  for (int whole = 0; whole < 4; ++whole) {
    SCOPED_TRACE(whole);
    Client client(port);
    std::string text;
    for (int i = 0; i < whole; ++i) text += RequestText("GET", "/" + std::to_string(i));
    client.Send(text + "G");
    client.ShutdownSend();
    EXPECT_TRUE(client.ReadToEnd());
    for (int i = 0; i < whole; ++i) {
      EXPECT_THAT(client.received(), HasSubstr("GET /" + std::to_string(i) + " "));
    }
  }
}

TEST_F(HttpServerTest, HeadGetsTheLengthButNoBody) {
  const int port = Start();
  Client client(port);
  client.Send(RequestText("HEAD", "/x"));
  const Answer answer = client.Read(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-length"), "8");
  client.Send(RequestText("GET", "/y"));
  EXPECT_EQ(client.Read().body, "GET /y ");
}

TEST_F(HttpServerTest, RefusalAfterAHeadRequestHasItsBody) {
  const int port = Start();
  Client client(port);
  client.Send(RequestText("HEAD", "/x"));
  client.Read(true);
  client.Send("broken\r\n\r\n");
  const Answer answer = client.Read();
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("malformed HTTP request"));
}

TEST_F(HttpServerTest, TargetIsDecodedAndQueryParsed) {
  std::promise<HttpRequest> seen;
  handler_ = [&, echo = handler_](std::shared_ptr<HttpExchange> exchange) {
    seen.set_value(exchange->request());
    echo(std::move(exchange));
  };
  const int port = Start();
  Fetch(port, "GET", "/a%20b?x=1&y=a+b%26c&flag&x=2", "", {{"X-Thing", "v"}});
  const HttpRequest request = seen.get_future().get();
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.Query("x"), "1");
  EXPECT_EQ(request.Query("y"), "a b&c");
  EXPECT_EQ(request.Query("flag"), "");
  EXPECT_EQ(request.Query("z"), std::nullopt);
  EXPECT_EQ(request.Header("x-thing"), "v");
  EXPECT_EQ(request.Header("absent"), "");
}

struct Malformed {
  std::string name;
  std::string bytes;
};

void PrintTo(const Malformed& tested, std::ostream* out) { *out << tested.name; }

class MalformedTest : public HttpServerTest, public ::testing::WithParamInterface<Malformed> {};

TEST_P(MalformedTest, GetsA400AndAClosedConnection) {
  const int port = Start();
  Client client(port);
  client.Send(GetParam().bytes);
  const Answer answer = client.Read();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadToEnd());
  EXPECT_EQ(Fetch(port, "GET", "/still").status, 200);
}

INSTANTIATE_TEST_SUITE_P(
    Requests, MalformedTest,
    ::testing::Values(
        Malformed{"Garbage", "\x16\x03\x01\x02 hello\r\n\r\n"},
        Malformed{"NoVersion", "GET /\r\n\r\n"},
        Malformed{"WrongVersion", "GET / HTTP/9.9\r\n\r\n"},
        Malformed{"HeaderWithoutColon", "GET / HTTP/1.1\r\nHost: x\r\nbroken\r\n\r\n"},
        Malformed{"NegativeLength", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"},
        Malformed{"TwoLengths",
                  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"},
        Malformed{
            "LengthAndChunks",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            "0\r\n\r\n"},
        Malformed{"UnknownCoding",
                  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n"
                  "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"},
        Malformed{
            "ChunkedNotLast",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
        Malformed{
            "CompressedBody",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
        Malformed{"TwoCodings",
                  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                  "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"},
        Malformed{"BadChunk",
                  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                  "chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"},
        Malformed{"NoHost", "GET / HTTP/1.1\r\n\r\n"},
        Malformed{"TwoHosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"},
        Malformed{"BadEscape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"},
        Malformed{"NulInPath", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n"}),
    [](const auto& tested) { return tested.param.name; });

TEST_F(HttpServerTest, ChunkedBodyIsJoined) {
  const int port = Start();
  Client client(port);
  client.Send(
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "POST /c abcdefg");
}

TEST_F(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  const int port = Start();
  Client client(port);
  client.Send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  client.Send("body");
  EXPECT_EQ(client.Read().body, "POST /e body");
}

TEST_F(HttpServerTest, ExpectContinueHasNoCase) {
  const int port = Start();
  Client client(port);
  client.Send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
}

TEST_F(HttpServerTest, Http10NeedsNoHost) {
  const int port = Start();
  Client client(port);
  client.Send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /old ");
}

// A proxy that knows no chunks takes what follows the first one for another client's request.
TEST_F(HttpServerTest, Http10ConnectionEndsAfterAChunkedBody) {
  const int port = Start();
  Client client(port);
  client.Send(
      "POST /old HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.0\r\n\r\n");
  const Answer answer = client.Read();
  EXPECT_EQ(answer.body, "POST /old abc");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadToEnd());
  EXPECT_EQ(client.received(), "");
}

TEST_F(HttpServerTest, AbsoluteTargetIsServedAsItsPath) {
  const int port = Start();
  EXPECT_EQ(Fetch(port, "GET", "http://x:80/a?b=/c").body, "GET /a ");
  EXPECT_EQ(Fetch(port, "GET", "HTTPS://x").body, "GET / ");
  EXPECT_EQ(Fetch(port, "GET", "http://x?b").body, "GET / ");
  EXPECT_EQ(Fetch(port, "GET", "/http://x/a").body, "GET /http://x/a ");
}

TEST_F(HttpServerTest, StreamIsFramedInChunksByteForByte) {
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    HttpResponse head;
    head.content_type = kEventStreamType;
    exchange->BeginStream(head, 0);
    exchange->Write("data: 1\n\n");
    exchange->Write("");
    exchange->Write("data: twenty bytes\n\n");
    exchange->End();
  };
  const int port = Start();
  Client client(port);
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: r-1\r\nConnection: close\r\n\r\n");
  client.ReadToEnd();
  EXPECT_EQ(
      client.received(),
      "HTTP/1.1 200 OK\r\nServer: bloomery\r\nX-Request-Id: r-1\r\n"
      "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "9\r\ndata: 1\n\n\r\n14\r\ndata: twenty bytes\n\n\r\n0\r\n\r\n");
}

TEST_F(HttpServerTest, Http10StreamEndsWithTheConnection) {
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->BeginStream({}, 0);
    exchange->Write("abc");
    exchange->End();
  };
  const int port = Start();
  Client client(port);
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  client.ReadToEnd();
  EXPECT_THAT(client.received(), HasSubstr("Connection: close\r\n\r\nabc"));
}

TEST_F(HttpServerTest, SilentStreamIsPinged) {
  std::promise<std::shared_ptr<HttpExchange>> started;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->BeginStream({}, 1);
    started.set_value(std::move(exchange));
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  const auto exchange = started.get_future().get();
  EXPECT_TRUE(client.ReadUntil("3\r\n:\n\n\r\n"));
  exchange->Write("x");
  exchange->End();
  EXPECT_TRUE(client.ReadUntil("1\r\nx\r\n0\r\n\r\n"));
}

TEST_F(HttpServerTest, VanishedClientIsNoticedWhileTheAnswerIsBeingMade) {
  std::promise<void> gone;
  std::promise<void> started;
  std::shared_ptr<HttpExchange> kept;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { gone.set_value(); });
    kept = std::move(exchange);
    started.set_value();
  };
  const int port = Start();
  {
    Client client(port);
    client.Send(RequestText("GET", "/"));
    started.get_future().wait();
  }
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  kept->Reply({});  // does nothing
  kept.reset();
}

TEST_F(HttpServerTest, VanishedReaderOfASilentStreamIsNoticed) {
  std::promise<void> gone;
  std::promise<void> started;
  std::shared_ptr<HttpExchange> kept;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { gone.set_value(); });
    exchange->BeginStream({}, 0);
    kept = std::move(exchange);
    started.set_value();
  };
  const int port = Start();
  {
    Client client(port);
    client.Send(RequestText("GET", "/"));
    started.get_future().wait();
    EXPECT_TRUE(client.ReadUntil("\r\n\r\n"));
  }
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  kept.reset();
}

TEST_F(HttpServerTest, ClientThatOnlyEndsItsSendingSideIsAnswered) {
  std::promise<std::shared_ptr<HttpExchange>> started;
  std::atomic<bool> gone{false};
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { gone = true; });
    if (exchange->request().path == "/stream") exchange->BeginStream({}, 0);
    started.set_value(std::move(exchange));
  };
  const int port = Start();
  {
    Client client(port);
    client.Send(RequestText("GET", "/whole"));
    const auto exchange = started.get_future().get();
    client.ShutdownSend();
    ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));  // the end was seen
    HttpResponse response;
    response.body = "whole";
    exchange->Reply(response);
    EXPECT_EQ(client.Read().body, "whole");
    EXPECT_TRUE(client.ReadToEnd());
  }
  started = {};
  {
    Client client(port);
    client.Send(RequestText("GET", "/stream"));
    const auto exchange = started.get_future().get();
    client.ShutdownSend();
    ASSERT_TRUE(client.ReadUntil("3\r\n:\n\n\r\n"));
    exchange->Write("text");
    exchange->End();
    EXPECT_EQ(client.Read().body, ":\n\ntext");
  }
  EXPECT_FALSE(gone);
}

TEST_F(HttpServerTest, RequestsPipelinedBeforeTheEndAreAllAnswered) {
  std::promise<std::shared_ptr<HttpExchange>> started;
  handler_ = [&, echo = handler_](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path != "/1") return echo(std::move(exchange));
    started.set_value(std::move(exchange));
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/1"));
  const auto exchange = started.get_future().get();
  client.Send(RequestText("GET", "/2"));
  client.ShutdownSend();
  ASSERT_TRUE(client.ReadUntil("100 Continue"));
  exchange->Reply({});
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Read().body, "GET /2 ");
  EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(HttpServerTest, GoneIsNotReportedAfterACompleteAnswer) {
  std::atomic<int> calls{0};
  handler_ = [&, echo = handler_](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { ++calls; });
    echo(std::move(exchange));
  };
  const int port = Start();
  {
    Client client(port);
    client.Send(RequestText("GET", "/"));
    EXPECT_EQ(client.Read().status, 200);
  }
  server_->Stop(milliseconds(1000));
  EXPECT_EQ(calls, 0);
}

TEST_F(HttpServerTest, DroppedExchangeBecomesA500) {
  handler_ = [](const std::shared_ptr<HttpExchange>&) {};
  const int port = Start();
  EXPECT_EQ(Fetch(port, "GET", "/").status, 500);
}

TEST_F(HttpServerTest, ThrowingHandlerBecomesA500WithoutItsText) {
  handler_ = [](const std::shared_ptr<HttpExchange>&) { throw std::runtime_error("/secret/path"); };
  const int port = Start();
  const Answer answer = Fetch(port, "GET", "/");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, "internal error");
}

TEST_F(HttpServerTest, DroppedStreamDoesNotLookComplete) {
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->BeginStream({}, 0);
    exchange->Write("half");
  };
  const int port = Start();
  const Answer answer = Fetch(port, "GET", "/");
  EXPECT_EQ(answer.body, "half");
  EXPECT_FALSE(answer.complete);
}

TEST_F(HttpServerTest, RefusedHeadIsAnsweredWithoutReadingTheBody) {
  const int port = Start();
  Client client(port);
  client.Send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  const Answer answer = client.Read();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("connection"), "close");
}

TEST_F(HttpServerTest, CommonHeadersAreOnEveryAnswer) {
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->SetHeaders({{"X-Common", "1"}});
    exchange->Reply({});
  };
  const int port = Start();
  EXPECT_EQ(Fetch(port, "GET", "/").headers.at("x-common"), "1");
}

TEST_F(HttpServerTest, StopLetsAnAnswerInProgressFinish) {
  std::promise<std::shared_ptr<HttpExchange>> started;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->BeginStream({}, 0);
    started.set_value(std::move(exchange));
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  auto exchange = started.get_future().get();
  std::thread stopper([&] { server_->Stop(std::chrono::seconds(20)); });
  exchange->Write("late");
  exchange->End();
  exchange.reset();
  const Answer answer = client.Read();
  EXPECT_EQ(answer.body, "late");
  EXPECT_TRUE(answer.complete);
  client.Close();
  stopper.join();
  EXPECT_THROW(Client{port}, std::runtime_error);
}

TEST_F(HttpServerTest, StopCutsOffWhatDoesNotFinishInTime) {
  std::shared_ptr<HttpExchange> kept;
  std::promise<void> started;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    kept = std::move(exchange);
    started.set_value();
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  started.get_future().wait();
  server_->Stop(milliseconds(50));
  EXPECT_TRUE(client.ReadToEnd());
  EXPECT_EQ(client.received(), "");
  kept.reset();
}

TEST_F(HttpServerTest, StopClosesIdleConnectionsAtOnce) {
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  EXPECT_EQ(client.Read().status, 200);
  const auto start = std::chrono::steady_clock::now();
  server_->Stop(std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(HttpServerTest, UnixSocketIsServedAndRemovedAtTheEnd) {
  const std::string path = ::testing::TempDir() + "b" + std::to_string(::getpid()) + ".sock";
  options_.hosts = {path};
  Start();
  EXPECT_EQ(server_->urls()[0], "unix:" + path);
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  server_->Stop(milliseconds(10));
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

// What a crash leaves: a bound name whose socket is closed.
void LeaveASocketBehind(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
}

TEST_F(HttpServerTest, SocketThatNobodyListensOnIsReplaced) {
  const std::string path = ::testing::TempDir() + "s" + std::to_string(::getpid()) + ".sock";
  LeaveASocketBehind(path);
  options_.hosts = {path};
  Start();
  EXPECT_EQ(server_->urls()[0], "unix:" + path);
}

TEST_F(HttpServerTest, SocketOfALiveServerAndAFileThatIsNoneStay) {
  const std::string path = ::testing::TempDir() + "l" + std::to_string(::getpid()) + ".sock";
  options_.hosts = {path};
  Start();
  HttpOptions second;
  second.hosts = {path};
  EXPECT_THROW(HttpServer(second, {}), BindError);
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);

  const std::string file = ::testing::TempDir() + "f" + std::to_string(::getpid()) + ".sock";
  std::ofstream(file) << "mine";
  second.hosts = {file};
  EXPECT_THROW(HttpServer(second, {}), BindError);
  EXPECT_EQ(::access(file.c_str(), F_OK), 0);
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace bloomery::serve
