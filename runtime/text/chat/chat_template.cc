#include "runtime/text/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/chatml.h"
#include "runtime/text/chat/template_caps.h"
#include "runtime/text/jinja/json.h"

namespace bloomery::chat {
namespace {

using jinja::Value;

constexpr std::string_view kSpace = " \t\r\n";

bool IsText(const Value& value, std::string_view text) {
  return value.is_text() && value.AsText().bytes() == text;
}

std::string_view TrimRight(std::string_view text) {
  const size_t end = text.find_last_not_of(kSpace);
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

// ---- message fixes

// The texts of content parts joined by newlines, as a template that knows only strings needs them.
Value JoinParts(const Value& parts) {
  const jinja::Template join =
      jinja::Template::Parse("{{ parts|map(attribute='text')|join('\\n') }}", "content parts");
  const auto joined = join.Render(Value::Dict({{Value::Trusted("parts"), parts}}), {});
  // Every byte but the newlines is input; marking those too changes nothing for a tokenizer.
  return Value::Input(joined.text);
}

Value FixContent(const Value& message, const TemplateCaps& caps) {
  const Value content = message.Get("content");
  if (content.is_list() && !caps.supports_typed_content) {
    return message.With("content", JoinParts(content));
  }
  if (content.is_text() && !caps.supports_string_content && caps.supports_typed_content) {
    const Value part = Value::Dict(
        {{Value::Trusted("type"), Value::Trusted("text")}, {Value::Trusted("text"), content}});
    return message.With("content", Value::List({part}));
  }
  if (content.is_none() || content.is_undefined()) {
    return message.With("content", Value::Trusted(""));
  }
  return message;
}

Value FixToolCalls(const Value& message) {
  const Value calls = message.Get("tool_calls");
  if (!calls.is_list()) {
    return message;
  }
  std::vector<Value> fixed;
  for (const Value& call : calls.Items()) {
    const Value function = call.Get("function");
    const Value arguments = function.Get("arguments");
    Value parsed;
    if (arguments.is_text()) {
      parsed = ArgumentsAsWritten(arguments.AsText().bytes());
    }
    fixed.push_back(parsed.is_dict() ? call.With("function", function.With("arguments", parsed))
                                     : call);
  }
  return message.With("tool_calls", Value::List(std::move(fixed)));
}

// The system text put before the first user message, for templates without a system turn.
std::vector<Value> FoldSystem(std::vector<Value> messages) {
  if (messages.size() < 2 || !IsText(messages[0].Get("role"), "system") ||
      !IsText(messages[1].Get("role"), "user")) {
    return messages;
  }
  const Value system = messages[0].Get("content");
  const Value user = messages[1].Get("content");
  if (!system.is_text() || !user.is_text()) {
    return messages;
  }
  messages[1] = messages[1].With(
      "content", Value::Input(system.AsText().bytes() + "\n" + user.AsText().bytes()));
  messages.erase(messages.begin());
  return messages;
}

// ---- rendered text

void Append(RenderedPrompt& prompt, std::string_view text, bool input) {
  if (input && !text.empty()) {
    prompt.input_spans.push_back({prompt.text.size(), prompt.text.size() + text.size()});
  }
  prompt.text += text;
}

void DropFront(RenderedPrompt& prompt, size_t bytes) {
  prompt.text.erase(0, bytes);
  for (jinja::Span& span : prompt.input_spans) {
    span.begin -= std::min(span.begin, bytes);
    span.end -= std::min(span.end, bytes);
  }
  std::erase_if(prompt.input_spans, [](const jinja::Span& span) { return span.begin == span.end; });
}

void DropBack(RenderedPrompt& prompt, size_t bytes) {
  prompt.text.resize(prompt.text.size() - bytes);
  for (jinja::Span& span : prompt.input_spans) {
    span.begin = std::min(span.begin, prompt.text.size());
    span.end = std::min(span.end, prompt.text.size());
  }
  std::erase_if(prompt.input_spans, [](const jinja::Span& span) { return span.begin == span.end; });
}

bool IsInput(const RenderedPrompt& prompt, size_t begin, size_t end) {
  return std::any_of(prompt.input_spans.begin(), prompt.input_spans.end(),
                     [&](const jinja::Span& span) { return span.begin < end && span.end > begin; });
}

bool EndsInOpenTag(const RenderedPrompt& prompt, const std::string& open) {
  const std::string_view kept = TrimRight(prompt.text);
  return !open.empty() && kept.ends_with(open) &&
         !IsInput(prompt, kept.size() - open.size(), kept.size());
}

// What a continued message adds behind the generation prompt.
void AppendContinuation(RenderedPrompt& prompt, const Value& message, Continue how,
                        const ReasoningMarks& marks) {
  if (how == Continue::kReasoning && marks.open.empty()) {
    throw Error(ErrorKind::kBadRequest,
                "Field 'continue_final_message': this model has no marks for reasoning");
  }
  // A model without marks has nothing to write reasoning in.
  const Value reasoning = marks.open.empty() ? Value() : message.Get("reasoning_content");
  Value content = message.Get("content");
  if (content.is_list()) {
    content = JoinParts(content);
  }
  const bool has_reasoning = reasoning.is_text() && !reasoning.AsText().bytes().empty();
  const bool has_content = content.is_text() && !content.AsText().bytes().empty();
  // Reasoning alone is continued inside its span.
  const bool inside =
      how == Continue::kReasoning || (has_reasoning && !has_content && how == Continue::kAuto);
  const bool open = EndsInOpenTag(prompt, marks.open);
  if (has_reasoning || inside) {
    if (!open) {
      Append(prompt, marks.open + "\n", false);
    }
    Append(prompt,
           has_reasoning ? std::string_view(reasoning.AsText().bytes()) : std::string_view(), true);
    prompt.starts_in_reasoning = inside;
    if (inside) {
      return;
    }
  }
  if (open || has_reasoning) {
    Append(prompt, "\n" + marks.close + "\n\n", false);
  }
  Append(prompt, has_content ? std::string_view(content.AsText().bytes()) : std::string_view(),
         true);
  prompt.starts_in_reasoning = false;
}

}  // namespace

ChatTemplate::ChatTemplate(Source source, jinja::Template main,
                           std::optional<jinja::Template> tool_use)
    : source_(std::move(source)), main_(std::move(main)), tool_use_(std::move(tool_use)) {}

ChatTemplate ChatTemplate::Make(Source source) {
  const bool fallback = source.main.empty();
  jinja::Template main = jinja::Template::Parse(fallback ? kChatMl : std::string_view(source.main),
                                                fallback ? "chatml" : "chat_template");
  std::optional<jinja::Template> tool_use;
  if (!source.tool_use.empty()) {
    tool_use = jinja::Template::Parse(source.tool_use, "chat_template.tool_use");
  }
  ChatTemplate made(std::move(source), std::move(main), std::move(tool_use));
  made.fallback_ = fallback;
  made.caps_ = ProbeCaps(made.main_, made.tool_use_ ? *made.tool_use_ : made.main_,
                         made.source_.bos_text, made.source_.eos_text);
  return made;
}

const jinja::Template& ChatTemplate::TemplateFor(const ChatRequest& request) const {
  return tool_use_ && request.tools.is_list() ? *tool_use_ : main_;
}

Value ChatTemplate::FixMessages(const Value& messages) const {
  // Templates that speak in channels know the developer role themselves.
  const bool knows_developer = main_.source().find("<|channel|>") != std::string::npos;
  std::vector<Value> fixed;
  for (Value message : messages.Items()) {
    if (!knows_developer && IsText(message.Get("role"), "developer")) {
      message = message.With("role", Value::Trusted("system"));
    }
    message = FixContent(message, caps_);
    fixed.push_back(caps_.supports_object_arguments ? FixToolCalls(message) : message);
  }
  return Value::List(caps_.supports_system_role ? std::move(fixed) : FoldSystem(std::move(fixed)));
}

Value ChatTemplate::Context(const ChatRequest& request, const Value& messages,
                            bool add_generation_prompt) const {
  std::vector<Value::DictEntry> entries;
  const auto set = [&entries](std::string_view name, Value value) {
    entries.emplace_back(Value::Trusted(name), std::move(value));
  };
  // History keeps no reasoning unless asked: the names the families use for that choice.
  set("clear_thinking", true);
  set("drop_thinking", true);
  set("truncate_history_thinking", true);
  if (!request.reasoning_effort.empty() && request.reasoning_effort != "none") {
    set("reasoning_effort", Value::Input(request.reasoning_effort));
    set("reasoning_strength", Value::Input(request.reasoning_effort));
  }
  if (request.template_kwargs.is_dict()) {
    const auto& kwargs = request.template_kwargs.Entries();
    entries.insert(entries.end(), kwargs.begin(), kwargs.end());
    const Value preserve = request.template_kwargs.Get("preserve_reasoning");
    if (preserve.kind() == jinja::ValueKind::kBool) {
      set("preserve_thinking", preserve);
      set("clear_thinking", !preserve.AsBool());
      set("drop_thinking", !preserve.AsBool());
      set("truncate_history_thinking", !preserve.AsBool());
    }
  }
  if (request.enable_thinking) {
    set("enable_thinking", *request.enable_thinking);
  }
  set("messages", messages);
  if (request.tools.is_list()) {
    set("tools", request.tools);
  }
  set("bos_token", Value::Trusted(source_.bos_text));
  set("eos_token", Value::Trusted(source_.eos_text));
  if (add_generation_prompt) {
    set("add_generation_prompt", true);
  }
  return Value::Dict(std::move(entries));
}

RenderedPrompt ChatTemplate::Render(const ChatRequest& request, int64_t now_s) const {
  const std::vector<Value>& given = request.messages.Items();
  const bool continues = request.continue_final != Continue::kNever && !given.empty() &&
                         IsText(given.back().Get("role"), "assistant") &&
                         !given.back().Get("tool_calls").is_list();
  std::vector<Value> history = given;
  if (continues) {
    history.pop_back();
  }
  jinja::RenderOptions options;
  options.now_s = now_s;
  auto rendered =
      TemplateFor(request).Render(Context(request, FixMessages(Value::List(std::move(history))),
                                          continues || request.add_generation_prompt),
                                  options);
  RenderedPrompt prompt{std::move(rendered.text), std::move(rendered.input_spans), false};
  const std::string& bos = source_.bos_text;
  if (source_.adds_bos && !bos.empty() && prompt.text.starts_with(bos)) {
    DropFront(prompt, bos.size());
  }
  const std::string& eos = source_.eos_text;
  if (source_.adds_eos && !eos.empty() && prompt.text.ends_with(eos)) {
    DropBack(prompt, eos.size());
  }
  prompt.starts_in_reasoning = EndsInOpenTag(prompt, source_.marks.open);
  if (continues) {
    AppendContinuation(prompt, given.back(), request.continue_final, source_.marks);
  }
  return prompt;
}

}  // namespace bloomery::chat
