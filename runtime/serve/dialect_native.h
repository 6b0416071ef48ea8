// llama-server's own /completion: results as flat objects, a stream without [DONE].
#pragma once

#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"

namespace bloomery::serve {

// A prompt of a request that runs.
struct NativePrompt {
  std::shared_ptr<const engine::GenerateRequest> request;  // as the engine runs it
  std::string text;                                        // detokenised, control tokens shown
};

// What became of one choice.
struct NativeResult {
  std::string content;
  std::vector<text::TokenId> tokens;
  std::vector<Json> probabilities;
  engine::Finish finish;
};

// The result object; of a stream without what its events have brought already.
Json NativeResultJson(const AnswerNames& names, const AnswerOptions& answer,
                      const NativePrompt& prompt, size_t index, const NativeResult& result);

class NativeDialect final : public Dialect {
 public:
  using Prompt = NativePrompt;

  // `several`: the request's `prompt` was a list of prompts, or asked for several choices: the
  // body is an array.
  NativeDialect(AnswerNames names, AnswerOptions answer, std::vector<Prompt> prompts, bool several);

  void OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) override;
  void OnText(size_t index, const engine::Text& text, StreamEvents& out) override;
  void OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) override;
  void OnEnd(StreamEvents&) override {}
  void OnError(const ApiError& error, StreamEvents& out) override;
  Json Body() override;

 private:
  using Result = NativeResult;
  const Prompt& PromptOf(size_t index) const;
  Json ResultJson(size_t index) const;
  Json Filtered(Json whole) const;

  AnswerNames names_;
  AnswerOptions answer_;
  std::vector<Prompt> prompts_;
  bool several_;
  size_t choices_;  // of one prompt
  std::vector<Result> results_;
};

}  // namespace bloomery::serve
