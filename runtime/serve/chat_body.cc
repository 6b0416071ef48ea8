#include "runtime/serve/chat_body.h"

namespace bloomery::serve {

using rapidjson::Value;

std::string PlaceOf(std::string_view list, size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

Value* FindMember(Value& object, std::string_view name) {
  const auto found = object.FindMember(Value(rapidjson::StringRef(name.data(), name.size())));
  return found == object.MemberEnd() || found->value.IsNull() ? nullptr : &found->value;
}

std::string_view StringMember(const Value& object, std::string_view name, std::string_view place,
                              bool required) {
  const Value* value = FindNonNull(object, name);
  if (value == nullptr && !required) return {};
  if (value == nullptr || !value->IsString()) {
    RefuseField(std::string(place) + "." + std::string(name),
                value == nullptr ? "is required" : "expected a string");
  }
  return StringOf(*value);
}

Value TextValue(std::string_view text, JsonAllocator& allocator) {
  return {text.data(), static_cast<rapidjson::SizeType>(text.size()), allocator};
}

void SetMember(Value& object, std::string_view name, Value value, JsonAllocator& allocator) {
  const auto found = object.FindMember(Value(rapidjson::StringRef(name.data(), name.size())));
  if (found != object.MemberEnd()) {
    found->value = value;
  } else {
    object.AddMember(TextValue(name, allocator), value, allocator);
  }
}

Value TakeMember(Value& object, std::string_view name) {
  const auto found = object.FindMember(Value(rapidjson::StringRef(name.data(), name.size())));
  if (found == object.MemberEnd()) return {};
  Value value(std::move(found->value));
  object.EraseMember(found);  // keeps the others' order
  return value;
}

Value TextPart(std::string_view text, JsonAllocator& allocator) {
  Value part(rapidjson::kObjectType);
  part.AddMember("type", "text", allocator);
  part.AddMember("text", TextValue(text, allocator), allocator);
  return part;
}

Value ImagePart(std::string_view url, JsonAllocator& allocator) {
  Value inner(rapidjson::kObjectType);
  inner.AddMember("url", TextValue(url, allocator), allocator);
  Value part(rapidjson::kObjectType);
  part.AddMember("type", "image_url", allocator);
  part.AddMember("image_url", inner, allocator);
  return part;
}

namespace {

Value Collapsed(Value content, JsonAllocator& allocator) {
  if (!content.IsArray()) return content;
  if (content.Empty()) return TextValue("", allocator);
  if (content.Size() == 1 && StringOf(content[0]["type"]) == "text") {
    return Value(std::move(content[0]["text"]));
  }
  return content;
}

}  // namespace

Value ChatMessage(std::string_view role, Value content, JsonAllocator& allocator) {
  Value message(rapidjson::kObjectType);
  message.AddMember("role", TextValue(role, allocator), allocator);
  message.AddMember("content", Collapsed(std::move(content), allocator), allocator);
  return message;
}

Value ToolMessage(std::string_view id, Value content, JsonAllocator& allocator) {
  Value message = ChatMessage("tool", std::move(content), allocator);
  message.AddMember("tool_call_id", TextValue(id, allocator), allocator);
  return message;
}

Value ToolCall(std::string_view id, std::string_view name, std::string_view arguments,
               JsonAllocator& allocator) {
  Value function(rapidjson::kObjectType);
  function.AddMember("name", TextValue(name, allocator), allocator);
  function.AddMember("arguments", TextValue(arguments, allocator), allocator);
  Value call(rapidjson::kObjectType);
  call.AddMember("id", TextValue(id, allocator), allocator);
  call.AddMember("type", "function", allocator);
  call.AddMember("function", function, allocator);
  return call;
}

Value NamedTool(std::string_view name, JsonAllocator& allocator) {
  Value function(rapidjson::kObjectType);
  function.AddMember("name", TextValue(name, allocator), allocator);
  Value tool(rapidjson::kObjectType);
  tool.AddMember("type", "function", allocator);
  tool.AddMember("function", function, allocator);
  return tool;
}

void WrapTools(rapidjson::Document& body, std::string_view schema,
               const std::function<bool(Value& tool, const std::string& place)>& takes) {
  JsonAllocator& allocator = body.GetAllocator();
  Value tools = TakeMember(body, "tools");
  if (tools.IsNull()) return;
  if (!tools.IsArray()) RefuseField("tools", "must be an array");
  Value wrapped(rapidjson::kArrayType);
  for (rapidjson::SizeType i = 0; i < tools.Size(); ++i) {
    const std::string place = PlaceOf("tools", i);
    if (!tools[i].IsObject()) RefuseField(place, "expected an object");
    if (!takes(tools[i], place)) continue;
    StringMember(tools[i], "name", place, true);
    StringMember(tools[i], "description", place, false);
    Value function(rapidjson::kObjectType);
    for (const std::string_view name :
         {std::string_view("name"), std::string_view("description"), schema}) {
      if (FindMember(tools[i], name) == nullptr) continue;
      const std::string_view as = name == schema ? "parameters" : name;
      SetMember(function, as, TakeMember(tools[i], name), allocator);
    }
    Value tool(rapidjson::kObjectType);
    tool.AddMember("type", "function", allocator);
    tool.AddMember("function", function, allocator);
    wrapped.PushBack(tool, allocator);
  }
  SetMember(body, "tools", std::move(wrapped), allocator);
}

void AddToolCall(Value& message, Value call, JsonAllocator& allocator) {
  if (FindMember(message, "tool_calls") == nullptr) {
    SetMember(message, "tool_calls", Value(rapidjson::kArrayType), allocator);
  }
  FindMember(message, "tool_calls")->PushBack(call, allocator);
}

}  // namespace bloomery::serve
