#include "runtime/text/chat/tool_grammar.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/grammar/json_schema.h"

namespace bloomery::chat {
namespace {

using text::GbnfWriter;

// Each further parameter doubles the rules of any order.
constexpr size_t kAnyOrderMax = 6;

// Characters before a required call: a sentence or two, for a model that only talks shall call.
constexpr int kProseMax = 240;

std::string Lit(std::string_view text) { return GbnfWriter::Literal(text); }

std::string_view Name(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

std::string Alternatives(const std::vector<std::string>& bodies) {
  std::string out;
  for (const std::string& body : bodies) out += (out.empty() ? "" : " | ") + body;
  return bodies.size() == 1 ? out : "(" + out + ")";
}

// One parameter of a function.
struct Parameter {
  std::string body;  // the whole of it, markup included
  bool required = false;
};

bool IsLazy(const ToolGrammarRequest& request) {
  return !request.required && request.response == nullptr;
}

class Builder {
 public:
  explicit Builder(const ToolGrammarRequest& request) : request_(request), types_(*request.tools) {
    gap_ = writer_.AddRule("gap", "(\"\\n\" | \" \")?");
  }

  std::string Build() {
    std::vector<std::string> calls;
    for (rapidjson::SizeType i = 0; i < request_.tools->Size(); ++i) {
      const rapidjson::Value& function = (*request_.tools)[i]["function"];
      if (!request_.function.empty() && Name(function["name"]) != request_.function) continue;
      try {
        calls.push_back(Call(function, types_.tools()[i]));
      } catch (const Error& error) {
        throw Error(error.kind(), "Field 'tools[" + std::to_string(i) + "]': " + error.what());
      }
    }
    std::string root = Block(writer_.AddRule("call", Alternatives(calls)));
    if (request_.response != nullptr) {
      if (!request_.required) {
        root = Alternatives({root, writer_.AddSchema("document", *request_.response)});
      }
    } else if (request_.required && request_.function.empty()) {
      root = writer_.AddRule("prose", "[^<]{0," + std::to_string(kProseMax) + "}") + " " + root;
    }
    // Elsewhere the grammar begins behind the span.
    if (!IsLazy(request_) && request_.may_think && !request_.starts_in_reasoning) {
      root = "(" + Lit(request_.marks.open) + " " +
             writer_.AddTextThrough(
                 "thinking", request_.marks.close,
                 CallEndsReasoning(request_.syntax) ? ToolCallOpener(request_.syntax) : "") +
             " [ \\n]{0,4})? " + root;
    }
    writer_.AddRule("root", root);
    return writer_.Source();
  }

 private:
  std::string Repeated(const std::string& call, const std::string& between) const {
    return request_.parallel ? call + " (" + between + " " + call + ")*" : call;
  }

  // One or several calls.
  std::string Block(const std::string& call) {
    if (request_.syntax != ToolSyntax::kDsml) {
      return Repeated(call, "\"\\n\"{0,2}");
    }
    const std::string calls = Repeated(call, gap_);
    std::vector<std::string> blocks;
    for (const char* name : {"tool_calls", "function_calls"}) {
      const std::string tag = std::string("｜DSML｜") + name + ">";
      blocks.push_back(Lit("<" + tag) + " " + gap_ + " " + calls + " " + gap_ + " " +
                       Lit("</" + tag));
      if (request_.required) break;  // the older name is the model's own choice only
    }
    return Alternatives(blocks);
  }

  std::string Call(const rapidjson::Value& function, const ToolSpec& spec) {
    const std::string_view name = Name(function["name"]);
    switch (request_.syntax) {
      case ToolSyntax::kHermes:
        return Lit("<tool_call>") + " " + gap_ + " \"{\" " + gap_ + " " + Lit("\"name\":") + " " +
               gap_ + " " + Lit(WriteJson(function["name"])) + " " + gap_ + " \",\" " + gap_ + " " +
               Lit("\"arguments\":") + " " + gap_ + " " + Arguments(function) + " " + gap_ +
               " \"}\" " + gap_ + " " + Lit("</tool_call>");
      case ToolSyntax::kQwenXml:
      case ToolSyntax::kQwenXmlInline: {
        const std::string open =
            "(" + Lit("<tool_call>") + " " + gap_ + ")" + (request_.required ? "" : "?");
        return open + " " + Lit("<function=" + std::string(name) + ">") + " " + gap_ + " " +
               Parameters(function, spec) + " " + Lit("</function>") + " " + gap_ + " " +
               Lit("</tool_call>");
      }
      case ToolSyntax::kGlmXml:
        return Lit("<tool_call>" + std::string(name)) + " " + gap_ + " " +
               Parameters(function, spec) + " " + Lit("</tool_call>");
      case ToolSyntax::kDsml:
        return Lit("<｜DSML｜invoke name=\"" + std::string(name) + "\">") + " " + gap_ + " " +
               Parameters(function, spec) + " " + Lit("</｜DSML｜invoke>");
      case ToolSyntax::kNone:
        break;
    }
    return "\"\"";
  }

  // Null: no parameters.
  static const rapidjson::Value* SchemaOf(const rapidjson::Value& function) {
    const rapidjson::Value* schema = FindNonNull(function, "parameters");
    if (schema == nullptr) return nullptr;
    constexpr const char* kNoObject = "function.parameters must be the schema of an object";
    if (!schema->IsObject()) throw Error(ErrorKind::kBadRequest, kNoObject);
    try {
      GbnfWriter::CheckGivesObjects(*schema);
    } catch (const Error& error) {
      throw Error(ErrorKind::kBadRequest, std::string(kNoObject) + ": " + error.what());
    }
    return schema;
  }

  std::string Arguments(const rapidjson::Value& function) {
    const rapidjson::Value* schema = SchemaOf(function);
    return schema == nullptr ? Lit("{}") : writer_.AddObjectSchema("arguments", *schema);
  }

  // ---- XML-like arguments

  std::string Parameters(const rapidjson::Value& function, const ToolSpec& spec) {
    const rapidjson::Value* schema = SchemaOf(function);
    if (schema == nullptr) return "\"\"";
    const rapidjson::Value* properties = FindNonNull(*schema, "properties");
    if (properties == nullptr) return schema->MemberCount() == 0 ? AnyParameters() : "\"\"";
    if (!properties->IsObject()) {
      throw Error(ErrorKind::kBadRequest, "function.parameters.properties must be an object");
    }
    std::vector<Parameter> parameters;
    for (const auto& member : properties->GetObject()) {
      const std::string_view key = Name(member.name);
      parameters.push_back(
          {.body = writer_.AddRule(
               key, Framed(key, *schema, member.value, spec.parameters.at(std::string(key)))),
           .required = IsRequired(*schema, key)});
    }
    return parameters.size() <= kAnyOrderMax ? AnyOrder(parameters) : InOrder(parameters);
  }

  static bool IsRequired(const rapidjson::Value& schema, std::string_view key) {
    const rapidjson::Value* required = FindNonNull(schema, "required");
    if (required == nullptr || !required->IsArray()) return false;
    return std::ranges::any_of(required->GetArray(), [&](const rapidjson::Value& each) {
      return each.IsString() && Name(each) == key;
    });
  }

  // A rule for each set of parameters that may still come.
  std::string AnyOrder(const std::vector<Parameter>& parameters) {
    const size_t sets = size_t{1} << parameters.size();
    std::vector<std::string> names(sets);
    for (size_t set = 0; set < sets; ++set) {
      bool may_end = true;
      std::vector<std::string> ways;
      for (size_t i = 0; i < parameters.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        may_end = may_end && !parameters[i].required;
        const std::string& rest = names[set & ~(size_t{1} << i)];
        ways.push_back(parameters[i].body + (rest.empty() ? "" : " " + rest));
      }
      if (ways.empty()) continue;
      names[set] = writer_.AddRule("parameters", Alternatives(ways) + (may_end ? "?" : ""));
    }
    return names.back().empty() ? "\"\"" : names.back();
  }

  std::string InOrder(const std::vector<Parameter>& parameters) {
    std::string body;
    std::vector<std::string> optional;
    for (const Parameter& each : parameters) {
      if (each.required) {
        body += each.body + " ";
      } else {
        optional.push_back(each.body);
      }
    }
    if (optional.empty()) return body;
    return body + Alternatives(optional) + "{0," + std::to_string(optional.size()) + "}";
  }

  // For a function that says nothing of its parameters.
  std::string AnyParameters() {
    const std::string key = writer_.AddRule("key", "[A-Za-z0-9_.-]{1,64}");
    std::string body = HeadOf(key, true) + " " + writer_.AddTextThrough("text", ValueEnd());
    if (request_.syntax == ToolSyntax::kDsml) {
      body = Alternatives({body, HeadOf(key, false) + " " + AnyValue() + " " + Lit(ValueEnd())});
    }
    return writer_.AddRule("parameter", body + " " + gap_) + "*";
  }

  std::string AnyValue() {
    rapidjson::Document any;
    any.Parse("true");
    return writer_.AddSchema("value", any);
  }

  // Everything before a value. `key`: grammar for it.
  std::string HeadOf(const std::string& key, bool text) const {
    switch (request_.syntax) {
      case ToolSyntax::kQwenXml:
        return Lit("<parameter=") + " " + key + " " + Lit(">\n");
      case ToolSyntax::kQwenXmlInline:
        return Lit("<parameter=") + " " + key + " " + Lit(">");
      case ToolSyntax::kGlmXml:
        return Lit("<arg_key>") + " " + key + " " + Lit("</arg_key>") + " " + gap_ + " " +
               Lit("<arg_value>");
      default:
        return Lit("<｜DSML｜parameter name=\"") + " " + key + " " +
               Lit(text ? "\" string=\"true\">" : "\" string=\"false\">");
    }
  }

  std::string ValueEnd() const {
    switch (request_.syntax) {
      case ToolSyntax::kQwenXml:
        return "\n</parameter>";
      case ToolSyntax::kQwenXmlInline:
        return "</parameter>";
      case ToolSyntax::kGlmXml:
        return "</arg_value>";
      default:
        return "</｜DSML｜parameter>";
    }
  }

  std::string Framed(std::string_view key, const rapidjson::Value& root,
                     const rapidjson::Value& schema, ParameterTypes types) {
    const std::string name = Lit(key);
    std::vector<std::string> ways;
    if (types.text) ways.push_back(HeadOf(name, true) + " " + TextValue(schema, types));
    if (!types.text || (types.other && request_.syntax == ToolSyntax::kDsml)) {
      ways.push_back(HeadOf(name, false) + " " + JsonValue(key, root, schema) + " " +
                     Lit(ValueEnd()));
    }
    return Alternatives(ways) + " " + gap_;
  }

  // Text as it is, with the closing tag.
  std::string TextValue(const rapidjson::Value& schema, ParameterTypes types) {
    std::vector<std::string> words;
    if (!types.other && schema.IsObject()) {
      const auto add = [&](const rapidjson::Value& word) {
        if (word.IsString()) words.push_back(Lit(Name(word)));
      };
      const rapidjson::Value* list = FindNonNull(schema, "enum");
      if (list != nullptr && list->IsArray()) {
        for (const auto& word : list->GetArray()) add(word);
      }
      if (const auto* only = FindNonNull(schema, "const")) add(*only);
    }
    if (!words.empty()) return Alternatives(words) + " " + Lit(ValueEnd());
    return writer_.AddTextThrough("text", ValueEnd());
  }

  // References lead into the function's schema, but for a property with definitions of its own.
  std::string JsonValue(std::string_view key, const rapidjson::Value& root,
                        const rapidjson::Value& schema) {
    for (const char* name : {"$defs", "definitions"}) {
      if (schema.IsObject() && schema.HasMember(name)) return writer_.AddSchema("value", schema);
    }
    return writer_.AddPartOfSchema("value", root, schema, {"properties", std::string(key)});
  }

  const ToolGrammarRequest& request_;
  const ToolSet types_;
  GbnfWriter writer_;
  std::string gap_;  // what may stand between parts of the markup
};

std::vector<text::GrammarTrigger> Triggers(const ToolGrammarRequest& request) {
  using Kind = text::GrammarTrigger::Kind;
  std::vector<text::GrammarTrigger> triggers = {
      {.kind = Kind::kWord, .value = std::string(ToolCallOpener(request.syntax))}};
  if (request.syntax == ToolSyntax::kDsml) {
    triggers.push_back({.kind = Kind::kWord, .value = "<｜DSML｜function_calls>"});
  }
  // The opening tag may be missing here.
  if (IsQwenXml(request.syntax) && request.tools->Size() < limits::kGrammarTriggersMax) {
    for (const auto& tool : request.tools->GetArray()) {
      triggers.push_back(
          {.kind = Kind::kWord,
           .value = "<function=" + std::string(Name(tool["function"]["name"])) + ">"});
    }
  }
  return triggers;
}

}  // namespace

ToolGrammar MakeToolGrammar(const ToolGrammarRequest& request) {
  ToolGrammar grammar;
  grammar.source = Builder(request).Build();
  if (IsLazy(request)) {
    grammar.options.lazy = true;
    grammar.options.triggers = Triggers(request);
    grammar.options.span_begin = request.marks.open;
  }
  if (IsLazy(request) || request.starts_in_reasoning) {
    grammar.options.span_end = request.marks.close;
    if (CallEndsReasoning(request.syntax)) {
      grammar.options.span_break = ToolCallOpener(request.syntax);
    }
    grammar.options.starts_in_span = request.starts_in_reasoning;
  }
  return grammar;
}

}  // namespace bloomery::chat
