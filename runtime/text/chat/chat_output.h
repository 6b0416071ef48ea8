// A model's answer as an assistant turn while it streams: reasoning, content and tool calls, as
// deltas that every chat dialect writes in its own words. The one place that decides what is what.
// It decides on the text alone: the same bytes in any pieces give the same deltas when joined, so a
// streamed and a collected answer are equal. One object a choice; no locks; knows no JSON dialect.
//
//   chat::ChatOutput output(format, [] { return RandomId("call_"); });
//   for (auto& delta : output.Push(text.text)) …     // at each engine::Text
//   for (auto& delta : output.Finish(ending)) …      // at engine::Finish
//   … output.has_calls() ? "tool_calls" : …          // the finish reason
//
// Talk about markup is content. A call that is closed and cannot be read throws CallError, and so
// does one that the model leaves open at its end of turn. A call that a limit or a stop string cuts
// off is none: what of it has gone out already ends with complete == false, the rest is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/chat/reasoning.h"
#include "runtime/text/chat/tool_syntax.h"

namespace bloomery::chat {

class CallMemory;

// The model has written a call that cannot be read. Ends the request; the message quotes the call.
class CallError : public Error {
 public:
  explicit CallError(const std::string& message) : Error(ErrorKind::kInternal, message) {}
};

// How the answers of one request are read; shared by its choices, immutable.
struct OutputFormat {
  ReasoningFormat reasoning = ReasoningFormat::kDeepseek;
  ReasoningMarks marks;                   // of the model
  bool starts_in_reasoning = false;       // RenderedPrompt::starts_in_reasoning
  ToolSyntax syntax = ToolSyntax::kNone;  // kNone also where the request wants no calls
  CallMemory* memory = nullptr;           // is told of complete calls; null: nobody is
  std::shared_ptr<const ToolSet> tools;   // null or empty: no calls
};

// A piece of the turn. For one call: one kCallBegin, any number of kCallArguments, one kCallEnd,
// before the next call begins; content may come before, between and after calls.
struct OutputDelta {
  enum class Kind {
    kReasoning,      // text
    kContent,        // text
    kCallBegin,      // call, id, text: the function's name
    kCallArguments,  // call, text: a piece of the arguments, which joined are one JSON object
    kCallEnd,        // call, complete
  };
  Kind kind = Kind::kContent;
  std::string text;
  size_t call = 0;  // index of the call in the turn, from 0
  std::string id;
  bool complete = false;  // the arguments are a whole object
};

// The turn that deltas add up to: without calls that did not come to their end.
struct AssistantTurn {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;  // JSON text; part of it until the call has ended
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void Add(const OutputDelta& delta);
};

// How an answer stands after a piece of it.
enum class AnswerEnding {
  kNone,     // it goes on
  kEnd,      // the model has ended its turn
  kStopped,  // a stop string has ended it: a call that lacks nothing but its closing mark is whole
  kCut,      // a limit has cut it
};

class ToolCallParser;

class ChatOutput {
 public:
  using MakeId = std::function<std::string()>;  // a fresh id for a call

  ChatOutput(const OutputFormat& format, MakeId make_id);
  ChatOutput(ChatOutput&&) noexcept;
  ChatOutput& operator=(ChatOutput&&) noexcept;
  ~ChatOutput();

  // What `text` (any piece of the answer) decides. Text that may become markup is held back, and so
  // is the beginning of a character.
  std::vector<OutputDelta> Push(std::string_view text);
  // The answer has ended: whatever was held. Not kNone.
  std::vector<OutputDelta> Finish(AnswerEnding ending);

  // A complete call has ended: with an end of turn or a stop string, the finish reason "tool_calls"
  // (with a length stop it stays "length").
  bool has_calls() const { return has_calls_; }

 private:
  std::vector<OutputDelta> Take(const ReasoningDelta& delta, AnswerEnding ending);
  void Follow(const OutputDelta& delta);

  ReasoningFormat format_;
  ReasoningSplitter splitter_;
  std::unique_ptr<ToolCallParser> parser_;  // null: no calls are looked for
  CallMemory* memory_ = nullptr;
  AssistantTurn::Call call_;  // the one at hand, for the memory
  std::string tail_;          // the beginning of a character
  bool has_calls_ = false;
};

}  // namespace bloomery::chat
