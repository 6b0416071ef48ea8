// Splits a model's answer into reasoning and content while it streams. It decides on text alone:
// the same bytes in any pieces give the same split. One splitter belongs to one choice of one
// request; no locks, no other state.
#pragma once

#include <string>
#include <string_view>

namespace bloomery::chat {

enum class ReasoningFormat {
  kNone,            // tags stay in the content
  kDeepseek,        // the span goes to reasoning_content (also "auto")
  kDeepseekLegacy,  // as kDeepseek, and content keeps the tags and the span too
};

// "none", "auto", "deepseek", "deepseek-legacy"; anything else throws Error(kBadRequest).
ReasoningFormat ParseReasoningFormat(std::string_view name);

// What opens and closes a span of reasoning; both empty: the model writes none, and everything is
// content.
struct ReasoningMarks {
  std::string open;
  std::string close;
};

struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

class ReasoningSplitter {
 public:
  // `starts_in_reasoning`: RenderedPrompt::starts_in_reasoning. `tool_call_ends_span`: a
  // <tool_call> closes an open span, for templates that open it in the prompt.
  ReasoningSplitter(ReasoningFormat format, ReasoningMarks marks, bool starts_in_reasoning,
                    bool tool_call_ends_span);

  // What `text` (any piece of the answer) decides. Text that may become a tag is held back.
  ReasoningDelta Push(std::string_view text);
  // The answer has ended: whatever was held.
  ReasoningDelta Finish();

 private:
  enum class State { kStart, kReasoning, kAfterSpan, kContent };
  void Step(bool ended, ReasoningDelta& out);
  void StepStart(bool ended, ReasoningDelta& out);
  void StepReasoning(bool ended, ReasoningDelta& out);
  void EmitReasoning(std::string_view text, ReasoningDelta& out);
  void EmitContent(std::string_view text, ReasoningDelta& out) const;

  ReasoningFormat format_;
  ReasoningMarks marks_;
  State state_;
  bool tool_call_ends_span_;
  std::string held_;
  bool trim_front_ = true;
  std::string space_;  // white space at the span's end, dropped when the span closes
};

}  // namespace bloomery::chat
