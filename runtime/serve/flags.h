// The table of flags: one row gives a flag its spellings, its environment variable, its key in the
// settings file, its default, its range, its help text, and what it does. Parsing from all three
// sources, --help and the table in docs/serving.md are made from it. Sources in rising order: the
// settings file, the environment, the command line. What is unknown is refused; what llama-server
// knows and this server does not honour is either accepted with a warning (a hint about speed) or
// refused with the reason (anything that would change answers). Pure: reads no file, no
// environment.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/settings.h"

namespace bloomery::serve {

enum class FlagSupport { kHonoured, kIgnored, kRefused };

enum class FlagValue {
  kSwitch,   // no value; a negative spelling may turn it off
  kInteger,  // decimal, within [min, max]
  kReal,
  kText,
  kChoice,  // one of `choices`
};

// A value as the row's function gets it: checked, in every form that fits.
struct FlagInput {
  std::string text;
  int64_t integer = 0;
  double real = 0.0;
  bool on = false;
  bool first = true;  // of a flag that repeats: the first of its values
};

struct Flag {
  std::string_view group{};
  std::string_view names{};     // "-c --ctx-size": spellings, the first long one is the key
  std::string_view negative{};  // "--no-slots", or empty
  std::string_view env{};       // empty: none; further names behind a space mean the same
  FlagValue value = FlagValue::kSwitch;
  std::string_view metavar{};   // of the value, in help
  std::string_view fallback{};  // the default as shown
  std::string_view choices{};   // "f32|f16|q8_0"
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;
  bool secret = false;   // its value is never shown
  bool repeats = false;  // may be given several times; otherwise the last one counts
  FlagSupport support = FlagSupport::kHonoured;
  std::string_view help{};  // for a refused or ignored flag: why
  // Sets the value. For refused and ignored flags null, or a function that accepts (returns true)
  // the values that ask for nothing special.
  bool (*apply)(ServeSettings& settings, const FlagInput& input) = nullptr;
};

std::span<const Flag> Flags();

// The long name without dashes: the key in the settings file.
std::string_view FlagKey(const Flag& flag);
// The environment variables that set it.
std::vector<std::string_view> FlagVariables(const Flag& flag);
// All spellings but the negative one.
std::vector<std::string_view> FlagSpellings(const Flag& flag);

// The command line without the values of secret flags.
std::vector<std::string> WithoutSecrets(const std::vector<std::string>& arguments);

enum class FlagAction {
  kServe,
  kHelp,
  kVersion,
  kHelpMarkdown,
  kCompletionBash,
  kCompletionZsh,
  kCompletionFish,
  kMan
};

struct SettingsFile {
  std::string name;  // for messages
  std::string text;
};

struct FlagSources {
  std::vector<std::string> arguments;              // argv without the program
  std::map<std::string, std::string> environment;  // all of it
  std::vector<SettingsFile> settings;              // later ones add; a key's last value counts
};

// A flag's value in force, as it was written; the default as it is shown. Secrets are "***".
struct EffectiveValue {
  std::string value;
  std::string_view source;  // "flag", "env", "file", "default"
};

struct ParsedFlags {
  FlagAction action = FlagAction::kServe;
  ServeSettings settings;
  std::vector<std::string> warnings;                // one line each, for the log
  std::map<std::string, EffectiveValue> effective;  // by key: what is honoured and can be set
};

// Error(kUsage) naming the flag, variable or key for everything that is refused.
ParsedFlags ParseFlags(const FlagSources& sources);

// Where --config FILE (or BLOOMERY_CONFIG) points, before anything else is parsed; empty when
// unset.
std::string ConfigPath(const FlagSources& sources);

std::string FlagsHelp();
std::string FlagsMarkdown();

// flag_scripts.cc: what --completion-… and --man print.
std::string FlagsCompletion(FlagAction shell);
std::string FlagsManual();

}  // namespace bloomery::serve
