#include "runtime/serve/dialect_anthropic.h"

#include <algorithm>
#include <utility>

namespace bloomery::serve {
namespace {

using Kind = chat::OutputDelta::Kind;

Json UsageOf(int64_t prompt_tokens, int64_t cached_tokens, int64_t output_tokens) {
  return Json::Object({{"cache_read_input_tokens", cached_tokens},
                       {"input_tokens", prompt_tokens - cached_tokens},
                       {"output_tokens", output_tokens}});
}

// A block as it begins in a stream, or, with its text, as it is in an answer.
Json BlockJson(Kind kind, std::string text, std::string id, std::string name) {
  if (kind == Kind::kReasoning) {
    return Json::Object({{"type", "thinking"}, {"thinking", std::move(text)}, {"signature", ""}});
  }
  if (kind == Kind::kContent) {
    return Json::Object({{"type", "text"}, {"text", std::move(text)}});
  }
  return Json::Object({{"type", "tool_use"},
                       {"id", std::move(id)},
                       {"name", std::move(name)},
                       {"input", text.empty() ? Json::Object() : Json::Written(std::move(text))}});
}

}  // namespace

AnthropicDialect::AnthropicDialect(AnswerNames names, AnswerOptions answer,
                                   const chat::OutputFormat& format,
                                   std::vector<std::string> stop_sequences)
    : names_(std::move(names)),
      answer_(std::move(answer)),
      stop_sequences_(std::move(stop_sequences)),
      output_(format, [] { return RandomId("toolu_"); }) {}

Json AnthropicDialect::MessageJson(Json content, Json stop_reason, Json stop_sequence,
                                   Json usage) const {
  return Json::Object({{"id", names_.id},
                       {"type", "message"},
                       {"role", "assistant"},
                       {"model", names_.model},
                       {"content", std::move(content)},
                       {"stop_reason", std::move(stop_reason)},
                       {"stop_sequence", std::move(stop_sequence)},
                       {"usage", std::move(usage)}});
}

// The API has no event for it; pings keep the connection.
void AnthropicDialect::OnProgress(size_t, const engine::Progress&, StreamEvents&) {}

void AnthropicDialect::SendStart(int64_t prompt_tokens, int64_t cached_tokens, StreamEvents& out) {
  if (!answer_.stream || std::exchange(started_, true)) return;
  out.push_back(NamedEvent(
      Json::Object({{"type", "message_start"},
                    {"message", MessageJson(Json::Array(), nullptr, nullptr,
                                            UsageOf(prompt_tokens, cached_tokens, 0))}})));
}

void AnthropicDialect::Open(Block block, StreamEvents& out) {
  Close(out);
  if (answer_.stream) {
    out.push_back(NamedEvent(
        Json::Object({{"type", "content_block_start"},
                      {"index", blocks_.size()},
                      {"content_block", BlockJson(block.kind, "", block.id, block.name)}})));
  }
  blocks_.push_back(std::move(block));
  open_ = true;
}

void AnthropicDialect::SendDelta(Json delta, StreamEvents& out) const {
  out.push_back(NamedEvent(Json::Object({{"type", "content_block_delta"},
                                         {"index", blocks_.size() - 1},
                                         {"delta", std::move(delta)}})));
}

void AnthropicDialect::Close(StreamEvents& out) {
  if (!std::exchange(open_, false) || !answer_.stream) return;
  if (blocks_.back().kind == Kind::kReasoning) {
    SendDelta(Json::Object({{"type", "signature_delta"}, {"signature", ""}}), out);
  }
  out.push_back(
      NamedEvent(Json::Object({{"type", "content_block_stop"}, {"index", blocks_.size() - 1}})));
}

void AnthropicDialect::TakeText(const chat::OutputDelta& delta, StreamEvents& out) {
  if (!answer_.stream) {
    blocks_.back().text += delta.text;
  } else if (delta.kind == Kind::kReasoning) {
    SendDelta(Json::Object({{"type", "thinking_delta"}, {"thinking", delta.text}}), out);
  } else if (delta.kind == Kind::kContent) {
    SendDelta(Json::Object({{"type", "text_delta"}, {"text", delta.text}}), out);
  } else {
    SendDelta(Json::Object({{"type", "input_json_delta"}, {"partial_json", delta.text}}), out);
  }
}

void AnthropicDialect::Take(const chat::OutputDelta& delta, StreamEvents& out) {
  switch (delta.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
      if (delta.text.empty()) return;
      if (!open_ || blocks_.back().kind != delta.kind) Open({.kind = delta.kind}, out);
      return TakeText(delta, out);
    case Kind::kCallBegin:
      return Open({.kind = Kind::kCallBegin, .id = delta.id, .name = delta.text, .complete = false},
                  out);
    case Kind::kCallArguments:
      return TakeText(delta, out);
    case Kind::kCallEnd:
      blocks_.back().complete = delta.complete;
      return Close(out);
  }
}

void AnthropicDialect::OnText(size_t, const engine::Text& text, StreamEvents& out) {
  SendStart(text.tokens_evaluated, text.timings.cache_n, out);
  if (!answer_.stream) Collect(text.text, {});
  for (const chat::OutputDelta& delta : output_.Push(text.text)) Take(delta, out);
}

void AnthropicDialect::OnFinish(size_t, const engine::Finish& finish, StreamEvents& out) {
  SendStart(finish.tokens_evaluated, finish.timings.cache_n, out);
  for (const chat::OutputDelta& delta : output_.Finish(EndingOf(finish.stop_type))) {
    Take(delta, out);
  }
  Close(out);
  finish_ = finish;
  if (!answer_.stream) return;
  const Stop stop = StopOf();
  out.push_back(NamedEvent(Json::Object(
      {{"type", "message_delta"},
       {"delta", Json::Object({{"stop_reason", stop.reason}, {"stop_sequence", stop.sequence}})},
       {"usage", Json::Object({{"output_tokens", finish.tokens_predicted}})}})));
  out.push_back(NamedEvent(Json::Object({{"type", "message_stop"}})));
}

AnthropicDialect::Stop AnthropicDialect::StopOf() const {
  if (finish_.stop_type == engine::StopType::kLimit) return {"max_tokens", nullptr};
  if (output_.has_calls()) return {"tool_use", nullptr};
  const bool asked = finish_.stop_type == engine::StopType::kWord &&
                     std::find(stop_sequences_.begin(), stop_sequences_.end(),
                               finish_.stopping_word) != stop_sequences_.end();
  if (asked) return {"stop_sequence", finish_.stopping_word};
  return {"end_turn", nullptr};
}

void AnthropicDialect::OnError(const ApiError& error, StreamEvents& out) {
  out.push_back(NamedEvent(ErrorJson(error, ErrorForm::kAnthropic)));
}

Json AnthropicDialect::Body() {
  Json content = Json::Array();
  for (Block& block : blocks_) {
    // A call that was cut off is none.
    if (!block.complete) continue;
    content.Append(
        BlockJson(block.kind, std::move(block.text), std::move(block.id), std::move(block.name)));
  }
  const Stop stop = StopOf();
  return MessageJson(
      std::move(content), stop.reason, stop.sequence,
      UsageOf(finish_.tokens_evaluated, finish_.timings.cache_n, finish_.tokens_predicted));
}

}  // namespace bloomery::serve
