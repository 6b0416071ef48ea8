// What a server takes of heads, bodies, connections, time and unread answers, and what it says past
// that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

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

// Takes the requests for /held and answers them when told to; others go to the handler as it was.
class Held {
 public:
  explicit Held(std::function<void(std::shared_ptr<HttpExchange>)>& handler) : answer_(handler) {
    handler = [this](std::shared_ptr<HttpExchange> exchange) {
      if (exchange->request().path != "/held") return answer_(std::move(exchange));
      const std::lock_guard lock(mutex_);
      exchanges_.push_back(std::move(exchange));
      changed_.notify_all();
    };
  }
  void Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return exchanges_.size() >= count; });
  }
  void AnswerAll() {
    const std::lock_guard lock(mutex_);
    for (auto& exchange : exchanges_) answer_(std::move(exchange));
    exchanges_.clear();
  }

 private:
  std::function<void(std::shared_ptr<HttpExchange>)> answer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_;
};

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
  Held held(handler_);
  const int port = Start();
  Client first(port);
  first.Send(RequestText("POST", "/held", std::string(100, 'b')));
  held.Await(1);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(51, 'b')).status, 503);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(50, 'b')).status, 200);
  held.AnswerAll();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(100, 'b')).status, 200);
}

TEST_F(HttpServerTest, DeclaredBodiesThatDoNotComeTakeNothing) {
  options_.body_bytes_max = 100;
  options_.bodies_bytes_max = 150;
  const int port = Start();
  std::deque<Client> slow;
  for (int i = 0; i < 20; ++i) {
    slow.emplace_back(port).Send(
        "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
    ASSERT_TRUE(slow.back().ReadUntil("100 Continue"));
  }
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(100, 'b')).status, 200);
}

TEST_F(HttpServerTest, LargeBodiesLeaveAnEighthOfTheMemoryToSmallOnes) {
  constexpr size_t kLarge = limits::kSmallBodyBytesMax + 1;
  options_.bodies_bytes_max = 2 * kLarge;
  Held held(handler_);
  const int port = Start();
  Client first(port);
  first.Send(RequestText("POST", "/held", std::string(kLarge, 'b')));
  held.Await(1);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(kLarge, 'b')).status, 503);
  EXPECT_EQ(Fetch(port, "POST", "/2", std::string(kLarge - 1, 'b')).status, 200);
  held.AnswerAll();
  EXPECT_EQ(first.Read().status, 200);
}

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

TEST_F(HttpServerTest, RequestPastTheLimitOfPlacesGetsA503UntilOneIsAnswered) {
  options_.connections_max = 2;
  Held held(handler_);
  const int port = Start();
  Client a(port);
  Client b(port);
  a.Send(RequestText("GET", "/held"));
  b.Send(RequestText("GET", "/held"));
  held.Await(2);
  EXPECT_EQ(server_->connections(), 2U);
  Client c(port);
  c.Send(RequestText("GET", "/c"));
  const Answer refused = c.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "too many requests are being answered; try again shortly");
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_TRUE(c.ReadToEnd());
  // A body is not read for nothing.
  Client d(port);
  d.Send("POST /d HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
  EXPECT_EQ(d.Read().status, 503);
  held.AnswerAll();
  EXPECT_EQ(a.Read().status, 200);
  EXPECT_EQ(b.Read().status, 200);
  // The places are free before the answers can be read, and a and b, which stay, have none.
  EXPECT_EQ(Fetch(port, "GET", "/d").status, 200);
  EXPECT_EQ(Fetch(port, "GET", "/e").status, 200);
}

TEST_F(HttpServerTest, ConnectionsWithoutAWholeRequestTakeNoPlaces) {
  options_.connections_max = 1;
  const int port = Start();
  std::deque<Client> slow;
  for (int i = 0; i < 60; ++i) {
    Client& client = slow.emplace_back(port);
    if (i % 3 == 1) client.Send("GET / HT");
    if (i % 3 == 2) client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Fetch(port, "GET", "/x").status, 200);
  slow[1].Send("TP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(slow[1].Read().status, 200);
  slow[2].Send("cde");
  EXPECT_EQ(slow[2].Read().body, "POST / abcde");
}

TEST_F(HttpServerTest, WhereTooManyWaitTheOneThatHasLongestIsClosed) {
  options_.waiting_max = 3;
  const int port = Start();
  std::deque<Client> silent;
  const auto ask = [](Client& client) {
    client.Send(RequestText("GET", "/"));
    ASSERT_EQ(client.Read().status, 200);
  };
  for (int i = 0; i < 3; ++i) ask(silent.emplace_back(port));
  ask(silent[0]);  // now 1 waits longest
  EXPECT_EQ(Fetch(port, "GET", "/x").status, 200);
  EXPECT_TRUE(silent[1].ReadToEnd());
  silent[0].Send(RequestText("GET", "/"));
  EXPECT_EQ(silent[0].Read().status, 200);
}

TEST_F(HttpServerTest, AReaderThatStallsMakesRoomWhereItIsWanted) {
  options_.connections_max = 1;
  options_.stall_time_max = milliseconds(50);
  options_.unsent_bytes_max = size_t{256} << 20;  // more than any socket buffers
  std::promise<void> begun;
  std::promise<void> gone;
  std::shared_ptr<HttpExchange> streaming;
  const Handler answer = handler_;
  handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path != "/stall") return answer(exchange);
    streaming = exchange;
    begun.set_value();
    exchange->OnGone([&] { gone.set_value(); });
    exchange->BeginStream({}, 0);
    for (int i = 0; i < 128; ++i) exchange->Write(std::string(1 << 20, 'x'));
  };
  const int port = Start();
  Client stalled(port);
  stalled.Send(RequestText("GET", "/stall"));
  begun.get_future().wait();
  int status = 0;
  while (status != 200) status = Fetch(port, "GET", "/x").status;
  gone.get_future().wait();
}

// A balancer that asks must not take a busy server for a dead one.
TEST_F(HttpServerTest, ReservedRequestIsAnsweredWithoutAPlace) {
  options_.connections_max = 1;
  Held held(handler_);
  const int port = Start();
  Client a(port);
  a.Send(RequestText("GET", "/held"));
  held.Await(1);
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
  held.AnswerAll();
  EXPECT_EQ(a.Read().status, 200);
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

TEST_F(HttpServerTest, ClientThatDoesNotReadItsStreamIsCutOff) {
  options_.unsent_bytes_max = 1 << 20;
  EXPECT_TRUE(UnreadStreamIsCutOff());
}

TEST_F(HttpServerTest, StreamThatIsBehindIsCutOffWhenAllTogetherAreTooLarge) {
  options_.unsent_bytes_max = 1 << 30;
  options_.answers_bytes_max = 1 << 20;
  EXPECT_TRUE(UnreadStreamIsCutOff());
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

}  // namespace
}  // namespace bloomery::serve
