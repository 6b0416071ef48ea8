#include "runtime/serve/dialect.h"

#include <random>

#include "runtime/base/utf8.h"

namespace bloomery::serve {

std::string DataEvent(const Json& json) { return "data: " + json.Text() + "\n\n"; }

std::string NamedEvent(const Json& json) {
  const Json* type = json.Find("type");
  return "event: " + std::string(type->TextValue()) + "\n" + DataEvent(json);
}

void Dialect::Collect(const std::string& text, const std::vector<Json>& probabilities) {
  collected_bytes_ += text.size();
  for (const Json& entry : probabilities) collected_bytes_ += entry.WrittenBytes();
}

Json TimingsJson(const engine::Timings& t) {
  Json json = Json::Object({{"cache_n", t.cache_n},
                            {"prompt_n", t.prompt_n},
                            {"prompt_ms", t.prompt_ms},
                            {"prompt_per_token_ms", t.prompt_per_token_ms},
                            {"prompt_per_second", t.prompt_per_second},
                            {"predicted_n", t.predicted_n},
                            {"predicted_ms", t.predicted_ms},
                            {"predicted_per_token_ms", t.predicted_per_token_ms},
                            {"predicted_per_second", t.predicted_per_second}});
  if (t.draft_n > 0) {
    json.Set("draft_n", t.draft_n);
    json.Set("draft_n_accepted", t.draft_n_accepted);
  }
  return json;
}

Json ProgressJson(const engine::Progress& progress) {
  return Json::Object({{"total", progress.total},
                       {"cache", progress.cache},
                       {"processed", progress.processed},
                       {"time_ms", progress.time_ms}});
}

Json UsageJson(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens) {
  return Json::Object(
      {{"completion_tokens", completion_tokens},
       {"prompt_tokens", prompt_tokens},
       {"total_tokens", prompt_tokens + completion_tokens},
       {"prompt_tokens_details", Json::Object({{"cached_tokens", cached_tokens}})}});
}

Json ProbabilityJson(const engine::TokenProbabilities& entry, bool post_sampling) {
  const char* const value = post_sampling ? "prob" : "logprob";
  Json top = Json::Array();
  for (const auto& alternative : entry.top) {
    top.Append(Json::Object({{"id", alternative.token},
                             {"token", ReplaceInvalidUtf8(alternative.text)},
                             {"bytes", Json::Bytes(alternative.text)},
                             {value, alternative.value}}));
  }
  const Json json = Json::Object({{"id", entry.token},
                                  {"token", ReplaceInvalidUtf8(entry.text)},
                                  {"bytes", Json::Bytes(entry.text)},
                                  {value, entry.value},
                                  {post_sampling ? "top_probs" : "top_logprobs", std::move(top)}});
  return Json::Written(json.Text());
}

std::vector<Json> ProbabilitiesJson(const engine::Text& text, const ProbabilityOptions& options) {
  std::vector<Json> entries;
  for (engine::TokenProbabilities entry : text.probabilities) {
    if (!options.alternatives) entry.top.clear();
    entries.push_back(ProbabilityJson(entry, options.post_sampling));
  }
  return entries;
}

std::string_view FinishReason(engine::StopType type) {
  return type == engine::StopType::kLimit ? "length" : "stop";
}

chat::AnswerEnding EndingOf(engine::StopType type) {
  if (type == engine::StopType::kLimit) return chat::AnswerEnding::kCut;
  return type == engine::StopType::kEos ? chat::AnswerEnding::kEnd : chat::AnswerEnding::kStopped;
}

std::string RandomId(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 32; ++i) id.push_back(kLetters[pick(random)]);
  return id;
}

std::string_view BuildName() { return "bloomery-" BLOOMERY_VERSION; }

}  // namespace bloomery::serve
