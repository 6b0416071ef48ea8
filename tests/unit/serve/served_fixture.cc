#include "tests/unit/serve/served_fixture.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/model/gguf.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::serve {

ServedTest::ServedTest() {
  // Programs for a card run on another machine than they were built on.
  const char* const source = std::getenv("BLOOMERY_SOURCE_DIR");
  const auto model = model::OpenGguf(RealFileSystem(),
                                     std::string(source == nullptr ? BLOOMERY_SOURCE_DIR : source) +
                                         "/tests/data/mini/qwen3moe/model.gguf");
  tokenizer_ = std::make_unique<text::Tokenizer>(text::ReadVocabulary(model.metadata()));
  model_template_ = model.metadata().GetString("tokenizer.chat_template");
  script_ = tokenizer_->Tokenise(kScript);
  settings_.port = 0;
  limits_ = {.slots = 2,
             .slot_context = 128,
             .rows_max = 32,
             .vocabulary = static_cast<int32_t>(tokenizer_->size())};
}

ServedTest::~ServedTest() {
  if (server_) server_->Stop(std::chrono::milliseconds(0));
}

void ServedTest::Listen() {
  HttpOptions options = Server::OptionsOf(settings_);
  options.connections_max = connections_max_;
  options.answer_bytes_max = answer_bytes_max_;
  server_ = std::make_unique<Server>(settings_, options);
}

void ServedTest::Say(const std::string& text) {
  script_ = tokenizer_->Tokenise(text, {.parse_special = true});
  by_prefix_ = true;
  limits_.slot_context = 1024;
}

// Behind as much of the script as the history ends with.
int32_t ServedTest::NextByPrefix(const std::vector<int32_t>& history) const {
  for (size_t said = std::min(script_.size(), history.size()); said > 0; --said) {
    if (!std::equal(script_.begin(), script_.begin() + static_cast<long>(said),
                    history.end() - static_cast<long>(said))) {
      continue;
    }
    if (said < script_.size()) return script_[said];
    return endless_ ? script_.back() : tokenizer_->special_ids().eos;
  }
  return script_.front();
}

void ServedTest::FinishLoading() {
  runner_ = std::make_unique<engine::FakeRunner>(limits_);
  runner_->before_run = [this](auto) {
    if (before_pass_) before_pass_();
  };
  runner_->next = [this](const engine::Tokens& history) -> std::optional<int32_t> {
    if (by_prefix_) return NextByPrefix(history);
    const auto at = std::find(script_.begin(), script_.end(), history.back());
    if (at == script_.end()) return script_.front();
    if (at + 1 != script_.end()) return *(at + 1);
    return endless_ ? script_.front() : tokenizer_->special_ids().eos;
  };
  chat::ChatTemplate::Source source;
  source.main = template_.empty() ? model_template_ : template_;
  source.eos_text = "<|im_end|>";
  source.marks = {"<think>", "</think>"};
  chat_template_ = std::make_unique<chat::ChatTemplate>(chat::ChatTemplate::Make(source));
  engine_ = std::make_unique<engine::Engine>(other_runner_ == nullptr ? *runner_ : *other_runner_,
                                             *tokenizer_);
  seat_.model.name = "mini.gguf";
  seat_.model.path = "models/mini.gguf";
  seat_.model.ftype = "BF16";
  seat_.model.context_trained = 4096;
  seat_.engine = engine_.get();
  seat_.tokenizer = tokenizer_.get();
  grammars_ = std::make_unique<text::GrammarCompiler>(*tokenizer_);
  seat_.grammars = grammars_.get();
  seat_.calls = &calls_;
  seat_.chat_template = chat_template_.get();
  server_->SetReady(seat_);
}

void ServedTest::Start() {
  Listen();
  FinishLoading();
}

test::Answer ServedTest::Post(const std::string& path, const std::string& body,
                              const std::map<std::string, std::string>& headers) {
  return test::Fetch(port(), "POST", path, body, headers);
}

test::Answer ServedTest::Get(const std::string& path,
                             const std::map<std::string, std::string>& headers) {
  return test::Fetch(port(), "GET", path, "", headers);
}

rapidjson::Document ServedTest::PostJson(const std::string& path, const std::string& body,
                                         int status) {
  const test::Answer answer = Post(path, body);
  EXPECT_EQ(answer.status, status) << answer.body;
  return ParseJson(answer.body, "answer");
}

rapidjson::Document ServedTest::GetJson(const std::string& path, int status) {
  const test::Answer answer = Get(path);
  EXPECT_EQ(answer.status, status) << answer.body;
  return ParseJson(answer.body, "answer");
}

std::string ServedTest::ErrorOf(const test::Answer& answer, int status, const std::string& type) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const auto body = ParseJson(answer.body, "answer");
  if (!body.IsObject() || !body.HasMember("error")) return "no error body: " + answer.body;
  EXPECT_EQ(body["error"]["code"].GetInt(), status);
  EXPECT_EQ(TextOf(body["error"], "type"), type);
  return TextOf(body["error"], "message");
}

std::vector<std::string> ServedTest::TypesOf(const std::vector<rapidjson::Document>& events) {
  std::vector<std::string> types;
  for (const auto& event : events) {
    const std::string type = TextOf(event, "type");
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

std::vector<rapidjson::Document> ServedTest::NamedEvents(const std::string& body) {
  std::vector<rapidjson::Document> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an event without its end: " << body.substr(at);
      break;
    }
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    const size_t line = event.find('\n');
    if (!event.starts_with("event: ") || line == std::string::npos ||
        event.compare(line + 1, 6, "data: ") != 0) {
      ADD_FAILURE() << "no named event: " << event;
      break;
    }
    events.push_back(ParseJson(event.substr(line + 7), "event"));
    EXPECT_EQ(TextOf(events.back(), "type"), event.substr(7, line - 7));
  }
  return events;
}

std::vector<rapidjson::Document> ServedTest::Events(const std::string& body, bool& done) {
  std::vector<rapidjson::Document> events;
  done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an event without its end: " << body.substr(at);
      break;
    }
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_FALSE(done) << "an event after [DONE]: " << event;
    if (event == "data: [DONE]") {
      done = true;
    } else {
      events.push_back(ParseJson(event.substr(6), "event"));
    }
  }
  return events;
}

std::string TextOf(const rapidjson::Value& object, const char* name) {
  const auto found = object.FindMember(name);
  if (found == object.MemberEnd() || !found->value.IsString()) return "";
  return found->value.GetString();
}

}  // namespace bloomery::serve
