// Rows of the table of flags: templates and reasoning.
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/flag_rows.h"
#include "runtime/text/chat/chatml.h"

namespace bloomery::serve::rows {
namespace {

Thinking ThinkingOf(std::string_view name) {
  if (name == "on") return Thinking::kOn;
  return name == "off" ? Thinking::kOff : Thinking::kAuto;
}

void RequireJinja(const I& i) {
  if (!i.on) throw Error(ErrorKind::kUsage, "templates are always Jinja here");
}

void RequireReasoning(const I& i) {
  if (!i.on) throw Error(ErrorKind::kUsage, "earlier reasoning is given to the template as sent");
}

void SetKwargs(S& s, const I& i) {
  CheckObject(i.text, "--chat-template-kwargs");
  s.chat_template_kwargs = i.text;
}

// llama-server has names for templates that it carries. A text without a tag of Jinja is one of
// them, or a mistake: every prompt would be that text.
void SetTemplate(S& s, const I& i) {
  if (!i.text.empty() && i.text != chat::kChatMlName && i.text.find("{{") == std::string::npos &&
      i.text.find("{%") == std::string::npos) {
    throw Error(ErrorKind::kUsage,
                "'" + Printable(i.text) +
                    "' is no template, and chatml is the one name built in; "
                    "give a template's text, or its file with --chat-template-file");
  }
  s.chat_template = i.text;
}

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
    {.group = "Chat", .names = "--jinja", .negative = "--no-jinja", .env = "LLAMA_ARG_JINJA",
     .value = kSwitch, .fallback = "on",
     .help = "Templates are always Jinja; --no-jinja is refused.",
     .apply = BLOOMERY_SET(RequireJinja(i))},
    {.group = "Chat", .names = "--chat-template", .env = "LLAMA_ARG_CHAT_TEMPLATE", .value = kText,
     .metavar = "TEXT", .fallback = "the model's",
     .help = "The chat template itself, as Jinja, or chatml for the one that is built in. "
             "llama-server's other names are refused.",
     .apply = BLOOMERY_SET(SetTemplate(s, i))},
    {.group = "Chat", .names = "--chat-template-file", .env = "LLAMA_ARG_CHAT_TEMPLATE_FILE",
     .value = kText, .metavar = "FILE", .fallback = "the model's",
     .help = "A file with the chat template.",
     .apply = BLOOMERY_SET(s.chat_template_file = i.text)},
    {.group = "Chat", .names = "--chat-template-kwargs", .env = "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
     .value = kText, .metavar = "JSON", .fallback = "{}",
     .help = "Variables for the template; a request's own win.",
     .apply = BLOOMERY_SET(SetKwargs(s, i))},
    {.group = "Chat", .names = "--reasoning-format", .env = "LLAMA_ARG_THINK", .value = kChoice,
     .metavar = "NAME", .fallback = "auto", .choices = "auto|none|deepseek|deepseek-legacy",
     .help = "Where the think span goes: none leaves it in the content, deepseek and auto move "
             "it to reasoning_content, deepseek-legacy does both.",
     .apply = BLOOMERY_SET(s.reasoning_format = i.text)},
    {.group = "Chat", .names = "-rea --reasoning", .env = "LLAMA_ARG_REASONING", .value = kChoice,
     .metavar = "WHEN", .fallback = "auto", .choices = "on|off|auto",
     .help = "Whether templates are asked to think.",
     .apply = BLOOMERY_SET(s.thinking = ThinkingOf(i.text))},
    {.group = "Chat", .names = "--reasoning-effort", .env = "LLAMA_ARG_REASONING_EFFORT",
     .value = kText, .metavar = "LEVEL", .fallback = "the template's",
     .help = "Passed to the template; none turns thinking off.",
     .apply = BLOOMERY_SET(s.reasoning_effort = i.text == "default" ? "" : i.text)},
    {.group = "Chat", .names = "--reasoning-budget", .env = "LLAMA_ARG_THINK_BUDGET",
     .value = kInteger, .metavar = "N", .fallback = "-1", .min = -1, .max = kIntMax,
     .help = "Tokens of a span of reasoning where the request gives no number; -1: no limit, 0 "
             "closes it at once.",
     .apply = BLOOMERY_SET(s.reasoning_budget = static_cast<int>(i.integer))},
    {.group = "Chat", .names = "--reasoning-budget-message",
     .env = "LLAMA_ARG_THINK_BUDGET_MESSAGE", .value = kText, .metavar = "TEXT",
     .fallback = "none", .help = "Written before a span's end that the budget forces.",
     .apply = BLOOMERY_SET(s.reasoning_budget_message = i.text)},
    {.group = "Chat", .names = "--reasoning-preserve", .negative = "--no-reasoning-preserve",
     .env = "LLAMA_ARG_REASONING_PRESERVE", .value = kSwitch, .fallback = "on",
     .help = "Reasoning of a request's earlier messages always goes to the template; "
             "--no-reasoning-preserve is refused.",
     .apply = BLOOMERY_SET(RequireReasoning(i))},
    {.group = "Chat", .names = "--prefill-assistant", .negative = "--no-prefill-assistant",
     .env = "LLAMA_ARG_PREFILL_ASSISTANT", .value = kSwitch, .fallback = "on",
     .help = "Continue a trailing assistant message.",
     .apply = BLOOMERY_SET(s.prefill_assistant = i.on)},
    {.group = "Chat", .names = "--skip-chat-parsing", .negative = "--no-skip-chat-parsing",
     .env = "LLAMA_ARG_SKIP_CHAT_PARSING", .value = kSwitch, .fallback = "off",
     .help = "Leave the whole answer in the content.",
     .apply = BLOOMERY_SET(if (i.on) s.reasoning_format = "none")},
};
// clang-format on

}  // namespace

std::span<const Flag> Chat() { return kFlags; }

}  // namespace bloomery::serve::rows
