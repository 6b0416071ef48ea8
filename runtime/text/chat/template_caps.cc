#include "runtime/text/chat/template_caps.h"

#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/jinja/json.h"

namespace bloomery::chat {
namespace {

using jinja::Value;

// Words no template contains by itself.
constexpr std::string_view kUserTurn = R"({"role":"user","content":"needle-user"})";
constexpr std::string_view kTypedTurn =
    R"({"role":"user","content":[{"type":"text","text":"needle-user"}]})";
constexpr std::string_view kOtherTurn = R"({"role":"user","content":"another-user"})";
constexpr std::string_view kOtherTypedTurn =
    R"({"role":"user","content":[{"type":"text","text":"another-user"}]})";
constexpr std::string_view kSystemTurn = R"({"role":"system","content":"needle-system"})";
constexpr std::string_view kReasonedTurn =
    R"({"role":"assistant","content":"needle-answer","reasoning_content":"needle-thought"})";
constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"needle_tool","description":"d",)"
    R"("parameters":{"type":"object","properties":{"needle_key":{"type":"string"}}}}}])";
constexpr std::string_view kResultTurn =
    R"({"role":"tool","tool_call_id":"c00000001","content":"needle-result"})";

std::string CallTurn(std::string_view arguments, bool two) {
  const auto call = [&](std::string_view id, std::string_view name) {
    return "{\"id\":\"" + std::string(id) + "\",\"type\":\"function\",\"function\":{\"name\":\"" +
           std::string(name) + "\",\"arguments\":" + std::string(arguments) + "}}";
  };
  return R"({"role":"assistant","content":"","tool_calls":[)" + call("c00000001", "needle_tool") +
         (two ? "," + call("c00000002", "needle_second") : "") + "]}";
}

class Prober {
 public:
  Prober(std::string_view bos_text, std::string_view eos_text)
      : bos_text_(bos_text), eos_text_(eos_text) {}

  // The text of `turns` (JSON objects), or nullopt when the template fails.
  std::optional<std::string> Try(const jinja::Template& which,
                                 const std::vector<std::string_view>& turns,
                                 std::vector<Value::DictEntry> extra = {}) {
    std::vector<Value> messages;
    messages.reserve(turns.size());
    for (const std::string_view turn : turns) {
      messages.push_back(jinja::TryParseJson(turn, jinja::Origin::kTrusted));
    }
    extra.emplace_back(Value::Trusted("messages"), Value::List(std::move(messages)));
    extra.emplace_back(Value::Trusted("bos_token"), Value::Trusted(bos_text_));
    extra.emplace_back(Value::Trusted("eos_token"), Value::Trusted(eos_text_));
    extra.emplace_back(Value::Trusted("add_generation_prompt"), true);
    try {
      return which.Render(Value::Dict(std::move(extra)), {}).text;
    } catch (const Error& error) {
      failure_ = error.what();
      return std::nullopt;
    }
  }

  const std::string& failure() const { return failure_; }

 private:
  std::string_view bos_text_;
  std::string_view eos_text_;
  std::string failure_;
};

bool Holds(const std::optional<std::string>& text, std::string_view needle) {
  return text && text->find(needle) != std::string::npos;
}

// A template that knows only strings prints a list of parts as Python would, or fails.
bool HoldsPlainly(const std::optional<std::string>& text) {
  return Holds(text, "needle-user") && !Holds(text, "'text'") && !Holds(text, "\"text\"");
}

std::vector<Value::DictEntry> WithTools() {
  return {{Value::Trusted("tools"), jinja::TryParseJson(kTools, jinja::Origin::kTrusted)}};
}

std::vector<Value::DictEntry> WithBools(
    std::initializer_list<std::pair<std::string_view, bool>> flags) {
  std::vector<Value::DictEntry> entries;
  for (const auto& [name, value] : flags) {
    entries.emplace_back(Value::Trusted(name), Value(value));
  }
  return entries;
}

void ProbeTools(Prober& prober, const jinja::Template& which, std::string_view user,
                TemplateCaps& caps) {
  caps.supports_tools = Holds(prober.Try(which, {user}, WithTools()), "needle_tool");
  // Quotes inside quotes show that a string was printed by tojson where an object was meant.
  const std::string as_text = CallTurn(R"("{\"needle_key\": \"v\"}")", false);
  const std::string as_object = CallTurn(R"({"needle_key": "v"})", false);
  const auto text = prober.Try(which, {user, as_text, kResultTurn}, WithTools());
  const auto object = prober.Try(which, {user, as_object, kResultTurn}, WithTools());
  const bool text_fits =
      Holds(text, "needle_tool") && Holds(text, "needle_key") && !Holds(text, "\\\"needle_key\\\"");
  const bool object_fits =
      Holds(object, "needle_tool") && Holds(object, "needle_key") && !Holds(object, "'needle_key'");
  // The tools themselves name the key too: only a difference to the render without calls counts.
  const auto without = prober.Try(which, {user, kReasonedTurn, kResultTurn}, WithTools());
  const auto count = [](const std::optional<std::string>& where) {
    size_t found = 0;
    for (size_t pos = 0; where && (pos = where->find("needle_key", pos)) != std::string::npos;
         ++pos) {
      ++found;
    }
    return found;
  };
  const size_t base = count(without);
  caps.supports_object_arguments = object_fits && count(object) > base;
  caps.supports_tool_calls = caps.supports_object_arguments || (text_fits && count(text) > base);
  const std::string two =
      CallTurn(caps.supports_object_arguments ? R"({"needle_key": "v"})" : R"("{}")", true);
  caps.supports_parallel_tool_calls =
      caps.supports_tool_calls &&
      Holds(prober.Try(which, {user, two, kResultTurn}, WithTools()), "needle_second");
}

}  // namespace

TemplateCaps ProbeCaps(const jinja::Template& main, const jinja::Template& tool_use,
                       std::string_view bos_text, std::string_view eos_text) {
  Prober prober(bos_text, eos_text);
  TemplateCaps caps;
  caps.supports_typed_content = HoldsPlainly(prober.Try(main, {kTypedTurn}));
  const auto plain = prober.Try(main, {kUserTurn});
  caps.supports_string_content = Holds(plain, "needle-user");
  if (!plain && !caps.supports_typed_content) {
    throw Error(ErrorKind::kBadModel,
                "the chat template fails on one user message: " + prober.failure());
  }
  // What a template makes of the content is its own affair, but something it must be.
  const auto same = [&](std::string_view one, std::string_view other) {
    return prober.Try(main, {one}) == prober.Try(main, {other});
  };
  if (same(kUserTurn, kOtherTurn) && same(kTypedTurn, kOtherTypedTurn)) {
    throw Error(ErrorKind::kBadModel,
                "the chat template writes no message's content: one user message gives '" +
                    Printable(plain.value_or("")) + "' whatever it says");
  }
  const std::string_view user = caps.supports_string_content ? kUserTurn : kTypedTurn;
  caps.supports_system_role = Holds(prober.Try(main, {kSystemTurn, user}), "needle-system");
  const auto on = prober.Try(main, {user}, WithBools({{"enable_thinking", true}}));
  const auto off = prober.Try(main, {user}, WithBools({{"enable_thinking", false}}));
  caps.supports_enable_thinking = on && off && *on != *off;
  const auto kept = prober.Try(main, {user, kReasonedTurn, user},
                               WithBools({{"preserve_thinking", true},
                                          {"clear_thinking", false},
                                          {"drop_thinking", false},
                                          {"truncate_history_thinking", false}}));
  caps.supports_preserve_reasoning = Holds(kept, "needle-thought");
  const auto effort = [&](std::string_view level) {
    return prober.Try(main, {user},
                      {{Value::Trusted("reasoning_effort"), Value::Trusted(level)},
                       {Value::Trusted("reasoning_strength"), Value::Trusted(level)}});
  };
  const auto low = effort("low");
  const auto high = effort("high");
  caps.supports_reasoning_effort = low && high && *low != *high;
  ProbeTools(prober, tool_use, user, caps);
  return caps;
}

}  // namespace bloomery::chat
