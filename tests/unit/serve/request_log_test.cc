// The id of a request, and what the log gets to know of it when it is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "tests/unit/serve/http_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using test::Client;
using test::Fetch;
using test::RequestText;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RequestLogTest : public HttpServerTest {
 protected:
  struct Line {
    HttpRequest request;
    HttpOutcome outcome;
  };

  RequestLogTest() {
    done_ = [this](const HttpRequest& request, const HttpOutcome& outcome) {
      const std::lock_guard lock(mutex_);
      lines_.push_back({request, outcome});
      changed_.notify_all();
    };
  }
  ~RequestLogTest() override { server_.reset(); }  // its threads call what is above

  Line Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !lines_.empty(); });
    Line line = std::move(lines_.front());
    lines_.erase(lines_.begin());
    return line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Line> lines_;
};

TEST(RequestId, IsTheClientsWhereItIsShortAndPlainAndElseANewOne) {
  for (const char* good : {"a", "4bf92f35-77b3", "trace:1_2.3"}) EXPECT_EQ(RequestIdOf(good), good);
  const std::string longest(kRequestIdBytesMax, 'x');
  EXPECT_EQ(RequestIdOf(longest), longest);
  std::set<std::string> made;
  for (const std::string& bad :
       {std::string(), longest + "x", std::string("a b"), std::string("] x"), std::string("a\"b"),
        std::string("\xC3\xA9")}) {
    const std::string id = RequestIdOf(bad);
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]+")) << bad;
    EXPECT_EQ(id.size(), 32U);
    EXPECT_TRUE(made.insert(id).second);
  }
}

TEST_F(RequestLogTest, EveryAnswerCarriesTheIdAndTheLogHasTheSame) {
  const int port = Start();
  EXPECT_EQ(Fetch(port, "GET", "/", "", {{"X-Request-Id", "mine"}}).headers["x-request-id"],
            "mine");
  EXPECT_EQ(Next().request.id, "mine");
  // Refused at its head, and one whose head nobody can read.
  const Answer refused = Fetch(port, "GET", "/refused", "", {{"X-Request-Id", "no no"}});
  Line line = Next();
  EXPECT_EQ(line.request.id, refused.headers.at("x-request-id"));
  EXPECT_EQ(line.request.id.size(), 32U);
  EXPECT_EQ(line.outcome.status, 401);
  Client client(port);
  client.Send("no HTTP at all\r\n\r\n");
  const Answer malformed = client.Read();
  line = Next();
  EXPECT_EQ(line.request.id, malformed.headers.at("x-request-id"));
  EXPECT_EQ(line.outcome.status, 400);
  ASSERT_EQ(line.outcome.facts.size(), 1U);
  EXPECT_THAT(std::get<std::string>(line.outcome.facts[0].value), HasSubstr("malformed"));
}

TEST_F(RequestLogTest, TheOutcomeHasTheFactsInTheirOrderAndTheBytesWritten) {
  handler_ = [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->AddToLog({{"first", 1}});
    exchange->BeginStream({}, 0);
    exchange->Write("text");
    exchange->AddToLog({{"second", "two"}});
    exchange->End();
  };
  const int port = Start();
  Client client(port);
  for (int turn = 0; turn < 2;
       ++turn) {  // on one connection: nothing of the first is in the second
    client.Send(RequestText("POST", "/x", "body"));
    EXPECT_EQ(client.Read().body, "text");
    const Line line = Next();
    EXPECT_EQ(line.request.method, "POST");
    EXPECT_EQ(line.outcome.status, 200);
    EXPECT_TRUE(line.outcome.complete);
    EXPECT_GT(line.outcome.bytes, 4U);
    EXPECT_GE(line.outcome.ms, line.outcome.first_byte_ms);
    ASSERT_EQ(line.outcome.facts.size(), 2U);
    EXPECT_EQ(line.outcome.facts[0].name, "first");
    EXPECT_EQ(std::get<int64_t>(line.outcome.facts[0].value), 1);
    EXPECT_EQ(std::get<std::string>(line.outcome.facts[1].value), "two");
  }
}

TEST_F(RequestLogTest, AClientThatGoesIsToldWithWhatItsEndAdds) {
  std::shared_ptr<HttpExchange> kept;
  std::mutex mutex;
  handler_ = [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->OnGone([weak = std::weak_ptr(exchange)] {
      if (const auto there = weak.lock()) there->AddToLog({{"end", "gone"}});
    });
    exchange->BeginStream({}, 0);
    exchange->Write("text");
    const std::lock_guard lock(mutex);
    kept = exchange;
  };
  const int port = Start();
  {
    Client client(port);
    client.Send("GET / HTTP/1.0\r\n\r\n");  // to HTTP/1.0 an end is the end
    client.ReadUntil("text");
  }
  const Line line = Next();
  EXPECT_FALSE(line.outcome.complete);
  ASSERT_EQ(line.outcome.facts.size(), 1U);
  EXPECT_EQ(std::get<std::string>(line.outcome.facts[0].value), "gone");
  const std::lock_guard lock(mutex);
  kept.reset();
}

TEST_F(HttpServerTest, CheckSaysWhatAStartWouldAndLeavesNothingBehind) {
  HttpOptions options;
  options.port = Start();
  EXPECT_THROW(HttpServer::Check(options), BindError);
  options.port = 0;
  HttpServer::Check(options);
  const std::string path = testing::TempDir() + "check-" + std::to_string(::getpid()) + ".socket";
  options.hosts = {"unix:" + path};
  HttpServer::Check(options);
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    HttpServer listening(options, {});
    EXPECT_EQ(listening.urls().front(), "unix:" + path);
    EXPECT_THROW(HttpServer::Check(options), BindError);
    EXPECT_THROW(HttpServer(options, {}), BindError);
  }
  options.hosts = {"unix:/no/such/folder/x"};
  EXPECT_THROW(HttpServer::Check(options), BindError);
  options.hosts = {"unix:" + std::string(200, 'x')};
  EXPECT_THROW(HttpServer::Check(options), BindError);
  options.hosts = {"127.0.0.1", "127.0.0.2"};
  EXPECT_THROW(HttpServer::Check(options), Error);
  options.hosts = {"127.0.0.1"};
  options.tls_certificates = "no PEM";
  options.tls_key = "no PEM";
  EXPECT_THROW(HttpServer::Check(options), Error);
}

}  // namespace
}  // namespace bloomery::serve
