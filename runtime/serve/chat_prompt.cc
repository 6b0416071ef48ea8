#include "runtime/serve/chat_prompt.h"

#include <array>
#include <ctime>

#include "runtime/base/utf8.h"
#include "runtime/serve/fields.h"

namespace bloomery::serve {
namespace {

// Where an image or a file is said to be, for the refusal: the scheme of its URL.
std::string SchemeOf(const rapidjson::Value& part) {
  if (!part.HasMember("image_url")) return "";
  const rapidjson::Value* url = &part["image_url"];
  if (url->IsObject()) {
    const auto inner = url->FindMember("url");
    if (inner == url->MemberEnd()) return "";
    url = &inner->value;
  }
  if (!url->IsString()) return "";
  const std::string_view text = StringOf(*url);
  const size_t colon = text.find(':');
  if (colon > 16) return "";  // none, or too long for a scheme
  return " (a URL with scheme '" + Printable(text.substr(0, colon)) + "')";
}

const char* MissingSense(std::string_view type) {
  const auto names = [&](std::string_view word) {
    return type.find(word) != std::string_view::npos;
  };
  if (names("image") || names("video")) return "the model has no vision: it takes text only";
  if (names("audio")) return "the model has no hearing: it takes text only";
  return "the model takes text only";
}

void RefuseMedia(const Fields& body) {
  const rapidjson::Value* messages = body.Find("messages");
  if (messages == nullptr || !messages->IsArray()) return;  // ParseChatRequest names it
  for (const auto& message : messages->GetArray()) {
    if (!message.IsObject()) continue;
    const auto content = message.FindMember("content");
    if (content == message.MemberEnd() || !content->value.IsArray()) continue;
    for (const auto& part : content->value.GetArray()) {
      if (!part.IsObject()) continue;
      const auto type = part.FindMember("type");
      if (type == part.MemberEnd() || !type->value.IsString()) continue;
      const std::string_view name = StringOf(type->value);
      if (name != "text") {
        RefuseField("messages", "content part of type '" + Printable(name) + "'" + SchemeOf(part) +
                                    ": " + MissingSense(name));
      }
    }
  }
}

void CheckTools(const Fields& body) {
  const rapidjson::Value* tools = body.Array("tools");
  const bool any = tools != nullptr && !tools->Empty();
  std::string choice = any ? "auto" : "none";
  if (const rapidjson::Value* given = body.Find("tool_choice")) {
    if (given->IsObject()) {
      RefuseFeature("tool_choice", "naming one tool is not in this version");
    }
    choice = *body.String("tool_choice");
    if (choice != "none" && choice != "auto" && choice != "required") {
      RefuseField("tool_choice", "must be none, auto or required");
    }
  }
  if (any && body.Find("grammar") != nullptr) {
    RefuseField("grammar", "cannot be given together with tools");
  }
  if (choice == "required" && !any) RefuseField("tool_choice", "'required' needs tools");
  if (any && choice != "none") {
    RefuseFeature("tools", "tool calls are not in this version; tool_choice none is accepted");
  }
  for (std::string_view name : {"functions", "function_call"}) {
    if (body.Find(name) != nullptr) RefuseFeature(name, "not supported");
  }
}

void CheckResponseFormat(const Fields& body) {
  const rapidjson::Value* format = body.Object("response_format");
  if (format == nullptr) return;
  const Fields fields(*format, "Field 'response_format'");
  const std::string type = fields.String("type").value_or("text");
  if (type == "text") return;
  if (type == "json_schema") {
    if (const rapidjson::Value* wrapper = fields.Object("json_schema")) {
      Fields(*wrapper, "Field 'json_schema'").Object("schema");
    }
  } else if (type != "json_object") {
    RefuseField("response_format", "type must be text, json_object or json_schema");
  }
  RefuseFeature("response_format", "constrained output is not in this version; only type text is");
}

void SetMember(rapidjson::Document& body, rapidjson::Value& object, const char* name,
               rapidjson::Value value) {
  if (object.HasMember(name)) {
    object[name] = value;
  } else {
    object.AddMember(rapidjson::Value(name, body.GetAllocator()), value, body.GetAllocator());
  }
}

// The server's --chat-template-kwargs, --reasoning and --reasoning-effort where the request says
// nothing.
void FillDefaults(rapidjson::Document& body, const ServeSettings& settings) {
  auto& allocator = body.GetAllocator();
  const Fields fields(body, "request body");
  if (!settings.reasoning_effort.empty() && fields.Find("reasoning_effort") == nullptr) {
    SetMember(body, body, "reasoning_effort",
              rapidjson::Value(settings.reasoning_effort.c_str(), allocator));
  }
  if (settings.chat_template_kwargs.empty() && settings.thinking == Thinking::kAuto) return;
  if (fields.Object("chat_template_kwargs") == nullptr) {
    SetMember(body, body, "chat_template_kwargs", rapidjson::Value(rapidjson::kObjectType));
  }
  rapidjson::Value& kwargs = body["chat_template_kwargs"];
  if (!settings.chat_template_kwargs.empty()) {
    const auto defaults = ParseJson(settings.chat_template_kwargs, "--chat-template-kwargs");
    for (const auto& member : defaults.GetObject()) {
      if (FindNonNull(kwargs, StringOf(member.name)) != nullptr) continue;
      kwargs.RemoveMember(member.name);
      kwargs.AddMember(rapidjson::Value(member.name, allocator),
                       rapidjson::Value(member.value, allocator), allocator);
    }
  }
  if (settings.thinking != Thinking::kAuto && FindNonNull(kwargs, "enable_thinking") == nullptr) {
    SetMember(body, kwargs, "enable_thinking",
              rapidjson::Value(settings.thinking == Thinking::kOn));
  }
}

}  // namespace

void CheckChatDefaults(const ServeSettings& settings) {
  rapidjson::Document body =
      ParseJson(R"({"messages":[{"role":"user","content":""}]})", "chat defaults");
  FillDefaults(body, settings);
  try {
    chat::ParseChatRequest(body);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage,
                std::string("--chat-template-kwargs, --reasoning-effort: ") + error.what());
  }
}

ChatPrompt MakeChatPrompt(rapidjson::Document& body, const ServeSettings& settings,
                          const Seat& seat) {
  {
    const Fields fields(body, "request body");
    CheckTools(fields);
    CheckResponseFormat(fields);
    RefuseMedia(fields);
  }
  FillDefaults(body, settings);
  chat::ChatRequest request = chat::ParseChatRequest(body);
  if (!settings.prefill_assistant && request.continue_final == chat::Continue::kAuto) {
    request.continue_final = chat::Continue::kNever;
  }
  ChatPrompt prompt;
  prompt.rendered = seat.chat_template->Render(request, static_cast<int64_t>(std::time(nullptr)));
  prompt.ids = seat.tokenizer->Tokenise(
      prompt.rendered.text,
      {.add_special = true, .parse_special = true, .plain = prompt.rendered.input_spans});
  return prompt;
}

}  // namespace bloomery::serve
