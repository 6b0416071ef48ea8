// How models write tool calls, and what a request says about its tools. Five syntaxes are known;
// which one a seat uses is decided once, at load, from the plugin's word and the template. Plain
// immutable values; nothing here parses answers (chat_output.h does) or renders prompts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace bloomery::chat {

enum class ToolSyntax {
  kNone,     // no calls are looked for: all is content
  kHermes,   // <tool_call>{"name": "f", "arguments": {"k": 1}}</tool_call>
  kQwenXml,  // <tool_call><function=f><parameter=k>1</parameter></function></tool_call>
  // The same with values as they stand between the tags: a newline at their ends is theirs.
  kQwenXmlInline,
  kGlmXml,  // <tool_call>f<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>
  kDsml,    // <｜DSML｜tool_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="k"
            // string="false">1…
};

// The plugin's names: "hermes", "qwen_xml", "qwen_xml_inline", "glm_xml", "dsml"; anything else, ""
// too, is kNone.
ToolSyntax ToolSyntaxNamed(std::string_view name);
std::string_view ToolSyntaxName(ToolSyntax syntax);  // "" of kNone

// What a template's source tells its model to write; kNone where it shows no known markup.
ToolSyntax DetectToolSyntax(std::string_view template_source);

// The seat's: what the template shows, for that is what the model is told (a plugin serves families
// whose releases differ), and what the plugin names where the template shows nothing known.
ToolSyntax ChooseToolSyntax(std::string_view plugin_syntax, std::string_view template_source);

// The text that begins a call or a block of calls: the trigger of lazy grammars.
std::string_view ToolCallOpener(ToolSyntax syntax);

// kQwenXml or kQwenXmlInline.
bool IsQwenXml(ToolSyntax syntax);

// Whether models of this syntax call out of their thinking without closing it.
bool CallEndsReasoning(ToolSyntax syntax);

// Markup that must print even where a vocabulary has it as a control token.
std::vector<std::string> ToolMarkup(ToolSyntax syntax);

// What a JSON schema allows a parameter to be, as far as an untyped text needs to know.
struct ParameterTypes {
  bool text = false;   // a string
  bool other = false;  // anything but a string
  bool known() const { return text || other; }
};

struct ToolSpec {
  std::string name;
  // By parameter; one that is not listed has no known type.
  std::map<std::string, ParameterTypes, std::less<>> parameters;
};

// The functions of a request by name, in the request's order.
class ToolSet {
 public:
  ToolSet() = default;
  // `tools` as in an OpenAI chat body, already checked by ParseChatRequest.
  explicit ToolSet(const rapidjson::Value& tools);

  bool empty() const { return tools_.empty(); }
  const ToolSpec* Find(std::string_view name) const;  // null: no such function
  const std::vector<ToolSpec>& tools() const { return tools_; }

 private:
  std::vector<ToolSpec> tools_;
};

}  // namespace bloomery::chat
