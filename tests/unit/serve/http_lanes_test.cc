// Requests with bodies: their handlers run beside the pool's threads, and all else goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/serve/client.h"
#include "tests/unit/serve/http_fixture.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Answer;
using test::Client;
using test::Fetch;
using test::RequestText;
using ::testing::ElementsAre;

std::string Long() { return std::string(HttpOptions().long_body_bytes + 1, 'x'); }
std::string Large() { return std::string(HttpOptions().large_body_bytes + 1, 'x'); }

// A pool of one thread, and handlers of /wait that end when they are told to.
class HttpLanesTest : public HttpServerTest {
 protected:
  HttpLanesTest() {
    options_.threads = 1;
    handler_ = [this, answer = handler_](const std::shared_ptr<HttpExchange>& exchange) {
      if (exchange->request().path == "/wait") {
        ++waiting_;
        waiting_.notify_all();
        released_.wait();
      }
      answer(exchange);
    };
  }
  ~HttpLanesTest() override { Release(); }
  void AwaitHandlers(size_t count) {
    for (size_t now = waiting_; now < count; now = waiting_) waiting_.wait(now);
  }
  void Release() {
    if (!std::exchange(released_already_, true)) release_.set_value();
  }
  // For the next handlers, once the last of those that were released has ended.
  void Hold() {
    release_ = {};
    released_ = release_.get_future();
    released_already_ = false;
    waiting_ = 0;
  }
  static std::string Wait(const std::string& body) { return RequestText("POST", "/wait", body); }

  std::atomic<size_t> waiting_{0};

 private:
  std::promise<void> release_;
  std::shared_future<void> released_{release_.get_future()};
  bool released_already_ = false;
};

TEST_F(HttpLanesTest, SmallOnesAreAnsweredWhileLargeOnesAreHandled) {
  const int port = Start();
  Client large(port);
  large.Send(Wait(Large()));
  AwaitHandlers(1);
  EXPECT_EQ(Fetch(port, "POST", "/a", "small").status, 200);
  EXPECT_EQ(Fetch(port, "POST", "/b", Long()).status, 200);  // it does not wait for a larger one
  Client long_one(port);
  long_one.Send(Wait(Long()));
  AwaitHandlers(2);
  EXPECT_EQ(Fetch(port, "POST", "/c", "small").status, 200);
  Release();
  EXPECT_EQ(large.Read().status, 200);
  EXPECT_EQ(long_one.Read().status, 200);
}

TEST_F(HttpLanesTest, LargeOnesAreHandledOneByOneInTheirOrder) {
  const int port = Start();
  std::mutex mutex;
  std::vector<std::string> order;
  handler_ = [&, wait = handler_](const std::shared_ptr<HttpExchange>& exchange) {
    {
      const std::lock_guard lock(mutex);
      order.push_back(exchange->request().path);
    }
    wait(exchange);
  };
  Client first(port);
  first.Send(Wait(Large()));
  AwaitHandlers(1);
  // On one connection, so that they come in this order.
  Client others(port);
  others.Send(RequestText("POST", "/a", Large()) + RequestText("POST", "/b", Large()));
  EXPECT_EQ(Fetch(port, "GET", "/small").status, 200);
  Release();
  EXPECT_EQ(others.Read().status, 200);
  EXPECT_EQ(others.Read().status, 200);
  EXPECT_THAT(order, ElementsAre("/wait", "/small", "/a", "/b"));
}

// Of the same size as what is slow, too: a schema or a text of some KiB may take a second.
TEST_F(HttpLanesTest, SlowOnesHoldUpNoOther) {
  const int port = Start();
  for (const std::string& body : {std::string("small"), Long()}) {
    std::vector<std::unique_ptr<Client>> slow;
    for (int i = 0; i < 3; ++i) {
      slow.push_back(std::make_unique<Client>(port));
      slow.back()->Send(Wait(body));
    }
    AwaitHandlers(3);
    EXPECT_EQ(Fetch(port, "GET", "/").status, 200);
    EXPECT_EQ(Fetch(port, "POST", "/a", "small").status, 200);
    EXPECT_EQ(Fetch(port, "POST", "/b", body).status, 200);
    Release();
    for (const auto& client : slow) EXPECT_EQ(client->Read().status, 200);
    Hold();
  }
}

// A thread of the pool is there for monitoring and for streams however many handlers are slow.
TEST_F(HttpLanesTest, WithoutABodyNothingWaitsForHandlers) {
  const int port = Start();
  std::vector<std::unique_ptr<Client>> slow;
  const size_t count = 2 * (1 + options_.slow_handlers_max);
  for (size_t i = 0; i < count; ++i) {
    slow.push_back(std::make_unique<Client>(port));
    slow.back()->Send(Wait("small"));
  }
  AwaitHandlers(1 + options_.slow_handlers_max);
  EXPECT_EQ(Fetch(port, "GET", "/health").status, 200);
  EXPECT_EQ(waiting_, 1 + options_.slow_handlers_max);
  Release();
  for (const auto& client : slow) EXPECT_EQ(client->Read().status, 200);
}

TEST_F(HttpLanesTest, WhatIsPostedMeanwhileComesBehindTheHandlerInItsOrder) {
  std::string said;
  handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
    // As an engine does, from another thread and before the handler is at its end.
    std::thread([&] {
      exchange->Post([&said] { said += "b"; });
      exchange->Post([&said, exchange] {
        said += "c";
        HttpResponse response;
        response.body = said;
        exchange->Reply(response);
      });
    }).join();
    std::this_thread::sleep_for(milliseconds(20));  // what runs too early gets the time to
    said += "a";
  };
  EXPECT_EQ(Fetch(Start(), "POST", "/", Long()).body, "abc");
}

TEST_F(HttpLanesTest, OneWhoseClientLeftBeforeItsTurnIsNotHandled) {
  std::promise<void> gone;
  done_ = [&](const HttpRequest& request, const HttpOutcome& outcome) {
    if (request.path == "/left" && !outcome.complete) gone.set_value();
  };
  std::atomic<int> handled{0};
  handler_ = [&, wait = handler_](const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path == "/left") ++handled;
    wait(exchange);
  };
  const int port = Start();
  Client first(port);
  first.Send(Wait(Long()));
  AwaitHandlers(1);
  {
    Client leaver(port);
    leaver.Send(RequestText("POST", "/left", Long()));
    leaver.Close();
  }
  ASSERT_EQ(gone.get_future().wait_for(seconds(10)), std::future_status::ready);
  Release();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Fetch(port, "POST", "/", Long()).status, 200);  // behind it in the lane
  EXPECT_EQ(handled, 0);
}

// A lane may be held for seconds: bodies of clients that come and go meanwhile must not pile up.
TEST_F(HttpLanesTest, TheBodyOfOneWhoseClientLeftIsFreedBeforeItsTurn) {
  constexpr size_t kBytes = size_t{48} << 20;  // above what malloc keeps for itself
  std::promise<void> gone;
  done_ = [&](const HttpRequest& request, const HttpOutcome& outcome) {
    if (request.path == "/left" && !outcome.complete) gone.set_value();
  };
  const int port = Start();
  Client first(port);
  first.Send(Wait(Large()));
  AwaitHandlers(1);
  const size_t before = ::mallinfo2().hblkhd;
  {
    Client leaver(port);
    leaver.Send(RequestText("POST", "/left", std::string(kBytes, 'x')));
    leaver.Close();
  }
  ASSERT_EQ(gone.get_future().wait_for(seconds(10)), std::future_status::ready);
  EXPECT_LT(::mallinfo2().hblkhd, before + kBytes / 2);
  Release();
  EXPECT_EQ(first.Read().status, 200);
}

TEST_F(HttpLanesTest, ThrowingHandlerBecomesA500) {
  handler_ = [](const std::shared_ptr<HttpExchange>&) { throw std::runtime_error("secret"); };
  const Answer answer = Fetch(Start(), "POST", "/", Long());
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, "internal error");
}

TEST_F(HttpLanesTest, StopWaitsForTheHandlerThatRunsAndForNoOther) {
  const int port = Start();
  Client running(port);
  running.Send(Wait(Large()));
  AwaitHandlers(1);
  Client queued(port);
  queued.Send(Wait(Large()));
  EXPECT_EQ(Fetch(port, "GET", "/").status, 200);
  auto stopped = std::async(std::launch::async, [&] { server_->Stop(milliseconds(0)); });
  EXPECT_TRUE(queued.ReadToEnd());
  EXPECT_EQ(stopped.wait_for(milliseconds(50)), std::future_status::timeout);
  Release();
  EXPECT_EQ(stopped.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(waiting_, 1U);
}

// The routes over it.
class LargeBodiesTest : public ServedTest {
 protected:
  LargeBodiesTest() { settings_.http_threads = 1; }
  const std::string text_ = std::string(kScript).substr(3);  // behind "The"
  // `body`, an object's members, beside a field that nobody reads.
  static std::string Filled(const std::string& members, size_t bytes) {
    return "{" + members + ",\"filler\":\"" + std::string(bytes, 'x') + "\"}";
  }
};

TEST_F(LargeBodiesTest, AnswersAreThoseOfSmallOnesWholeAndStreamed) {
  Start();
  for (const size_t bytes :
       {HttpOptions().long_body_bytes + 1, HttpOptions().large_body_bytes + 1}) {
    for (int round = 0; round < 10; ++round) {
      const auto whole = PostJson(
          "/completion", Filled(R"("prompt":"The","temperature":0,"n_predict":20)", bytes));
      EXPECT_EQ(TextOf(whole, "content"), text_);
      bool done = false;
      std::string text;
      const Answer streamed =
          Post("/v1/completions",
               Filled(R"("prompt":"The","temperature":0,"max_tokens":20,"stream":true)", bytes));
      for (const auto& event : Events(streamed.body, done)) {
        text += TextOf(event["choices"][0], "text");
      }
      EXPECT_TRUE(done);
      EXPECT_EQ(text, text_);
    }
  }
  ErrorOf(Post("/completion", Filled(R"("prompt":5)", HttpOptions().long_body_bytes)), 400,
          "invalid_request_error");
}

// 51 KB that take a hundred times as long until they are refused as a good request until its end.
std::string SlowSchema() {
  std::string properties;
  for (int i = 0; i < 300; ++i) {
    properties += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) +
                  R"(":{"type":"string","pattern":"^[a-z]{1,20}$"})";
  }
  std::string all = R"({"$ref":"#/$defs/x"})";
  for (int i = 0; i < 1400; ++i) all += R"(,{"$ref":"#/$defs/x"})";
  return R"({"$defs":{"x":{"type":"object","properties":{)" + properties + R"(}}},"allOf":[)" +
         all + "]}";
}

TEST_F(LargeBodiesTest, GoodClientsAreServedWhileSmallBodiesTakeLong) {
  Start();
  const std::string body = R"({"prompt":"The","json_schema":)" + SlowSchema() + "}";
  ASSERT_LE(body.size(), HttpOptions().long_body_bytes);
  std::atomic<bool> enough{false};
  std::atomic<int> ended{0};
  std::vector<std::thread> slow;
  for (int i = 0; i < 2; ++i) {
    slow.emplace_back([&] {
      while (!enough) {
        ErrorOf(Post("/completion", body), 400, "invalid_request_error");
        ++ended;
      }
    });
  }
  // Good requests that were answered while both slow ones went on.
  int beside = 0;
  for (int sent = 0; sent < 200 && beside < 5; ++sent) {
    const int before = ended;
    PostJson("/completion", R"({"prompt":"The","n_predict":2})");
    if (ended == before) ++beside;
  }
  enough = true;
  for (std::thread& thread : slow) thread.join();
  EXPECT_EQ(beside, 5);
}

// The pool has one thread: what held it would hold every good client.
TEST_F(LargeBodiesTest, GoodClientsAreServedWhileAHugeTextIsTokenised) {
  Start();
  std::string text;
  while (text.size() < (size_t{8} << 20)) text += "The capital of Japan is Tokyo. ";
  for (const std::string route : {"/tokenize", "/v1/messages/count_tokens"}) {
    const std::string body = route == "/tokenize"
                                 ? R"({"content":")" + text + "\"}"
                                 : R"({"messages":[{"role":"user","content":")" + text + "\"}]}";
    std::atomic<bool> over{false};
    std::thread tokenising([&] {
      EXPECT_EQ(Post(route, body).status, 200);
      over = true;
    });
    int served = 0;
    while (!over) {
      const auto answer = PostJson("/completion", R"({"prompt":"The","n_predict":2})");
      if (!over) ++served;
    }
    tokenising.join();
    EXPECT_GE(served, 3) << route;
  }
}

}  // namespace
}  // namespace bloomery::serve
