#include "runtime/serve/flags.h"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/card_flags.h"
#include "runtime/serve/chat_prompt.h"

namespace bloomery::serve {
namespace {

namespace po = boost::program_options;

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    words.push_back(text.substr(0, space));
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  return words;
}

[[noreturn]] void Refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::kUsage, where + ": " + why);
}

struct Spelling {
  const Flag* flag = nullptr;
  bool negative = false;
};

// Every spelling of every flag. Long names may also be written with underscores.
class SpellingTable {
 public:
  SpellingTable() {
    for (const Flag& flag : Flags()) {
      for (std::string_view name : Words(flag.names)) by_name_[std::string(name)] = {&flag, false};
      for (std::string_view name : Words(flag.negative))
        by_name_[std::string(name)] = {&flag, true};
      by_key_[std::string(FlagKey(flag))] = {&flag, false};
      for (std::string_view name : Words(flag.negative)) {
        if (name.starts_with("--")) by_key_[std::string(name.substr(2))] = {&flag, true};
      }
      for (std::string_view name : Words(flag.env)) by_env_[std::string(name)] = &flag;
    }
  }

  std::optional<Spelling> Named(std::string name) const {
    if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<Spelling> Keyed(const std::string& key) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    return found->second;
  }
  const Flag* FromEnvironment(const std::string& name) const {
    const auto found = by_env_.find(name);
    return found == by_env_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, Spelling> by_name_;
  std::map<std::string, Spelling> by_key_;
  std::map<std::string, const Flag*> by_env_;
};

struct Given {
  std::string text;   // a switch's is "true" or "false"
  std::string where;  // how the user wrote it: "--top-k", "LLAMA_ARG_TOP_K", "serve.ini: top-k"
};
using GivenByFlag = std::map<const Flag*, std::vector<Given>>;

po::options_description Describe() {
  po::options_description description;
  for (const Flag& flag : Flags()) {
    description.add_options()(std::string(FlagKey(flag)).c_str(),
                              po::value<std::vector<std::string>>(), "");
  }
  return description;
}

FlagInput Check(const Flag& flag, const Given& given);

// Stands before each rewritten value: Program_options takes an empty one for a missing one.
constexpr char kValueMark = '=';

// Rewrites an argument list into "--key==value" only: Program_options knows neither long names
// behind one dash nor values that begin with a dash, and guesses prefixes.
std::vector<std::string> Normalise(const SpellingTable& table,
                                   const std::vector<std::string>& arguments,
                                   std::vector<std::string>& spelled) {
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("-") || argument == "-") {
      Refuse(Printable(argument),
             "unexpected argument: flags begin with a dash, and a model is given with -m FILE");
    }
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const std::string name = argument.substr(0, equals);
    const auto spelling = table.Named(name);
    if (!spelling) Refuse(Printable(name), "unknown flag; --help lists the known ones");
    std::string value;
    if (spelling->flag->value == FlagValue::kSwitch) {
      if (equals != std::string::npos) Refuse(name, "takes no value");
      value = spelling->negative ? "false" : "true";
    } else if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else {
      if (i + 1 == arguments.size()) Refuse(name, "a value is missing");
      value = arguments[++i];
      // It was left out, and the next flag stands in its place: only a text may look like one.
      if (spelling->flag->value != FlagValue::kText && table.Named(value)) {
        try {
          Check(*spelling->flag, {value, name});
        } catch (const Error& error) {
          throw Error(error.kind(), std::string(error.what()) + ": the value is missing");
        }
      }
    }
    std::string rewritten = "--";
    rewritten.append(FlagKey(*spelling->flag)).append("=").append(1, kValueMark).append(value);
    out.push_back(std::move(rewritten));
    spelled.push_back(name);
  }
  return out;
}

GivenByFlag FromArguments(const SpellingTable& table, const po::options_description& description,
                          const std::vector<std::string>& arguments) {
  std::vector<std::string> spelled;
  const std::vector<std::string> normal = Normalise(table, arguments, spelled);
  const auto parsed =
      po::command_line_parser(normal)
          .options(description)
          .style(po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent)
          .run();
  GivenByFlag given;
  for (size_t i = 0; i < parsed.options.size(); ++i) {
    const auto& option = parsed.options[i];
    given[table.Keyed(option.string_key)->flag].push_back(
        {option.value.front().substr(1), spelled[i]});
  }
  return given;
}

constexpr std::array<std::string_view, 4> kTrueWords{"true", "1", "on", "enabled"};
constexpr std::array<std::string_view, 4> kFalseWords{"false", "0", "off", "disabled"};

bool ParseBoolean(const Given& given) {
  if (std::ranges::find(kTrueWords, given.text) != kTrueWords.end()) return true;
  if (std::ranges::find(kFalseWords, given.text) != kFalseWords.end()) return false;
  Refuse(given.where, "'" + Printable(given.text) +
                          "' is none of true, 1, on, enabled, false, 0, "
                          "off, disabled");
}

GivenByFlag FromEnvironment(const SpellingTable& table,
                            const std::map<std::string, std::string>& environment,
                            std::vector<std::string>& warnings) {
  GivenByFlag given;
  for (const auto& [name, value] : environment) {
    if (const Flag* flag = table.FromEnvironment(name)) {
      given[flag].push_back({value, name});
    } else if (name.starts_with("LLAMA_ARG_")) {
      warnings.push_back(Printable(name) + ": unknown variable, ignored");
    }
  }
  return given;
}

void AddSettings(const SpellingTable& table, const po::options_description& description,
                 const SettingsFile& file, GivenByFlag& given) {
  std::istringstream stream(file.text);
  try {
    const auto parsed = po::parse_config_file(stream, description, true);
    for (const auto& option : parsed.options) {
      std::string key = option.string_key;
      if (key.starts_with("default.")) key.erase(0, std::string_view("default.").size());
      std::replace(key.begin(), key.end(), '_', '-');
      const std::string where = file.name + ": " + Printable(key);
      const auto spelling = table.Keyed(key);
      if (!spelling) Refuse(where, "unknown key; keys are flag names without dashes");
      const bool starts = spelling->flag->value == FlagValue::kSwitch && !spelling->flag->apply &&
                          spelling->flag->support == FlagSupport::kHonoured;
      // Which file is read is known before the first is.
      if (starts || FlagKey(*spelling->flag) == "config") {
        Refuse(where, "has no place in a settings file");
      }
      std::string text = option.value.empty() ? std::string() : option.value.front();
      if (spelling->negative) text = ParseBoolean({text, where}) ? "false" : "true";
      given[spelling->flag].push_back({text, where});
    }
  } catch (const po::error& e) {
    throw Error(ErrorKind::kUsage, file.name + ": " + Printable(e.what()));
  }
}

// A flag that is on or off takes every word for that, as a switch does from the environment.
std::string Choice(const Flag& flag, const std::string& text) {
  if (!flag.choices.starts_with("on|off") || text == "on" || text == "off") return text;
  const auto is = [&](std::span<const std::string_view> words) {
    return std::ranges::find(words, text) != words.end();
  };
  if (is(kTrueWords)) return "on";
  return is(kFalseWords) ? "off" : text;
}

FlagInput Check(const Flag& flag, const Given& given) {
  FlagInput input;
  input.text = given.text;
  const char* const begin = given.text.data();
  const char* const end = begin + given.text.size();
  const std::string shown = "'" + Printable(given.text) + "'";
  switch (flag.value) {
    case FlagValue::kSwitch:
      input.on = ParseBoolean(given);
      break;
    case FlagValue::kInteger: {
      const auto [stop, error] = std::from_chars(begin, end, input.integer);
      if (error != std::errc() || stop != end) Refuse(given.where, shown + " is no integer");
      if (input.integer < flag.min || input.integer > flag.max) {
        Refuse(given.where, shown + " is outside " + std::to_string(flag.min) + " to " +
                                std::to_string(flag.max));
      }
      break;
    }
    case FlagValue::kReal: {
      const auto [stop, error] = std::from_chars(begin, end, input.real);
      if (error != std::errc() || stop != end || !std::isfinite(input.real)) {
        Refuse(given.where, shown + " is no finite number");
      }
      break;
    }
    case FlagValue::kText:
      if (!IsValidUtf8(given.text)) Refuse(given.where, "the value is not valid UTF-8");
      break;
    case FlagValue::kChoice: {
      input.text = Choice(flag, given.text);
      const std::string bars = "|" + std::string(flag.choices) + "|";
      if (input.text.empty() || input.text.find('|') != std::string::npos ||
          bars.find("|" + input.text + "|") == std::string::npos) {
        Refuse(given.where, shown + " is none of " + std::string(flag.choices));
      }
      break;
    }
  }
  return input;
}

// Reasons are sentences in the table; in a message they follow a colon.
void ApplyOne(const Flag& flag, const Given& given, const FlagInput& input, ParsedFlags& parsed) {
  try {
    const bool accepted = flag.apply != nullptr && flag.apply(parsed.settings, input);
    if (accepted || flag.support == FlagSupport::kHonoured) return;
  } catch (const Error& e) {
    Refuse(given.where, e.what());
  }
  const std::string reason(flag.help);
  if (flag.support == FlagSupport::kRefused) Refuse(given.where, "refused: " + reason);
  parsed.warnings.push_back(given.where + ": accepted and ignored: " + reason);
}

void Apply(const Flag& flag, const std::vector<Given>& given, ParsedFlags& parsed) {
  const size_t first = flag.repeats ? 0 : given.size() - 1;
  for (size_t i = first; i < given.size(); ++i) {
    FlagInput input = Check(flag, given[i]);
    input.first = i == first;
    ApplyOne(flag, given[i], input, parsed);
  }
}

// The first source to name a flag is the one in force.
void NoteEffective(const GivenByFlag& given, std::string_view source, ParsedFlags& parsed) {
  for (const auto& [flag, values] : given) {
    if (flag->support != FlagSupport::kHonoured || flag->apply == nullptr) continue;
    std::string text;
    for (const Given& value : values) {
      if (flag->repeats && !text.empty()) text += " ";
      text = flag->repeats ? text + value.text : value.text;
    }
    parsed.effective.emplace(FlagKey(*flag),
                             EffectiveValue{flag->secret ? "***" : std::move(text), source});
  }
}

void NoteDefaults(ParsedFlags& parsed) {
  for (const Flag& flag : Flags()) {
    if (flag.support != FlagSupport::kHonoured || flag.apply == nullptr) continue;
    parsed.effective.emplace(FlagKey(flag), EffectiveValue{std::string(flag.fallback), "default"});
  }
}

// \n \t \r \" \' \\ ; anything else behind a backslash stays as it is.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char next = text[++i];
    switch (next) {
      case 'n':
        out.push_back('\n');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case '"':
      case '\'':
      case '\\':
        out.push_back(next);
        break;
      default:
        out.append({'\\', next});
    }
  }
  return out;
}

void Finish(ServeSettings& settings) {
  CheckPlacing(settings);
  TakeOneCard(settings);
  if (settings.escape) {
    for (std::string& text : settings.stop) text = Unescape(text);
    for (std::string& text : settings.sampling.dry_sequence_breakers) text = Unescape(text);
  }
  if (!settings.model_path.empty() && !settings.hf_repo.empty()) {
    Refuse("--hf-repo", "cannot be given together with --model");
  }
  if (!settings.hf_file.empty() && settings.hf_repo.empty()) {
    Refuse("--hf-file", "needs --hf-repo OWNER/NAME");
  }
  if (!settings.chat_template.empty() && !settings.chat_template_file.empty()) {
    Refuse("--chat-template", "cannot be given together with --chat-template-file");
  }
  if (settings.ssl_key_file.empty() != settings.ssl_cert_file.empty()) {
    Refuse(settings.ssl_key_file.empty() ? "--ssl-cert-file" : "--ssl-key-file",
           "TLS needs both --ssl-key-file and --ssl-cert-file");
  }
  if (!settings.ui_config.empty() && !settings.ui_config_file.empty()) {
    Refuse("--ui-config", "cannot be given together with --ui-config-file");
  }
  int forms = 0;
  for (const std::string* form : {&settings.grammar, &settings.grammar_file, &settings.json_schema,
                                  &settings.json_schema_file}) {
    forms += form->empty() ? 0 : 1;
  }
  if (forms > 1) {
    Refuse("--grammar",
           "only one of --grammar, --grammar-file, --json-schema and "
           "--json-schema-file can be given");
  }
  if (!settings.api_prefix.empty() &&
      (!settings.api_prefix.starts_with("/") || settings.api_prefix.ends_with("/"))) {
    Refuse("--api-prefix", "must begin with a slash and not end with one");
  }
  for (const auto& [flag, value] : {std::pair{"--cors-origins", &settings.cors_origins},
                                    {"--cors-methods", &settings.cors_methods},
                                    {"--cors-headers", &settings.cors_headers}}) {
    // A line break would end the header, and what follows it would be one of its own.
    if (std::any_of(value->begin(), value->end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; })) {
      Refuse(flag, "'" + Printable(*value) + "' has a control character, which no header may have");
    }
  }
  CheckChatDefaults(settings);
  try {
    // A copy: clamping is for requests, a start shows what it was given.
    text::SamplingParams(settings.sampling).Validate();
  } catch (const Error& e) {
    throw Error(ErrorKind::kUsage, std::string("sampling defaults: ") + e.what());
  }
}

std::string SpellingsOf(const Flag& flag) {
  std::string text;
  for (std::string_view name : FlagSpellings(flag)) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  for (std::string_view name : Words(flag.negative)) text.append(", ").append(name);
  return text;
}

std::string RangeOf(const Flag& flag) {
  if (flag.value == FlagValue::kSwitch) return "on, off";
  if (flag.value == FlagValue::kChoice) {
    std::string range(flag.choices);
    for (size_t bar = range.find('|'); bar != std::string::npos; bar = range.find('|', bar)) {
      range.replace(bar, 1, ", ");
    }
    return range;
  }
  if (flag.value != FlagValue::kInteger || flag.min == INT64_MIN) return "";
  if (flag.max >= INT32_MAX) return "≥ " + std::to_string(flag.min);
  return std::to_string(flag.min) + " to " + std::to_string(flag.max);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|' || c == '*') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string_view SupportName(FlagSupport support) {
  switch (support) {
    case FlagSupport::kHonoured:
      return "honoured";
    case FlagSupport::kIgnored:
      return "accepted, ignored";
    case FlagSupport::kRefused:
      return "refused";
  }
  return "";
}

void AppendWrapped(std::string& out, std::string_view text, size_t indent, size_t width) {
  size_t column = indent;
  for (std::string_view word : Words(text)) {
    if (column > indent && column + 1 + word.size() > width) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out.push_back(' ');
      ++column;
    }
    out.append(word);
    column += word.size();
  }
  out.push_back('\n');
}

}  // namespace

std::string_view FlagKey(const Flag& flag) {
  for (std::string_view name : Words(flag.names)) {
    if (name.starts_with("--")) return name.substr(2);
  }
  return flag.names.substr(1);
}

std::vector<std::string_view> FlagVariables(const Flag& flag) { return Words(flag.env); }

std::vector<std::string_view> FlagSpellings(const Flag& flag) { return Words(flag.names); }

std::string ConfigPath(const FlagSources& sources) {
  for (size_t i = sources.arguments.size(); i > 0; --i) {
    const std::string& argument = sources.arguments[i - 1];
    if (argument.starts_with("--config=")) return argument.substr(9);
    if (argument == "--config" && i < sources.arguments.size()) return sources.arguments[i];
  }
  const auto found = sources.environment.find("BLOOMERY_CONFIG");
  return found == sources.environment.end() ? "" : found->second;
}

std::vector<std::string> WithoutSecrets(const std::vector<std::string>& arguments) {
  const SpellingTable table;
  std::vector<std::string> shown;
  bool hide = false;
  for (const std::string& argument : arguments) {
    if (std::exchange(hide, false)) {
      shown.emplace_back("***");
      continue;
    }
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const auto spelling = table.Named(argument.substr(0, equals));
    const bool secret = spelling && spelling->flag->secret;
    hide = secret && equals == std::string::npos;
    shown.push_back(secret && !hide ? argument.substr(0, equals + 1) + "***" : argument);
  }
  return shown;
}

ParsedFlags ParseFlags(const FlagSources& sources) {
  const SpellingTable table;
  const po::options_description description = Describe();
  ParsedFlags parsed;
  GivenByFlag given = FromArguments(table, description, sources.arguments);
  for (const auto& [flag, values] : given) {
    const std::string_view key = FlagKey(*flag);
    static constexpr std::pair<std::string_view, FlagAction> kActions[] = {
        {"help", FlagAction::kHelp},
        {"version", FlagAction::kVersion},
        {"help-markdown", FlagAction::kHelpMarkdown},
        {"completion-bash", FlagAction::kCompletionBash},
        {"completion-zsh", FlagAction::kCompletionZsh},
        {"completion-fish", FlagAction::kCompletionFish},
        {"man", FlagAction::kMan}};
    for (const auto& [name, action] : kActions) {
      if (key == name) parsed.action = action;
    }
  }
  if (parsed.action != FlagAction::kServe) return parsed;
  NoteEffective(given, "flag", parsed);
  // A source wins as a whole: values of a lower one are not added to those of a higher one.
  GivenByFlag environment = FromEnvironment(table, sources.environment, parsed.warnings);
  NoteEffective(environment, "env", parsed);
  given.merge(environment);
  GivenByFlag settings;
  for (const SettingsFile& file : sources.settings) {
    AddSettings(table, description, file, settings);
  }
  NoteEffective(settings, "file", parsed);
  given.merge(settings);
  NoteDefaults(parsed);
  for (const Flag& flag : Flags()) {
    const auto found = given.find(&flag);
    if (found != given.end()) Apply(flag, found->second, parsed);
  }
  Finish(parsed.settings);
  return parsed;
}

std::string FlagsHelp() {
  std::string out =
      "Usage: bloomery-serve [flags]\n\nWith no model it serves the bundled demo model.\n";
  std::string_view group;
  for (const Flag& flag : Flags()) {
    if (flag.group != group) {
      group = flag.group;
      out.append("\n").append(group).append("\n");
    }
    out.append("  ").append(SpellingsOf(flag));
    if (!flag.metavar.empty()) out.append(" ").append(flag.metavar);
    out.append("\n      ");
    std::string text;
    if (flag.support != FlagSupport::kHonoured) {
      text.append("[").append(SupportName(flag.support)).append("] ");
    }
    text.append(flag.help);
    if (!flag.choices.empty()) text.append(" One of: ").append(RangeOf(flag)).append(".");
    if (!flag.fallback.empty()) text.append(" Default: ").append(flag.fallback).append(".");
    for (std::string_view name : Words(flag.env)) text.append(" [").append(name).append("]");
    AppendWrapped(out, text, 6, 100);
  }
  return out;
}

std::string FlagsMarkdown() {
  std::string out;
  std::string_view group;
  for (const Flag& flag : Flags()) {
    if (flag.group != group) {
      group = flag.group;
      out.append(out.empty() ? "" : "\n").append("### ").append(group).append("\n\n");
      out += "| flag | environment | key | default | range | support | meaning |\n";
      out += "|---|---|---|---|---|---|---|\n";
    }
    std::string flag_text = "`" + SpellingsOf(flag) + "`";
    if (!flag.metavar.empty()) flag_text.append(" ").append(Escaped(flag.metavar));
    out.append("| ").append(flag_text);
    out.append(" | ");
    for (std::string_view name : Words(flag.env)) {
      if (!out.ends_with("| ")) out += ", ";
      out.append("`").append(name).append("`");
    }
    out.append(" | `").append(FlagKey(flag)).append("`");
    out.append(" | ").append(Escaped(flag.fallback));
    out.append(" | ").append(Escaped(RangeOf(flag)));
    out.append(" | ").append(SupportName(flag.support));
    out.append(" | ").append(Escaped(flag.help)).append(" |\n");
  }
  return out;
}

}  // namespace bloomery::serve
