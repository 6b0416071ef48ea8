#include "runtime/text/chat/reasoning.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/text/chat/partial_tag.h"

namespace bloomery::chat {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

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

ReasoningSplitter::ReasoningSplitter(ReasoningMarks marks, bool starts_in_reasoning,
                                     std::string call_opener)
    : marks_(std::move(marks)),
      state_(marks_.open.empty()   ? State::kContent
             : starts_in_reasoning ? State::kReasoning
                                   : State::kStart),
      call_opener_(std::move(call_opener)) {}

ReasoningDelta ReasoningSplitter::Push(std::string_view text) {
  ReasoningDelta out;
  held_ += text;
  Step(false, out);
  return out;
}

ReasoningDelta ReasoningSplitter::Finish() {
  ReasoningDelta out;
  Step(true, out);
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
    TakeSpan(std::min(held_.find_first_not_of(kSpace), held_.size()), out);
    state_ = held_.empty() ? State::kAfterSpan : State::kContent;
  }
  if (state_ == State::kContent) {
    out.content += held_;
    held_.clear();
  }
}

// White space and an opening tag may come before a span; anything else is content.
void ReasoningSplitter::StepStart(bool ended, ReasoningDelta& out) {
  const size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.starts_with(marks_.open)) {
    TakeSpan(begin + marks_.open.size(), out);
    state_ = State::kReasoning;
    trim_front_ = true;
  } else if (ended || !marks_.open.starts_with(rest)) {
    state_ = State::kContent;
  }
}

void ReasoningSplitter::StepReasoning(bool ended, ReasoningDelta& out) {
  const size_t close = held_.find(marks_.close);
  const size_t call = call_opener_.empty() ? std::string::npos : held_.find(call_opener_);
  const size_t end = std::min(close, call);
  if (end != std::string::npos) {
    EmitReasoning(std::string_view(held_).substr(0, end), out);
    space_.clear();
    TakeSpan(end + (close < call ? marks_.close.size() : 0), out);
    state_ = State::kAfterSpan;
    return;
  }
  size_t keep = 0;
  if (!ended) {
    keep = std::max(PartialTagEnd(held_, marks_.close), PartialTagEnd(held_, call_opener_));
  }
  EmitReasoning(std::string_view(held_).substr(0, held_.size() - keep), out);
  TakeSpan(held_.size() - keep, out);
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

void ReasoningSplitter::TakeSpan(size_t size, ReasoningDelta& out) {
  out.span.append(held_, 0, size);
  held_.erase(0, size);
}

}  // namespace bloomery::chat
