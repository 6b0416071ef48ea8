#include "runtime/serve/responses_request.h"

#include <string>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/chat_body.h"

namespace bloomery::serve {
namespace {

using rapidjson::Value;

// One request on its way into the chat form.
class Translator {
 public:
  explicit Translator(rapidjson::Document& body) : body_(body), memory_(body.GetAllocator()) {}

  void RefuseStored();
  void Input();
  void Tools();
  void ToolChoice();
  void TextFormat();
  void Settings();

 private:
  void Item(Value& item, const std::string& place);
  void Message(Value& item, const std::string& place);
  Value Parts(Value& content, const std::string& place);
  Value Part(const Value& part, const std::string& place);
  Value& Assistant();
  void AddText(Value& message, Value content);

  rapidjson::Document& body_;
  JsonAllocator& memory_;
  Value out_{rapidjson::kArrayType};
};

// What would need a memory of the server's own, or one that answers later.
void Translator::RefuseStored() {
  const auto given = [&](std::string_view name) {
    const Value* value = FindMember(body_, name);
    return value != nullptr && !value->IsFalse() &&
           !(value->IsString() && value->GetStringLength() == 0);
  };
  for (std::string_view name : {"previous_response_id", "conversation", "prompt"}) {
    if (given(name)) RefuseField(name, "nothing is kept here between requests; send the input");
  }
  if (given("store")) RefuseField("store", "responses are not kept here; only false is accepted");
  if (given("background")) RefuseField("background", "only false is accepted");
  for (std::string_view name :
       {"previous_response_id", "conversation", "prompt", "store", "background"}) {
    TakeMember(body_, name);
  }
}

Value Translator::Part(const Value& part, const std::string& place) {
  if (!part.IsObject()) RefuseField(place, "expected an object");
  const std::string_view type = StringMember(part, "type", place, true);
  if (type == "input_text" || type == "output_text" || type == "text") {
    return TextPart(StringMember(part, "text", place, true), memory_);
  }
  if (type == "refusal") return TextPart(StringMember(part, "refusal", place, true), memory_);
  if (type == "input_image") {
    if (FindNonNull(part, "file_id") != nullptr) {
      RefuseField(place + ".file_id", "no files are kept here; send the image itself");
    }
    return ImagePart(StringMember(part, "image_url", place, true), memory_);
  }
  if (type == "input_file") RefuseField(place, "files are not taken");
  RefuseField(place + ".type", "'" + Printable(type) + "': such parts are not taken");
}

// A string, or parts as the chat form has them.
Value Translator::Parts(Value& content, const std::string& place) {
  if (content.IsString()) return Value(std::move(content));
  if (!content.IsArray()) RefuseField(place, "expected a string or an array of parts");
  Value parts(rapidjson::kArrayType);
  for (rapidjson::SizeType i = 0; i < content.Size(); ++i) {
    parts.PushBack(Part(content[i], PlaceOf(place, i)), memory_);
  }
  return parts;
}

// The assistant's message at the end of the list; begun when there is none.
Value& Translator::Assistant() {
  if (out_.Empty() || StringOf(out_[out_.Size() - 1]["role"]) != "assistant") {
    Value message(rapidjson::kObjectType);
    message.AddMember("role", "assistant", memory_);
    out_.PushBack(message, memory_);
  }
  return out_[out_.Size() - 1];
}

void Translator::AddText(Value& message, Value content) {
  Value* present = FindMember(message, "content");
  if (present == nullptr) {
    Value made = ChatMessage("assistant", std::move(content), memory_);
    SetMember(message, "content", TakeMember(made, "content"), memory_);
    return;
  }
  // A second text in one turn: both as parts of one list.
  Value parts(rapidjson::kArrayType);
  for (Value* text : {present, &content}) {
    if (text->IsString()) {
      parts.PushBack(TextPart(StringOf(*text), memory_), memory_);
      continue;
    }
    for (Value& part : text->GetArray()) parts.PushBack(part, memory_);
  }
  *present = parts;
}

void Translator::Message(Value& item, const std::string& place) {
  const std::string role(StringMember(item, "role", place, true));
  Value* content = FindMember(item, "content");
  if (content == nullptr) RefuseField(place + ".content", "is required");
  Value parts = Parts(*content, place + ".content");
  if (role == "assistant") {
    AddText(Assistant(), std::move(parts));
  } else if (role == "user" || role == "system" || role == "developer") {
    out_.PushBack(ChatMessage(role, std::move(parts), memory_), memory_);
  } else {
    RefuseField(place + ".role", "must be user, system, developer or assistant");
  }
}

// The text of a reasoning item: its content; what it sums up is not what was thought.
std::string ReasoningText(const Value& item, const std::string& place) {
  const Value* content = FindNonNull(item, "content");
  if (content == nullptr) return "";
  if (!content->IsArray()) RefuseField(place + ".content", "expected an array");
  if (content->Empty()) return "";
  const std::string at = PlaceOf(place + ".content", 0);
  if (!(*content)[0].IsObject()) RefuseField(at, "expected an object");
  return std::string(StringMember((*content)[0], "text", at, true));
}

void Translator::Item(Value& item, const std::string& place) {
  if (!item.IsObject()) RefuseField(place, "expected an object");
  const std::string_view type = StringMember(item, "type", place, false);
  if (type.empty() || type == "message") return Message(item, place);
  if (type == "function_call") {
    AddToolCall(Assistant(),
                ToolCall(StringMember(item, "call_id", place, true),
                         StringMember(item, "name", place, true),
                         StringMember(item, "arguments", place, true), memory_),
                memory_);
  } else if (type == "function_call_output") {
    Value* output = FindMember(item, "output");
    if (output == nullptr) RefuseField(place + ".output", "is required");
    Value parts = Parts(*output, place + ".output");
    out_.PushBack(
        ToolMessage(StringMember(item, "call_id", place, true), std::move(parts), memory_),
        memory_);
  } else if (type == "reasoning") {
    const std::string text = ReasoningText(item, place);
    if (text.empty()) return;
    Value& message = Assistant();
    std::string all(StringMember(message, "reasoning_content", place, false));
    SetMember(message, "reasoning_content", TextValue(all + text, memory_), memory_);
  } else if (type == "item_reference") {
    RefuseField(place, "nothing is kept here between requests; send the item itself");
  } else {
    RefuseField(place + ".type", "'" + Printable(type) + "': such items are not taken");
  }
}

void Translator::Input() {
  Value instructions = TakeMember(body_, "instructions");
  if (!instructions.IsNull()) {
    if (!instructions.IsString()) RefuseField("instructions", "expected a string");
    out_.PushBack(ChatMessage("system", std::move(instructions), memory_), memory_);
  }
  Value input = TakeMember(body_, "input");
  if (input.IsString()) {
    out_.PushBack(ChatMessage("user", std::move(input), memory_), memory_);
  } else if (input.IsArray()) {
    for (rapidjson::SizeType i = 0; i < input.Size(); ++i) Item(input[i], PlaceOf("input", i));
  } else {
    RefuseField("input", input.IsNull() ? "is required" : "expected a string or an array of items");
  }
  SetMember(body_, "messages", std::move(out_), memory_);
}

void Translator::Tools() {
  WrapTools(body_, "parameters", [](const Value& tool, const std::string& place) {
    const std::string_view type = StringMember(tool, "type", place, true);
    if (type == "function") return true;
    LOG(WARNING) << place << ": a tool of type '" << Printable(type) << "' is left out";
    return false;
  });
}

void Translator::ToolChoice() {
  Value choice = TakeMember(body_, "tool_choice");
  if (choice.IsNull()) return;
  if (choice.IsString()) return SetMember(body_, "tool_choice", std::move(choice), memory_);
  if (!choice.IsObject()) RefuseField("tool_choice", "expected a string or an object");
  const std::string_view type = StringMember(choice, "type", "tool_choice", true);
  if (type != "function") {
    RefuseField("tool_choice.type", "'" + Printable(type) + "': must be function");
  }
  SetMember(body_, "tool_choice",
            NamedTool(StringMember(choice, "name", "tool_choice", true), memory_), memory_);
}

// text.format becomes response_format, whose schema lies one level deeper.
void Translator::TextFormat() {
  Value text = TakeMember(body_, "text");
  if (text.IsNull()) return;
  if (!text.IsObject()) RefuseField("text", "expected an object");
  Value format = TakeMember(text, "format");
  if (format.IsNull()) return;
  if (!format.IsObject()) RefuseField("text.format", "expected an object");
  const std::string type(StringMember(format, "type", "text.format", true));
  Value response_format(rapidjson::kObjectType);
  SetMember(response_format, "type", TakeMember(format, "type"), memory_);
  if (type == "json_schema") {
    SetMember(response_format, "json_schema", std::move(format), memory_);
  }
  SetMember(body_, "response_format", std::move(response_format), memory_);
}

void Translator::Settings() {
  Value tokens = TakeMember(body_, "max_output_tokens");
  if (!tokens.IsNull()) {
    const auto count = IntegerOf(tokens);
    if (!count || *count < 1) {
      RefuseField("max_output_tokens", "expected an integer of at least 1");
    }
    SetMember(body_, "max_tokens", std::move(tokens), memory_);
  }
  Value reasoning = TakeMember(body_, "reasoning");
  if (!reasoning.IsNull()) {
    if (!reasoning.IsObject()) RefuseField("reasoning", "expected an object");
    const std::string_view effort = StringMember(reasoning, "effort", "reasoning", false);
    if (!effort.empty()) SetMember(body_, "reasoning_effort", TextValue(effort, memory_), memory_);
  }
  const Fields fields(body_, "request body");
  for (const std::string& name : fields.Strings("include").value_or(std::vector<std::string>())) {
    if (name == "message.output_text.logprobs") SetMember(body_, "logprobs", Value(true), memory_);
  }
  // Alternatives only where they are asked for, unlike in chats.
  if (fields.Bool("logprobs").value_or(false) && FindMember(body_, "top_logprobs") == nullptr) {
    SetMember(body_, "top_logprobs", Value(0), memory_);
  }
  TakeMember(body_, "include");
  TakeMember(body_, "metadata");
}

}  // namespace

void TranslateResponses(rapidjson::Document& body) {
  {
    const Fields check(body, "request body");
  }
  Translator translator(body);
  translator.RefuseStored();
  translator.Input();
  translator.Tools();
  translator.ToolChoice();
  translator.TextFormat();
  translator.Settings();
}

}  // namespace bloomery::serve
