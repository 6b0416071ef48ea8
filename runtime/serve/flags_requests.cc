// Rows of the table of flags: defaults of requests.
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/serve/flag_rows.h"

namespace bloomery::serve::rows {
namespace {

// The first breaker given replaces the default ones.
void AddBreaker(S& s, const I& i) {
  auto& breakers = s.sampling.dry_sequence_breakers;
  if (i.text == "none") throw Error(ErrorKind::kUsage, "DRY needs at least one breaker here");
  if (i.first) breakers.clear();
  breakers.push_back(i.text);
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

// Packed by hand: one field a line, as clang-format would have it, is three times as long.
// clang-format off
constexpr Flag kFlags[] = {
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
    {.group = "Requests", .names = "--temp --temperature",
     .env = "LLAMA_ARG_TEMPERATURE LLAMA_ARG_TEMP", .value = kReal, .metavar = "N", .fallback = "0.8", .help = "Temperature; 0 is greedy.",
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

}  // namespace

std::span<const Flag> Requests() { return kFlags; }

}  // namespace bloomery::serve::rows
