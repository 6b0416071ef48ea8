// A model's chat template with what the server must know about it: which request fields it reacts
// to (probed by test renders at load), how messages are brought into the form it expects, and the
// rendering of a request. Owns the parsed template and the bos and eos texts; immutable after Make,
// so any thread may render. It does not tokenise and does not parse the model's answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/text/chat/reasoning.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::chat {

// How a trailing assistant message is continued.
enum class Continue {
  kAuto,       // a trailing assistant message is prefilled
  kNever,      // a trailing assistant message is history like any other
  kContent,    // continue_final_message true or "content"
  kReasoning,  // continue_final_message "reasoning_content"
};

// The parts of a chat body that shape the prompt, validated.
struct ChatRequest {
  jinja::Value messages;         // list of dicts, input strings
  jinja::Value tools;            // list of dicts, or undefined when absent or empty
  jinja::Value template_kwargs;  // dict, or undefined
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking;
  std::string reasoning_effort;  // empty: not given
  Continue continue_final = Continue::kAuto;
};

// Reads `messages`, `tools`, `add_generation_prompt`, `continue_final_message`,
// `chat_template_kwargs`, `reasoning_effort` of an OpenAI-style body. Throws Error(kBadRequest)
// naming the field: messages missing or no array, a message that is no object, a role or content of
// the wrong type, two trailing assistant messages, enable_thinking that is no boolean,
// add_generation_prompt together with continue_final_message, continuing a message with tool calls.
ChatRequest ParseChatRequest(const rapidjson::Value& body);

// What the template does with what it is given; the names are those of /props' chat_template_caps.
struct TemplateCaps {
  bool supports_system_role = false;
  bool supports_tools = false;
  bool supports_tool_calls = false;
  bool supports_parallel_tool_calls = false;
  bool supports_string_content = false;
  bool supports_typed_content = false;
  bool supports_object_arguments = false;
  bool supports_preserve_reasoning = false;
  bool supports_reasoning_effort = false;
  bool supports_enable_thinking = false;
};

struct RenderedPrompt {
  std::string text;
  std::vector<jinja::Span> input_spans;  // see jinja::RenderResult
  bool starts_in_reasoning = false;      // the prompt ends inside an open span of reasoning
};

class ChatTemplate {
 public:
  struct Source {
    std::string main;      // tokenizer.chat_template or the user's override; empty: ChatML
    std::string tool_use;  // the tool_use variant, or empty
    std::string bos_text;
    std::string eos_text;
    bool adds_bos = false;  // the tokenizer adds BOS itself, so a leading BOS text is dropped
    bool adds_eos = false;  // likewise for a trailing EOS
    ReasoningMarks marks;   // of the model
  };

  // Parses, test-renders and probes. Throws Error(kBadModel) when the template does not parse,
  // fails on one plain user message, or writes the same whatever that says.
  static ChatTemplate Make(Source source);

  // `now_s` as in jinja::RenderOptions. Throws Error(kBadRequest) when the template refuses, with
  // its message.
  RenderedPrompt Render(const ChatRequest& request, int64_t now_s) const;

  const TemplateCaps& caps() const { return caps_; }
  const std::string& source() const { return main_.source(); }
  const ReasoningMarks& marks() const { return source_.marks; }
  // The template of requests with tools; "" where they have no other.
  const std::string& tool_use_source() const { return source_.tool_use; }
  // The one that requests with tools are rendered with.
  const std::string& tools_source() const { return tool_use_ ? tool_use_->source() : source(); }
  bool is_fallback() const { return fallback_; }  // the file had no template

 private:
  ChatTemplate(Source source, jinja::Template main, std::optional<jinja::Template> tool_use);
  const jinja::Template& TemplateFor(const ChatRequest& request) const;
  jinja::Value Context(const ChatRequest& request, const jinja::Value& messages,
                       bool add_generation_prompt) const;
  jinja::Value FixMessages(const jinja::Value& messages) const;

  Source source_;
  jinja::Template main_;
  std::optional<jinja::Template> tool_use_;
  TemplateCaps caps_;
  bool fallback_ = false;
};

}  // namespace bloomery::chat
