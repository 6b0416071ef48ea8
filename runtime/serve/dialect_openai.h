// The OpenAI text completions: choices with text, a stream that ends with [DONE].
#pragma once

#include "runtime/serve/openai_answer.h"

namespace bloomery::serve {

class OpenAiCompletionDialect final : public OpenAiDialect {
 public:
  OpenAiCompletionDialect(AnswerNames names, AnswerOptions answer, size_t choices, size_t prompts,
                          bool post_sampling);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Result {
    std::string text;
    std::vector<Json> probabilities;
    engine::StopType stop_type = engine::StopType::kNone;
  };

  bool post_sampling_;
  std::vector<Result> results_;
};

}  // namespace bloomery::serve
