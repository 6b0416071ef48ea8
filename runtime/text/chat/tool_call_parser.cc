#include "runtime/text/chat/tool_call_parser.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/chat/partial_tag.h"

namespace bloomery::chat {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kQuotedBytesMax = 64;  // of a call that cannot be read, in its message

bool IsObject(const std::string& text) {
  try {
    return ParseJson(text, "arguments").IsObject();
  } catch (const Error&) {
    return false;
  }
}

struct Tag {
  size_t at = std::string::npos;
  std::string_view text;
};

// The tag that comes first in `text`.
Tag FirstOf(std::string_view text, const std::vector<std::string_view>& tags) {
  Tag first;
  for (const std::string_view each : tags) {
    const size_t found = text.find(each);
    if (found < first.at) first = {found, each};
  }
  return first;
}

size_t LongestPartialEnd(std::string_view text, const std::vector<std::string_view>& tags) {
  size_t longest = 0;
  for (const std::string_view each : tags) longest = std::max(longest, PartialTagEnd(text, each));
  return longest;
}

}  // namespace

void AppendDelta(Deltas& out, OutputDelta::Kind kind, std::string_view text, size_t call) {
  if (text.empty()) return;
  if (out.empty() || out.back().kind != kind) {
    OutputDelta& delta = out.emplace_back();
    delta.kind = kind;
    delta.call = call;
  }
  out.back().text += text;
}

ToolCallParser::ToolCallParser(std::shared_ptr<const ToolSet> tools, ChatOutput::MakeId make_id,
                               std::vector<std::string_view> openers,
                               std::vector<std::string_view> closers)
    : tools_(std::move(tools)),
      make_id_(std::move(make_id)),
      openers_(std::move(openers)),
      closers_(std::move(closers)) {}

std::unique_ptr<ToolCallParser> ToolCallParser::Make(ToolSyntax syntax,
                                                     std::shared_ptr<const ToolSet> tools,
                                                     ChatOutput::MakeId make_id) {
  switch (syntax) {
    case ToolSyntax::kHermes:
      return MakeHermesParser(std::move(tools), std::move(make_id));
    case ToolSyntax::kQwenXml:
    case ToolSyntax::kQwenXmlInline:
    case ToolSyntax::kGlmXml:
    case ToolSyntax::kDsml:
      return MakeXmlParser(syntax, std::move(tools), std::move(make_id));
    case ToolSyntax::kNone:
      break;
  }
  return nullptr;
}

void ToolCallParser::Push(std::string_view text, AnswerEnding ending, Deltas& out) {
  held_ += text;
  ending_ = ending;
  out_ = &out;
  while (broken_ ? StepBroken() : in_call_ ? StepCall() : StepContent()) {
  }
  if (ending != AnswerEnding::kNone) {
    assert(held_.empty() && !in_call_);
    // White space at the end is the answer's own, but for what follows a call.
    if (!after_call_) AppendDelta(out, OutputDelta::Kind::kContent, space_);
    space_.clear();
  }
  out_ = nullptr;
}

// Directly behind a call: closing tags that were written twice, or whose opening one is missing,
// say nothing. True when one was taken or the rest is to be looked at; false: more text is needed.
bool ToolCallParser::SkipClosers() {
  for (;;) {
    const size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
    space_.append(held_, 0, begin);
    Drop(begin);
    const auto closer = std::ranges::find_if(
        closers_, [&](std::string_view each) { return held_.starts_with(each); });
    if (closer == closers_.end()) break;
    Drop(closer->size());
  }
  const bool may_become =
      std::ranges::any_of(closers_, [&](std::string_view each) { return each.starts_with(held_); });
  return ending_ != AnswerEnding::kNone || !may_become;
}

void ToolCallParser::FailClosed() const {
  if (broken_) {
    throw CallError("the model's call of '" + Printable(name_) +
                    "' cannot be read: its arguments are not what the form of calls allows");
  }
  throw CallError("the model has written a call that cannot be read: '" +
                  Printable(abandoned_text_) + "'");
}

// Behind the break of an announced call: with its closing mark it is one that cannot be read.
bool ToolCallParser::StepBroken() {
  if (FirstOf(held_, closers_).at != std::string::npos) FailClosed();
  if (ending_ == AnswerEnding::kEnd) {
    throw CallError("the model has ended its answer inside a call of '" + Printable(name_) + "'");
  }
  Drop(held_.size() - (ending_ == AnswerEnding::kNone ? LongestPartialEnd(held_, closers_) : 0));
  return false;
}

bool ToolCallParser::StepContent() {
  if (after_call_ && !SkipClosers()) return false;
  if (held_.empty()) return false;
  const auto [at, opener] = FirstOf(held_, openers_);
  size_t keep = 0;
  if (abandoned_) {
    const auto [closed, closer] = FirstOf(held_, closers_);
    if (closed < at) {
      EmitContent(std::string_view(held_).substr(0, closed + closer.size()));
      FailClosed();
    }
    if (ending_ == AnswerEnding::kNone) keep = LongestPartialEnd(held_, closers_);
  }
  if (at != std::string::npos) {
    EmitContent(std::string_view(held_).substr(0, at));
    Drop(at);
    in_call_ = true;
    announced_ = false;
    opener_bytes_ = opener.size();
    BeginCall(opener);
    return true;
  }
  if (ending_ == AnswerEnding::kNone) keep = std::max(keep, LongestPartialEnd(held_, openers_));
  EmitContent(std::string_view(held_).substr(0, held_.size() - keep));
  Drop(held_.size() - keep);
  return false;
}

void ToolCallParser::EmitContent(std::string_view text) {
  if (abandoned_ && abandoned_text_.size() < kQuotedBytesMax) {
    abandoned_text_ += text.substr(0, kQuotedBytesMax - abandoned_text_.size());
  }
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string_view::npos) {
    space_ += text;
    return;
  }
  AppendDelta(*out_, OutputDelta::Kind::kContent, space_);
  AppendDelta(*out_, OutputDelta::Kind::kContent, text.substr(0, last + 1));
  space_ = text.substr(last + 1);
  after_call_ = false;
}

void ToolCallParser::Abandon() {
  assert(in_call_ && !announced_);
  if (!std::exchange(abandoned_, true)) abandoned_text_.clear();
  EmitContent(std::string_view(held_).substr(0, opener_bytes_));
  Drop(opener_bytes_);
  in_call_ = false;
}

void ToolCallParser::LeaveOpen() {
  assert(in_call_ && !announced_ && ending_ != AnswerEnding::kNone);
  if (ending_ == AnswerEnding::kEnd) return Abandon();
  Drop(held_.size());
  space_.clear();
  in_call_ = false;
}

void ToolCallParser::Announce(std::string_view name) {
  assert(in_call_ && !announced_);
  announced_ = true;
  abandoned_ = false;
  name_ = name;
  space_.clear();
  arguments_.clear();
  OutputDelta& delta = out_->emplace_back();
  delta.kind = OutputDelta::Kind::kCallBegin;
  delta.text = name;
  delta.call = calls_;
  delta.id = make_id_();
}

void ToolCallParser::Arguments(std::string_view text) {
  arguments_ += text;
  AppendDelta(*out_, OutputDelta::Kind::kCallArguments, text, calls_);
}

void ToolCallParser::EndCall(bool complete) {
  assert(in_call_ && announced_);
  OutputDelta& delta = out_->emplace_back();
  delta.kind = OutputDelta::Kind::kCallEnd;
  delta.call = calls_++;
  delta.complete = complete && IsObject(arguments_);
  broken_ = !delta.complete;
  in_call_ = false;
  announced_ = false;
  after_call_ = true;
}

}  // namespace bloomery::chat
