#include "runtime/serve/dialect_openai.h"

#include <algorithm>

namespace bloomery::serve {
namespace {

Json LogprobsJson(std::vector<Json> entries) {
  if (entries.empty()) return nullptr;
  return Json::Object({{"content", Json::Array(std::move(entries))}});
}

Json ChoiceJson(size_t index, std::string text, Json logprobs, Json finish_reason) {
  return Json::Object({{"text", std::move(text)},
                       {"index", index},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", std::move(finish_reason)}});
}

}  // namespace

void UsageSum::Add(size_t index, const engine::Finish& finish) {
  completion_ += finish.tokens_predicted;
  if (index % choices_ == 0) {
    prompt_ += finish.tokens_evaluated;
    cached_ += finish.timings.cache_n;
  }
}

OpenAiCompletionDialect::OpenAiCompletionDialect(AnswerNames names, AnswerOptions answer,
                                                 size_t choices, size_t prompts, bool post_sampling)
    : names_(std::move(names)),
      answer_(std::move(answer)),
      post_sampling_(post_sampling),
      usage_(choices),
      results_(choices * prompts) {}

Json OpenAiCompletionDialect::Chunk(Json choices) const {
  return Json::Object({{"id", names_.id},
                       {"object", "text_completion"},
                       {"created", names_.created},
                       {"model", names_.model},
                       {"system_fingerprint", BuildName()},
                       {"choices", std::move(choices)}});
}

void OpenAiCompletionDialect::OnProgress(size_t index, const engine::Progress& progress,
                                         StreamEvents& out) {
  Json chunk = Chunk(Json::Array({ChoiceJson(index, "", nullptr, nullptr)}));
  chunk.Set("prompt_progress", ProgressJson(progress));
  out.push_back(DataEvent(chunk));
}

void OpenAiCompletionDialect::OnText(size_t index, const engine::Text& text, StreamEvents& out) {
  std::vector<Json> entries;
  for (const auto& entry : text.probabilities) {
    entries.push_back(ProbabilityJson(entry, post_sampling_));
  }
  Result& result = results_[index];
  if (!answer_.stream) {
    result.text += text.text;
    std::move(entries.begin(), entries.end(), std::back_inserter(result.probabilities));
    return;
  }
  if (text.text.empty() && entries.empty()) return;
  Json chunk =
      Chunk(Json::Array({ChoiceJson(index, text.text, LogprobsJson(std::move(entries)), nullptr)}));
  if (answer_.timings_per_token) chunk.Set("timings", TimingsJson(text.timings));
  out.push_back(DataEvent(chunk));
}

void OpenAiCompletionDialect::OnFinish(size_t index, const engine::Finish& finish,
                                       StreamEvents& out) {
  results_[index].finish = finish;
  usage_.Add(index, finish);
  if (!answer_.stream) return;
  Json chunk = Chunk(Json::Array({ChoiceJson(index, "", nullptr, FinishReason(finish.stop_type))}));
  chunk.Set("usage",
            UsageJson(finish.tokens_evaluated, finish.tokens_predicted, finish.timings.cache_n));
  chunk.Set("timings", TimingsJson(finish.timings));
  out.push_back(DataEvent(chunk));
}

void OpenAiCompletionDialect::OnEnd(StreamEvents& out) {
  if (answer_.include_usage) {
    Json chunk = Chunk(Json::Array());
    chunk.Set("usage", usage_.Usage());
    chunk.Set("timings", TimingsJson(results_.front().finish.timings));
    out.push_back(DataEvent(chunk));
  }
  out.emplace_back(kDone);
}

void OpenAiCompletionDialect::OnError(const ApiError& error, StreamEvents& out) {
  out.push_back(DataEvent(ErrorJson(error)));
}

Json OpenAiCompletionDialect::Body() {
  Json choices = Json::Array();
  for (size_t i = 0; i < results_.size(); ++i) {
    Result& result = results_[i];
    choices.Append(ChoiceJson(i, std::move(result.text),
                              LogprobsJson(std::move(result.probabilities)),
                              FinishReason(result.finish.stop_type)));
  }
  Json body = Chunk(std::move(choices));
  body.Set("usage", usage_.Usage());
  body.Set("timings", TimingsJson(results_.front().finish.timings));
  return body;
}

}  // namespace bloomery::serve
