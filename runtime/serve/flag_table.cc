// The rows. Texts that need a reason give it; a row without `apply` sets nothing.
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/exec/kernel_names.h"
#include "runtime/exec/load_modes.h"
#include "runtime/serve/flags.h"

namespace bloomery::serve {
namespace {

using S = ServeSettings;
using I = FlagInput;
using enum FlagValue;
using enum FlagSupport;

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (!part.empty()) parts.emplace_back(part);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

PlaneType PlaneTypeOf(std::string_view name) {
  if (name == "f32") return PlaneType::kF32;
  return name == "q8_0" ? PlaneType::kQ8_0 : PlaneType::kF16;
}

Thinking ThinkingOf(std::string_view name) {
  if (name == "on") return Thinking::kOn;
  return name == "off" ? Thinking::kOff : Thinking::kAuto;
}

void SetParallel(S& s, const I& i) {
  if (i.integer == 0) throw Error(ErrorKind::kUsage, "expected at least 1 slot");
  s.parallel = i.integer < 0 ? 1 : static_cast<int>(i.integer);
}

void SetSimilarity(S& s, const I& i) {
  if (!(i.real >= 0 && i.real <= 1)) throw Error(ErrorKind::kUsage, "expected 0 to 1");
  s.slot_similarity = i.real;
}

// A variable that is set but empty is a mistake, and must not open the server to everyone.
void SetApiKeys(S& s, const I& i) {
  s.api_keys = SplitList(i.text);
  if (s.api_keys.empty()) throw Error(ErrorKind::kUsage, "expected at least one key");
}

void RequireJinja(const I& i) {
  if (!i.on) throw Error(ErrorKind::kUsage, "templates are always Jinja here");
}

void RequireReasoning(const I& i) {
  if (!i.on) throw Error(ErrorKind::kUsage, "earlier reasoning is given to the template as sent");
}

// The first breaker given replaces the default ones.
void AddBreaker(S& s, const I& i) {
  auto& breakers = s.sampling.dry_sequence_breakers;
  if (i.text == "none") throw Error(ErrorKind::kUsage, "DRY needs at least one breaker here");
  if (i.first) breakers.clear();
  breakers.push_back(i.text);
}

// "8GiB", "512MiB", "1000000": bytes.
uint64_t BytesOf(std::string_view text) {
  struct Unit {
    std::string_view name;
    int shift;
  };
  static constexpr Unit kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"", 0}};
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& u : kUnits) {
    if (error == std::errc() && unit == u.name && count <= (UINT64_MAX >> u.shift)) {
      return count << u.shift;
    }
  }
  throw Error(ErrorKind::kUsage, "expected a number of bytes, or one with KiB, MiB or GiB");
}

// "ID+BIAS" or "ID-BIAS", as llama-server writes it.
text::LogitBias BiasOf(const std::string& text) {
  const size_t sign = text.find_first_of("+-", 1);
  text::LogitBias bias{};
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const bool plus = sign != std::string::npos && text[sign] == '+';
  if (sign != std::string::npos) {
    const auto id = std::from_chars(begin, begin + sign, bias.token);
    const auto value = std::from_chars(begin + sign + (plus ? 1 : 0), end, bias.bias);
    if (id.ec == std::errc() && id.ptr == begin + sign && value.ec == std::errc() &&
        value.ptr == end && !std::isnan(bias.bias)) {
      return bias;
    }
  }
  throw Error(ErrorKind::kUsage, "expected TOKEN+BIAS or TOKEN-BIAS, for example 29871+1.5");
}

void SetKwargs(S& s, const I& i) {
  const auto value = ParseJson(i.text, "--chat-template-kwargs", {.kind = ErrorKind::kUsage});
  if (!value.IsObject()) throw Error(ErrorKind::kUsage, "expected a JSON object");
  s.chat_template_kwargs = i.text;
}

// 0, a number of layers, or a word for all of them.
bool ApplyCardLayers(S& s, const I& i) {
  if (i.text == "auto" || i.text == "all" || i.text == "-1") {
    s.card_layers.reset();
    return true;
  }
  uint32_t layers = 0;
  const char* const end = i.text.data() + i.text.size();
  const auto [stop, error] = std::from_chars(i.text.data(), end, layers);
  if (error != std::errc() || stop != end) {
    throw Error(ErrorKind::kUsage, "expected a number of layers, auto or all");
  }
  s.card_layers = layers;
  return true;
}

void SetSamplers(S& s, const text::SamplerList& list) {
  if (!list.unknown.empty()) {
    throw Error(ErrorKind::kUsage, "unknown sampler '" + list.unknown.front() + "'");
  }
  s.sampling.samplers = list.stages;
}

std::vector<std::string> SplitSamplers(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t mark = text.find(';');
    names.emplace_back(text.substr(0, mark));
    text = mark == std::string_view::npos ? std::string_view() : text.substr(mark + 1);
  }
  return names;
}

#define BLOOMERY_SET(statement)  \
  [](S& s, const I& i) -> bool { \
    (void)s;                     \
    (void)i;                     \
    statement;                   \
    return true;                 \
  }
#define BLOOMERY_ACCEPT_IF(condition) [](S&, const I& i) -> bool { return (condition); }

constexpr std::string_view kNoCard =
    "a model lies whole on one card, or on the CPU, in this version";
constexpr std::string_view kHintOnly = "has no meaning for this engine";
constexpr std::string_view kNoImages = "Images are not in this version.";
constexpr std::string_view kFilesRope = "Positions are scaled as the model's file says.";
constexpr std::string_view kNoDraft = "Draft models are not in this version.";
constexpr std::string_view kNoTools = "The server runs no tools of its own.";
constexpr std::string_view kOneModel = "One server serves one model.";
constexpr std::string_view kNoPageSettings = "The page keeps its settings in the browser.";

constexpr int64_t kIntMax = INT32_MAX;

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
    // ---- General
    {.group = "General", .names = "-h --help", .value = kSwitch,
     .help = "Print this help and exit."},
    {.group = "General", .names = "--version", .value = kSwitch,
     .help = "Print the version and exit."},
    {.group = "General", .names = "--help-markdown", .value = kSwitch,
     .help = "Print the flags as the table of docs/serving.md and exit."},
    {.group = "General", .names = "--completion-bash", .value = kSwitch,
     .help = "Print a completion script for bash and exit."},
    {.group = "General", .names = "--completion-zsh", .value = kSwitch,
     .help = "Print a completion script for zsh and exit."},
    {.group = "General", .names = "--completion-fish", .value = kSwitch,
     .help = "Print a completion script for fish and exit."},
    {.group = "General", .names = "--man", .value = kSwitch,
     .help = "Print the manual page (roff) and exit."},
    {.group = "General", .names = "--recommend", .value = kSwitch,
     .help = "Say which models fit this machine, best first, and exit. Opens no model and no card.",
     .apply = BLOOMERY_SET(s.recommend = i.on)},
    {.group = "General", .names = "--dry-run", .value = kSwitch,
     .help = "Find the model, plan its memory, say whether it fits, and exit as a start would.",
     .apply = BLOOMERY_SET(s.dry_run = i.on)},
    {.group = "General", .names = "--json", .env = "BLOOMERY_JSON", .value = kSwitch,
     .fallback = "off",
     .help = "Write JSON to stdout and nothing else: one document with --recommend and --dry-run, "
             "else one event a line up to ready or error (docs/agents.md).",
     .apply = BLOOMERY_SET(s.json = i.on)},
    {.group = "General", .names = "--config", .env = "BLOOMERY_CONFIG", .value = kText,
     .metavar = "FILE",
     .help = "Read this settings file instead of /etc/bloomery/serve.ini and "
             "$XDG_CONFIG_HOME/bloomery/serve.ini.", .apply = BLOOMERY_SET({})},
    {.group = "General", .names = "-v --verbose --log-verbose", .value = kSwitch,
     .help = "Log everything.", .apply = BLOOMERY_SET(s.log_level = 4)},
    {.group = "General", .names = "-lv --verbosity --log-verbosity",
     .env = "LLAMA_ARG_LOG_VERBOSITY", .value = kInteger, .metavar = "N", .fallback = "2", .min = 0,
     .max = 9, .help = "What is logged: 0 errors, 1 warnings too, 2 and above everything.",
     .apply = BLOOMERY_SET(s.log_level = static_cast<int>(i.integer))},
    {.group = "General", .names = "--log-disable", .value = kSwitch, .help = "Log errors only.",
     .apply = BLOOMERY_SET(s.log_level = 0)},
    {.group = "General", .names = "--log-file", .env = "LLAMA_ARG_LOG_FILE", .value = kText,
     .metavar = "FILE", .support = kIgnored, .help = "The log goes to stderr; redirect it."},
    {.group = "General", .names = "--log-colors", .env = "LLAMA_ARG_LOG_COLORS", .value = kText,
     .metavar = "WHEN", .support = kIgnored, .help = "The log has no colours."},
    {.group = "General", .names = "--log-prefix", .negative = "--no-log-prefix",
     .env = "LLAMA_ARG_LOG_PREFIX", .value = kSwitch, .support = kIgnored,
     .help = "Log lines always have a prefix."},
    {.group = "General", .names = "--log-timestamps", .negative = "--no-log-timestamps",
     .env = "LLAMA_ARG_LOG_TIMESTAMPS", .value = kSwitch, .support = kIgnored,
     .help = "Log lines always have a time stamp."},
    {.group = "General", .names = "--log-jsonl", .env = "LLAMA_ARG_LOG_JSONL", .value = kSwitch, .support = kIgnored,
     .help = "The log is text."},
    // ---- Model
    {.group = "Model", .names = "-m --model", .env = "LLAMA_ARG_MODEL", .value = kText,
     .metavar = "FILE", .fallback = "the bundled demo model",
     .help = "The model: a GGUF file, or the first file of a split set; or a name that --recommend "
             "lists (a word without a slash that is no file here).",
     .apply = BLOOMERY_SET(s.model_path = i.text)},
    {.group = "Model", .names = "-a --alias", .env = "LLAMA_ARG_ALIAS", .value = kText,
     .metavar = "NAME,...", .fallback = "the model's name",
     .help = "Names of the model in the API; the first in sorted order is its id.",
     .apply = BLOOMERY_SET(s.aliases = SplitList(i.text))},
    {.group = "Model", .names = "--tags", .env = "LLAMA_ARG_TAGS", .value = kText,
     .metavar = "TAG,...", .help = "Tags shown by /v1/models.",
     .apply = BLOOMERY_SET(s.tags = SplitList(i.text))},
    {.group = "Model", .names = "--plugin-dir", .env = "BLOOMERY_PLUGIN_DIR", .value = kText,
     .metavar = "DIR", .fallback = "$BLOOMERY_PLUGIN_PATH, then ../plugins beside the program",
     .repeats = true, .help = "A folder to search for plugins before the others; may be repeated.",
     .apply = BLOOMERY_SET(s.plugin_dirs.push_back(i.text))},
    {.group = "Model", .names = "--isa", .env = "BLOOMERY_ISA", .value = kChoice, .metavar = "NAME",
     .fallback = "auto", .choices = exec::kKernelChoices,
     .help = "Which kernels run on the CPU. Every choice gives the same bits.",
     .apply = BLOOMERY_SET(s.isa = i.text)},
    {.group = "Model", .names = "--host-budget", .env = "BLOOMERY_HOST_BUDGET", .value = kText,
     .metavar = "BYTES", .fallback = "what the machine has available",
     .help = "Host memory the server may plan with: bytes, or a number with KiB, MiB or GiB. It "
             "overrides what the machine and its control group show; weights mapped from their "
             "file are not counted.",
     .apply = BLOOMERY_SET(s.host_budget_bytes = BytesOf(i.text))},
    {.group = "Model", .names = "--mmap", .negative = "--no-mmap", .env = "LLAMA_ARG_MMAP",
     .value = kSwitch, .fallback = "as --load-mode says",
     .help = "Map the model's file, or read it into memory of the process.",
     .apply = BLOOMERY_SET(s.load_mode = i.on ? exec::LoadMode::kMap : exec::LoadMode::kRead)},
    {.group = "Model", .names = "-lm --load-mode", .env = "LLAMA_ARG_LOAD_MODE", .value = kChoice,
     .metavar = "MODE", .fallback = "auto", .choices = exec::kLoadModeChoices,
     .help = exec::kLoadModeHelp,
     .apply = BLOOMERY_SET(s.load_mode = exec::LoadModeOf(i.text))},
    {.group = "Model", .names = "--mlock", .env = "LLAMA_ARG_MLOCK", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Model", .names = "-lzm --lazy-mode", .env = "LLAMA_ARG_LAZY_MODE", .value = kText,
     .metavar = "MODE", .support = kIgnored, .help = kHintOnly},
    {.group = "Model", .names = "--check-tensors", .value = kSwitch, .support = kIgnored,
     .help = "Files are always checked."},
    {.group = "Model", .names = "-hf -hfr --hf-repo --hf", .env = "LLAMA_ARG_HF_REPO",
     .value = kText, .metavar = "OWNER/NAME[:QUANT]",
     .help = "Get the model from the hub that HF_ENDPOINT names, or from the cache "
             "(docs/serving.md, Getting models).",
     .apply = BLOOMERY_SET(s.hf_repo = i.text)},
    {.group = "Model", .names = "-hff --hf-file", .env = "LLAMA_ARG_HF_FILE", .value = kText,
     .metavar = "FILE",
     .help = "The exact path in the repository, where a quant does not say it.",
     .apply = BLOOMERY_SET(s.hf_file = i.text)},
    {.group = "Model", .names = "-hft --hf-token", .env = "HF_TOKEN", .value = kText,
     .metavar = "TOKEN", .fallback = "the one that the hub's client saved", .secret = true,
     .help = "Shown to the hub and to nobody else. The variable keeps it out of the process list.",
     .apply = BLOOMERY_SET(s.hf_token = i.text)},
    {.group = "Model", .names = "--offline", .env = "LLAMA_ARG_OFFLINE", .value = kSwitch,
     .fallback = "off", .help = "Take the model from the cache and ask no network.",
     .apply = BLOOMERY_SET(s.offline = i.on)},
    {.group = "Model", .names = "-cl --cache-list", .value = kSwitch,
     .help = "List the models of the cache and exit, as bloomery models list does.",
     .apply = BLOOMERY_SET(s.cache_list = i.on)},
    {.group = "Model", .names = "-mu --model-url", .env = "LLAMA_ARG_MODEL_URL", .value = kText,
     .metavar = "URL", .support = kRefused,
     .help = "The server fetches no plain URLs; give the file with -m."},
    {.group = "Model", .names = "-dr --docker-repo", .env = "LLAMA_ARG_DOCKER_REPO", .value = kText,
     .metavar = "REPO", .support = kRefused, .help = "The server fetches from no Docker registry."},
    {.group = "Model", .names = "--override-kv", .value = kText, .metavar = "KEY=TYPE:VALUE",
     .support = kRefused, .help = "A model's metadata is taken as it is."},
    {.group = "Model", .names = "--lora", .value = kText, .metavar = "FILE", .support = kRefused,
     .help = "Adapters are not in this version."},
    {.group = "Model", .names = "--lora-scaled", .value = kText, .metavar = "FILE",
     .support = kRefused, .help = "Adapters are not in this version."},
    {.group = "Model", .names = "--lora-init-without-apply", .value = kSwitch, .support = kRefused,
     .help = "Adapters are not in this version."},
    {.group = "Model", .names = "--control-vector", .value = kText, .metavar = "FILE",
     .support = kRefused, .help = "Control vectors are not in this version."},
    {.group = "Model", .names = "--control-vector-scaled", .value = kText, .metavar = "FILE",
     .support = kRefused, .help = "Control vectors are not in this version."},
    {.group = "Model", .names = "-mm --mmproj", .env = "LLAMA_ARG_MMPROJ", .value = kText,
     .metavar = "FILE", .support = kRefused, .help = kNoImages},
    {.group = "Model", .names = "-mmu --mmproj-url", .env = "LLAMA_ARG_MMPROJ_URL", .value = kText,
     .metavar = "URL", .support = kRefused, .help = kNoImages},
    {.group = "Model", .names = "--mmproj-auto", .negative = "--no-mmproj --no-mmproj-auto",
     .env = "LLAMA_ARG_MMPROJ_AUTO", .value = kSwitch, .support = kIgnored,
     .help = kNoImages, .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Model", .names = "--mmproj-offload", .negative = "--no-mmproj-offload",
     .env = "LLAMA_ARG_MMPROJ_OFFLOAD", .value = kSwitch, .support = kIgnored, .help = kNoImages},
    {.group = "Model", .names = "-mmdev --mmproj-device", .value = kText, .metavar = "DEVICE",
     .support = kIgnored, .help = kNoImages},
    {.group = "Model", .names = "--image-min-tokens", .env = "LLAMA_ARG_IMAGE_MIN_TOKENS",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kNoImages},
    {.group = "Model", .names = "--image-max-tokens", .env = "LLAMA_ARG_IMAGE_MAX_TOKENS",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kNoImages},
    {.group = "Model", .names = "-md --model-draft --spec-draft-model",
     .env = "LLAMA_ARG_SPEC_DRAFT_MODEL", .value = kText, .metavar = "FILE", .support = kRefused,
     .help = kNoDraft},
    {.group = "Model", .names = "-hfd --hf-repo-draft --spec-draft-hf",
     .env = "LLAMA_ARG_SPEC_DRAFT_HF_REPO", .value = kText, .metavar = "REPO[:QUANT]",
     .support = kRefused, .help = kNoDraft},
    {.group = "Model", .names = "--spec-type", .env = "LLAMA_ARG_SPEC_TYPE", .value = kText,
     .metavar = "TYPE", .support = kIgnored, .help = kNoDraft,
     .apply = BLOOMERY_ACCEPT_IF(i.text == "none")},
    {.group = "Model", .names = "--spec-draft-n-max --draft --draft-n --draft-max",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_MAX", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kNoDraft},
    {.group = "Model", .names = "--spec-draft-n-min --draft-min --draft-n-min",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_MIN", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kNoDraft},
    {.group = "Model", .names = "--spec-draft-p-min --draft-p-min",
     .env = "LLAMA_ARG_SPEC_DRAFT_P_MIN", .value = kReal, .metavar = "P", .support = kIgnored,
     .help = kNoDraft},
    {.group = "Model", .names = "--spec-draft-p-split --draft-p-split",
     .env = "LLAMA_ARG_SPEC_DRAFT_P_SPLIT", .value = kReal, .metavar = "P", .support = kIgnored,
     .help = kNoDraft},
    {.group = "Model", .names = "-devd --device-draft --spec-draft-device", .value = kText,
     .metavar = "LIST", .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_GPU_LAYERS", .value = kText, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "-ctkd --cache-type-k-draft --spec-draft-type-k",
     .env = "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", .value = kText, .metavar = "TYPE",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "-ctvd --cache-type-v-draft --spec-draft-type-v",
     .env = "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", .value = kText, .metavar = "TYPE",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "-cmoed --cpu-moe-draft --spec-draft-cpu-moe",
     .env = "LLAMA_ARG_SPEC_DRAFT_CPU_MOE", .value = kSwitch, .support = kIgnored,
     .help = kNoDraft},
    {.group = "Model", .names = "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe",
     .env = "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-size-n", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-size-m", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-min-hits", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-mod-n-match", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-mod-n-min", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--spec-ngram-mod-n-max", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kNoDraft},
    {.group = "Model", .names = "--rope-scaling", .env = "LLAMA_ARG_ROPE_SCALING_TYPE",
     .value = kText, .metavar = "TYPE", .support = kRefused,
     .help = kFilesRope},
    {.group = "Model", .names = "--rope-scale", .env = "LLAMA_ARG_ROPE_SCALE", .value = kReal,
     .metavar = "N", .support = kRefused, .help = kFilesRope},
    {.group = "Model", .names = "--rope-freq-base", .env = "LLAMA_ARG_ROPE_FREQ_BASE",
     .value = kReal, .metavar = "N", .support = kRefused,
     .help = kFilesRope},
    {.group = "Model", .names = "--rope-freq-scale", .env = "LLAMA_ARG_ROPE_FREQ_SCALE",
     .value = kReal, .metavar = "N", .support = kRefused,
     .help = kFilesRope},
    {.group = "Model", .names = "--yarn-orig-ctx", .env = "LLAMA_ARG_YARN_ORIG_CTX",
     .value = kInteger, .metavar = "N", .support = kRefused, .help = kFilesRope,
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Model", .names = "--yarn-ext-factor", .env = "LLAMA_ARG_YARN_EXT_FACTOR",
     .value = kReal, .metavar = "N", .support = kRefused, .help = kFilesRope,
     .apply = BLOOMERY_ACCEPT_IF(i.real == -1)},
    {.group = "Model", .names = "--yarn-attn-factor", .env = "LLAMA_ARG_YARN_ATTN_FACTOR",
     .value = kReal, .metavar = "N", .support = kRefused, .help = kFilesRope,
     .apply = BLOOMERY_ACCEPT_IF(i.real == -1)},
    {.group = "Model", .names = "--yarn-beta-slow", .env = "LLAMA_ARG_YARN_BETA_SLOW",
     .value = kReal, .metavar = "N", .support = kRefused, .help = kFilesRope,
     .apply = BLOOMERY_ACCEPT_IF(i.real == -1)},
    {.group = "Model", .names = "--yarn-beta-fast", .env = "LLAMA_ARG_YARN_BETA_FAST",
     .value = kReal, .metavar = "N", .support = kRefused, .help = kFilesRope,
     .apply = BLOOMERY_ACCEPT_IF(i.real == -1)},
    // ---- Network
    {.group = "Network", .names = "--host", .env = "LLAMA_ARG_HOST", .value = kText,
     .metavar = "HOST,...", .fallback = "127.0.0.1",
     .help = "Addresses to listen on; a name ending in .sock is a UNIX socket, and one that a crash "
             "left behind is replaced.",
     .apply = BLOOMERY_SET(s.hosts = SplitList(i.text))},
    {.group = "Network", .names = "--port", .env = "LLAMA_ARG_PORT", .value = kInteger,
     .metavar = "N", .fallback = "8080", .min = 0, .max = 65535,
     .help = "Port to listen on; 0 takes any free one, which is printed.",
     .apply = BLOOMERY_SET(s.port = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--reuse-port", .env = "LLAMA_ARG_REUSE_PORT", .value = kSwitch,
     .fallback = "off", .help = "Let several servers share the port.",
     .apply = BLOOMERY_SET(s.reuse_port = i.on)},
    {.group = "Network", .names = "--api-prefix", .env = "LLAMA_ARG_API_PREFIX", .value = kText,
     .metavar = "PATH", .help = "Put this in front of every route.",
     .apply = BLOOMERY_SET(s.api_prefix = i.text)},
    {.group = "Network", .names = "--api-key", .env = "LLAMA_API_KEY", .value = kText,
     .metavar = "KEY,...", .fallback = "none", .secret = true,
     .help = "Keys a client must send as a Bearer token or X-Api-Key. Without one nobody is asked.",
     .apply = BLOOMERY_SET(SetApiKeys(s, i))},
    {.group = "Network", .names = "--api-key-file", .env = "LLAMA_ARG_API_KEY_FILE", .value = kText,
     .metavar = "FILE", .fallback = "none",
     .help = "Further keys, one a line; empty lines and lines with # are skipped.",
     .apply = BLOOMERY_SET(s.api_key_file = i.text)},
    {.group = "Network", .names = "--cors-origins", .env = "LLAMA_ARG_CORS_ORIGINS", .value = kText,
     .metavar = "ORIGINS", .fallback = "*",
     .help = "Access-Control-Allow-Origin: * echoes any origin, localhost echoes this machine's, "
             "anything else is sent as it is.", .apply = BLOOMERY_SET(s.cors_origins = i.text)},
    {.group = "Network", .names = "--cors-methods", .env = "LLAMA_ARG_CORS_METHODS", .value = kText,
     .metavar = "LIST", .fallback = "GET, POST, DELETE, OPTIONS",
     .help = "Access-Control-Allow-Methods.", .apply = BLOOMERY_SET(s.cors_methods = i.text)},
    {.group = "Network", .names = "--cors-headers", .env = "LLAMA_ARG_CORS_HEADERS", .value = kText,
     .metavar = "LIST", .fallback = "*", .help = "Access-Control-Allow-Headers.",
     .apply = BLOOMERY_SET(s.cors_headers = i.text)},
    {.group = "Network", .names = "--cors-credentials", .negative = "--no-cors-credentials",
     .env = "LLAMA_ARG_CORS_CREDENTIALS", .value = kSwitch, .fallback = "on",
     .help = "Access-Control-Allow-Credentials.", .apply = BLOOMERY_SET(s.cors_credentials = i.on)},
    {.group = "Network", .names = "-to --timeout", .env = "LLAMA_ARG_TIMEOUT", .value = kInteger,
     .metavar = "SECONDS", .fallback = "3600", .min = 1, .max = 86400,
     .help = "How long one write to a client may take.",
     .apply = BLOOMERY_SET(s.timeout_s = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--threads-http", .env = "LLAMA_ARG_THREADS_HTTP",
     .value = kInteger, .metavar = "N", .fallback = "-1 (automatic)", .min = -1,
     .max = limits::kHttpThreadsMax,
     .help = "Threads that answer HTTP.",
     .apply = BLOOMERY_SET(s.http_threads = i.integer > 0 ? static_cast<int>(i.integer) : 0)},
    {.group = "Network", .names = "--sse-ping-interval", .env = "LLAMA_ARG_SSE_PING_INTERVAL",
     .value = kInteger, .metavar = "SECONDS", .fallback = "30", .min = -1, .max = 86400,
     .help = "A silent stream gets a comment this often; -1 turns it off.",
     .apply = BLOOMERY_SET(s.sse_ping_s = static_cast<int>(i.integer))},
    {.group = "Network", .names = "--slots", .negative = "--no-slots",
     .env = "LLAMA_ARG_ENDPOINT_SLOTS", .value = kSwitch, .fallback = "on",
     .help = "Answer /slots.", .apply = BLOOMERY_SET(s.slots_route = i.on)},
    {.group = "Network", .names = "--props", .env = "LLAMA_ARG_ENDPOINT_PROPS", .value = kSwitch,
     .fallback = "off", .help = "Accept POST /props.",
     .apply = BLOOMERY_SET(s.props_writable = i.on)},
    {.group = "Network", .names = "--metrics", .env = "LLAMA_ARG_ENDPOINT_METRICS",
     .value = kSwitch, .fallback = "on", .help = "/metrics is always answered.",
     .apply = BLOOMERY_SET({})},
    {.group = "Network", .names = "--slot-save-path", .env = "BLOOMERY_SLOT_SAVE_PATH",
     .value = kText, .metavar = "DIR", .fallback = "none",
     .help = "The folder, which must exist, where POST /slots/ID?action=save and restore have their "
             "files; without it they answer 501.",
     .apply = BLOOMERY_SET(s.slot_save_path = i.text)},
    {.group = "Network", .names = "--media-path", .value = kText, .metavar = "DIR",
     .support = kRefused, .help = "The server opens no local media files."},
    {.group = "Network", .names = "--path", .env = "LLAMA_ARG_STATIC_PATH", .value = kText,
     .metavar = "DIR", .fallback = "the built-in page",
     .help = "Serve the files of this folder at / in place of the web page.",
     .apply = BLOOMERY_SET(s.page_folder = i.text)},
    {.group = "Network", .names = "--ssl-key-file", .env = "LLAMA_ARG_SSL_KEY_FILE", .value = kText,
     .metavar = "FILE", .support = kRefused, .help = "TLS is not built in; put a proxy in front."},
    {.group = "Network", .names = "--ssl-cert-file", .env = "LLAMA_ARG_SSL_CERT_FILE",
     .value = kText, .metavar = "FILE", .support = kRefused,
     .help = "TLS is not built in; put a proxy in front."},
    {.group = "Network", .names = "--ui --webui", .negative = "--no-ui --no-webui",
     .env = "LLAMA_ARG_UI", .value = kSwitch, .fallback = "on",
     .help = "Serve the web page at /.", .apply = BLOOMERY_SET(s.page = i.on)},
    {.group = "Network", .names = "--ui-config --webui-config", .env = "LLAMA_ARG_UI_CONFIG",
     .value = kText, .metavar = "JSON", .support = kIgnored,
     .help = kNoPageSettings},
    {.group = "Network", .names = "--ui-config-file --webui-config-file",
     .env = "LLAMA_ARG_UI_CONFIG_FILE", .value = kText, .metavar = "FILE", .support = kIgnored,
     .help = kNoPageSettings},
    {.group = "Network", .names = "--ui-mcp-proxy --webui-mcp-proxy",
     .negative = "--no-ui-mcp-proxy --no-webui-mcp-proxy", .env = "LLAMA_ARG_UI_MCP_PROXY",
     .value = kSwitch, .support = kRefused, .help = kNoTools, .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--tools", .value = kText, .metavar = "LIST", .support = kRefused,
     .help = kNoTools},
    {.group = "Network", .names = "--tools-runtime", .value = kText, .metavar = "NAME",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "--mcp-servers-config", .value = kText, .metavar = "FILE",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "--mcp-servers-json", .value = kText, .metavar = "JSON",
     .support = kRefused, .help = kNoTools},
    {.group = "Network", .names = "-ag --agent", .negative = "-no-ag --no-agent", .value = kSwitch,
     .support = kRefused, .help = kNoTools, .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--models-dir", .env = "LLAMA_ARG_MODELS_DIR", .value = kText,
     .metavar = "DIR", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-preset", .env = "LLAMA_ARG_MODELS_PRESET",
     .value = kText, .metavar = "FILE", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-max", .env = "LLAMA_ARG_MODELS_MAX", .value = kInteger,
     .metavar = "N", .support = kRefused, .help = kOneModel},
    {.group = "Network", .names = "--models-autoload", .negative = "--no-models-autoload",
     .env = "LLAMA_ARG_MODELS_AUTOLOAD", .value = kSwitch, .support = kRefused, .help = kOneModel,
     .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Network", .names = "--embedding --embeddings", .env = "LLAMA_ARG_EMBEDDINGS",
     .value = kSwitch, .support = kRefused, .help = "Embeddings are not in this version."},
    {.group = "Network", .names = "--rerank --reranking", .env = "LLAMA_ARG_RERANKING",
     .value = kSwitch, .support = kRefused, .help = "Reranking is not in this version."},
    {.group = "Network", .names = "--pooling", .env = "LLAMA_ARG_POOLING", .value = kText,
     .metavar = "TYPE", .support = kRefused, .help = "Embeddings are not in this version."},
    {.group = "Network", .names = "--embd-normalize", .value = kInteger, .metavar = "N",
     .support = kRefused, .help = "Embeddings are not in this version."},
    // ---- Engine
    {.group = "Engine", .names = "-c --ctx-size --ctx", .env = "LLAMA_ARG_CTX_SIZE",
     .value = kInteger, .metavar = "N", .fallback = "0 (as trained)", .min = 0, .max = kIntMax,
     .help = "Context over all slots, in tokens; each slot gets an equal part.",
     .apply = BLOOMERY_SET(s.context = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-np --parallel", .env = "LLAMA_ARG_N_PARALLEL", .value = kInteger,
     .metavar = "N", .fallback = "1", .min = -1, .max = limits::kSlotsMax,
     .help = "Slots: requests that run at the same time. -1 is the default.",
     .apply = BLOOMERY_SET(SetParallel(s, i))},
    {.group = "Engine", .names = "-b --batch-size", .env = "LLAMA_ARG_BATCH", .value = kInteger,
     .metavar = "N", .fallback = "2048", .min = 1, .max = limits::kBatchRowsMax,
     .help = "Prompt tokens between two decode passes.",
     .apply = BLOOMERY_SET(s.batch = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-ub --ubatch-size", .env = "LLAMA_ARG_UBATCH", .value = kInteger,
     .metavar = "N", .fallback = "512", .min = 1, .max = limits::kUbatchRowsMax,
     .help = "Rows of one pass.",
     .apply = BLOOMERY_SET(s.ubatch = static_cast<int>(i.integer))},
    {.group = "Engine", .names = "-t --threads", .env = "LLAMA_ARG_THREADS", .value = kInteger,
     .metavar = "N", .fallback = "-1 (one a core)", .min = -1, .max = limits::kThreadsMax,
     .help = "Threads that compute.",
     .apply = BLOOMERY_SET(s.threads = i.integer > 0 ? static_cast<int>(i.integer) : 0)},
    {.group = "Engine", .names = "-tb --threads-batch", .env = "LLAMA_ARG_THREADS_BATCH",
     .value = kInteger, .metavar = "N", .min = -1, .max = limits::kThreadsMax, .support = kIgnored,
     .help = "One pool computes prompts and answers: -t sets it.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer <= 0)},
    {.group = "Engine", .names = "-ctk --cache-type-k", .env = "LLAMA_ARG_CACHE_TYPE_K",
     .value = kChoice, .metavar = "TYPE", .fallback = "f16", .choices = "f32|f16|q8_0",
     .help = "Type of the key planes.", .apply = BLOOMERY_SET(s.type_k = PlaneTypeOf(i.text))},
    {.group = "Engine", .names = "-ctv --cache-type-v", .env = "LLAMA_ARG_CACHE_TYPE_V",
     .value = kChoice, .metavar = "TYPE", .fallback = "f16", .choices = "f32|f16|q8_0",
     .help = "Type of the value planes.", .apply = BLOOMERY_SET(s.type_v = PlaneTypeOf(i.text))},
    {.group = "Engine", .names = "--cache-prompt", .negative = "--no-cache-prompt",
     .env = "LLAMA_ARG_CACHE_PROMPT", .value = kSwitch, .fallback = "on",
     .help = "Keep the prefix a slot shares with the next request.",
     .apply = BLOOMERY_SET(s.cache_prompt = i.on)},
    {.group = "Engine", .names = "--cache-reuse", .env = "LLAMA_ARG_CACHE_REUSE", .value = kInteger,
     .metavar = "N", .support = kIgnored, .help = "A state is never moved to other positions.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Engine", .names = "-cram --cache-ram", .env = "LLAMA_ARG_CACHE_RAM",
     .value = kInteger, .metavar = "MiB",
     .fallback = "8192, or half of what the plan leaves where that is less", .min = -1,
     .max = INT32_MAX,
     .help = "Host memory for states of earlier prompts; -1: no limit, 0: only the slots' own.",
     .apply = BLOOMERY_SET(s.cache_ram_mib = i.integer)},
    {.group = "Engine", .names = "--cache-disk", .env = "BLOOMERY_CACHE_DISK", .value = kText,
     .metavar = "DIR", .fallback = "none",
     .help = "A folder where the prompt cache lives on, past its memory and the server's end. Of "
             "one server at a time; it is made where it is missing.",
     .apply = BLOOMERY_SET(s.cache_disk = i.text)},
    {.group = "Engine", .names = "--cache-disk-limit", .env = "BLOOMERY_CACHE_DISK_LIMIT",
     .value = kText, .metavar = "BYTES", .fallback = "32GiB",
     .help = "What that folder may take: bytes, or a number with KiB, MiB or GiB.",
     .apply = BLOOMERY_SET(s.cache_disk_bytes = BytesOf(i.text))},
    {.group = "Engine", .names = "--cache-idle-slots", .negative = "--no-cache-idle-slots",
     .env = "LLAMA_ARG_CACHE_IDLE_SLOTS", .value = kSwitch, .support = kIgnored,
     .help = "A state is saved when its slot is given away, never earlier and never not.",
     .apply = BLOOMERY_ACCEPT_IF(i.on)},
    {.group = "Engine", .names = "-ctxcp --ctx-checkpoints", .env = "LLAMA_ARG_CTX_CHECKPOINTS",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-cms --checkpoint-min-step",
     .env = "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-cb --cont-batching", .negative = "-nocb --no-cont-batching",
     .env = "LLAMA_ARG_CONT_BATCHING", .value = kSwitch, .support = kIgnored,
     .help = "Slots are always batched together.", .apply = BLOOMERY_ACCEPT_IF(i.on)},
    {.group = "Engine", .names = "-kvu --kv-unified", .negative = "-no-kvu --no-kv-unified",
     .env = "LLAMA_ARG_KV_UNIFIED", .value = kSwitch, .support = kIgnored,
     .help = "Each slot has its own part of the context.", .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Engine", .names = "--kv-unified-per-slot", .env = "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
     .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = "Each slot has its own part of the context."},
    {.group = "Engine", .names = "--context-shift", .negative = "--no-context-shift",
     .env = "LLAMA_ARG_CONTEXT_SHIFT", .value = kSwitch, .support = kRefused,
     .help = "A full context ends the answer; it is never shifted.",
     .apply = BLOOMERY_ACCEPT_IF(!i.on)},
    {.group = "Engine", .names = "--keep", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = "A full context ends the answer; it is never shifted.",
     .apply = BLOOMERY_ACCEPT_IF(i.integer == 0)},
    {.group = "Engine", .names = "-sps --slot-prompt-similarity",
     .env = "BLOOMERY_SLOT_PROMPT_SIMILARITY", .value = kReal, .metavar = "F", .fallback = "0.1",
     .help = "A request takes the free slot with the longest common prefix where that is more than "
             "this part of its prompt, else the one unused for longest; 0: always that.",
     .apply = BLOOMERY_SET(SetSimilarity(s, i))},
    {.group = "Engine", .names = "--sleep-idle-seconds", .value = kInteger, .metavar = "N",
     .support = kIgnored, .help = kHintOnly, .apply = BLOOMERY_ACCEPT_IF(i.integer < 0)},
    {.group = "Engine", .names = "--warmup", .negative = "--no-warmup", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-fa --flash-attn", .env = "LLAMA_ARG_FLASH_ATTN",
     .value = kChoice, .metavar = "WHEN", .choices = "on|off|auto", .support = kIgnored,
     .help = "There is one form of attention.", .apply = BLOOMERY_ACCEPT_IF(i.text == "auto")},
    {.group = "Engine", .names = "--swa-full", .env = "LLAMA_ARG_SWA_FULL", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-C --cpu-mask", .value = kText, .metavar = "MASK",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-Cr --cpu-range", .value = kText, .metavar = "RANGE",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--cpu-strict", .value = kText, .metavar = "0|1",
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--prio", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kHintOnly},
    {.group = "Engine", .names = "--poll", .value = kInteger, .metavar = "N", .support = kIgnored,
     .help = kHintOnly},
    {.group = "Engine", .names = "--numa", .env = "LLAMA_ARG_NUMA", .value = kText,
     .metavar = "TYPE", .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--repack", .negative = "-nr --no-repack",
     .env = "LLAMA_ARG_REPACK", .value = kSwitch, .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--no-host", .env = "LLAMA_ARG_NO_HOST", .value = kSwitch,
     .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "--op-offload", .negative = "--no-op-offload", .value = kSwitch,
     .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-dt --defrag-thold", .env = "LLAMA_ARG_DEFRAG_THOLD",
     .value = kReal, .metavar = "N", .support = kIgnored, .help = kHintOnly},
    {.group = "Engine", .names = "-ngl --gpu-layers --n-gpu-layers",
     .env = "LLAMA_ARG_N_GPU_LAYERS", .value = kText, .metavar = "N", .fallback = "auto",
     .help = "0: as --device none. auto, all or -1: the whole model on the card where it fits. A "
             "part of the layers on the card is not offered in this version.",
     .apply = &ApplyCardLayers},
    {.group = "Engine", .names = "-dev --device", .env = "LLAMA_ARG_DEVICE", .value = kText,
     .metavar = "NAME", .fallback = "auto",
     .help = "Where the model runs: auto takes the first card where the whole model fits one, "
             "else the CPU, and says so; none; or one card (--list-devices names them).",
     .apply = BLOOMERY_SET(s.device = i.text)},
    {.group = "Engine", .names = "--list-devices", .value = kSwitch,
     .help = "Print the cards of this machine and exit.",
     .apply = BLOOMERY_SET(s.list_devices = i.on)},
    {.group = "Engine", .names = "-mg --main-gpu", .env = "LLAMA_ARG_MAIN_GPU", .value = kInteger,
     .metavar = "N", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-sm --split-mode", .env = "LLAMA_ARG_SPLIT_MODE", .value = kText,
     .metavar = "MODE", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-ts --tensor-split", .env = "LLAMA_ARG_TENSOR_SPLIT",
     .value = kText, .metavar = "LIST", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-ot --override-tensor", .env = "LLAMA_ARG_OVERRIDE_TENSOR",
     .value = kText, .metavar = "LIST", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-cmoe --cpu-moe", .env = "LLAMA_ARG_CPU_MOE", .value = kSwitch,
     .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-ncmoe --n-cpu-moe", .env = "LLAMA_ARG_N_CPU_MOE",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-ncffn --n-cpu-ffn", .env = "LLAMA_ARG_N_CPU_FFN",
     .value = kInteger, .metavar = "N", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "--card-budget", .env = "BLOOMERY_CARD_BUDGET", .value = kText,
     .metavar = "BYTES", .fallback = "what the card has free",
     .help = "Memory of the card the server may plan with: bytes, or a number with KiB, MiB or GiB.",
     .apply = BLOOMERY_SET(s.card_budget_bytes = BytesOf(i.text))},
    {.group = "Engine", .names = "-fit --fit", .env = "LLAMA_ARG_FIT", .value = kChoice,
     .metavar = "WHEN", .choices = "on|off", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-fitt --fit-target", .env = "LLAMA_ARG_FIT_TARGET",
     .value = kText, .metavar = "LIST", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-fitc --fit-ctx", .env = "LLAMA_ARG_FIT_CTX", .value = kInteger,
     .metavar = "N", .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "-kvo --kv-offload", .negative = "-nkvo --no-kv-offload",
     .env = "LLAMA_ARG_KV_OFFLOAD", .value = kSwitch, .support = kIgnored, .help = kNoCard},
    {.group = "Engine", .names = "--rpc", .env = "LLAMA_ARG_RPC", .value = kText,
     .metavar = "SERVERS", .support = kRefused,
     .help = "The server does not compute on other machines."},
    // ---- Chat
    {.group = "Chat", .names = "--jinja", .negative = "--no-jinja", .env = "LLAMA_ARG_JINJA",
     .value = kSwitch, .fallback = "on",
     .help = "Templates are always Jinja; --no-jinja is refused.",
     .apply = BLOOMERY_SET(RequireJinja(i))},
    {.group = "Chat", .names = "--chat-template", .env = "LLAMA_ARG_CHAT_TEMPLATE", .value = kText,
     .metavar = "TEXT", .fallback = "the model's", .help = "The chat template itself, as Jinja.",
     .apply = BLOOMERY_SET(s.chat_template = i.text)},
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
    // ---- Requests
    {.group = "Requests", .names = "-n --predict --n-predict", .env = "LLAMA_ARG_N_PREDICT",
     .value = kInteger, .metavar = "N", .fallback = "-1", .min = -1, .max = kIntMax,
     .help = "Tokens an answer may have where the request says nothing; -1: no limit.",
     .apply = BLOOMERY_SET(s.n_predict = static_cast<int>(i.integer))},
    {.group = "Requests", .names = "-r --reverse-prompt", .value = kText, .metavar = "TEXT",
     .fallback = "none", .repeats = true,
     .help = "A stop string where the request gives none; may be repeated.",
     .apply = BLOOMERY_SET(s.stop.push_back(i.text))},
    {.group = "Requests", .names = "-sp --special", .env = "LLAMA_ARG_SPECIAL", .value = kSwitch,
     .fallback = "off", .help = "Print control tokens in answers.",
     .apply = BLOOMERY_SET(s.special = i.on)},
    {.group = "Requests", .names = "-e --escape", .negative = "--no-escape", .value = kSwitch,
     .fallback = "on",
     .help = "Process \\n, \\t and relatives in stop strings and DRY breakers given here.",
     .apply = BLOOMERY_SET(s.escape = i.on)},
    {.group = "Requests", .names = "-s --seed", .env = "LLAMA_ARG_SEED", .value = kInteger,
     .metavar = "N", .fallback = "-1 (random)", .min = -1, .max = UINT32_MAX,
     .help = "Seed of requests that give none.",
     .apply = BLOOMERY_SET(s.sampling.seed = static_cast<uint32_t>(i.integer))},
    {.group = "Requests", .names = "--samplers", .env = "LLAMA_ARG_SAMPLERS", .value = kText,
     .metavar = "NAMES",
     .fallback = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
     .help = "The chain, names separated by semicolons.",
     .apply = BLOOMERY_SET(SetSamplers(s, text::ParseSamplerNames(SplitSamplers(i.text))))},
    {.group = "Requests", .names = "--sampling-seq --sampler-seq", .value = kText,
     .metavar = "LETTERS", .fallback = "edskypmxt", .help = "The chain as letters.",
     .apply = BLOOMERY_SET(SetSamplers(s, text::ParseSamplerLetters(i.text)))},
    {.group = "Requests", .names = "--temp --temperature", .env = "LLAMA_ARG_TEMP", .value = kReal,
     .metavar = "N", .fallback = "0.8", .help = "Temperature; 0 is greedy.",
     .apply = BLOOMERY_SET(s.sampling.temperature = i.real)},
    {.group = "Requests", .names = "--top-k", .env = "LLAMA_ARG_TOP_K", .value = kInteger,
     .metavar = "N", .fallback = "40", .help = "Keep the k best; 0 keeps all.",
     .apply = BLOOMERY_SET(s.sampling.top_k = i.integer)},
    {.group = "Requests", .names = "--top-p", .env = "LLAMA_ARG_TOP_P", .value = kReal,
     .metavar = "N", .fallback = "0.95", .help = "Keep the best that hold this mass; 1 keeps all.",
     .apply = BLOOMERY_SET(s.sampling.top_p = i.real)},
    {.group = "Requests", .names = "--min-p", .env = "LLAMA_ARG_MIN_P", .value = kReal,
     .metavar = "N", .fallback = "0.05",
     .help = "Keep what has at least this part of the best's probability; 0 keeps all.",
     .apply = BLOOMERY_SET(s.sampling.min_p = i.real)},
    {.group = "Requests", .names = "--top-nsigma --top-n-sigma", .env = "LLAMA_ARG_TOP_N_SIGMA",
     .value = kReal, .metavar = "N", .fallback = "-1 (off)",
     .help = "Keep logits within this many deviations of the best.",
     .apply = BLOOMERY_SET(s.sampling.top_n_sigma = i.real)},
    {.group = "Requests", .names = "--xtc-probability", .env = "LLAMA_ARG_XTC_PROBABILITY",
     .value = kReal, .metavar = "N", .fallback = "0 (off)",
     .help = "Chance of excluding the top choices.",
     .apply = BLOOMERY_SET(s.sampling.xtc_probability = i.real)},
    {.group = "Requests", .names = "--xtc-threshold", .env = "LLAMA_ARG_XTC_THRESHOLD",
     .value = kReal, .metavar = "N", .fallback = "0.1",
     .help = "What counts as a top choice for XTC.",
     .apply = BLOOMERY_SET(s.sampling.xtc_threshold = i.real)},
    {.group = "Requests", .names = "--typical --typical-p", .env = "LLAMA_ARG_TYPICAL_P",
     .value = kReal, .metavar = "N", .fallback = "1 (off)", .help = "Locally typical sampling.",
     .apply = BLOOMERY_SET(s.sampling.typical_p = i.real)},
    {.group = "Requests", .names = "--repeat-last-n", .env = "LLAMA_ARG_REPEAT_LAST_N",
     .value = kInteger, .metavar = "N", .fallback = "64",
     .help = "Tokens that penalties look at; 0 turns them off.",
     .apply = BLOOMERY_SET(s.sampling.repeat_last_n = i.integer)},
    {.group = "Requests", .names = "--repeat-penalty", .env = "LLAMA_ARG_REPEAT_PENALTY",
     .value = kReal, .metavar = "N", .fallback = "1 (off)", .help = "Penalty on repeated tokens.",
     .apply = BLOOMERY_SET(s.sampling.repeat_penalty = i.real)},
    {.group = "Requests", .names = "--presence-penalty", .env = "LLAMA_ARG_PRESENCE_PENALTY",
     .value = kReal, .metavar = "N", .fallback = "0 (off)",
     .help = "Subtracted once from tokens that occurred.",
     .apply = BLOOMERY_SET(s.sampling.presence_penalty = i.real)},
    {.group = "Requests", .names = "--frequency-penalty", .env = "LLAMA_ARG_FREQUENCY_PENALTY",
     .value = kReal, .metavar = "N", .fallback = "0 (off)",
     .help = "Subtracted for each time a token occurred.",
     .apply = BLOOMERY_SET(s.sampling.frequency_penalty = i.real)},
    {.group = "Requests", .names = "--dry-multiplier", .env = "LLAMA_ARG_DRY_MULTIPLIER",
     .value = kReal, .metavar = "N", .fallback = "0 (off)", .help = "Strength of DRY.",
     .apply = BLOOMERY_SET(s.sampling.dry_multiplier = i.real)},
    {.group = "Requests", .names = "--dry-base", .env = "LLAMA_ARG_DRY_BASE", .value = kReal,
     .metavar = "N", .fallback = "1.75",
     .help = "How fast DRY grows with the length of the repetition.",
     .apply = BLOOMERY_SET(s.sampling.dry_base = i.real)},
    {.group = "Requests", .names = "--dry-allowed-length", .env = "LLAMA_ARG_DRY_ALLOWED_LENGTH",
     .value = kInteger, .metavar = "N", .fallback = "2",
     .help = "Repetitions up to this length are free.",
     .apply = BLOOMERY_SET(s.sampling.dry_allowed_length = i.integer)},
    {.group = "Requests", .names = "--dry-penalty-last-n", .env = "LLAMA_ARG_DRY_PENALTY_LAST_N",
     .value = kInteger, .metavar = "N", .fallback = "64",
     .help = "Tokens that DRY looks at; 0 turns it off.",
     .apply = BLOOMERY_SET(s.sampling.dry_penalty_last_n = i.integer)},
    {.group = "Requests", .names = "--dry-sequence-breaker", .value = kText, .metavar = "TEXT",
     .fallback = "newline, colon, quote, star", .repeats = true,
     .help = "DRY does not look across this text; may be repeated.",
     .apply = BLOOMERY_SET(AddBreaker(s, i))},
    {.group = "Requests", .names = "--dynatemp-range", .env = "LLAMA_ARG_DYNATEMP_RANGE",
     .value = kReal, .metavar = "N", .fallback = "0 (off)",
     .help = "Dynamic temperature: how far around the temperature.",
     .apply = BLOOMERY_SET(s.sampling.dynatemp_range = i.real)},
    {.group = "Requests", .names = "--dynatemp-exp --dynatemp-exponent",
     .env = "LLAMA_ARG_DYNATEMP_EXP", .value = kReal, .metavar = "N", .fallback = "1",
     .help = "Dynamic temperature: exponent of the entropy.",
     .apply = BLOOMERY_SET(s.sampling.dynatemp_exponent = i.real)},
    {.group = "Requests", .names = "--mirostat", .env = "LLAMA_ARG_MIROSTAT", .value = kInteger,
     .metavar = "N", .fallback = "0 (off)", .min = 0, .max = 2,
     .help = "Mirostat 1 or 2 in place of the chain.",
     .apply = BLOOMERY_SET(s.sampling.mirostat = i.integer)},
    {.group = "Requests", .names = "--mirostat-lr", .env = "LLAMA_ARG_MIROSTAT_LR", .value = kReal,
     .metavar = "N", .fallback = "0.1", .help = "Mirostat's learning rate (eta).",
     .apply = BLOOMERY_SET(s.sampling.mirostat_eta = i.real)},
    {.group = "Requests", .names = "--mirostat-ent", .env = "LLAMA_ARG_MIROSTAT_ENT",
     .value = kReal, .metavar = "N", .fallback = "5", .help = "Mirostat's target entropy (tau).",
     .apply = BLOOMERY_SET(s.sampling.mirostat_tau = i.real)},
    {.group = "Requests", .names = "--adaptive-target", .value = kReal, .metavar = "N",
     .fallback = "-1 (off)",
     .help = "Where adaptive_p is among the samplers: draw tokens of about this probability.",
     .apply = BLOOMERY_SET(s.sampling.adaptive_target = i.real)},
    {.group = "Requests", .names = "--adaptive-decay", .value = kReal, .metavar = "N",
     .fallback = "0.9",
     .help = "How long adaptive_p remembers what was drawn: 0 to 0.99.",
     .apply = BLOOMERY_SET(s.sampling.adaptive_decay = i.real)},
    {.group = "Requests", .names = "-l --logit-bias", .value = kText, .metavar = "TOKEN+BIAS",
     .fallback = "none", .repeats = true, .help = "Change a token's logit; may be repeated.",
     .apply = BLOOMERY_SET(s.sampling.logit_bias.push_back(BiasOf(i.text)))},
    {.group = "Requests", .names = "--ignore-eos", .env = "LLAMA_ARG_IGNORE_EOS", .value = kSwitch,
     .fallback = "off", .help = "Never draw an end-of-generation token.",
     .apply = BLOOMERY_SET(s.sampling.ignore_eos = i.on)},
    {.group = "Requests", .names = "--grammar", .value = kText, .metavar = "GBNF",
     .fallback = "none", .help = "What answers must match where the request says nothing.",
     .apply = BLOOMERY_SET(s.grammar = i.text)},
    {.group = "Requests", .names = "--grammar-file", .value = kText, .metavar = "FILE",
     .fallback = "none", .help = "A file with that grammar.",
     .apply = BLOOMERY_SET(s.grammar_file = i.text)},
    {.group = "Requests", .names = "-j --json-schema", .value = kText, .metavar = "JSON",
     .fallback = "none", .help = "A JSON schema in the place of --grammar; {} is any object.",
     .apply = BLOOMERY_SET(s.json_schema = i.text)},
    {.group = "Requests", .names = "-jf --json-schema-file", .value = kText, .metavar = "FILE",
     .fallback = "none", .help = "A file with that schema.",
     .apply = BLOOMERY_SET(s.json_schema_file = i.text)},
    {.group = "Requests", .names = "--spm-infill", .value = kSwitch, .fallback = "off",
     .help = "/infill: the suffix before the prefix.", .apply = BLOOMERY_SET(s.spm_infill = i.on)},
};
// clang-format on

#undef BLOOMERY_SET
#undef BLOOMERY_ACCEPT_IF

}  // namespace

std::span<const Flag> Flags() { return kFlags; }

}  // namespace bloomery::serve
