// Finds tool calls in the content of a streaming answer. A base that knows content, openers and how
// calls are announced, and one subclass for JSON bodies and one for XML-like ones. Used by
// ChatOutput alone; one object a choice.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_output.h"

namespace bloomery::chat {

using Deltas = std::vector<OutputDelta>;

// Appends, joined to the last delta where that is of the same kind.
void AppendDelta(Deltas& out, OutputDelta::Kind kind, std::string_view text, size_t call = 0);

class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  // Null for kNone.
  static std::unique_ptr<ToolCallParser> Make(ToolSyntax syntax,
                                              std::shared_ptr<const ToolSet> tools,
                                              ChatOutput::MakeId make_id);

  // What `text` decides, appended to `out`; with an ending, all that was held. Throws CallError.
  void Push(std::string_view text, AnswerEnding ending, Deltas& out);

 protected:
  ToolCallParser(std::shared_ptr<const ToolSet> tools, ChatOutput::MakeId make_id,
                 std::vector<std::string_view> openers, std::vector<std::string_view> closers);

  // Text that is not decided on. In a call that was not announced yet it begins with the opener.
  const std::string& held() const { return held_; }
  AnswerEnding ending() const { return ending_; }
  const ToolSet& tools() const { return *tools_; }

  // held() begins with `opener`.
  virtual void BeginCall(std::string_view opener) = 0;
  // Goes on with the call in held(). False: more text is needed, and none is ending() it.
  virtual bool StepCall() = 0;

  // Drops the first bytes of held(): they are decided on.
  void Drop(size_t bytes) { held_.erase(0, bytes); }
  // The text from the opener on is no call after all: content, unless it closes as one.
  void Abandon();
  // The answer has ended inside the call, of which all held() belongs to it: a limit or a stop
  // string drops it, at the end of the turn it was talk.
  void LeaveOpen();
  // There is a call; white space before it belonged to it.
  void Announce(std::string_view name);
  void Arguments(std::string_view text);
  // The call is over, and what is left of held() is content; or, where it is not complete or its
  // argument text is no JSON object, broken: then nothing of what follows is anything.
  void EndCall(bool complete);

  bool announced() const { return announced_; }

 private:
  bool StepContent();
  bool StepBroken();
  bool SkipClosers();
  [[noreturn]] void FailClosed() const;
  void EmitContent(std::string_view text);

  std::shared_ptr<const ToolSet> tools_;
  ChatOutput::MakeId make_id_;
  std::vector<std::string_view> openers_;
  std::vector<std::string_view> closers_;  // without meaning directly behind a call

  std::string held_;
  AnswerEnding ending_ = AnswerEnding::kNone;
  Deltas* out_ = nullptr;  // during Push
  bool in_call_ = false;
  bool announced_ = false;
  bool broken_ = false;  // an announced call has broken: waits for its closing mark
  bool abandoned_ =
      false;  // an opener became content: a closing mark would show that it was a call
  std::string abandoned_text_;  // how that begins, for the message
  std::string name_;            // of the announced call
  size_t opener_bytes_ = 0;
  size_t calls_ = 0;
  bool after_call_ = false;  // nothing but white space since the last call
  std::string space_;        // white space that belongs to a call if one comes now
  std::string arguments_;    // of the announced call
};

std::unique_ptr<ToolCallParser> MakeHermesParser(std::shared_ptr<const ToolSet> tools,
                                                 ChatOutput::MakeId make_id);
// kQwenXml, kQwenXmlInline, kGlmXml or kDsml.
std::unique_ptr<ToolCallParser> MakeXmlParser(ToolSyntax syntax,
                                              std::shared_ptr<const ToolSet> tools,
                                              ChatOutput::MakeId make_id);

}  // namespace bloomery::chat
