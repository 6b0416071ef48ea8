// The OpenAI text completions: choices with text, a stream that ends with [DONE].
#pragma once

#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"

namespace bloomery::serve {

// Sums over the choices of a request, for `usage`: a prompt counts once, however many choices.
class UsageSum {
 public:
  explicit UsageSum(size_t choices_a_prompt) : choices_(choices_a_prompt) {}
  void Add(size_t index, const engine::Finish& finish);
  Json Usage() const { return UsageJson(prompt_, completion_, cached_); }

 private:
  size_t choices_;
  int64_t prompt_ = 0;
  int64_t completion_ = 0;
  int64_t cached_ = 0;
};

class OpenAiCompletionDialect final : public Dialect {
 public:
  OpenAiCompletionDialect(AnswerNames names, AnswerOptions answer, size_t choices, size_t prompts,
                          bool post_sampling);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  void OnEnd(StreamEvents& out) override;
  void OnError(const ApiError& error, StreamEvents& out) override;
  Json Body() override;

 private:
  struct Result {
    std::string text;
    std::vector<Json> probabilities;
    engine::Finish finish;
  };
  Json Chunk(Json choices) const;

  AnswerNames names_;
  AnswerOptions answer_;
  bool post_sampling_;
  UsageSum usage_;
  std::vector<Result> results_;
};

}  // namespace bloomery::serve
