#include "runtime/text/chat/chat_output.h"

#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/tool_call_parser.h"

namespace bloomery::chat {

void AssistantTurn::Add(const OutputDelta& delta) {
  switch (delta.kind) {
    case OutputDelta::Kind::kReasoning:
      reasoning += delta.text;
      break;
    case OutputDelta::Kind::kContent:
      content += delta.text;
      break;
    case OutputDelta::Kind::kCallBegin:
      calls.push_back({.id = delta.id, .name = delta.text, .arguments = {}});
      break;
    case OutputDelta::Kind::kCallArguments:
      calls.back().arguments += delta.text;
      break;
    case OutputDelta::Kind::kCallEnd:
      if (!delta.complete) calls.pop_back();
      break;
  }
}

namespace {

bool WantsCalls(const OutputFormat& format) {
  return format.syntax != ToolSyntax::kNone && format.tools && !format.tools->empty();
}

std::string SpanEndingOpener(const OutputFormat& format) {
  const bool ends = WantsCalls(format) && CallEndsReasoning(format.syntax);
  return ends ? std::string(ToolCallOpener(format.syntax)) : "";
}

}  // namespace

ChatOutput::ChatOutput(const OutputFormat& format, MakeId make_id)
    : format_(format.reasoning),
      splitter_(format.marks, format.starts_in_reasoning, SpanEndingOpener(format)),
      parser_(WantsCalls(format)
                  ? ToolCallParser::Make(format.syntax, format.tools, std::move(make_id))
                  : nullptr),
      memory_(format.memory) {}

ChatOutput::ChatOutput(ChatOutput&&) noexcept = default;
ChatOutput& ChatOutput::operator=(ChatOutput&&) noexcept = default;
ChatOutput::~ChatOutput() = default;

std::vector<OutputDelta> ChatOutput::Push(std::string_view text) {
  tail_ += text;
  const size_t whole = tail_.size() - Utf8IncompleteTail(tail_);
  ReasoningDelta delta = splitter_.Push(std::string_view(tail_).substr(0, whole));
  tail_.erase(0, whole);
  return Take(delta, AnswerEnding::kNone);
}

std::vector<OutputDelta> ChatOutput::Finish(AnswerEnding ending) {
  ReasoningDelta delta = splitter_.Push(std::exchange(tail_, {}));
  const ReasoningDelta rest = splitter_.Finish();
  delta.reasoning += rest.reasoning;
  delta.span += rest.span;
  delta.content += rest.content;
  return Take(delta, ending);
}

// Which calls are complete, and what they say.
void ChatOutput::Follow(const OutputDelta& delta) {
  if (delta.kind == OutputDelta::Kind::kCallBegin) {
    call_ = {.id = delta.id, .name = {}, .arguments = {}};
  } else if (delta.kind == OutputDelta::Kind::kCallArguments && memory_ != nullptr) {
    call_.arguments += delta.text;
  } else if (delta.kind == OutputDelta::Kind::kCallEnd && delta.complete) {
    has_calls_ = true;
    if (memory_ != nullptr) memory_->Remember(call_.id, call_.arguments);
  }
}

std::vector<OutputDelta> ChatOutput::Take(const ReasoningDelta& delta, AnswerEnding ending) {
  Deltas out;
  if (format_ != ReasoningFormat::kNone) {
    AppendDelta(out, OutputDelta::Kind::kReasoning, delta.reasoning);
  }
  if (format_ != ReasoningFormat::kDeepseek) {
    AppendDelta(out, OutputDelta::Kind::kContent, delta.span);
  }
  if (!parser_) {
    AppendDelta(out, OutputDelta::Kind::kContent, delta.content);
    return out;
  }
  parser_->Push(delta.content, ending, out);
  for (const OutputDelta& each : out) Follow(each);
  return out;
}

}  // namespace bloomery::chat
