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

namespace bloomery::serve {
namespace {

using std::chrono::milliseconds;
using test::Answer;
using test::Client;
using test::Fetch;
using test::RequestText;
using ::testing::HasSubstr;

// A server whose handler is the test's.
class HttpServerTest : public ::testing::Test {
 protected:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  HttpServerTest() {
    options_.threads = 2;
    handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
      HttpResponse response;
      response.content_type = "text/plain";
      response.body = exchange->request().method + " " + exchange->request().path + " " +
                      exchange->request().body;
      exchange->Reply(response);
    };
  }

  int Start() {
    HttpCallbacks callbacks;
    callbacks.admit = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.path != "/refused") return std::nullopt;
      HttpResponse response;
      response.status = 401;
      return response;
    };
    callbacks.handle = [this](std::shared_ptr<HttpExchange> e) { handler_(std::move(e)); };
    callbacks.reserved = [](const HttpRequest& request) { return request.path == "/health"; };
    callbacks.refuse = [](int status, const std::string& message, const HttpRequest&) {
      HttpResponse response;
      response.status = status;
      response.body = message;
      return response;
    };
    server_ = std::make_unique<HttpServer>(options_, callbacks);
    server_->Start();
    return server_->port();
  }

  HttpOptions options_;
  Handler handler_;
  std::unique_ptr<HttpServer> server_;
};

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
  client.Send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  client.ReadToEnd();
  EXPECT_EQ(client.received(),
            "HTTP/1.1 200 OK\r\nServer: bloomery\r\nContent-Type: text/plain\r\n"
            "Content-Length: 7\r\nConnection: close\r\n\r\nGET /a ");
}

TEST_F(HttpServerTest, KeepAliveServesManyRequestsOnOneConnection) {
  const int port = Start();
  Client client(port);
  for (int i = 0; i < 5; ++i) {
    client.Send(RequestText("POST", "/n", std::to_string(i)));
    EXPECT_EQ(client.Read().body, "POST /n " + std::to_string(i));
  }
  EXPECT_EQ(server_->connections(), 1U);
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

TEST_F(HttpServerTest, HeadAtTheLimitPassesAndOnePastIsRefused) {
  options_.head_bytes_max = 1000;
  const int port = Start();
  const std::string plain = RequestText("GET", "/", "", {{"X-Fill", ""}});
  const std::string fits =
      RequestText("GET", "/", "", {{"X-Fill", std::string(1000 - plain.size(), 'a')}});
  ASSERT_EQ(fits.size(), 1000U);
  Client good(port);
  good.Send(fits);
  EXPECT_EQ(good.Read().status, 200);
  Client bad(port);
  bad.Send(RequestText("GET", "/", "", {{"X-Fill", std::string(1001 - plain.size(), 'a')}}));
  EXPECT_EQ(bad.Read().status, 431);
}

TEST_F(HttpServerTest, BodyAtTheLimitPassesAndOnePastIsRefused) {
  options_.body_bytes_max = 100;
  const int port = Start();
  EXPECT_EQ(Fetch(port, "POST", "/", std::string(100, 'b')).status, 200);
  EXPECT_EQ(Fetch(port, "POST", "/", std::string(101, 'b')).status, 413);
  Client chunked(port);
  chunked.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
               std::string(101, 'b') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().status, 413);
}

// What frames a chunked body is not counted as body, so it has the head's limit.
TEST_F(HttpServerTest, TrailerAndChunkHeadOverTheHeadsLimitAreRefused) {
  options_.head_bytes_max = 1000;
  const int port = Start();
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string fields;
  for (int i = 0; i < 2000; ++i) fields += "A: b\r\n";
  Client trailer(port);
  trailer.Send(head + "1\r\nx\r\n0\r\n" + fields + "\r\n");
  EXPECT_EQ(trailer.Read().status, 431);
  Client chunk(port);
  chunk.Send(head + "1;" + std::string(12000, 'e') + "\r\nx\r\n0\r\n\r\n");
  EXPECT_EQ(chunk.Read().status, 431);
  Client small(port);
  small.Send(head + "1;e\r\nx\r\n0\r\nA: b\r\n\r\n");
  EXPECT_EQ(small.Read().body, "POST / x");
}

TEST_F(HttpServerTest, BodiesOverTheSharedLimitAreRefusedUntilOneEnds) {
  options_.body_bytes_max = 100;
  options_.bodies_bytes_max = 150;
  const int port = Start();
  Client first(port);
  first.Send("POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(first.ReadUntil("100 Continue"));
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(51, 'b')).status, 503);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(50, 'b')).status, 200);
  first.Send(std::string(100, 'b'));
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(100, 'b')).status, 200);
}

// While it is read a chunked body counts as the largest; its answer may then take minutes.
TEST_F(HttpServerTest, ChunkedBodyCountsByItsOwnBytesWhileItsAnswerIsMade) {
  options_.body_bytes_max = 100;
  options_.bodies_bytes_max = 150;
  std::promise<std::shared_ptr<HttpExchange>> held;
  const Handler answer = handler_;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path == "/held") return held.set_value(std::move(exchange));
    answer(std::move(exchange));
  };
  const int port = Start();
  Client slow(port);
  slow.Send(
      "POST /held HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
  const std::shared_ptr<HttpExchange> exchange = held.get_future().get();
  EXPECT_EQ(Fetch(port, "POST", "/", std::string(100, 'b')).status, 200);
  answer(exchange);
  EXPECT_EQ(slow.Read().body, "POST /held ab");
}

TEST_F(HttpServerTest, ConnectionPastTheLimitGetsA503UntilOneEnds) {
  options_.connections_max = 2;
  const int port = Start();
  Client a(port);
  Client b(port);
  a.Send(RequestText("GET", "/a"));
  b.Send(RequestText("GET", "/b"));
  EXPECT_EQ(a.Read().status, 200);
  EXPECT_EQ(b.Read().status, 200);
  Client c(port);
  c.Send(RequestText("GET", "/c"));
  const Answer refused = c.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "too many connections; try again shortly");
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_TRUE(c.ReadToEnd());
  a.Send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(a.Read().status, 200);
  a.ReadToEnd();
  a.Close();
  // The place is free again once the server has seen the end of `a`.
  int status = 0;
  for (int i = 0; i < 200 && status != 200; ++i) {
    Client d(port);
    d.Send(RequestText("GET", "/d"));
    status = d.Read().status;
  }
  EXPECT_EQ(status, 200);
}

// A balancer that asks must not take a busy server for a dead one.
TEST_F(HttpServerTest, ReservedRequestIsAnsweredOverTheConnectionLimit) {
  options_.connections_max = 1;
  const int port = Start();
  Client a(port);
  a.Send(RequestText("GET", "/a"));
  EXPECT_EQ(a.Read().status, 200);
  for (int i = 0; i < 3; ++i) {
    Client probe(port);
    probe.Send(RequestText("GET", "/health"));
    const Answer answer = probe.Read();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_TRUE(probe.ReadToEnd());
  }
  EXPECT_EQ(Fetch(port, "POST", "/health", "with a body").status, 503);
  EXPECT_EQ(server_->connections(), 1U);
}

TEST_F(HttpServerTest, SilentConnectionOverTheLimitIsToldSoAndClosed) {
  options_.connections_max = 1;
  options_.refused_time_max = milliseconds(100);
  const int port = Start();
  Client a(port);
  a.Send(RequestText("GET", "/a"));
  EXPECT_EQ(a.Read().status, 200);
  Client silent(port);
  EXPECT_EQ(silent.Read().status, 503);
  EXPECT_TRUE(silent.ReadToEnd());
  Client half(port);
  half.Send("GET /health HT");
  EXPECT_EQ(half.Read().status, 503);
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

TEST_F(HttpServerTest, SlowHeadIsCutOffInTotalNotPerByte) {
  options_.head_time_max = milliseconds(300);
  const int port = Start();
  Client client(port);
  const auto start = std::chrono::steady_clock::now();
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n");
  std::jthread dripper([&](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any pause;
    while (!pause.wait_for(lock, stop, milliseconds(20), [] { return false; }) &&
           !stop.stop_requested()) {
      client.Send("X-A: b\r\n");
    }
  });
  const Answer answer = client.Read();
  dripper.request_stop();
  dripper.join();
  EXPECT_EQ(answer.status, 408);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(300));
  EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(HttpServerTest, SlowBodyIsCutOff) {
  options_.body_time_max = milliseconds(200);
  const int port = Start();
  Client client(port);
  client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(HttpServerTest, IdleConnectionIsClosedWithoutAnAnswer) {
  options_.head_time_max = milliseconds(150);
  options_.idle_time_max = milliseconds(150);
  const int port = Start();
  Client silent(port);
  EXPECT_TRUE(silent.ReadToEnd());
  EXPECT_EQ(silent.received(), "");
  Client once(port);
  once.Send(RequestText("GET", "/"));
  EXPECT_EQ(once.Read().status, 200);
  EXPECT_TRUE(once.ReadToEnd());
  EXPECT_EQ(once.received(), "");
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
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  client.ReadToEnd();
  EXPECT_EQ(client.received(),
            "HTTP/1.1 200 OK\r\nServer: bloomery\r\nContent-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
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

TEST_F(HttpServerTest, WholeAnswerAtTheLimitPassesAndOnePastIsA400) {
  options_.answer_bytes_max = 1000;
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    HttpResponse response;
    response.body = std::string(exchange->request().path == "/1000" ? 1000 : 1001, 'x');
    exchange->Reply(response);
  };
  const int port = Start();
  EXPECT_EQ(Fetch(port, "GET", "/1000").body.size(), 1000U);
  const Answer refused = Fetch(port, "GET", "/1001");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("larger than 1000 bytes"));
}

// What one client leaves unread may not add up without bounds over many.
TEST_F(HttpServerTest, UnreadAnswersOfAllConnectionsAreBounded) {
  constexpr size_t kLarge = 24 << 20;  // more than the kernel takes for a client that reads nothing
  options_.answers_bytes_max = kLarge + (1 << 20);
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    HttpResponse response;
    const std::string& path = exchange->request().path;
    response.body = std::string(path == "/large" ? kLarge : path == "/some" ? 2 << 20 : 10, 'x');
    exchange->Reply(response);
  };
  const int port = Start();
  Client lazy(port);
  lazy.Send(RequestText("GET", "/large"));
  ASSERT_TRUE(lazy.ReadUntil("Content-Length"));  // and no further
  EXPECT_EQ(Fetch(port, "GET", "/some").status, 503);
  EXPECT_EQ(Fetch(port, "GET", "/small").status, 200);
  EXPECT_TRUE(lazy.Read().complete);
  EXPECT_EQ(Fetch(port, "GET", "/some").status, 200);
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

TEST_F(HttpServerTest, ClientThatDoesNotReadItsStreamIsCutOff) {
  options_.unsent_bytes_max = 1 << 20;
  std::promise<void> gone;
  handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->OnGone([&] { gone.set_value(); });
    exchange->BeginStream({}, 0);
    for (int i = 0; i < 64; ++i) exchange->Write(std::string(1 << 20, 'x'));
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpServerTest, StreamThatIsBehindIsCutOffWhenAllTogetherAreTooLarge) {
  options_.unsent_bytes_max = 1 << 30;
  options_.answers_bytes_max = 1 << 20;
  std::promise<void> gone;
  handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->OnGone([&] { gone.set_value(); });
    exchange->BeginStream({}, 0);
    for (int i = 0; i < 64; ++i) exchange->Write(std::string(1 << 20, 'x'));
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpServerTest, WriteThatTakesTooLongEndsTheConnection) {
  options_.write_time_max = milliseconds(200);
  std::promise<void> gone;
  std::shared_ptr<HttpExchange> kept;
  handler_ = [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { gone.set_value(); });
    exchange->BeginStream({}, 0);
    exchange->Write(std::string(15 << 20, 'x'));
    kept = std::move(exchange);
  };
  const int port = Start();
  Client client(port);
  client.Send(RequestText("GET", "/"));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  kept.reset();
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
