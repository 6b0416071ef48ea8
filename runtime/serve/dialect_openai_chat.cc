#include "runtime/serve/dialect_openai_chat.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bloomery::serve {

namespace {

// A delta as the member of a message that it adds to; null for one that adds nothing there.
Json DeltaJson(chat::OutputDelta delta) {
  using Kind = chat::OutputDelta::Kind;
  switch (delta.kind) {
    case Kind::kReasoning:
      return Json::Object({{"reasoning_content", std::move(delta.text)}});
    case Kind::kContent:
      return Json::Object({{"content", std::move(delta.text)}});
    case Kind::kCallBegin:
      return Json::Object(
          {{"tool_calls",
            Json::Array({Json::Object({{"index", delta.call},
                                       {"id", std::move(delta.id)},
                                       {"type", "function"},
                                       {"function", Json::Object({{"name", std::move(delta.text)},
                                                                  {"arguments", ""}})}})})}});
    case Kind::kCallArguments:
      return Json::Object(
          {{"tool_calls",
            Json::Array({Json::Object(
                {{"index", delta.call},
                 {"function", Json::Object({{"arguments", std::move(delta.text)}})}})})}});
    case Kind::kCallEnd:
      break;
  }
  return nullptr;
}

// Calls end an answer only where it ended by itself: behind a limit there may have been more.
std::string_view FinishReasonOf(engine::StopType type, const chat::ChatOutput& output) {
  return output.has_calls() && type != engine::StopType::kLimit ? "tool_calls" : FinishReason(type);
}

}  // namespace

OpenAiChatDialect::OpenAiChatDialect(AnswerNames names, const AnswerOptions& answer,
                                     Options options)
    : OpenAiDialect(std::move(names), answer,
                    answer.stream ? "chat.completion.chunk" : "chat.completion", options.choices),
      options_(std::move(options)) {
  for (size_t i = 0; i < options_.choices; ++i) {
    results_.emplace_back(chat::ChatOutput(options_.format, [] { return RandomId("call_"); }));
  }
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

// Probabilities ride on the last delta of the step, and wait for one when the step has none.
void OpenAiChatDialect::SendDeltas(size_t index, std::vector<chat::OutputDelta> deltas,
                                   const engine::Timings* timings, StreamEvents& out) {
  Result& result = results_[index];
  std::erase_if(deltas, [](const chat::OutputDelta& delta) {
    return delta.kind == chat::OutputDelta::Kind::kCallEnd;
  });
  for (size_t i = 0; i < deltas.size(); ++i) {
    Json choice = Json::Object(
        {{"index", index}, {"delta", DeltaJson(std::move(deltas[i]))}, {"finish_reason", nullptr}});
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

void OpenAiChatDialect::Take(size_t index, std::vector<chat::OutputDelta> deltas,
                             const engine::Timings* timings, StreamEvents& out) {
  if (answer().stream) {
    SendRole(index, out);
    SendDeltas(index, std::move(deltas), timings, out);
  } else {
    for (const chat::OutputDelta& delta : deltas) results_[index].turn.Add(delta);
  }
}

void OpenAiChatDialect::OnText(size_t index, const engine::Text& text, StreamEvents& out) {
  Result& result = results_[index];
  std::vector<Json> entries = ProbabilitiesJson(text, options_.probabilities);
  if (!answer().stream) Collect(text.text, entries);
  KeepNative(index, text);
  std::move(entries.begin(), entries.end(), std::back_inserter(result.probabilities));
  Take(index, result.output.Push(text.text), &text.timings, out);
}

void OpenAiChatDialect::OnFinish(size_t index, const engine::Finish& finish, StreamEvents& out) {
  Result& result = results_[index];
  result.stop_type = finish.stop_type;
  Count(index, finish);
  Take(index, result.output.Finish(EndingOf(finish.stop_type)), nullptr, out);
  if (!answer().stream) return;
  Json choice = Json::Object({{"index", index},
                              {"delta", Json::Object()},
                              {"finish_reason", FinishReasonOf(finish.stop_type, result.output)}});
  if (!result.probabilities.empty()) {
    choice.Set("logprobs",
               Json::Object({{"content", Json::Array(std::exchange(result.probabilities, {}))}}));
  }
  Json chunk = Chunk(Json::Array({std::move(choice)}));
  if (!answer().include_usage) chunk.Set("timings", TimingsJson(finish.timings));
  AddNative(index, chunk);
  out.push_back(DataEvent(chunk));
}

// The turn moves into it.
Json OpenAiChatDialect::Message(Result& result) const {
  chat::AssistantTurn& turn = result.turn;
  const bool only_calls = turn.content.empty() && !turn.calls.empty();
  Json message = Json::Object(
      {{"role", "assistant"}, {"content", only_calls ? Json() : Json(std::move(turn.content))}});
  if (!turn.reasoning.empty()) message.Set("reasoning_content", std::move(turn.reasoning));
  if (turn.calls.empty()) return message;
  Json calls = Json::Array();
  for (auto& call : turn.calls) {
    calls.Append(
        Json::Object({{"id", std::move(call.id)},
                      {"type", "function"},
                      {"function", Json::Object({{"name", std::move(call.name)},
                                                 {"arguments", std::move(call.arguments)}})}}));
  }
  message.Set("tool_calls", std::move(calls));
  return message;
}

Json OpenAiChatDialect::Body() {
  Json choices = Json::Array();
  for (size_t i = 0; i < results_.size(); ++i) {
    Result& result = results_[i];
    Json choice = Json::Object({{"index", i},
                                {"finish_reason", FinishReasonOf(result.stop_type, result.output)},
                                {"message", Message(result)}});
    if (options_.probabilities.wanted) {
      choice.Set("logprobs",
                 Json::Object({{"content", Json::Array(std::move(result.probabilities))}}));
    }
    choices.Append(std::move(choice));
  }
  return Summary(std::move(choices));
}

}  // namespace bloomery::serve
