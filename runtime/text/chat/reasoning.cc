#include "runtime/text/chat/reasoning.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace bloomery::chat {
namespace {

constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kSpace = " \t\r\n";

// Length of the longest end of `text` that begins `tag` without being all of it.
size_t PartialEnd(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (tag.starts_with(text.substr(text.size() - size))) {
      return size;
    }
  }
  return 0;
}

}  // namespace

ReasoningFormat ParseReasoningFormat(std::string_view name) {
  if (name == "none") {
    return ReasoningFormat::kNone;
  }
  if (name == "auto" || name == "deepseek") {
    return ReasoningFormat::kDeepseek;
  }
  if (name == "deepseek-legacy") {
    return ReasoningFormat::kDeepseekLegacy;
  }
  throw Error(ErrorKind::kBadRequest, "Field 'reasoning_format': '" + std::string(name) +
                                          "' is not one of none, auto, deepseek, deepseek-legacy");
}

ReasoningSplitter::ReasoningSplitter(ReasoningFormat format, ReasoningMarks marks,
                                     bool starts_in_reasoning, bool tool_call_ends_span)
    : format_(marks.open.empty() ? ReasoningFormat::kNone : format),
      marks_(std::move(marks)),
      state_(starts_in_reasoning ? State::kReasoning : State::kStart),
      tool_call_ends_span_(tool_call_ends_span) {}

ReasoningDelta ReasoningSplitter::Push(std::string_view text) {
  ReasoningDelta out;
  if (format_ != ReasoningFormat::kDeepseek) {
    out.content = text;
  }
  if (format_ != ReasoningFormat::kNone) {
    held_ += text;
    Step(false, out);
  }
  return out;
}

ReasoningDelta ReasoningSplitter::Finish() {
  ReasoningDelta out;
  if (format_ != ReasoningFormat::kNone) {
    Step(true, out);
  }
  return out;
}

void ReasoningSplitter::Step(bool ended, ReasoningDelta& out) {
  // Each state takes what it can decide from held_ and either waits or hands on to the next.
  if (state_ == State::kStart) {
    StepStart(ended, out);
  }
  if (state_ == State::kReasoning) {
    StepReasoning(ended, out);
  }
  if (state_ == State::kAfterSpan) {
    held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
    state_ = held_.empty() ? State::kAfterSpan : State::kContent;
  }
  if (state_ == State::kContent) {
    EmitContent(held_, out);
    held_.clear();
  }
}

// White space and an opening tag may come before a span; anything else is content.
void ReasoningSplitter::StepStart(bool ended, ReasoningDelta& out) {
  const size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.starts_with(marks_.open)) {
    held_.erase(0, begin + marks_.open.size());
    state_ = State::kReasoning;
    trim_front_ = true;
  } else if (!marks_.open.starts_with(rest)) {
    state_ = State::kContent;
  } else if (ended) {
    EmitContent(held_, out);
    held_.clear();
  }
}

void ReasoningSplitter::StepReasoning(bool ended, ReasoningDelta& out) {
  const size_t close = held_.find(marks_.close);
  const size_t call = tool_call_ends_span_ ? held_.find(kToolCall) : std::string::npos;
  const size_t end = std::min(close, call);
  if (end != std::string::npos) {
    EmitReasoning(std::string_view(held_).substr(0, end), out);
    space_.clear();
    held_.erase(0, end + (close < call ? marks_.close.size() : 0));
    state_ = State::kAfterSpan;
    return;
  }
  size_t keep = 0;
  if (!ended) {
    keep = PartialEnd(held_, marks_.close);
    keep = std::max(keep, tool_call_ends_span_ ? PartialEnd(held_, kToolCall) : 0);
  }
  EmitReasoning(std::string_view(held_).substr(0, held_.size() - keep), out);
  held_.erase(0, held_.size() - keep);
  if (ended) {
    out.reasoning += space_;
    space_.clear();
  }
}

// White space at the end waits: it belongs to the tag when the span closes there.
void ReasoningSplitter::EmitReasoning(std::string_view text, ReasoningDelta& out) {
  if (trim_front_) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    trim_front_ = text.empty();
  }
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string_view::npos) {
    space_ += text;
    return;
  }
  out.reasoning += space_;
  out.reasoning += text.substr(0, last + 1);
  space_ = text.substr(last + 1);
}

void ReasoningSplitter::EmitContent(std::string_view text, ReasoningDelta& out) const {
  // The legacy form has sent everything as content already.
  if (format_ == ReasoningFormat::kDeepseek) {
    out.content += text;
  }
}

}  // namespace bloomery::chat
