// Splits a model's answer into reasoning and content while it streams. It decides on text alone:
// the same bytes in any pieces give the same split. One splitter belongs to one choice of one
// request; no locks, no other state. Which of the texts an answer shows is chat_output.h's matter.
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

// What one piece of text decides. `span` is the text itself of all that is not content: tags,
// reasoning and the white space around them. It comes before `content` in the answer.
struct ReasoningDelta {
  std::string reasoning;  // without the white space at its ends
  std::string span;
  std::string content;
};

class ReasoningSplitter {
 public:
  // `starts_in_reasoning`: RenderedPrompt::starts_in_reasoning. `call_opener` closes an open span
  // too, for models that call without closing it; "" where none does.
  ReasoningSplitter(ReasoningMarks marks, bool starts_in_reasoning, std::string call_opener);

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
  void TakeSpan(size_t size, ReasoningDelta& out);

  ReasoningMarks marks_;
  State state_;
  std::string call_opener_;
  std::string held_;
  bool trim_front_ = true;
  std::string space_;  // white space at the span's end, dropped when the span closes
};

}  // namespace bloomery::chat
