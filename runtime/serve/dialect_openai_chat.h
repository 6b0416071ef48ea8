// The OpenAI chat completions: messages in, a message out, reasoning and tool calls apart from
// content.
#pragma once

#include "runtime/serve/openai_answer.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {

class OpenAiChatDialect final : public OpenAiDialect {
 public:
  struct Options {
    size_t choices = 1;
    ProbabilityOptions probabilities;
    chat::OutputFormat format;
  };
  OpenAiChatDialect(AnswerNames names, const AnswerOptions& answer, Options options);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Result {
    explicit Result(chat::ChatOutput o) : output(std::move(o)) {}
    chat::ChatOutput output;
    chat::AssistantTurn turn;  // where it is collected
    bool role_sent = false;
    std::vector<Json> probabilities;  // collected, or waiting for a delta to ride on
    engine::StopType stop_type = engine::StopType::kNone;
  };
  Json DeltaChunk(size_t index, Json delta, Json finish_reason) const;
  void SendRole(size_t index, StreamEvents& out);
  void Take(size_t index, std::vector<chat::OutputDelta> deltas, const engine::Timings* timings,
            StreamEvents& out);
  void SendDeltas(size_t index, std::vector<chat::OutputDelta> deltas,
                  const engine::Timings* timings, StreamEvents& out);
  Json Message(Result& result) const;

  Options options_;
  std::vector<Result> results_;
};

}  // namespace bloomery::serve
