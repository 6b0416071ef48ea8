// Request bodies from anywhere, through the whole API: the first byte chooses the route, the second
// a template, the rest is the body. Behind it an engine without a model. Every request gets one
// answer, whole or as a stream that ends, and none is a failure of the server.
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/base/utf8.h"
#include "runtime/engine/engine.h"
#include "runtime/serve/api.h"
#include "tests/unit/engine/fake_runner.h"
#include "tests/unit/text/small_vocabulary.h"

namespace {

using namespace bloomery;
using namespace bloomery::serve;

constexpr const char* kPaths[] = {"/v1/chat/completions",
                                  "/v1/messages",
                                  "/v1/responses",
                                  "/completion",
                                  "/v1/completions",
                                  "/apply-template",
                                  "/tokenize",
                                  "/detokenize",
                                  "/infill",
                                  "/v1/messages/count_tokens",
                                  "/v1/responses/input_tokens",
                                  "/v1/chat/completions/control",
                                  "/lora-adapters",
                                  "/slots/0"};

constexpr const char* kTemplates[] = {
    // of each syntax of calls what tells it
    "{# <tool_call> arguments #}{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}\n{% endfor %}"
    "{% if tools %}{{ tools|tojson }}{% endif %}{% if enable_thinking %}<think>{% endif %}",
    "{# <tool_call> <function= <parameter= #}{% for m in messages %}{{ m.content }}{% endfor %}"
    "<think>\n",
    "{# <arg_key> <arg_value> #}{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}"
    "{% endfor %}",
    "{# DSML tool_calls #}{% for m in messages %}{{ m.content }}{% endfor %}<think></think>"};

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// Calls run one after another, in whatever thread comes.
class Collecting final : public HttpExchange {
 public:
  explicit Collecting(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void SetHeaders(std::vector<HttpHeader>) override {}
  void AddToLog(std::vector<LogField>) override {}
  size_t answer_bytes_max() const override { return size_t{1} << 20; }
  void Reply(HttpResponse response) override {
    Require(!began_ && !ended_, "a second answer");
    status_ = response.status;
    body_ = std::move(response.body);
    EndNow();
  }
  void BeginStream(HttpResponse head, int) override {
    Require(!began_ && !ended_, "a second answer");
    began_ = true;
    status_ = head.status;
  }
  void Write(std::string bytes) override {
    Require(began_ && !ended_, "bytes outside of a stream");
    body_ += bytes;
  }
  void End() override {
    Require(began_ && !ended_, "an end outside of a stream");
    EndNow();
  }
  void OnGone(std::function<void()>) override {}
  void Post(std::function<void()> call) override {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;  // nobody runs it, and it may hold this exchange
      calls_.push_back(std::move(call));
    }
    changed_.notify_all();
  }

  void RunToEnd() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      const bool more =
          changed_.wait_for(lock, std::chrono::seconds(15), [&] { return !calls_.empty(); });
      Require(more, "no answer");
      const auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
    closed_ = true;
    calls_.clear();
  }

  int status() const { return status_; }
  const std::string& body() const { return body_; }
  bool streamed() const { return began_; }

 private:
  void EndNow() { ended_ = true; }

  HttpRequest request_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool closed_ = false;
  // Of the thread that runs the calls.
  int status_ = 0;
  std::string body_;
  bool began_ = false;
  bool ended_ = false;
};

struct World {
  World() {
    runner.before_run = [this](auto) { runner.passes.clear(); };
    for (size_t i = 0; i < std::size(kTemplates); ++i) {
      chat::ChatTemplate::Source source;
      source.main = kTemplates[i];
      source.marks = {"<think>", "</think>"};
      templates.push_back(chat::ChatTemplate::Make(source));
    }
    for (size_t i = 0; i < std::size(kTemplates); ++i) {
      Seat& seat = seats.emplace_back();
      seat.engine = &engine;
      seat.tokenizer = &tokenizer;
      seat.calls = &calls;
      seat.grammars = &grammars;
      seat.chat_template = &templates[i];
      apis.emplace_back(settings).SetReady(seat);
    }
  }

  text::Tokenizer tokenizer{text::SmallVocabulary()};
  engine::FakeRunner runner{{.slots = 2,
                             .slot_context = 96,
                             .rows_max = 32,
                             .vocabulary = static_cast<int32_t>(tokenizer.size())}};
  engine::Engine engine{runner, tokenizer};
  chat::CallMemory calls;
  text::GrammarCompiler grammars{tokenizer};
  ServeSettings settings;
  std::deque<chat::ChatTemplate> templates;
  std::deque<Seat> seats;
  std::deque<Api> apis;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  if (size < 2) return 0;
  HttpRequest request;
  request.method = "POST";
  request.path = kPaths[data[0] % std::size(kPaths)];
  request.query = {{"action", (data[1] & 64) != 0 ? "save" : "erase"}};
  request.body.assign(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto exchange = std::make_shared<Collecting>(std::move(request));
  const Api& api = world.apis[data[1] % std::size(kTemplates)];
  if (api.Admit(exchange->request())) return 0;
  api.Handle(exchange);
  exchange->RunToEnd();
  const std::string& body = exchange->body();
  const auto says = [&](std::string_view what) { return body.find(what) != std::string::npos; };
  // A refusal may show the client its own words, these among them.
  Require(exchange->status() < 500 ||
              (!says("the server failed on this request") && !says("internal error")),
          body);
  Require(IsValidUtf8(body), "the answer is no UTF-8");
  constexpr int kStatuses[] = {200, 400, 501, 503};
  const bool known = std::ranges::find(kStatuses, exchange->status()) != std::end(kStatuses);
  // What the model has written may be no call: that is named.
  Require(known || (exchange->status() == 500 && (says("cannot be read") || says("inside a call"))),
          std::to_string(exchange->status()) + " " + body);
  if (exchange->streamed()) {
    Require(body.ends_with("\n\n"), "a stream that ends within an event");
  } else {
    ParseJson(body, "answer");
  }
  return 0;
}
