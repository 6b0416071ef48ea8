#include "runtime/serve/dialect_openai_chat.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bloomery::serve {

OpenAiChatDialect::OpenAiChatDialect(AnswerNames names, const AnswerOptions& answer,
                                     Options options)
    : OpenAiDialect(std::move(names), answer,
                    answer.stream ? "chat.completion.chunk" : "chat.completion", options.choices),
      options_(std::move(options)) {
  // No tool formats in this version, so no tool call can end a think span.
  const chat::ReasoningSplitter splitter(options_.reasoning, options_.marks,
                                         options_.starts_in_reasoning, false);
  results_.assign(options_.choices, Result(splitter));
}

Json OpenAiChatDialect::DeltaChunk(size_t index, Json delta, Json finish_reason) const {
  return Chunk(Json::Array({Json::Object({{"index", index},
                                          {"delta", std::move(delta)},
                                          {"finish_reason", std::move(finish_reason)}})}));
}

void OpenAiChatDialect::SendRole(size_t index, StreamEvents& out) {
  Result& result = results_[index];
  if (std::exchange(result.role_sent, true)) return;
  out.push_back(DataEvent(
      DeltaChunk(index, Json::Object({{"role", "assistant"}, {"content", nullptr}}), nullptr)));
}

void OpenAiChatDialect::OnProgress(size_t index, const engine::Progress& progress,
                                   StreamEvents& out) {
  results_[index].role_sent = true;
  Json chunk =
      DeltaChunk(index, Json::Object({{"role", "assistant"}, {"content", nullptr}}), nullptr);
  chunk.Set("prompt_progress", ProgressJson(progress));
  out.push_back(DataEvent(chunk));
}

// Reasoning before content: that is the order in the text. Probabilities ride on the last delta of
// the step, and wait for one when the step has none.
void OpenAiChatDialect::SendDelta(size_t index, chat::ReasoningDelta delta,
                                  const engine::Timings* timings, StreamEvents& out) {
  std::vector<Json> deltas;
  if (!delta.reasoning.empty()) {
    deltas.push_back(Json::Object({{"reasoning_content", std::move(delta.reasoning)}}));
  }
  if (!delta.content.empty()) {
    deltas.push_back(Json::Object({{"content", std::move(delta.content)}}));
  }
  Result& result = results_[index];
  for (size_t i = 0; i < deltas.size(); ++i) {
    Json choice = Json::Object(
        {{"index", index}, {"delta", std::move(deltas[i])}, {"finish_reason", nullptr}});
    if (i + 1 == deltas.size() && !result.probabilities.empty()) {
      choice.Set("logprobs",
                 Json::Object({{"content", Json::Array(std::exchange(result.probabilities, {}))}}));
    }
    Json chunk = Chunk(Json::Array({std::move(choice)}));
    if (answer().timings_per_token && timings != nullptr) {
      chunk.Set("timings", TimingsJson(*timings));
    }
    out.push_back(DataEvent(chunk));
  }
}

void OpenAiChatDialect::OnText(size_t index, const engine::Text& text, StreamEvents& out) {
  Result& result = results_[index];
  std::vector<Json> entries;
  for (engine::TokenProbabilities entry : text.probabilities) {
    if (!options_.alternatives) entry.top.clear();
    entries.push_back(ProbabilityJson(entry, options_.post_sampling));
  }
  if (!answer().stream) Collect(text.text, entries);
  std::move(entries.begin(), entries.end(), std::back_inserter(result.probabilities));
  chat::ReasoningDelta delta = result.splitter.Push(text.text);
  if (answer().stream) {
    SendRole(index, out);
    SendDelta(index, std::move(delta), &text.timings, out);
  } else {
    result.reasoning += delta.reasoning;
    result.content += delta.content;
  }
}

void OpenAiChatDialect::OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) {
  Result& result = results_[index];
  result.stop_type = finish.stop_type;
  Count(index, finish);
  chat::ReasoningDelta delta = result.splitter.Finish();
  if (!answer().stream) {
    result.reasoning += delta.reasoning;
    result.content += delta.content;
    return;
  }
  SendRole(index, out);
  SendDelta(index, std::move(delta), nullptr, out);
  Json choice = Json::Object({{"index", index},
                              {"delta", Json::Object()},
                              {"finish_reason", FinishReason(finish.stop_type)}});
  if (!result.probabilities.empty()) {
    choice.Set("logprobs",
               Json::Object({{"content", Json::Array(std::exchange(result.probabilities, {}))}}));
  }
  Json chunk = Chunk(Json::Array({std::move(choice)}));
  if (!answer().include_usage) chunk.Set("timings", TimingsJson(finish.timings));
  out.push_back(DataEvent(chunk));
}

Json OpenAiChatDialect::Body() {
  Json choices = Json::Array();
  for (size_t i = 0; i < results_.size(); ++i) {
    Result& result = results_[i];
    Json message = Json::Object({{"role", "assistant"}, {"content", std::move(result.content)}});
    if (!result.reasoning.empty()) {
      message.Set("reasoning_content", std::move(result.reasoning));
    }
    Json choice = Json::Object({{"index", i},
                                {"finish_reason", FinishReason(result.stop_type)},
                                {"message", std::move(message)}});
    if (options_.logprobs) {
      choice.Set("logprobs",
                 Json::Object({{"content", Json::Array(std::move(result.probabilities))}}));
    }
    choices.Append(std::move(choice));
  }
  return Summary(std::move(choices));
}

}  // namespace bloomery::serve
