#include "runtime/serve/dialect_responses.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

namespace bloomery::serve {
namespace {

using Kind = chat::OutputDelta::Kind;

const char* PrefixOf(Kind kind) {
  if (kind == Kind::kReasoning) return "rs_";
  return kind == Kind::kContent ? "msg_" : "fc_";
}

Json PartJson(Kind kind, std::string text, std::vector<Json> probabilities = {}) {
  if (kind == Kind::kReasoning) {
    return Json::Object({{"type", "reasoning_text"}, {"text", std::move(text)}});
  }
  return Json::Object({{"type", "output_text"},
                       {"text", std::move(text)},
                       {"annotations", Json::Array()},
                       {"logprobs", Json::Array(std::move(probabilities))}});
}

}  // namespace

ResponsesDialect::ResponsesDialect(AnswerNames names, AnswerOptions answer, Options options)
    : names_(std::move(names)),
      answer_(std::move(answer)),
      options_(std::move(options)),
      output_(options_.format, [] { return RandomId(""); }) {}

void ResponsesDialect::Send(const char* type, std::vector<Json::Member> members,
                            StreamEvents& out) {
  std::vector<Json::Member> all{{"type", type}, {"sequence_number", sequence_++}};
  std::move(members.begin(), members.end(), std::back_inserter(all));
  out.push_back(NamedEvent(Json::Object(std::move(all))));
}

void ResponsesDialect::SendOfItem(const char* type, std::vector<Json::Member> members,
                                  StreamEvents& out) {
  std::vector<Json::Member> all{{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
  std::move(members.begin(), members.end(), std::back_inserter(all));
  Send(type, std::move(all), out);
}

// An item with what it holds; one in progress has nothing yet.
Json ResponsesDialect::ItemJson(const Item& item, const char* status) const {
  if (item.kind == Kind::kCallBegin) {
    return Json::Object({{"id", item.id},
                         {"type", "function_call"},
                         {"status", status},
                         {"call_id", "call_" + item.call},
                         {"name", item.name},
                         {"arguments", item.text}});
  }
  Json content = Json::Array();
  if (!item.text.empty()) content.Append(PartJson(item.kind, item.text, item.probabilities));
  if (item.kind == Kind::kReasoning) {
    return Json::Object({{"id", item.id},
                         {"type", "reasoning"},
                         {"status", status},
                         {"summary", Json::Array()},
                         {"content", std::move(content)}});
  }
  return Json::Object({{"id", item.id},
                       {"type", "message"},
                       {"status", status},
                       {"role", "assistant"},
                       {"content", std::move(content)}});
}

const char* ResponsesDialect::FinalStatus() const {
  return finish_.stop_type == engine::StopType::kLimit ? "incomplete" : "completed";
}

// The reasoning's tokens are those of its text: what marked it is not counted.
Json ResponsesDialect::UsageOfAll() const {
  int64_t reasoning = 0;
  for (const Item& item : items_) {
    if (item.kind != Kind::kReasoning) continue;
    reasoning += static_cast<int64_t>(options_.tokenizer->Tokenise(item.text).size());
  }
  reasoning = std::min<int64_t>(reasoning, finish_.tokens_predicted);
  return Json::Object(
      {{"input_tokens", finish_.tokens_evaluated},
       {"input_tokens_details", Json::Object({{"cached_tokens", finish_.timings.cache_n}})},
       {"output_tokens", finish_.tokens_predicted},
       {"output_tokens_details", Json::Object({{"reasoning_tokens", reasoning}})},
       {"total_tokens", finish_.tokens_evaluated + finish_.tokens_predicted}});
}

// Before its end a response has neither output nor usage.
Json ResponsesDialect::ResponseJson(const char* status) const {
  const bool ended = completed_ != 0;
  Json output = Json::Array();
  for (const Item& item : items_) {
    // A call that was cut off is none. Of the others only the last can have been cut.
    if (!ended || !item.complete) continue;
    output.Append(ItemJson(item, &item == &items_.back() ? status : "completed"));
  }
  Json details;
  if (ended && finish_.stop_type == engine::StopType::kLimit) {
    details = Json::Object({{"reason", "max_output_tokens"}});
  }
  return Json::Object({{"id", names_.id},
                       {"object", "response"},
                       {"created_at", names_.created},
                       {"completed_at", ended ? Json(completed_) : Json()},
                       {"status", status},
                       {"error", nullptr},
                       {"incomplete_details", std::move(details)},
                       {"model", names_.model},
                       {"output", std::move(output)},
                       {"usage", ended ? UsageOfAll() : Json()}});
}

void ResponsesDialect::OnBegin(StreamEvents& out) {
  if (!answer_.stream) return;
  Send("response.created", {{"response", ResponseJson("in_progress")}}, out);
  Send("response.in_progress", {{"response", ResponseJson("in_progress")}}, out);
}

void ResponsesDialect::OnProgress(size_t, const engine::Progress& progress, StreamEvents& out) {
  Send("response.in_progress",
       {{"response", ResponseJson("in_progress")}, {"prompt_progress", ProgressJson(progress)}},
       out);
}

void ResponsesDialect::Open(Item item, StreamEvents& out) {
  Close("completed", out);
  open_ = true;
  items_.push_back(std::move(item));
  if (!answer_.stream) return;
  const Item& added = items_.back();
  Send("response.output_item.added",
       {{"output_index", items_.size() - 1}, {"item", ItemJson(added, "in_progress")}}, out);
  if (added.kind == Kind::kCallBegin) return;
  SendOfItem("response.content_part.added",
             {{"content_index", 0}, {"part", PartJson(added.kind, "")}}, out);
}

// Of the tokens that the last bytes of the answer come from; what waited before them was markup.
std::vector<Json> ResponsesDialect::ProbabilitiesOf(size_t text_bytes) {
  size_t first = probabilities_.size();
  for (size_t bytes = 0; first > 0 && (bytes < text_bytes || probabilities_[first - 1].bytes == 0);
       --first) {
    bytes += probabilities_[first - 1].bytes;
  }
  std::vector<Json> entries;
  for (; first < probabilities_.size(); ++first) {
    entries.push_back(std::move(probabilities_[first].entry));
  }
  probabilities_.clear();
  return entries;
}

void ResponsesDialect::Append(const std::string& text, StreamEvents& out) {
  Item& item = items_.back();
  item.text += text;
  std::vector<Json> probabilities;
  if (item.kind == Kind::kContent) {
    probabilities = ProbabilitiesOf(text.size());
    item.probabilities.insert(item.probabilities.end(), probabilities.begin(), probabilities.end());
  }
  if (!answer_.stream) return;
  if (item.kind == Kind::kCallBegin) {
    SendOfItem("response.function_call_arguments.delta", {{"delta", text}}, out);
  } else if (item.kind == Kind::kReasoning) {
    SendOfItem("response.reasoning_text.delta", {{"content_index", 0}, {"delta", text}}, out);
  } else {
    SendOfItem("response.output_text.delta",
               {{"content_index", 0},
                {"delta", text},
                {"logprobs", Json::Array(std::move(probabilities))}},
               out);
  }
}

void ResponsesDialect::CloseText(const Item& item, StreamEvents& out) {
  if (item.kind == Kind::kReasoning) {
    SendOfItem("response.reasoning_text.done", {{"content_index", 0}, {"text", item.text}}, out);
  } else {
    SendOfItem(
        "response.output_text.done",
        {{"content_index", 0}, {"text", item.text}, {"logprobs", Json::Array(item.probabilities)}},
        out);
  }
  SendOfItem("response.content_part.done",
             {{"content_index", 0}, {"part", PartJson(item.kind, item.text, item.probabilities)}},
             out);
}

// A call that was cut off is not done: its item stays as it was added.
void ResponsesDialect::Close(const char* status, StreamEvents& out) {
  if (!std::exchange(open_, false)) return;
  const Item& item = items_.back();
  if (!answer_.stream || !item.complete) return;
  if (item.kind == Kind::kCallBegin) {
    SendOfItem("response.function_call_arguments.done",
               {{"name", item.name}, {"arguments", item.text}}, out);
  } else {
    CloseText(item, out);
  }
  Send("response.output_item.done",
       {{"output_index", items_.size() - 1}, {"item", ItemJson(item, status)}}, out);
}

void ResponsesDialect::Take(const chat::OutputDelta& delta, StreamEvents& out) {
  switch (delta.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
      if (delta.text.empty()) return;
      if (!open_ || items_.back().kind != delta.kind) {
        Open({.kind = delta.kind, .id = RandomId(PrefixOf(delta.kind))}, out);
      }
      return Append(delta.text, out);
    case Kind::kCallBegin:
      return Open({.kind = Kind::kCallBegin,
                   .id = PrefixOf(Kind::kCallBegin) + delta.id,
                   .call = delta.id,
                   .name = delta.text,
                   .complete = false},
                  out);
    case Kind::kCallArguments:
      return Append(delta.text, out);
    case Kind::kCallEnd:
      items_.back().complete = delta.complete;
      return Close("completed", out);
  }
}

// Probabilities are those of the message's tokens: where what waited for them became something
// else they are dropped.
void ResponsesDialect::TakeAll(const std::vector<chat::OutputDelta>& deltas, StreamEvents& out) {
  const bool content = std::any_of(deltas.begin(), deltas.end(),
                                   [](const auto& delta) { return delta.kind == Kind::kContent; });
  if (!content && !deltas.empty()) probabilities_.clear();
  for (const chat::OutputDelta& delta : deltas) Take(delta, out);
}

// A stream is collected as well: its last event holds the whole response.
void ResponsesDialect::OnText(size_t, const engine::Text& text, StreamEvents& out) {
  if (!options_.probabilities.wanted) {
    Collect(text.text, {});
    return TakeAll(output_.Push(text.text), out);
  }
  std::vector<Json> entries = ProbabilitiesJson(text, options_.probabilities);
  Collect(text.text, entries);
  // Token by token, so that each goes where its own text goes.
  for (size_t i = 0; i < entries.size(); ++i) {
    probabilities_.push_back({std::move(entries[i]), text.probabilities[i].text.size()});
    TakeAll(output_.Push(text.probabilities[i].text), out);
  }
}

void ResponsesDialect::OnFinish(size_t, const engine::Finish& finish, StreamEvents& out) {
  TakeAll(output_.Finish(EndingOf(finish.stop_type)), out);
  finish_ = finish;
  Close(FinalStatus(), out);
  completed_ = static_cast<int64_t>(std::time(nullptr));
  if (!answer_.stream) return;
  const bool whole = finish.stop_type != engine::StopType::kLimit;
  Send(whole ? "response.completed" : "response.incomplete",
       {{"response", ResponseJson(FinalStatus())}, {"timings", TimingsJson(finish.timings)}}, out);
}

void ResponsesDialect::OnError(const ApiError& error, StreamEvents& out) {
  Json inner = ErrorJson(error);
  Send("error",
       {{"code", error.type},
        {"message", error.message},
        {"param", nullptr},
        {"error", *inner.Find("error")}},
       out);
}

Json ResponsesDialect::Body() {
  Json response = ResponseJson(FinalStatus());
  response.Set("timings", TimingsJson(finish_.timings));
  return response;
}

}  // namespace bloomery::serve
