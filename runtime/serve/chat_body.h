// Builds chat bodies out of the bodies of other APIs, in place: values are moved, not copied, so a
// large request is held once. What a translation shares: naming a place in refusals, taking members
// out, writing messages and tools in the OpenAI chat form, which is the one form of a chat here.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/json.h"
#include "runtime/serve/fields.h"

namespace bloomery::serve {

using JsonAllocator = rapidjson::Document::AllocatorType;

// "messages[3]", "messages[3].content".
std::string PlaceOf(std::string_view list, size_t index);

// The member, or null when it is absent or JSON null.
rapidjson::Value* FindMember(rapidjson::Value& object, std::string_view name);
// The same as a string or an object; Error(kBadRequest) naming `place`.`name` when it is of another
// kind. `required`: also when it is absent.
std::string_view StringMember(const rapidjson::Value& object, std::string_view name,
                              std::string_view place, bool required);

rapidjson::Value TextValue(std::string_view text, JsonAllocator& allocator);
// Adds the member, or replaces its value.
void SetMember(rapidjson::Value& object, std::string_view name, rapidjson::Value value,
               JsonAllocator& allocator);
// Removes the member and gives its value; null when it is absent.
rapidjson::Value TakeMember(rapidjson::Value& object, std::string_view name);

// {"type":"text","text":…}
rapidjson::Value TextPart(std::string_view text, JsonAllocator& allocator);
// {"type":"image_url","image_url":{"url":…}}
rapidjson::Value ImagePart(std::string_view url, JsonAllocator& allocator);
// {"role":…,"content":…}; parts that are one text become a string, no parts "".
rapidjson::Value ChatMessage(std::string_view role, rapidjson::Value content,
                             JsonAllocator& allocator);
// {"role":"tool","tool_call_id":…,"content":…}
rapidjson::Value ToolMessage(std::string_view id, rapidjson::Value content,
                             JsonAllocator& allocator);
// {"id":…,"type":"function","function":{"name":…,"arguments":"…"}}
rapidjson::Value ToolCall(std::string_view id, std::string_view name, std::string_view arguments,
                          JsonAllocator& allocator);
// {"type":"function","function":{"name":…}}, as tool_choice.
rapidjson::Value NamedTool(std::string_view name, JsonAllocator& allocator);
// Wraps each function in the body's `tools` as the chat form has them; its parameters are called
// `schema` here. `takes` says of a tool whether it is a function, or refuses it.
void WrapTools(rapidjson::Document& body, std::string_view schema,
               const std::function<bool(rapidjson::Value& tool, const std::string& place)>& takes);
// Appends to a message's list of calls, made when it is not there.
void AddToolCall(rapidjson::Value& message, rapidjson::Value call, JsonAllocator& allocator);

}  // namespace bloomery::serve
