// OpenAI's responses: an answer of items (reasoning, message, function calls), a stream of
// numbered, named events without [DONE] whose last one holds the whole response. Items come in the
// order in which the model writes them and each is done before the next is added.
#pragma once

#include <string>
#include <vector>

#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {

class ResponsesDialect final : public Dialect {
 public:
  struct Options {
    chat::OutputFormat format;
    ProbabilityOptions probabilities;
    const text::Tokenizer* tokenizer = nullptr;  // counts the tokens of reasoning
  };
  ResponsesDialect(AnswerNames names, AnswerOptions answer, Options options);

  void OnBegin(StreamEvents& out) override;
  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  void OnEnd(StreamEvents&) override {}
  void OnError(const ApiError& error, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Item {
    chat::OutputDelta::Kind kind = chat::OutputDelta::Kind::kContent;  // or kReasoning, kCallBegin
    std::string id{};
    std::string call{};  // the call's id
    std::string name{};  // of the called function
    std::string text{};  // of a call: its arguments
    std::vector<Json> probabilities{};
    bool complete = true;
  };
  void Send(const char* type, std::vector<Json::Member> members, StreamEvents& out);
  // With the place of the last item before the members.
  void SendOfItem(const char* type, std::vector<Json::Member> members, StreamEvents& out);
  std::vector<Json> ProbabilitiesOf(size_t text_bytes);
  void TakeAll(const std::vector<chat::OutputDelta>& deltas, StreamEvents& out);
  void Take(const chat::OutputDelta& delta, StreamEvents& out);
  void Open(Item item, StreamEvents& out);
  void Append(const std::string& text, StreamEvents& out);
  void Close(const char* status, StreamEvents& out);
  void CloseText(const Item& item, StreamEvents& out);
  Json ItemJson(const Item& item, const char* status) const;
  Json UsageOfAll() const;
  Json ResponseJson(const char* status) const;
  const char* FinalStatus() const;

  AnswerNames names_;
  AnswerOptions answer_;
  Options options_;
  chat::ChatOutput output_;
  std::vector<Item> items_;
  // Of tokens whose text is not out yet, with the number of its bytes.
  struct Waiting {
    Json entry;
    size_t bytes = 0;
  };
  std::vector<Waiting> probabilities_;
  int64_t completed_ = 0;  // seconds since 1970
  int64_t sequence_ = 0;
  bool open_ = false;  // the last item takes more
  engine::Finish finish_;
};

}  // namespace bloomery::serve
