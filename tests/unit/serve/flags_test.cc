#include "runtime/serve/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "kernels-common/cpu/isa.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "tests/unit/serve/parse_flags.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;

// A value the flag takes, apart from its default where that can be.
std::string SampleOf(const Flag& flag) {
  const std::string key(FlagKey(flag));
  if (key == "host-budget" || key == "card-budget" || key == "cache-disk-limit") return "3GiB";
  if (key == "chat-template-kwargs" || key == "ui-config") return "{\"a\":1}";
  if (key == "sampling-seq") return "kt";
  if (key == "samplers") return "top_k;temperature";
  if (key == "logit-bias") return "5+1.5";
  if (key == "api-prefix") return "/p";
  if (key == "chat-template") return "chatml";
  if (key == "gpu-layers") return "auto";
  if (key == "hf-repo") return "own/name";
  if (key == "override-tensor") return "exps=CPU";
  if (key == "tensor-split") return "2,1";
  if (key == "split-mode") return "none";
  if (key == "device") return "CUDA1,CUDA0";
  if (key == "fit-target") return "512";
  switch (flag.value) {
    case FlagValue::kSwitch:
      return "true";
    case FlagValue::kInteger:
      return flag.min > 1 ? std::to_string(flag.min) : "1";
    case FlagValue::kReal:
      return "0.5";
    case FlagValue::kText:
      return FlagKey(flag) == "parallel" ? "auto" : "word";
    case FlagValue::kChoice:
      return std::string(flag.choices.substr(0, flag.choices.find('|')));
  }
  return "";
}

// What a flag cannot stand without.
void AddNeeded(const std::string& key, std::vector<std::string>& arguments) {
  if (key == "hf-file") arguments.insert(arguments.end(), {"--hf-repo", "own/name"});
  if (key == "ssl-key-file") arguments.insert(arguments.end(), {"--ssl-cert-file", "c"});
  if (key == "ssl-cert-file") arguments.insert(arguments.end(), {"--ssl-key-file", "k"});
}

bool IsAction(const Flag& flag) {
  return flag.apply == nullptr && flag.support == FlagSupport::kHonoured;
}

TEST(FlagTable, EverySpellingEnvironmentNameAndKeyBelongsToOneFlag) {
  std::set<std::string> spellings;
  std::set<std::string> environment;
  std::set<std::string> keys;
  for (const Flag& flag : Flags()) {
    for (std::string_view name : FlagSpellings(flag)) {
      EXPECT_TRUE(spellings.insert(std::string(name)).second) << name;
      EXPECT_TRUE(name.starts_with("-")) << name;
    }
    if (!flag.negative.empty()) {
      std::istringstream words{std::string(flag.negative)};
      for (std::string name; words >> name;) EXPECT_TRUE(spellings.insert(name).second) << name;
    }
    for (std::string_view name : FlagVariables(flag)) {
      EXPECT_TRUE(environment.insert(std::string(name)).second) << name;
      const bool ours = name.starts_with("BLOOMERY_");
      // The hub's own client has named its token.
      EXPECT_TRUE(ours || name.starts_with("LLAMA_") || name == "HF_TOKEN") << name;
    }
    EXPECT_TRUE(keys.insert(std::string(FlagKey(flag))).second) << FlagKey(flag);
    EXPECT_FALSE(flag.help.empty()) << FlagKey(flag);
  }
}

TEST(FlagTable, EveryFlagIsInHelpAndInTheGeneratedTable) {
  const std::string help = FlagsHelp();
  const std::string table = FlagsMarkdown();
  for (const Flag& flag : Flags()) {
    for (std::string_view name : FlagSpellings(flag)) {
      EXPECT_THAT(help, HasSubstr(std::string(name)));
      EXPECT_THAT(table, HasSubstr(std::string(name)));
    }
    EXPECT_THAT(table, HasSubstr("`" + std::string(FlagKey(flag)) + "`"));
    for (std::string_view name : FlagVariables(flag)) {
      EXPECT_THAT(help, HasSubstr("[" + std::string(name) + "]"));
      EXPECT_THAT(table, HasSubstr("`" + std::string(name) + "`"));
    }
  }
}

TEST(FlagTable, CommittedDocumentHoldsTheGeneratedTable) {
  std::ifstream file(std::string(BLOOMERY_SOURCE_DIR) + "/docs/serving.md");
  std::stringstream page;
  page << file.rdbuf();
  // Regenerate with: bloomery-serve --help-markdown
  EXPECT_TRUE(page.str().find(FlagsMarkdown()) != std::string::npos)
      << "docs/serving.md does not hold the table that --help-markdown prints";
}

TEST(FlagTable, EveryFlagParsesFromTheCommandLineTheEnvironmentAndTheSettingsFile) {
  for (const Flag& flag : Flags()) {
    if (IsAction(flag)) continue;
    const std::string key(FlagKey(flag));
    const std::string value = SampleOf(flag);
    const bool refused = flag.support == FlagSupport::kRefused && flag.apply == nullptr;
    SCOPED_TRACE(key);
    for (std::string_view name : FlagSpellings(flag)) {
      std::vector<std::string> arguments{std::string(name)};
      if (flag.value != FlagValue::kSwitch) arguments.push_back(value);
      AddNeeded(key, arguments);
      const std::string refusal = Refusal(arguments);
      if (refused) {
        EXPECT_THAT(refusal, HasSubstr(std::string(name) + ": refused: "));
      } else if (flag.support != FlagSupport::kRefused) {
        EXPECT_EQ(refusal, "") << name;
      }
    }
    for (std::string_view name : FlagVariables(flag)) {
      std::vector<std::string> beside;
      AddNeeded(key, beside);
      const std::string refusal = Refusal(beside, {{std::string(name), value}});
      EXPECT_EQ(refusal.empty(), flag.support != FlagSupport::kRefused) << refusal;
    }
    std::vector<std::string> beside;
    AddNeeded(key, beside);
    const std::string refusal = Refusal(beside, {}, key + " = " + value + "\n");
    const bool has_place = flag.support != FlagSupport::kRefused && key != "config";
    EXPECT_EQ(refusal.empty(), has_place) << refusal;
  }
}

// What llama-server takes and this server has nothing for is known by name, so that its refusal or
// warning gives the reason.
TEST(FlagTable, LlamaServersFlagsAreKnownEvenWhereTheyAskForWhatIsNotHere) {
  std::set<std::string> known;
  std::set<std::string> variables;
  for (const Flag& flag : Flags()) {
    for (std::string_view name : FlagSpellings(flag)) known.emplace(name);
    std::istringstream negative{std::string(flag.negative)};
    for (std::string name; negative >> name;) known.insert(name);
    for (std::string_view name : FlagVariables(flag)) variables.emplace(name);
  }
  for (const char* name : {"-ncffn",
                           "--yarn-orig-ctx",
                           "--yarn-ext-factor",
                           "--yarn-attn-factor",
                           "--yarn-beta-slow",
                           "--yarn-beta-fast",
                           "--ui-config",
                           "--ui-config-file",
                           "--reasoning-preserve",
                           "--no-reasoning-preserve",
                           "--mmproj-offload",
                           "--no-mmproj-offload",
                           "-mmdev",
                           "--image-min-tokens",
                           "--image-max-tokens",
                           "-devd",
                           "-ngld",
                           "-ctkd",
                           "--spec-type",
                           "--spec-draft-n-max",
                           "--spec-draft-n-min",
                           "--spec-draft-p-min",
                           "--embd-normalize",
                           "--mcp-servers-config",
                           "--mcp-servers-json",
                           "-ag",
                           "--models-dir",
                           "--models-preset",
                           "--models-max",
                           "--models-autoload",
                           "--no-models-autoload",
                           "--ui-mcp-proxy",
                           "--card-budget",
                           "--perf",
                           "--no-perf",
                           "--prio-batch",
                           "--poll-batch",
                           "--cpu-strict-batch",
                           "-Cb",
                           "-Crb",
                           "-bs",
                           "-lcs",
                           "-lcd",
                           "-td",
                           "-tbd",
                           "--log-prompts-dir",
                           "--moe-cache-mib",
                           "--swa-checkpoints",
                           "--no-log-jsonl",
                           "--usage",
                           "--license",
                           "--spec-default",
                           "--spec-draft-ncmoe",
                           "-hfrd",
                           "--mtmd-batch-max-tokens",
                           "--verbose-prompt",
                           "-dio",
                           "-ndio",
                           "-otd",
                           "--spec-ngram-map-k4v-min-hits",
                           "--spec-draft-sampling",
                           "--spec-synth-len",
                           "--control-vector-layer-range",
                           "--video-fps",
                           "--gpt-oss-20b-default"}) {
    EXPECT_TRUE(known.contains(name)) << name;
  }
  for (const char* name :
       {"N_CPU_FFN", "YARN_ORIG_CTX", "UI_CONFIG", "REASONING_PRESERVE", "MMPROJ_OFFLOAD",
        "IMAGE_MIN_TOKENS", "SPEC_TYPE", "TEMPERATURE", "SLOT_SAVE_PATH", "PERF", "AGENT", "DIO",
        "SPEC_DRAFT_N_MAX", "MODELS_DIR", "UI_MCP_PROXY"}) {
    EXPECT_TRUE(variables.contains(std::string("LLAMA_ARG_") + name)) << name;
  }
}

// The first of two names in the environment that is not a flag's only one.
TEST(Flags, AFlagMayHaveSeveralVariables) {
  EXPECT_EQ(Parse({}, {{"LLAMA_ARG_TEMPERATURE", "0.25"}}).settings.sampling.temperature, 0.25);
  EXPECT_EQ(Parse({}, {{"LLAMA_ARG_TEMP", "0.5"}}).settings.sampling.temperature, 0.5);
  EXPECT_EQ(Parse({}, {{"LLAMA_ARG_SLOT_SAVE_PATH", "/s"}}).settings.slot_save_path, "/s");
}

TEST(Flags, OnAndOffHaveTheWordsOfABoolean) {
  for (const char* word : {"1", "true", "enabled", "on"}) {
    EXPECT_TRUE(Parse({"--fit", word}).settings.fit) << word;
    EXPECT_EQ(Refusal({"-fa", word}), "") << word;
    EXPECT_EQ(Refusal({}, {{"LLAMA_ARG_FLASH_ATTN", word}}), "") << word;
  }
  for (const char* word : {"0", "false", "disabled", "off"}) {
    EXPECT_FALSE(Parse({"--fit", word}).settings.fit) << word;
    EXPECT_EQ(Parse({"--reasoning", word}).settings.thinking, Thinking::kOff) << word;
  }
  EXPECT_THAT(Refusal({"--fit", "2"}), HasSubstr("--fit: '2' is none of on|off"));
  EXPECT_THAT(Refusal({"-ctk", "1"}), HasSubstr("none of f32"));
}

TEST(Flags, AValueThatWasLeftOutIsNamedAndTheNextFlagIsNotIt) {
  EXPECT_THAT(Refusal({"-fa", "--port", "0"}),
              HasSubstr("-fa: '--port' is none of on|off|auto: the value is missing"));
  EXPECT_THAT(Refusal({"--top-k", "--port", "0"}), HasSubstr("--top-k: '--port' is no integer"));
  EXPECT_THAT(Refusal({"--temp", "--port", "0"}), HasSubstr("--temp: '--port' is no finite"));
  EXPECT_EQ(Parse({"--top-k", "-1"}).settings.sampling.top_k, -1);
  EXPECT_EQ(Parse({"-r", "--port"}).settings.stop, std::vector<std::string>{"--port"});
}

TEST(Flags, ASettingsFileNamesNoOtherOne) {
  EXPECT_THAT(Refusal({}, {}, "config = y.ini\n"),
              HasSubstr("config: has no place in a settings file"));
}

TEST(Flags, AChatTemplateIsATextOrTheNameOfTheOneBuiltIn) {
  for (const char* text : {"chatml", "{{ messages[0].content }}", "{% if x %}{% endif %}", ""}) {
    EXPECT_EQ(Parse({"--chat-template", text}).settings.chat_template, text);
  }
  EXPECT_THAT(Refusal({"--chat-template", "llama3"}),
              HasSubstr("--chat-template: 'llama3' is no template, and chatml is the one name"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_ARG_CHAT_TEMPLATE", "just text"}}), HasSubstr("'just text'"));
}

TEST(Flags, WhatIsNotHereMaySayThatItIsNotWanted) {
  EXPECT_TRUE(Parse({"--yarn-orig-ctx", "0", "--yarn-ext-factor", "-1", "--spec-type", "none",
                     "--no-agent", "--no-ui-mcp-proxy", "--reasoning-preserve"})
                  .warnings.empty());
  EXPECT_THAT(Refusal({"--yarn-ext-factor", "1"}), HasSubstr("as the model's file says"));
  EXPECT_THAT(Refusal({"--agent"}), HasSubstr("--agent: refused"));
  EXPECT_THAT(Refusal({"--no-reasoning-preserve"}), HasSubstr("--no-reasoning-preserve: earlier"));
}

TEST(FlagScripts, EveryHonouredSpellingIsOfferedAndTheManualHasEveryFlag) {
  const std::string manual = FlagsManual();
  for (const FlagAction shell :
       {FlagAction::kCompletionBash, FlagAction::kCompletionZsh, FlagAction::kCompletionFish}) {
    const std::string script = FlagsCompletion(shell);
    for (const Flag& flag : Flags()) {
      if (flag.support != FlagSupport::kHonoured) continue;
      for (std::string_view name : FlagSpellings(flag)) {
        std::string shown(name);
        if (shell == FlagAction::kCompletionFish) {
          const bool is_long = name.starts_with("--");
          shown = (is_long            ? " -l "
                   : name.size() == 2 ? " -s "
                                      : " -o ") +
                  std::string(name.substr(is_long ? 2 : 1)) + " ";
        }
        EXPECT_THAT(script, HasSubstr(shown));
      }
    }
  }
  for (const Flag& flag : Flags()) {
    for (std::string_view name : FlagSpellings(flag)) {
      std::string escaped;
      for (const char c : name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_THAT(manual, HasSubstr(escaped));
    }
    for (std::string_view name : FlagVariables(flag)) {
      EXPECT_THAT(manual, HasSubstr("\\fB" + std::string(name) + "\\fR"));
    }
  }
}

TEST(FlagScripts, NoLineOfTheManualIsARequestByAccident) {
  std::istringstream lines(FlagsManual());
  for (std::string line; std::getline(lines, line);) {
    // What cannot be broken must fit a line of a terminal's 80, indented.
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      size_t begin = 0;
      for (size_t end = 0; end != std::string::npos; begin = end + 2) {
        end = word.find("\\:", begin);
        EXPECT_LT(std::min(end, word.size()) - begin, 66U) << word;
        if (end == std::string::npos) break;
      }
    }
    if (!line.starts_with(".") && !line.starts_with("'")) continue;
    const std::string request = line.substr(0, line.find(' '));
    EXPECT_TRUE(request == ".TH" || request == ".SH" || request == ".SS" || request == ".TP" ||
                request == ".B")
        << line;
  }
}

TEST(Flags, SecretsAreInNoListThatIsShown) {
  EXPECT_EQ(
      WithoutSecrets({"--api-key", "a", "--hf_token=c", "-hft", "d", "-c", "5"}),
      (std::vector<std::string>{"--api-key", "***", "--hf_token=***", "-hft", "***", "-c", "5"}));
  const ParsedFlags parsed = Parse({"--api-key", "a"}, {{"HF_TOKEN", "b"}});
  EXPECT_EQ(parsed.effective.at("api-key").value, "***");
  EXPECT_EQ(parsed.effective.at("hf-token").value, "***");
}

TEST(Flags, EachValueInForceIsShownWithItsSource) {
  const ParsedFlags parsed = Parse({"--port", "3000", "-r", "a", "-r", "b"},
                                   {{"LLAMA_ARG_PORT", "2000"}, {"LLAMA_ARG_CTX_SIZE", "200"}},
                                   "parallel = 3\nport = 1\n");
  const auto shown = [&](const char* key) {
    const EffectiveValue& value = parsed.effective.at(key);
    return value.value + " " + std::string(value.source);
  };
  EXPECT_EQ(shown("port"), "3000 flag");
  EXPECT_EQ(shown("reverse-prompt"), "a b flag");
  EXPECT_EQ(shown("ctx-size"), "200 env");
  EXPECT_EQ(shown("parallel"), "3 file");
  EXPECT_EQ(shown("ubatch-size"), "512 default");
}

TEST(Flags, AModelIsAFileOrOfAHub) {
  EXPECT_THAT(Refusal({"-m", "a.gguf", "--hf", "o/n"}), HasSubstr("together with --model"));
  EXPECT_THAT(Refusal({"--hf-file", "x"}), HasSubstr("needs --hf-repo"));
  EXPECT_EQ(Parse({"-hf", "o/n:q"}).settings.hf_repo, "o/n:q");
}

TEST(Flags, IsaTakesEveryNameOfTheKernels) {
  EXPECT_EQ(Parse({}).settings.isa, "auto");
  for (const std::string_view name : kernels::kIsaNames) {
    EXPECT_EQ(Parse({"--isa", std::string(name)}).settings.isa, name);
  }
  EXPECT_THAT(Refusal({"--isa", "mmx"}), HasSubstr("none of auto|scalar|avx2|avx512vnni|amx"));
}

TEST(Flags, RowsOfAPassAreTakenAtTheLimitOfTheSeatAndRefusedOnePast) {
  EXPECT_EQ(Parse({"-ub", "16384"}).settings.ubatch, limits::kUbatchRowsMax);
  EXPECT_THAT(Refusal({"-ub", "16385"}), HasSubstr("outside 1 to 16384"));
}

TEST(Flags, NothingGivenGivesTheDefaults) {
  const ParsedFlags parsed = Parse({});
  EXPECT_EQ(parsed.action, FlagAction::kServe);
  EXPECT_EQ(parsed.settings.port, 8080);
  EXPECT_EQ(parsed.settings.hosts, std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(parsed.settings.parallel, 1);
  EXPECT_EQ(parsed.settings.context, 0);
  EXPECT_EQ(parsed.settings.type_k, PlaneType::kF16);
  EXPECT_TRUE(parsed.warnings.empty());
}

TEST(Flags, CommandLineWinsOverEnvironmentAndEnvironmentOverTheSettingsFile) {
  const std::map<std::string, std::string> environment{{"LLAMA_ARG_PORT", "2000"},
                                                       {"LLAMA_ARG_CTX_SIZE", "200"}};
  const std::string ini = "port = 1000\nctx-size = 100\nparallel = 3\n";
  const ServeSettings settings = Parse({"--port", "3000"}, environment, ini).settings;
  EXPECT_EQ(settings.port, 3000);
  EXPECT_EQ(settings.context, 200);
  EXPECT_EQ(settings.parallel, 3);
}

TEST(Flags, TwoSettingsFilesAddUpAndAMistakeNamesTheFileItIsIn) {
  FlagSources sources;
  sources.settings = {{"first.ini", "[default]\nport = 1\nctx-size = 5\nreverse-prompt = a\n"},
                      {"second.ini", "port = 2\nreverse-prompt = b"}};
  const ServeSettings settings = ParseFlags(sources).settings;
  EXPECT_EQ(settings.port, 2);
  EXPECT_EQ(settings.context, 5);
  EXPECT_EQ(settings.stop, (std::vector<std::string>{"a", "b"}));
  for (const char* mistake : {"frobnicate = 1", "ctx-size = many", "port"}) {
    sources.settings[0].text = mistake;
    try {
      ParseFlags(sources);
      ADD_FAILURE() << mistake;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("first.ini: ")) << mistake;
    }
  }
}

TEST(Flags, HigherSourceReplacesTheListOfALowerOne) {
  const ServeSettings both = Parse({"-r", "a", "-r", "b"}, {}, "reverse-prompt = c\n").settings;
  EXPECT_EQ(both.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(Flags, LastOfARepeatedScalarCounts) {
  EXPECT_EQ(Parse({"-c", "10", "--ctx-size", "20"}).settings.context, 20);
  EXPECT_FALSE(Parse({"--slots", "--no-slots"}).settings.slots_route);
  EXPECT_TRUE(Parse({"--no-slots", "--slots"}).settings.slots_route);
}

TEST(Flags, ShortNamesEqualsSignsAndUnderscoresAreSpellings) {
  EXPECT_EQ(Parse({"-ctk", "q8_0"}).settings.type_k, PlaneType::kQ8_0);
  EXPECT_EQ(Parse({"--ctx-size=64"}).settings.context, 64);
  EXPECT_EQ(Parse({"--ctx_size", "64"}).settings.context, 64);
  EXPECT_EQ(Parse({"-n", "-1"}).settings.n_predict, -1);
  EXPECT_EQ(Parse({"--host", "0.0.0.0,/run/b.sock"}).settings.hosts,
            (std::vector<std::string>{"0.0.0.0", "/run/b.sock"}));
}

TEST(Flags, PrefixesAreNotGuessed) {
  EXPECT_THAT(Refusal({"--ctx", "5"}), "");  // a spelling of its own
  EXPECT_THAT(Refusal({"--ctx-siz", "5"}), HasSubstr("--ctx-siz: unknown flag"));
  EXPECT_THAT(Refusal({"--por", "5"}), HasSubstr("--por: unknown flag"));
}

TEST(Flags, UnknownAndStrayArgumentsAreRefusedByName) {
  EXPECT_THAT(Refusal({"--frobnicate"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(Refusal({"-q"}), HasSubstr("-q"));
  EXPECT_THAT(Refusal({"model.gguf"}), HasSubstr("model.gguf: unexpected argument"));
  EXPECT_THAT(Refusal({"model.gguf"}), HasSubstr("-m FILE"));
  EXPECT_THAT(Refusal({}, {}, "frobnicate = 1\n"), HasSubstr("serve.ini: frobnicate"));
  EXPECT_THAT(Refusal({}, {}, "[other]\nport = 1\n"), HasSubstr("other.port"));
  EXPECT_THAT(Refusal({}, {}, "port\n"), HasSubstr("serve.ini"));
}

TEST(Flags, BadValuesAreRefusedWithNameAndReason) {
  EXPECT_THAT(Refusal({"-c"}), HasSubstr("-c: a value is missing"));
  EXPECT_THAT(Refusal({"-c", "many"}), HasSubstr("-c: 'many' is no integer"));
  EXPECT_THAT(Refusal({"-c", "12x"}), HasSubstr("is no integer"));
  EXPECT_THAT(Refusal({"--port", "65536"}), HasSubstr("outside 0 to 65535"));
  EXPECT_EQ(Refusal({"--port", "65535"}), "");
  EXPECT_THAT(Refusal({"--port", "-1"}), HasSubstr("--port"));
  EXPECT_THAT(Refusal({"-np", "0"}), HasSubstr("-np"));
  EXPECT_THAT(Refusal({"-np", "65"}), HasSubstr("-np"));
  EXPECT_EQ(Refusal({"-np", "64"}), "");
  EXPECT_EQ(Parse({"-np", "auto"}).settings.parallel, 0);
  EXPECT_EQ(Parse({"-np", "-1"}).settings.parallel, 0);
  EXPECT_THAT(Refusal({"--temp", "nan"}), HasSubstr("no finite number"));
  EXPECT_THAT(Refusal({"-ctk", "q4_0"}), HasSubstr("none of f32|f16|q8_0"));
  EXPECT_THAT(Refusal({"--slots=no"}), HasSubstr("takes no value"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_ARG_PORT", "x"}}), HasSubstr("LLAMA_ARG_PORT"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_ARG_ENDPOINT_SLOTS", "maybe"}}),
              HasSubstr("LLAMA_ARG_ENDPOINT_SLOTS"));
  EXPECT_THAT(Refusal({}, {}, "port = x\n"), HasSubstr("serve.ini: port"));
  EXPECT_THAT(Refusal({"--api-key", ","}), HasSubstr("at least one key"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_API_KEY", ""}}), HasSubstr("LLAMA_API_KEY"));
  EXPECT_THAT(Refusal({"--host-budget", "5 parsecs"}), HasSubstr("--host-budget"));
  EXPECT_THAT(Refusal({"--chat-template-kwargs", "[1]"}), HasSubstr("JSON object"));
  EXPECT_THAT(Refusal({"--chat-template-kwargs", "{"}), HasSubstr("--chat-template-kwargs"));
  EXPECT_THAT(Refusal({"--logit-bias", "x"}), HasSubstr("TOKEN+BIAS"));
  EXPECT_THAT(Refusal({"--samplers", "top_k;nonsense"}), HasSubstr("nonsense"));
  EXPECT_THAT(Refusal({"--repeat-penalty", "0"}), HasSubstr("repeat_penalty"));
  EXPECT_THAT(Refusal({"--no-jinja"}), HasSubstr("--no-jinja"));
  EXPECT_THAT(Refusal({"-ctk", "f32|f16"}), HasSubstr("none of f32|f16|q8_0"));
}

// What every request would be refused for is refused at the start.
TEST(Flags, TemplateVariablesThatNoRequestCouldBeReadWithAreRefused) {
  EXPECT_THAT(Refusal({"--chat-template-kwargs", R"({"enable_thinking":"false"})"}),
              HasSubstr("--chat-template-kwargs"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_ARG_CHAT_TEMPLATE_KWARGS", R"({"enable_thinking":1})"}}),
              HasSubstr("enable_thinking"));
  EXPECT_EQ(Refusal({"--chat-template-kwargs", R"({"enable_thinking":false,"a":{"b":[1]}})"}), "");
}

// A line break in one of them would let a settings file or a script write headers of its own.
TEST(Flags, HeaderValuesWithControlCharactersAreRefused) {
  for (const char* flag : {"--cors-origins", "--cors-methods", "--cors-headers"}) {
    for (const char* bad : {"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x7F", "\t"}) {
      EXPECT_THAT(Refusal({flag, bad}), HasSubstr(std::string(flag) + ": ")) << bad;
    }
    EXPECT_EQ(Refusal({flag, "https://a.example, x"}), "");
  }
}

TEST(Flags, EmptyValueIsAValue) {
  EXPECT_THAT(Refusal({"-c", ""}), HasSubstr("-c: '' is no integer"));
  EXPECT_THAT(Refusal({"--port="}), HasSubstr("--port: '' is no integer"));
  EXPECT_THAT(Refusal({"-ctk", ""}), HasSubstr("-ctk: '' is none of"));
  EXPECT_EQ(Parse({"--alias", "a", "--alias", ""}).settings.aliases, std::vector<std::string>{});
  EXPECT_EQ(Parse({"-r", "=x"}).settings.stop, std::vector<std::string>{"=x"});
}

TEST(Flags, KeyListWithoutAKeyDoesNotOpenTheServer) {
  EXPECT_THAT(Refusal({"--api-key", ""}), HasSubstr("--api-key: expected at least one key"));
  EXPECT_THAT(Refusal({}, {{"LLAMA_API_KEY", ""}}), HasSubstr("LLAMA_API_KEY: expected at least"));
}

TEST(Flags, HintsAreAcceptedWithAWarningAndRestAreRefusedWithAReason) {
  const ParsedFlags hints = Parse({"--mlock", "-fa", "on"});
  ASSERT_EQ(hints.warnings.size(), 2U);
  EXPECT_THAT(hints.warnings, ::testing::Contains(HasSubstr("-fa")));
  EXPECT_TRUE(Parse({"-ngl", "auto", "--no-context-shift", "--no-mmproj"}).warnings.empty());
  EXPECT_THAT(Refusal({"--context-shift"}), HasSubstr("--context-shift: refused"));
  EXPECT_THAT(Refusal({"--rpc", "h"}), HasSubstr("--rpc: refused"));
  EXPECT_THAT(Refusal({"--lora", "f"}), HasSubstr("--lora"));
}

TEST(Flags, UnknownLlamaVariableIsAWarningAndOthersAreNotLookedAt) {
  const ParsedFlags parsed = Parse({}, {{"LLAMA_ARG_NEW", "1"}, {"HOME", "/x"}, {"PORT", "1"}});
  ASSERT_EQ(parsed.warnings.size(), 1U);
  EXPECT_THAT(parsed.warnings[0], HasSubstr("LLAMA_ARG_NEW"));
}

TEST(Flags, BooleansOfEnvironmentAndFileTakeEightWords) {
  for (const char* yes : {"true", "1", "on", "enabled"}) {
    EXPECT_TRUE(Parse({}, {{"LLAMA_ARG_ENDPOINT_PROPS", yes}}).settings.props_writable);
  }
  for (const char* no : {"false", "0", "off", "disabled"}) {
    EXPECT_FALSE(Parse({}, {{"LLAMA_ARG_ENDPOINT_SLOTS", no}}).settings.slots_route);
  }
  EXPECT_FALSE(Parse({}, {}, "slots = off\n").settings.slots_route);
  EXPECT_FALSE(Parse({}, {}, "no-slots = true\n").settings.slots_route);
  EXPECT_EQ(Parse({}, {}, "[default]\nport = 7\n").settings.port, 7);
}

TEST(Flags, EscapesInStopStringsAreProcessedUnlessSwitchedOff) {
  EXPECT_EQ(Parse({"-r", "a\\nb\\\\\\q"}).settings.stop[0], "a\nb\\\\q");
  EXPECT_EQ(Parse({"-r", "a\\nb", "--no-escape"}).settings.stop[0], "a\\nb");
}

TEST(Flags, FirstDryBreakerReplacesTheDefaultOnes) {
  EXPECT_EQ(Parse({}).settings.sampling.dry_sequence_breakers.size(), 4U);
  EXPECT_EQ(Parse({"--dry-sequence-breaker", "x", "--dry-sequence-breaker", "y"})
                .settings.sampling.dry_sequence_breakers,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_THAT(Refusal({"--dry-sequence-breaker", "none"}), HasSubstr("at least one"));
}

TEST(Flags, ActionsAreFoundBeforeAnythingElseIsChecked) {
  EXPECT_EQ(Parse({"--help"}).action, FlagAction::kHelp);
  EXPECT_EQ(Parse({"-c", "bad", "-h"}).action, FlagAction::kHelp);
  EXPECT_EQ(Parse({"--version"}).action, FlagAction::kVersion);
  EXPECT_EQ(Parse({"--help-markdown"}).action, FlagAction::kHelpMarkdown);
}

TEST(Flags, ConfigPathComesFromTheCommandLineThenTheEnvironment) {
  FlagSources sources;
  EXPECT_EQ(ConfigPath(sources), "");
  sources.environment["BLOOMERY_CONFIG"] = "env.ini";
  EXPECT_EQ(ConfigPath(sources), "env.ini");
  sources.arguments = {"--config", "a.ini", "--config=b.ini"};
  EXPECT_EQ(ConfigPath(sources), "b.ini");
}

TEST(Flags, ValuesReachTheSettings) {
  const ServeSettings s = Parse({"-a",
                                 "b,a",
                                 "--api-key",
                                 "k1,k2",
                                 "--host-budget",
                                 "512MiB",
                                 "-s",
                                 "-1",
                                 "--temp",
                                 "0.25",
                                 "-l",
                                 "7-2.5",
                                 "--reasoning",
                                 "off",
                                 "--isa",
                                 "scalar",
                                 "-to",
                                 "5",
                                 "-t",
                                 "3",
                                 "--threads-http",
                                 "2",
                                 "--sse-ping-interval",
                                 "-1",
                                 "-b",
                                 "64",
                                 "-ub",
                                 "32"})
                              .settings;
  EXPECT_EQ(s.aliases, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(s.api_keys, (std::vector<std::string>{"k1", "k2"}));
  EXPECT_EQ(s.host_budget_bytes, 512ULL << 20);
  EXPECT_EQ(s.sampling.seed, text::kRandomSeed);
  EXPECT_EQ(s.sampling.temperature, 0.25);
  ASSERT_EQ(s.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(s.sampling.logit_bias[0].token, 7);
  EXPECT_EQ(s.sampling.logit_bias[0].bias, -2.5F);
  EXPECT_EQ(s.thinking, Thinking::kOff);
  EXPECT_EQ(s.isa, "scalar");
  EXPECT_EQ(s.timeout_s, 5);
  EXPECT_EQ(s.threads, 3);
  EXPECT_EQ(s.http_threads, 2);
  EXPECT_EQ(s.sse_ping_s, -1);
  EXPECT_EQ(s.batch, 64);
  EXPECT_EQ(s.ubatch, 32);
}

}  // namespace
}  // namespace bloomery::serve
