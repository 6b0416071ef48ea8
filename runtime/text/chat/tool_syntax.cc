#include "runtime/text/chat/tool_syntax.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace bloomery::chat {
namespace {

constexpr std::array<std::pair<std::string_view, ToolSyntax>, 5> kNames = {{
    {"hermes", ToolSyntax::kHermes},
    {"qwen_xml", ToolSyntax::kQwenXml},
    {"qwen_xml_inline", ToolSyntax::kQwenXmlInline},
    {"glm_xml", ToolSyntax::kGlmXml},
    {"dsml", ToolSyntax::kDsml},
}};

// Schemas refer to themselves, and several times in one: a type that takes more than this is not
// known.
constexpr int kSchemaDepthMax = 16;
constexpr size_t kMembersSeenMax = size_t{1} << 22;  // over all tools; some 0.05 s

// The types of one request's parameters.
class TypeReader {
 public:
  ParameterTypes TypesOf(const rapidjson::Value& root, const rapidjson::Value& schema, int depth);

 private:
  const rapidjson::Value* Resolve(const rapidjson::Value& root, std::string_view reference);

  size_t seen_ = 0;
};

// The schema a local reference ("#/$defs/Name") points to, or null.
const rapidjson::Value* TypeReader::Resolve(const rapidjson::Value& root,
                                            std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const rapidjson::Value* at = &root;
  reference.remove_prefix(1);
  while (!reference.empty()) {
    if (reference.front() != '/') return nullptr;
    reference.remove_prefix(1);
    const std::string_view raw = reference.substr(0, reference.find('/'));
    reference.remove_prefix(raw.size());
    std::string key;
    for (size_t i = 0; i < raw.size(); ++i) {
      const bool escape = raw[i] == '~' && i + 1 < raw.size();
      key += escape ? (raw[i + 1] == '1' ? '/' : '~') : raw[i];
      if (escape) ++i;
    }
    if (at->IsArray()) {
      size_t index = at->Size();
      std::from_chars(key.data(), key.data() + key.size(), index);
      if (index >= at->Size()) return nullptr;
      at = &(*at)[static_cast<rapidjson::SizeType>(index)];
    } else {
      seen_ += at->IsObject() ? at->MemberCount() : 1;
      at = at->IsObject() ? FindNonNull(*at, key) : nullptr;
      if (at == nullptr) return nullptr;
    }
  }
  return at;
}

void AddTypeName(const rapidjson::Value& name, ParameterTypes& types) {
  if (!name.IsString()) return;
  (std::string_view(name.GetString(), name.GetStringLength()) == "string" ? types.text
                                                                          : types.other) = true;
}

void AddValueType(const rapidjson::Value& value, ParameterTypes& types) {
  (value.IsString() ? types.text : types.other) = true;
}

ParameterTypes TypeReader::TypesOf(const rapidjson::Value& root, const rapidjson::Value& schema,
                                   int depth) {
  ParameterTypes types;
  if (!schema.IsObject() || depth > kSchemaDepthMax || seen_ > kMembersSeenMax) return types;
  seen_ += 1 + schema.MemberCount();
  if (const auto* type = FindNonNull(schema, "type")) {
    if (type->IsArray()) {
      for (const auto& each : type->GetArray()) AddTypeName(each, types);
    } else {
      AddTypeName(*type, types);
    }
    return types;
  }
  if (const auto* only = FindNonNull(schema, "const")) AddValueType(*only, types);
  if (const auto* values = FindNonNull(schema, "enum"); values != nullptr && values->IsArray()) {
    for (const auto& each : values->GetArray()) AddValueType(each, types);
  }
  const auto add = [&](const rapidjson::Value& other) {
    const ParameterTypes more = TypesOf(root, other, depth + 1);
    types.text = types.text || more.text;
    types.other = types.other || more.other;
  };
  for (const char* name : {"anyOf", "oneOf", "allOf"}) {
    const auto* branches = FindNonNull(schema, name);
    if (branches == nullptr || !branches->IsArray()) continue;
    for (const auto& each : branches->GetArray()) add(each);
  }
  if (const auto* reference = FindNonNull(schema, "$ref");
      reference != nullptr && reference->IsString()) {
    if (const auto* target =
            Resolve(root, {reference->GetString(), reference->GetStringLength()})) {
      add(*target);
    }
  }
  if (!types.known() &&
      (FindNonNull(schema, "properties") != nullptr || FindNonNull(schema, "items") != nullptr)) {
    types.other = true;
  }
  return types;
}

bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

ToolSyntax ToolSyntaxNamed(std::string_view name) {
  for (const auto& [known, syntax] : kNames) {
    if (known == name) return syntax;
  }
  return ToolSyntax::kNone;
}

std::string_view ToolSyntaxName(ToolSyntax syntax) {
  for (const auto& [name, known] : kNames) {
    if (known == syntax) return name;
  }
  return "";
}

ToolSyntax DetectToolSyntax(std::string_view source) {
  const bool dsml = Holds(source, "dsml_token") || Holds(source, "DSML");
  if (dsml && (Holds(source, "tool_calls") || Holds(source, "function_calls"))) {
    return ToolSyntax::kDsml;
  }
  if (Holds(source, "<arg_key>") && Holds(source, "<arg_value>")) return ToolSyntax::kGlmXml;
  if (!Holds(source, "<tool_call>")) return ToolSyntax::kNone;
  if (Holds(source, "<function=") && Holds(source, "<parameter=")) {
    // Templates that put no newline between the two tags put none around values either.
    return Holds(source, "<tool_call><function=") ? ToolSyntax::kQwenXmlInline
                                                  : ToolSyntax::kQwenXml;
  }
  return Holds(source, "arguments") ? ToolSyntax::kHermes : ToolSyntax::kNone;
}

ToolSyntax ChooseToolSyntax(std::string_view plugin_syntax, std::string_view template_source) {
  const ToolSyntax shown = DetectToolSyntax(template_source);
  return shown == ToolSyntax::kNone ? ToolSyntaxNamed(plugin_syntax) : shown;
}

std::string_view ToolCallOpener(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kQwenXml:
    case ToolSyntax::kQwenXmlInline:
    case ToolSyntax::kGlmXml:
      return "<tool_call>";
    case ToolSyntax::kDsml:
      return "<｜DSML｜tool_calls>";
    case ToolSyntax::kNone:
      break;
  }
  return "";
}

bool IsQwenXml(ToolSyntax syntax) {
  return syntax == ToolSyntax::kQwenXml || syntax == ToolSyntax::kQwenXmlInline;
}

// Hermes models close their span before they call; GLM ones write of calls in it.
bool CallEndsReasoning(ToolSyntax syntax) {
  return IsQwenXml(syntax) || syntax == ToolSyntax::kDsml;
}

std::vector<std::string> ToolMarkup(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kQwenXml:
    case ToolSyntax::kQwenXmlInline:
      return {"<tool_call>", "</tool_call>"};
    case ToolSyntax::kGlmXml:
      return {"<tool_call>", "</tool_call>", "<arg_key>",
              "</arg_key>",  "<arg_value>",  "</arg_value>"};
    case ToolSyntax::kDsml:
      return {"｜DSML｜"};
    case ToolSyntax::kNone:
      break;
  }
  return {};
}

ToolSet::ToolSet(const rapidjson::Value& tools) {
  TypeReader reader;
  for (const auto& tool : tools.GetArray()) {
    const rapidjson::Value& function = tool["function"];
    ToolSpec spec;
    spec.name.assign(function["name"].GetString(), function["name"].GetStringLength());
    const auto* parameters = FindNonNull(function, "parameters");
    const auto* properties = parameters != nullptr && parameters->IsObject()
                                 ? FindNonNull(*parameters, "properties")
                                 : nullptr;
    if (properties != nullptr && properties->IsObject()) {
      for (const auto& member : properties->GetObject()) {
        spec.parameters.insert_or_assign(
            std::string(member.name.GetString(), member.name.GetStringLength()),
            reader.TypesOf(*parameters, member.value, 0));
      }
    }
    tools_.push_back(std::move(spec));
  }
}

const ToolSpec* ToolSet::Find(std::string_view name) const {
  const auto found = std::ranges::find(tools_, name, &ToolSpec::name);
  return found == tools_.end() ? nullptr : &*found;
}

}  // namespace bloomery::chat
