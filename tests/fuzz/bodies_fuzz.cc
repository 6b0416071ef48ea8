// JSON bodies from anywhere on their way to a prompt, without an engine: parsed, translated from
// the dialect that the first byte chooses, checked as a chat, rendered by a template that shows all
// of it, and their tools made a grammar. What is written as JSON again reads as the same value.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/anthropic_request.h"
#include "runtime/serve/responses_request.h"
#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/chat/tool_grammar.h"

namespace {

using namespace bloomery;

constexpr const char* kTemplate =
    "{# <tool_call> arguments #}{% for m in messages %}{{ m.role }}{{ m.content }}"
    "{{ m.reasoning_content }}{{ m.tool_call_id }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}"
    "{% if tools %}{{ tools|tojson(indent=1) }}{% endif %}{% if enable_thinking %}<think>"
    "{% endif %}";

const chat::ChatTemplate& Template() {
  static const chat::ChatTemplate made = [] {
    chat::ChatTemplate::Source source;
    source.main = kTemplate;
    source.marks = {"<think>", "</think>"};
    return chat::ChatTemplate::Make(source);
  }();
  return made;
}

void Translate(uint8_t dialect, rapidjson::Document& body) {
  if (dialect == 1) serve::TranslateMessages(body, serve::MessagesPurpose::kAnswer);
  if (dialect == 2) serve::TranslateResponses(body);
}

void MakeGrammars(const rapidjson::Document& body) {
  const rapidjson::Value* tools = body.IsObject() ? FindNonNull(body, "tools") : nullptr;
  if (tools == nullptr || !tools->IsArray() || tools->Empty()) return;
  for (const auto syntax :
       {chat::ToolSyntax::kHermes, chat::ToolSyntax::kQwenXml, chat::ToolSyntax::kQwenXmlInline,
        chat::ToolSyntax::kGlmXml, chat::ToolSyntax::kDsml}) {
    chat::ToolGrammarRequest request;
    request.syntax = syntax;
    request.tools = tools;
    request.marks = {"<think>", "</think>"};
    request.may_think = request.required = syntax == chat::ToolSyntax::kQwenXml;
    chat::MakeToolGrammar(request);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static chat::CallMemory calls;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    rapidjson::Document body = ParseJson(text, "request body");
    const std::string written = WriteJson(body);
    if (WriteJson(ParseJson(written, "written")) != written) std::abort();
    Translate(data[0] % 3, body);
    calls.Restore(body);
    const chat::ChatRequest request = chat::ParseChatRequest(body);
    const chat::RenderedPrompt prompt = Template().Render(request, 0);
    if (!IsValidUtf8(prompt.text)) std::abort();
    size_t end = 0;
    for (const auto& span : prompt.input_spans) {
      if (span.begin < end || span.end < span.begin || span.end > prompt.text.size()) std::abort();
      end = span.end;
    }
    MakeGrammars(body);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) {
      __builtin_printf("%s\n", error.what());
      std::abort();
    }
  }
  return 0;
}
