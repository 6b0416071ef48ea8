#include "runtime/serve/chat_prompt.h"

#include <array>
#include <ctime>
#include <limits>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/text/chat/tool_grammar.h"

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

// What a request says about calls.
struct ToolChoice {
  enum class Mode { kNone, kAuto, kRequired };
  Mode mode = Mode::kNone;
  std::string function{};  // the one that is required; "": any
};

ToolChoice ReadNamedTool(const rapidjson::Value& given) {
  const Fields fields(given, "Field 'tool_choice'");
  const std::string type = fields.String("type").value_or("function");
  if (type == "auto") return {.mode = ToolChoice::Mode::kAuto};
  if (type != "function") RefuseField("tool_choice", "type must be function");
  const rapidjson::Value* function = fields.Object("function");
  // OpenAI's Responses have the name beside the type.
  const auto name = function == nullptr
                        ? fields.String("name")
                        : Fields(*function, "Field 'tool_choice.function'").String("name");
  if (!name || name->empty()) RefuseField("tool_choice", "needs the function's name");
  return {.mode = ToolChoice::Mode::kRequired, .function = *name};
}

ToolChoice ReadToolChoice(const Fields& body) {
  const rapidjson::Value* tools = body.Array("tools");
  const bool any = tools != nullptr && !tools->Empty();
  for (std::string_view name : {"functions", "function_call"}) {
    if (body.Find(name) != nullptr) RefuseFeature(name, "use tools and tool_choice");
  }
  if (any && body.Find("grammar") != nullptr) {
    RefuseField("grammar", "cannot be given together with tools");
  }
  ToolChoice choice{.mode = any ? ToolChoice::Mode::kAuto : ToolChoice::Mode::kNone};
  const rapidjson::Value* given = body.Find("tool_choice");
  if (given == nullptr) return choice;
  if (given->IsObject()) {
    choice = ReadNamedTool(*given);
  } else {
    const std::string name = *body.String("tool_choice");
    if (name == "none") {
      choice.mode = ToolChoice::Mode::kNone;
    } else if (name == "auto") {
      choice.mode = ToolChoice::Mode::kAuto;
    } else if (name == "required") {
      choice.mode = ToolChoice::Mode::kRequired;
    } else {
      RefuseField("tool_choice", "must be none, auto, required or an object that names a function");
    }
  }
  if (choice.mode == ToolChoice::Mode::kRequired && !any) {
    RefuseField("tool_choice", "needs tools");
  }
  if (!any) choice.mode = ToolChoice::Mode::kNone;
  return choice;
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

// Of the texts that calls are written with, the ones that are a control token each.
std::vector<text::TokenId> ControlTokens(const std::vector<std::string>& texts,
                                         const text::Tokenizer& tokenizer) {
  std::vector<text::TokenId> ids;
  for (const std::string& each : texts) {
    const auto tokens = tokenizer.Tokenise(each, {.parse_special = true});
    if (tokens.size() == 1) ids.push_back(tokens.front());
  }
  return ids;
}

// Where a call is wanted, a grammar that gives one; elsewhere one that keeps to the form of calls
// from where the model begins one.
std::shared_ptr<const text::Grammar> CompileToolGrammar(const Fields& body, const Seat& seat,
                                                        const ToolChoice& choice,
                                                        const OutputForm& form,
                                                        const ChatPrompt& prompt) {
  const chat::ChatTemplate& chat_template = *seat.chat_template;
  const chat::ReasoningMarks& marks = chat_template.marks();
  chat::ToolGrammarRequest wanted;
  wanted.syntax = prompt.format.syntax;
  wanted.tools = body.Array("tools");
  wanted.function = choice.function;
  wanted.required = choice.mode == ToolChoice::Mode::kRequired;
  wanted.parallel =
      body.Bool("parallel_tool_calls").value_or(chat_template.caps().supports_parallel_tool_calls);
  wanted.marks = marks;
  wanted.starts_in_reasoning = prompt.format.starts_in_reasoning;
  text::ReasoningLimit closed{.tokens = 0, .open = marks.open, .closes = {marks.close}};
  PlaceInReasoning(prompt.rendered.text, closed);
  wanted.may_think = !marks.open.empty() && closed.tokens == 0 &&
                     chat_template.tools_source().find(marks.open) != std::string::npos;
  rapidjson::Document response;
  if (form.source == OutputForm::Source::kResponseFormat) {
    response = ParseJson(form.schema, "response_format");
    wanted.response = &response;
  }
  chat::ToolGrammar grammar = chat::MakeToolGrammar(wanted);
  grammar.options.preserved_tokens = prompt.preserved_tokens;
  for (const text::TokenId id : ControlTokens({marks.open, marks.close}, *seat.tokenizer)) {
    grammar.options.preserved_tokens.push_back(id);
  }
  try {
    return seat.grammars->FromGbnf(grammar.source, grammar.options);
  } catch (const Error& error) {
    if (wanted.required || wanted.response != nullptr) throw;
    LOG(WARNING) << "tool calls are not constrained: " << error.what();
    return nullptr;
  }
}

void ReadFormat(const rapidjson::Document& body, const ServeSettings& settings, const Seat& seat,
                const ToolChoice& choice, const OutputForm& form, ChatPrompt& prompt) {
  const Fields fields(body, "request body");
  prompt.format.reasoning = chat::ParseReasoningFormat(
      fields.String("reasoning_format").value_or(settings.reasoning_format));
  prompt.format.marks = seat.chat_template->marks();
  prompt.format.starts_in_reasoning = prompt.rendered.starts_in_reasoning;
  const rapidjson::Value* given = fields.Array("tools");
  if (given == nullptr || given->Empty()) return;
  const auto syntax =
      chat::ChooseToolSyntax(seat.chat.tool_syntax, seat.chat_template->tools_source());
  if (choice.mode == ToolChoice::Mode::kNone) {
    prompt.banned_tokens = ControlTokens(chat::ToolMarkup(syntax), *seat.tokenizer);
    return;
  }
  auto tools = std::make_shared<const chat::ToolSet>(*fields.Array("tools"));
  if (!choice.function.empty() && tools->Find(choice.function) == nullptr) {
    RefuseField("tool_choice", "there is no function '" + Printable(choice.function) + "'");
  }
  if (syntax == chat::ToolSyntax::kNone) {
    RefuseFeature("tools",
                  "neither the model's plugin nor its template says how it calls tools; "
                  "tool_choice none is accepted");
  }
  prompt.format.syntax = syntax;
  prompt.format.memory = seat.calls;
  prompt.format.tools = std::move(tools);
  prompt.preserved_tokens = ControlTokens(chat::ToolMarkup(syntax), *seat.tokenizer);
  prompt.grammar = CompileToolGrammar(fields, seat, choice, form, prompt);
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
                          const Seat& seat, const OutputForm& form, PromptUse use) {
  const ToolChoice choice = [&] {
    const Fields fields(body, "request body");
    RefuseMedia(fields);
    return ReadToolChoice(fields);
  }();
  FillDefaults(body, settings);
  if (seat.calls != nullptr) seat.calls->Restore(body);
  chat::ChatRequest request = chat::ParseChatRequest(body);
  if (request.messages.Items().empty()) RefuseField("messages", "must have at least one message");
  if (!settings.prefill_assistant && request.continue_final == chat::Continue::kAuto) {
    request.continue_final = chat::Continue::kNever;
  }
  ChatPrompt prompt;
  prompt.rendered = seat.chat_template->Render(request, static_cast<int64_t>(std::time(nullptr)));
  const text::TokeniseOptions options{
      .add_special = true, .parse_special = true, .plain = prompt.rendered.input_spans};
  if (use == PromptUse::kRun) {
    prompt.ids = TokenisePrompt(prompt.rendered.text, options, seat);
  } else if (use == PromptUse::kCount) {
    prompt.ids = seat.tokenizer->Tokenise(prompt.rendered.text, options);
  }
  ReadFormat(body, settings, seat, choice, form, prompt);
  return prompt;
}

void TakePrompt(ChatPrompt& prompt, engine::GenerateRequest& request) {
  request.prompt = std::move(prompt.ids);
  request.preserved_tokens.insert(request.preserved_tokens.end(), prompt.preserved_tokens.begin(),
                                  prompt.preserved_tokens.end());
  for (const text::TokenId id : prompt.banned_tokens) {
    request.sampling.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  if (prompt.grammar) request.grammar = std::move(prompt.grammar);
  PlaceInReasoning(prompt.rendered.text, request.reasoning);
  // Text of the request at the end opens no span.
  request.reasoning.starts_inside = prompt.rendered.starts_in_reasoning;
}

}  // namespace bloomery::serve
