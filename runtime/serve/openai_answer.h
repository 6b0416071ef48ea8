// What the answers of all OpenAI dialects share: the frame around choices, usage and timings, how a
// stream ends. A dialect derives from OpenAiDialect and says what a choice is.
#pragma once

#include <optional>

#include "runtime/serve/dialect.h"
#include "runtime/serve/dialect_native.h"
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

class OpenAiDialect : public Dialect {
 public:
  // `verbose`: the first choice's prompt; its native result goes into the answer as __verbose.
  void ShowNativeResult(NativePrompt prompt) { verbose_ = std::move(prompt); }

  void OnEnd(StreamEvents& out) final;
  void OnError(const ApiError& error, StreamEvents& out) final;

 protected:
  // `object` is the answer's kind; `choices_a_prompt` is `n`.
  OpenAiDialect(AnswerNames names, AnswerOptions answer, std::string object,
                size_t choices_a_prompt);

  const AnswerOptions& answer() const { return answer_; }
  // For every step of a choice.
  void KeepNative(size_t index, const engine::Text& text);
  // Of the first choice's last event, and of the whole answer; nothing where nobody asked.
  void AddNative(size_t index, Json& json) const;
  // Once for every choice, when it finishes.
  void Count(size_t index, const engine::Finish& finish);
  // The frame of a stream event, and of the whole answer.
  Json Chunk(Json choices) const;
  // Every choice has finished: the frame with usage and timings, which are the first choice's.
  Json Summary(Json choices) const;

 private:
  AnswerNames names_;
  AnswerOptions answer_;
  std::string object_;
  UsageSum usage_;
  engine::Timings timings_;
  std::optional<NativePrompt> verbose_;
  NativeResult native_;  // of the first choice
};

}  // namespace bloomery::serve
