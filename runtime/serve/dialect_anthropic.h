// Anthropic's messages: an answer of blocks (thinking, text, tool use), a stream of named events
// without [DONE]. Blocks come in the order in which the model writes them and each is closed before
// the next opens.
#pragma once

#include <string>
#include <vector>

#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {

class AnthropicDialect final : public Dialect {
 public:
  // `stop_sequences`: the request's own; another text that ends an answer is an end of the turn.
  AnthropicDialect(AnswerNames names, AnswerOptions answer, const chat::OutputFormat& format,
                   std::vector<std::string> stop_sequences);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  void OnEnd(StreamEvents&) override {}
  ErrorForm error_form() const override { return ErrorForm::kAnthropic; }
  void OnError(const ApiError& error, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Block {
    chat::OutputDelta::Kind kind = chat::OutputDelta::Kind::kContent;  // or kReasoning, kCallBegin
    std::string text{};                                                // of a call: its arguments
    std::string id{};                                                  // of a call
    std::string name{};
    bool complete = true;
  };
  struct Stop {
    std::string reason;
    Json sequence;
  };
  Stop StopOf() const;
  void SendStart(int64_t prompt_tokens, int64_t cached_tokens, StreamEvents& out);
  void Take(const chat::OutputDelta& delta, StreamEvents& out);
  void TakeText(const chat::OutputDelta& delta, StreamEvents& out);
  void Open(Block block, StreamEvents& out);
  void Close(StreamEvents& out);
  void SendDelta(Json delta, StreamEvents& out) const;
  Json MessageJson(Json content, Json stop_reason, Json stop_sequence, Json usage) const;

  AnswerNames names_;
  AnswerOptions answer_;
  std::vector<std::string> stop_sequences_;
  chat::ChatOutput output_;
  std::vector<Block> blocks_;  // of a stream their texts stay empty
  bool started_ = false;       // message_start is out
  bool open_ = false;          // the last block takes more
  engine::Finish finish_;
};

}  // namespace bloomery::serve
