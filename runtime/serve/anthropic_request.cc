#include "runtime/serve/anthropic_request.h"

#include <string>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/chat_body.h"

namespace bloomery::serve {
namespace {

using rapidjson::Value;

// Where a request gives none, as in llama-server.
constexpr int kMaxTokensDefault = 4096;
constexpr int kThinkingBudgetDefault = 10000;

// Claude Code's first system text names its build and holds a stamp that differs from request to
// request. With it nothing behind could be taken from the cache, so it is overwritten.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr std::string_view kStampName = "cch=";
constexpr size_t kStampBytes = 5;

std::string WithoutStamp(std::string_view text) {
  std::string out(text);
  if (!text.starts_with(kBillingHeader)) return out;
  const size_t at = text.substr(0, text.find('\n')).find(kStampName);
  if (at == std::string_view::npos) return out;
  const size_t stamp = at + kStampName.size();
  if (stamp + kStampBytes < text.size() && text[stamp + kStampBytes] == ';') {
    out.replace(stamp, kStampBytes, kStampBytes, '0');
  }
  return out;
}

// One request on its way into the chat form.
class Translator {
 public:
  explicit Translator(rapidjson::Document& body) : body_(body), memory_(body.GetAllocator()) {}

  void Messages();
  void Tools();
  void ToolChoice();
  void Thinking();
  void OutputFormat();
  void Limits(MessagesPurpose purpose);

 private:
  void System();
  void Message(Value& message, const std::string& place);
  void UserBlock(Value& block, const std::string& place, Value& parts);
  void AssistantBlocks(Value& content, const std::string& place);
  void ToolResult(Value& block, const std::string& place);
  Value TextOrImage(const Value& block, std::string_view type, const std::string& place);
  Value Image(const Value& block, const std::string& place);
  void Flush(std::string_view role, Value& parts);
  void Schema(Value& format, const std::string& place);

  rapidjson::Document& body_;
  JsonAllocator& memory_;
  Value out_{rapidjson::kArrayType};
};

std::string_view TypeOf(const Value& block, const std::string& place) {
  if (!block.IsObject()) RefuseField(place, "expected an object");
  return StringMember(block, "type", place, true);
}

[[noreturn]] void RefuseBlock(std::string_view type, const std::string& place) {
  RefuseField(place + ".type", "'" + Printable(type) + "': such blocks are not taken here");
}

void Translator::System() {
  Value system = TakeMember(body_, "system");
  if (system.IsNull()) return;
  std::string text;
  if (system.IsString()) {
    text = WithoutStamp(StringOf(system));
  } else if (system.IsArray()) {
    for (rapidjson::SizeType i = 0; i < system.Size(); ++i) {
      const std::string place = PlaceOf("system", i);
      const std::string_view type = TypeOf(system[i], place);
      if (type != "text") RefuseBlock(type, place);
      text += WithoutStamp(StringMember(system[i], "text", place, true));
    }
  } else {
    RefuseField("system", "expected a string or an array of text blocks");
  }
  out_.PushBack(ChatMessage("system", TextValue(text, memory_), memory_), memory_);
}

Value Translator::Image(const Value& block, const std::string& place) {
  const Value* source = FindNonNull(block, "source");
  if (source == nullptr || !source->IsObject()) {
    RefuseField(place + ".source", "expected an object");
  }
  const std::string inner = place + ".source";
  const std::string_view type = StringMember(*source, "type", inner, true);
  if (type == "url") return ImagePart(StringMember(*source, "url", inner, true), memory_);
  if (type != "base64") {
    RefuseField(inner + ".type", "'" + Printable(type) + "': only base64 and url are taken");
  }
  std::string_view media = StringMember(*source, "media_type", inner, false);
  if (media.empty()) media = "image/jpeg";
  std::string url = "data:" + std::string(media) + ";base64,";
  url += StringMember(*source, "data", inner, true);
  return ImagePart(url, memory_);
}

Value Translator::TextOrImage(const Value& block, std::string_view type, const std::string& place) {
  if (type == "text") return TextPart(StringMember(block, "text", place, true), memory_);
  if (type == "image") return Image(block, place);
  RefuseBlock(type, place);
}

void Translator::Flush(std::string_view role, Value& parts) {
  if (parts.Empty()) return;
  out_.PushBack(ChatMessage(role, std::move(parts), memory_), memory_);
  parts = Value(rapidjson::kArrayType);
}

void Translator::ToolResult(Value& block, const std::string& place) {
  const std::string_view id = StringMember(block, "tool_use_id", place, true);
  const Value* failed = FindNonNull(block, "is_error");
  if (failed != nullptr && !failed->IsBool()) {
    RefuseField(place + ".is_error", "expected true or false");
  }
  Value content = TakeMember(block, "content");
  if (content.IsArray()) {
    Value parts(rapidjson::kArrayType);
    std::string text;
    bool images = false;
    for (rapidjson::SizeType i = 0; i < content.Size(); ++i) {
      const std::string at = PlaceOf(place + ".content", i);
      const std::string_view type = TypeOf(content[i], at);
      Value part = TextOrImage(content[i], type, at);
      images = images || type != "text";
      if (type == "text") text += StringOf(part["text"]);
      parts.PushBack(part, memory_);
    }
    content = images ? std::move(parts) : TextValue(text, memory_);
  } else if (content.IsNull()) {
    content = TextValue("", memory_);
  } else if (!content.IsString()) {
    RefuseField(place + ".content", "expected a string or an array of blocks");
  }
  out_.PushBack(ToolMessage(id, std::move(content), memory_), memory_);
}

void Translator::UserBlock(Value& block, const std::string& place, Value& parts) {
  const std::string_view type = TypeOf(block, place);
  if (type == "tool_result") {
    Flush("user", parts);
    ToolResult(block, place);
  } else {
    parts.PushBack(TextOrImage(block, type, place), memory_);
  }
}

// One message, whatever the order of its blocks: reasoning, text, calls.
void Translator::AssistantBlocks(Value& content, const std::string& place) {
  Value parts(rapidjson::kArrayType);
  Value calls(rapidjson::kObjectType);
  std::string reasoning;
  for (rapidjson::SizeType i = 0; i < content.Size(); ++i) {
    const std::string at = PlaceOf(place, i);
    const Value& block = content[i];
    const std::string_view type = TypeOf(block, at);
    if (type == "thinking") {
      reasoning += StringMember(block, "thinking", at, true);
    } else if (type == "redacted_thinking") {
      LOG(INFO) << at << ": thinking that only its writer can read is left out";
    } else if (type == "tool_use") {
      const Value* input = FindNonNull(block, "input");
      if (input != nullptr && !input->IsObject()) RefuseField(at + ".input", "expected an object");
      AddToolCall(
          calls,
          ToolCall(StringMember(block, "id", at, true), StringMember(block, "name", at, true),
                   input == nullptr ? "{}" : WriteJson(*input), memory_),
          memory_);
    } else {
      parts.PushBack(TextOrImage(block, type, at), memory_);
    }
  }
  Value message = ChatMessage("assistant", std::move(parts), memory_);
  if (!reasoning.empty()) {
    SetMember(message, "reasoning_content", TextValue(reasoning, memory_), memory_);
  }
  if (Value* list = FindMember(calls, "tool_calls")) {
    SetMember(message, "tool_calls", std::move(*list), memory_);
  }
  out_.PushBack(message, memory_);
}

void Translator::Message(Value& message, const std::string& place) {
  if (!message.IsObject()) RefuseField(place, "expected an object");
  const std::string role(StringMember(message, "role", place, true));
  if (role != "user" && role != "assistant" && role != "system") {
    RefuseField(place + ".role", "must be user, assistant or system");
  }
  Value content = TakeMember(message, "content");
  if (content.IsString()) {
    out_.PushBack(ChatMessage(role, std::move(content), memory_), memory_);
    return;
  }
  const std::string inner = place + ".content";
  if (!content.IsArray()) RefuseField(inner, "expected a string or an array of blocks");
  if (role == "assistant") return AssistantBlocks(content, inner);
  Value parts(rapidjson::kArrayType);
  for (rapidjson::SizeType i = 0; i < content.Size(); ++i) {
    UserBlock(content[i], PlaceOf(inner, i), parts);
  }
  if (content.Empty()) {
    out_.PushBack(ChatMessage(role, std::move(parts), memory_), memory_);
  } else {
    Flush(role, parts);
  }
}

void Translator::Messages() {
  System();
  Value messages = TakeMember(body_, "messages");
  if (!messages.IsArray()) RefuseField("messages", "must be an array");
  for (rapidjson::SizeType i = 0; i < messages.Size(); ++i) {
    Message(messages[i], PlaceOf("messages", i));
  }
  SetMember(body_, "messages", std::move(out_), memory_);
}

void Translator::Tools() {
  WrapTools(body_, "input_schema", [&](Value& tool, const std::string& place) {
    const std::string_view type = StringMember(tool, "type", place, false);
    if (!type.empty() && type != "custom" && type != "function") {
      RefuseField(place + ".type", "'" + Printable(type) +
                                       "': tools that run elsewhere are not offered; give a name "
                                       "and an input_schema");
    }
    const Value* schema = FindNonNull(tool, "input_schema");
    if (schema == nullptr) {
      SetMember(tool, "input_schema", Value(rapidjson::kObjectType), memory_);
    } else if (!schema->IsObject()) {
      RefuseField(place + ".input_schema", "expected an object");
    }
    return true;
  });
}

void Translator::ToolChoice() {
  Value choice = TakeMember(body_, "tool_choice");
  if (choice.IsNull()) return;
  if (!choice.IsObject()) RefuseField("tool_choice", "expected an object");
  const std::string_view type = StringMember(choice, "type", "tool_choice", true);
  if (type == "tool") {
    SetMember(body_, "tool_choice",
              NamedTool(StringMember(choice, "name", "tool_choice", true), memory_), memory_);
  } else if (type == "any") {
    SetMember(body_, "tool_choice", TextValue("required", memory_), memory_);
  } else if (type == "auto" || type == "none") {
    SetMember(body_, "tool_choice", TextValue(type, memory_), memory_);
  } else {
    RefuseField("tool_choice.type", "must be auto, any, tool or none");
  }
  const auto one = Fields(choice, "Field 'tool_choice'").Bool("disable_parallel_tool_use");
  if (one.value_or(false)) SetMember(body_, "parallel_tool_calls", Value(false), memory_);
}

void Translator::Thinking() {
  const Value thinking = TakeMember(body_, "thinking");
  if (thinking.IsNull()) return;
  const Fields fields(thinking, "Field 'thinking'");
  const std::string_view type = StringMember(thinking, "type", "thinking", true);
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    RefuseField("thinking.type", "must be enabled, disabled or adaptive");
  }
  if (type == "enabled") {
    const auto budget = fields.Integer("budget_tokens", 0, INT32_MAX);
    SetMember(body_, "thinking_budget_tokens",
              Value(static_cast<int>(budget.value_or(kThinkingBudgetDefault))), memory_);
  }
  if (type == "adaptive") return;
  if (FindMember(body_, "chat_template_kwargs") == nullptr) {
    SetMember(body_, "chat_template_kwargs", Value(rapidjson::kObjectType), memory_);
  }
  Value& kwargs = *FindMember(body_, "chat_template_kwargs");
  if (kwargs.IsObject() && FindMember(kwargs, "enable_thinking") == nullptr) {
    SetMember(kwargs, "enable_thinking", Value(type == "enabled"), memory_);
  }
}

// {"type":"json_schema","schema":{…}} becomes response_format.
void Translator::Schema(Value& format, const std::string& place) {
  if (!format.IsObject()) RefuseField(place, "expected an object");
  const std::string_view type = StringMember(format, "type", place, true);
  if (type == "text") return;
  if (type != "json_schema") RefuseField(place + ".type", "must be text or json_schema");
  Value wrapper(rapidjson::kObjectType);
  SetMember(wrapper, "schema", TakeMember(format, "schema"), memory_);
  Value response_format(rapidjson::kObjectType);
  response_format.AddMember("type", "json_schema", memory_);
  response_format.AddMember("json_schema", wrapper, memory_);
  SetMember(body_, "response_format", std::move(response_format), memory_);
}

void Translator::OutputFormat() {
  Value format = TakeMember(body_, "output_format");
  if (!format.IsNull()) Schema(format, "output_format");
  Value config = TakeMember(body_, "output_config");
  if (config.IsNull()) return;
  if (!config.IsObject()) RefuseField("output_config", "expected an object");
  if (Value* inner = FindMember(config, "format")) Schema(*inner, "output_config.format");
  const std::string_view effort = StringMember(config, "effort", "output_config", false);
  if (!effort.empty()) SetMember(body_, "reasoning_effort", TextValue(effort, memory_), memory_);
}

void Translator::Limits(MessagesPurpose purpose) {
  const Value* servers = FindMember(body_, "mcp_servers");
  if (servers != nullptr && !(servers->IsArray() && servers->Empty())) {
    RefuseField("mcp_servers", "this server calls no others");
  }
  body_.RemoveMember("mcp_servers");
  TakeMember(body_, "metadata");
  Value stop = TakeMember(body_, "stop_sequences");
  if (!stop.IsNull()) {
    if (!stop.IsArray()) RefuseField("stop_sequences", "expected an array of strings");
    SetMember(body_, "stop", std::move(stop), memory_);
    Fields(body_, "request body").Strings("stop");
  }
  const Fields fields(body_, "request body");
  const bool given = fields.Integer("max_tokens", 1).has_value();
  if (!given && purpose == MessagesPurpose::kAnswer) {
    SetMember(body_, "max_tokens", Value(kMaxTokensDefault), memory_);
  }
}

}  // namespace

void TranslateMessages(rapidjson::Document& body, MessagesPurpose purpose) {
  {
    const Fields check(body, "request body");
  }
  Translator translator(body);
  translator.Messages();
  translator.Tools();
  translator.ToolChoice();
  translator.Thinking();
  translator.OutputFormat();
  translator.Limits(purpose);
}

}  // namespace bloomery::serve
