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

OpenAiCompletionDialect::OpenAiCompletionDialect(AnswerNames names, AnswerOptions answer,
                                                 size_t choices, size_t prompts, bool post_sampling)
    : OpenAiDialect(std::move(names), std::move(answer), "text_completion", choices),
      post_sampling_(post_sampling),
      results_(choices * prompts) {}

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
  KeepNative(index, text);
  if (!answer().stream) {
    Collect(text.text, entries);
    result.text += text.text;
    std::move(entries.begin(), entries.end(), std::back_inserter(result.probabilities));
    return;
  }
  if (text.text.empty() && entries.empty()) return;
  Json chunk =
      Chunk(Json::Array({ChoiceJson(index, text.text, LogprobsJson(std::move(entries)), nullptr)}));
  if (answer().timings_per_token) chunk.Set("timings", TimingsJson(text.timings));
  out.push_back(DataEvent(chunk));
}

void OpenAiCompletionDialect::OnFinish(size_t index, const engine::Finish& finish,
                                       StreamEvents& out) {
  results_[index].stop_type = finish.stop_type;
  Count(index, finish);
  if (!answer().stream) return;
  Json chunk = Chunk(Json::Array({ChoiceJson(index, "", nullptr, FinishReason(finish.stop_type))}));
  chunk.Set("usage",
            UsageJson(finish.tokens_evaluated, finish.tokens_predicted, finish.timings.cache_n));
  chunk.Set("timings", TimingsJson(finish.timings));
  AddNative(index, chunk);
  out.push_back(DataEvent(chunk));
}

Json OpenAiCompletionDialect::Body() {
  Json choices = Json::Array();
  for (size_t i = 0; i < results_.size(); ++i) {
    Result& result = results_[i];
    choices.Append(ChoiceJson(i, std::move(result.text),
                              LogprobsJson(std::move(result.probabilities)),
                              FinishReason(result.stop_type)));
  }
  return Summary(std::move(choices));
}

}  // namespace bloomery::serve
