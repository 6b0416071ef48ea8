// Reads and validates the parts of a chat body that shape the prompt.
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/jinja/json.h"

namespace bloomery::chat {
namespace {

[[noreturn]] void Refuse(const std::string& field, const std::string& what) {
  throw Error(ErrorKind::kBadRequest, "Field '" + field + "': " + what);
}

bool ReadBool(const rapidjson::Value& body, const char* name, bool otherwise) {
  const rapidjson::Value* value = FindNonNull(body, name);
  if (value != nullptr && !value->IsBool()) {
    Refuse(name, "must be a boolean");
  }
  return value == nullptr ? otherwise : value->GetBool();
}

void CheckPart(const rapidjson::Value& part, const std::string& where) {
  if (!part.IsObject()) {
    Refuse(where, "must be an object");
  }
  const rapidjson::Value* type = FindNonNull(part, "type");
  if (type == nullptr || !type->IsString()) {
    Refuse(where + ".type", "must be a string");
  }
  if (std::string_view(type->GetString()) != "text") {
    Refuse(where + ".type",
           "'" + std::string(type->GetString()) + "' is not supported: this model takes text only");
  }
  const rapidjson::Value* text = FindNonNull(part, "text");
  if (text == nullptr || !text->IsString()) {
    Refuse(where + ".text", "must be a string");
  }
}

bool HasToolCalls(const rapidjson::Value& message) {
  const rapidjson::Value* calls = FindNonNull(message, "tool_calls");
  return calls != nullptr && calls->IsArray() && !calls->Empty();
}

void CheckToolCalls(const rapidjson::Value& message, const std::string& where) {
  const rapidjson::Value* calls = FindNonNull(message, "tool_calls");
  if (calls == nullptr) {
    return;
  }
  if (!calls->IsArray()) {
    Refuse(where, "must be an array");
  }
  for (rapidjson::SizeType i = 0; i < calls->Size(); ++i) {
    const std::string at = where + "[" + std::to_string(i) + "]";
    const rapidjson::Value& call = (*calls)[i];
    const rapidjson::Value* function = call.IsObject() ? FindNonNull(call, "function") : nullptr;
    if (function == nullptr || !function->IsObject()) {
      Refuse(at + ".function", "must be an object");
    }
    const rapidjson::Value* name = FindNonNull(*function, "name");
    if (name == nullptr || !name->IsString()) {
      Refuse(at + ".function.name", "must be a string");
    }
    const rapidjson::Value* arguments = FindNonNull(*function, "arguments");
    if (arguments != nullptr && !arguments->IsString() && !arguments->IsObject()) {
      Refuse(at + ".function.arguments", "must be a string or an object");
    }
  }
}

void CheckMessage(const rapidjson::Value& message, const std::string& where) {
  if (!message.IsObject()) {
    Refuse(where, "must be an object");
  }
  const rapidjson::Value* role = FindNonNull(message, "role");
  if (role == nullptr || !role->IsString()) {
    Refuse(where + ".role", "must be a string");
  }
  const rapidjson::Value* reasoning = FindNonNull(message, "reasoning_content");
  if (reasoning != nullptr && !reasoning->IsString()) {
    Refuse(where + ".reasoning_content", "must be a string");
  }
  CheckToolCalls(message, where + ".tool_calls");
  const rapidjson::Value* content = FindNonNull(message, "content");
  if (content == nullptr) {
    if (reasoning == nullptr && !HasToolCalls(message)) {
      Refuse(where + ".content", "must be a string or an array of parts");
    }
    return;
  }
  if (content->IsArray()) {
    for (rapidjson::SizeType i = 0; i < content->Size(); ++i) {
      CheckPart((*content)[i], where + ".content[" + std::to_string(i) + "]");
    }
  } else if (!content->IsString()) {
    Refuse(where + ".content", "must be a string or an array of parts");
  }
}

const rapidjson::Value& CheckedMessages(const rapidjson::Value& body) {
  const rapidjson::Value* messages = FindNonNull(body, "messages");
  if (messages == nullptr || !messages->IsArray()) {
    Refuse("messages", "must be an array");
  }
  for (rapidjson::SizeType i = 0; i < messages->Size(); ++i) {
    CheckMessage((*messages)[i], "messages[" + std::to_string(i) + "]");
  }
  const auto is_assistant = [&](rapidjson::SizeType i) {
    return std::string_view((*messages)[i]["role"].GetString()) == "assistant";
  };
  const rapidjson::SizeType count = messages->Size();
  if (count >= 2 && is_assistant(count - 1) && is_assistant(count - 2)) {
    Refuse("messages", "cannot end with two assistant messages");
  }
  return *messages;
}

jinja::Value ReadTools(const rapidjson::Value& body) {
  const rapidjson::Value* tools = FindNonNull(body, "tools");
  if (tools == nullptr) {
    return jinja::Value();
  }
  if (!tools->IsArray()) {
    Refuse("tools", "must be an array");
  }
  for (rapidjson::SizeType i = 0; i < tools->Size(); ++i) {
    const rapidjson::Value* function =
        (*tools)[i].IsObject() ? FindNonNull((*tools)[i], "function") : nullptr;
    const rapidjson::Value* name =
        function != nullptr && function->IsObject() ? FindNonNull(*function, "name") : nullptr;
    if (name == nullptr || !name->IsString()) {
      Refuse("tools[" + std::to_string(i) + "].function.name", "must be a string");
    }
  }
  return tools->Empty() ? jinja::Value() : jinja::FromJson(*tools, jinja::Origin::kInput);
}

Continue ReadContinue(const rapidjson::Value& body) {
  const rapidjson::Value* value = FindNonNull(body, "continue_final_message");
  if (value == nullptr) {
    return Continue::kAuto;
  }
  if (value->IsBool()) {
    return value->GetBool() ? Continue::kContent : Continue::kAuto;
  }
  const std::string_view name = value->IsString() ? value->GetString() : "";
  if (name == "content") {
    return Continue::kContent;
  }
  if (name == "reasoning_content") {
    return Continue::kReasoning;
  }
  Refuse("continue_final_message", "must be a boolean, \"content\" or \"reasoning_content\"");
}

void CheckContinuation(const rapidjson::Value& body, const rapidjson::Value& messages,
                       Continue how) {
  if (how == Continue::kAuto) {
    return;
  }
  // Only an explicit add_generation_prompt contradicts; its default gives way.
  if (FindNonNull(body, "add_generation_prompt") != nullptr &&
      ReadBool(body, "add_generation_prompt", true)) {
    Refuse("continue_final_message", "cannot be combined with add_generation_prompt");
  }
  const rapidjson::Value* last = messages.Empty() ? nullptr : &messages[messages.Size() - 1];
  if (last == nullptr || std::string_view((*last)["role"].GetString()) != "assistant") {
    Refuse("continue_final_message", "needs a last message of role 'assistant'");
  }
  if (HasToolCalls(*last)) {
    Refuse("continue_final_message", "cannot continue a message with tool calls");
  }
}

void ReadTemplateKwargs(const rapidjson::Value& body, ChatRequest& request) {
  const rapidjson::Value* kwargs = FindNonNull(body, "chat_template_kwargs");
  if (kwargs == nullptr) {
    return;
  }
  if (!kwargs->IsObject()) {
    Refuse("chat_template_kwargs", "must be an object");
  }
  const rapidjson::Value* thinking = FindNonNull(*kwargs, "enable_thinking");
  if (thinking != nullptr && !thinking->IsBool()) {
    Refuse("chat_template_kwargs.enable_thinking", "must be a boolean");
  }
  if (thinking != nullptr) {
    request.enable_thinking = thinking->GetBool();
  }
  request.template_kwargs = jinja::FromJson(*kwargs, jinja::Origin::kInput);
}

}  // namespace

ChatRequest ParseChatRequest(const rapidjson::Value& body) {
  if (!body.IsObject()) {
    throw Error(ErrorKind::kBadRequest, "the request body must be a JSON object");
  }
  ChatRequest request;
  const rapidjson::Value& messages = CheckedMessages(body);
  request.messages = jinja::FromJson(messages, jinja::Origin::kInput);
  request.tools = ReadTools(body);
  request.continue_final = ReadContinue(body);
  request.add_generation_prompt = ReadBool(body, "add_generation_prompt", true);
  CheckContinuation(body, messages, request.continue_final);
  ReadTemplateKwargs(body, request);
  if (const rapidjson::Value* effort = FindNonNull(body, "reasoning_effort")) {
    if (!effort->IsString()) {
      Refuse("reasoning_effort", "must be a string");
    }
    request.reasoning_effort = effort->GetString();
    if (request.reasoning_effort == "none") {
      request.enable_thinking = false;
    }
  }
  return request;
}

}  // namespace bloomery::chat
