#include "runtime/serve/dialect_native.h"

#include "runtime/base/error.h"
#include "runtime/serve/http.h"

namespace bloomery::serve {
namespace {

Json TokensJson(const std::vector<text::TokenId>& tokens) {
  Json json = Json::Array();
  for (text::TokenId token : tokens) json.Append(token);
  return json;
}

// The member at a path of names separated by slashes.
const Json* AtPath(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (at != nullptr && !path.empty()) {
    const size_t slash = path.find('/');
    at = at->Find(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return at;
}

}  // namespace

NativeDialect::NativeDialect(AnswerNames names, AnswerOptions answer, std::vector<Prompt> prompts,
                             bool several)
    : names_(std::move(names)),
      answer_(std::move(answer)),
      prompts_(std::move(prompts)),
      several_(several),
      choices_(static_cast<size_t>(prompts_.front().request->choices)),
      results_(prompts_.size() * choices_) {}

const NativeDialect::Prompt& NativeDialect::PromptOf(size_t index) const {
  return prompts_[index / choices_];
}

void NativeDialect::OnProgress(size_t index, const engine::Progress& progress, StreamEvents& out) {
  out.push_back(DataEvent(Json::Object({{"index", index},
                                        {"content", ""},
                                        {"tokens", Json::Array()},
                                        {"stop", false},
                                        {"id_slot", -1},
                                        {"tokens_predicted", 0},
                                        {"tokens_evaluated", progress.total},
                                        {"prompt_progress", ProgressJson(progress)}})));
}

void NativeDialect::OnText(size_t index, const engine::Text& text, StreamEvents& out) {
  Result& result = results_[index];
  const bool post = PromptOf(index).request->sampling.post_sampling_probs;
  std::vector<Json> probabilities;
  for (const auto& entry : text.probabilities)
    probabilities.push_back(ProbabilityJson(entry, post));
  if (!answer_.stream) {
    Collect(text.text, probabilities);
    result.content += text.text;
    result.tokens.insert(result.tokens.end(), text.tokens.begin(), text.tokens.end());
    for (Json& entry : probabilities) result.probabilities.push_back(std::move(entry));
    return;
  }
  Json chunk = Json::Object({{"index", index},
                             {"content", text.text},
                             {"tokens", TokensJson(text.tokens)},
                             {"stop", false},
                             {"id_slot", text.id_slot},
                             {"tokens_predicted", text.tokens_predicted},
                             {"tokens_evaluated", text.tokens_evaluated}});
  if (answer_.timings_per_token) chunk.Set("timings", TimingsJson(text.timings));
  if (!probabilities.empty()) {
    chunk.Set("completion_probabilities", Json::Array(std::move(probabilities)));
  }
  out.push_back(DataEvent(chunk));
}

void NativeDialect::OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) {
  results_[index].finish = finish;
  if (answer_.stream) out.push_back(DataEvent(Filtered(ResultJson(index))));
}

void NativeDialect::OnError(const ApiError& error, StreamEvents& out) {
  out.push_back(DataEvent(ErrorJson(error)));
}

Json NativeResultJson(const AnswerNames& names, const AnswerOptions& answer,
                      const NativePrompt& prompt, size_t index, const NativeResult& result) {
  const engine::Finish& finish = result.finish;
  Json json =
      Json::Object({{"index", index},
                    {"content", result.content},
                    {"tokens", answer.return_tokens && !answer.stream ? TokensJson(result.tokens)
                                                                      : Json::Array()},
                    {"id_slot", finish.id_slot},
                    {"stop", true},
                    {"model", names.model},
                    {"tokens_predicted", finish.tokens_predicted},
                    {"tokens_evaluated", finish.tokens_evaluated},
                    {"generation_settings", GenerationSettings(*prompt.request, answer)},
                    {"prompt", prompt.text},
                    {"has_new_line", finish.has_new_line},
                    {"truncated", finish.truncated},
                    {"stop_type", engine::StopTypeName(finish.stop_type)},
                    {"stopping_word", finish.stopping_word},
                    {"tokens_cached", finish.tokens_cached},
                    {"timings", TimingsJson(finish.timings)}});
  if (!answer.stream && prompt.request->sampling.n_probs > 0) {
    json.Set("completion_probabilities", Json::Array(result.probabilities));
  }
  return json;
}

Json NativeDialect::ResultJson(size_t index) const {
  return NativeResultJson(names_, answer_, PromptOf(index), index, results_[index]);
}

// `response_fields`: only these members; one inside another object is lifted to the root under its
// whole path.
Json NativeDialect::Filtered(Json whole) const {
  if (answer_.response_fields.empty()) return whole;
  Json picked = Json::Object();
  for (const std::string& path : answer_.response_fields) {
    const Json* at = AtPath(whole, path);
    if (at != nullptr && picked.Find(path) == nullptr) picked.Set(path, *at);
  }
  return picked;
}

Json NativeDialect::Body() {
  if (!several_) return Filtered(ResultJson(0));
  // Each repeats its prompt and the settings, so they are written one by one, and counted.
  Json all = Json::Array();
  size_t bytes = 0;
  for (size_t i = 0; i < results_.size(); ++i) {
    Json result = Json::Written(Filtered(ResultJson(i)).Text());
    bytes += result.WrittenBytes();
    if (bytes > answer_.bytes_max)
      throw Error(ErrorKind::kBadRequest, AnswerTooLarge(answer_.bytes_max));
    all.Append(std::move(result));
  }
  return all;
}

}  // namespace bloomery::serve
