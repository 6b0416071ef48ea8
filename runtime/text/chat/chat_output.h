// A model's answer as an assistant turn while it streams: reasoning, content and tool calls, as
// deltas that every chat dialect writes in its own words. The one place that decides what is what.
// It decides on the text alone: the same bytes in any pieces give the same deltas when joined, so a
// streamed and a collected answer are equal. One object a choice; no locks; knows no JSON dialect.
//
//   chat::ChatOutput output(format, [] { return RandomId("call_"); });
//   for (auto& delta : output.Push(text.text)) …     // at each engine::Text
//   for (auto& delta : output.Finish(cut)) …         // at engine::Finish; cut: StopType::kLimit
//   … output.has_calls() ? "tool_calls" : …          // the finish reason
//
// Damaged calls lose no text. Markup that does not become a call comes out as content; a call that
// breaks after it was announced ends with complete == false, and what follows the break is content.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/reasoning.h"
#include "runtime/text/chat/tool_syntax.h"

namespace bloomery::chat {

class CallMemory;

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

// The turn that deltas add up to.
struct AssistantTurn {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;  // JSON text; part of it when the call is not complete
    bool complete = false;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void Add(const OutputDelta& delta);
};

// How an answer stands after a piece of it: it goes on, has ended, or was cut by a limit.
enum class AnswerEnding { kNone, kEnd, kCut };

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
  // The answer has ended: whatever was held. `cut`: by a limit, so that a call whose end is missing
  // ends incomplete even where its arguments could be closed.
  std::vector<OutputDelta> Finish(bool cut);

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
