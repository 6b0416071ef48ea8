// The OpenAI chat completions: messages in, a message out, reasoning apart from content.
#pragma once

#include "runtime/serve/openai_answer.h"
#include "runtime/text/chat/reasoning.h"

namespace bloomery::serve {

class OpenAiChatDialect final : public OpenAiDialect {
 public:
  struct Options {
    size_t choices = 1;
    bool post_sampling = false;
    bool logprobs = false;
    bool alternatives = true;  // false: top_logprobs 0, the drawn token alone
    chat::ReasoningFormat reasoning = chat::ReasoningFormat::kDeepseek;
    chat::ReasoningMarks marks;  // of the model
    bool starts_in_reasoning = false;
  };
  OpenAiChatDialect(AnswerNames names, const AnswerOptions& answer, Options options);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Result {
    explicit Result(chat::ReasoningSplitter s) : splitter(std::move(s)) {}
    chat::ReasoningSplitter splitter;
    bool role_sent = false;
    std::string reasoning;
    std::string content;
    std::vector<Json> probabilities;  // collected, or waiting for a delta to ride on
    engine::StopType stop_type = engine::StopType::kNone;
  };
  Json DeltaChunk(size_t index, Json delta, Json finish_reason) const;
  void SendRole(size_t index, StreamEvents& out);
  void SendDelta(size_t index, chat::ReasoningDelta delta, const engine::Timings* timings,
                 StreamEvents& out);

  Options options_;
  std::vector<Result> results_;
};

}  // namespace bloomery::serve
