// Names, defaults and ranges of the sampling fields.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/sampling.h"

namespace bloomery::text {
namespace {

struct StageName {
  std::string_view name;  // canonical
  char letter;
  SamplerStage stage;
};

constexpr StageName kStages[] = {
    {"penalties", 'e', SamplerStage::kPenalties},
    {"dry", 'd', SamplerStage::kDry},
    {"top_n_sigma", 's', SamplerStage::kTopNSigma},
    {"top_k", 'k', SamplerStage::kTopK},
    {"typ_p", 'y', SamplerStage::kTypicalP},
    {"top_p", 'p', SamplerStage::kTopP},
    {"min_p", 'm', SamplerStage::kMinP},
    {"xtc", 'x', SamplerStage::kXtc},
    {"temperature", 't', SamplerStage::kTemperature},
    {"adaptive_p", 'a', SamplerStage::kAdaptiveP},
};

struct KnownElsewhere {
  std::string_view name;
  char letter;
};
constexpr KnownElsewhere kNotOffered[] = {{"infill", 'i'}};

constexpr std::pair<std::string_view, SamplerStage> kAliases[] = {
    {"nucleus", SamplerStage::kTopP},      {"temp", SamplerStage::kTemperature},
    {"typ", SamplerStage::kTypicalP},      {"typical", SamplerStage::kTypicalP},
    {"typicalp", SamplerStage::kTypicalP},
};

[[noreturn]] void Refuse(std::string_view field, const std::string& problem) {
  throw Error(ErrorKind::kBadRequest, "Field '" + std::string(field) + "': " + problem);
}

[[noreturn]] void RefuseSampler(std::string_view name) {
  Refuse("samplers", "the sampler '" + std::string(name) + "' is not offered by this server");
}

void CheckCount(size_t count) {
  if (count > limits::kSamplersMax) {
    Refuse("samplers", std::to_string(count) + " entries; at most " +
                           std::to_string(limits::kSamplersMax) + " are taken");
  }
}

// "top_k", "top-k" and "topk" are one name.
std::string WithoutSeparators(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-') plain += c;
  }
  return plain;
}

}  // namespace

std::string_view SamplerStageName(SamplerStage stage) {
  const auto found = std::find_if(std::begin(kStages), std::end(kStages),
                                  [stage](const StageName& s) { return s.stage == stage; });
  return found->name;
}

SamplerList ParseSamplerNames(std::span<const std::string> names) {
  CheckCount(names.size());
  SamplerList list;
  for (const std::string& name : names) {
    const std::string plain = WithoutSeparators(name);
    for (const KnownElsewhere& known : kNotOffered) {
      if (WithoutSeparators(known.name) == plain) RefuseSampler(known.name);
    }
    const size_t before = list.stages.size();
    for (const StageName& known : kStages) {
      if (WithoutSeparators(known.name) == plain) list.stages.push_back(known.stage);
    }
    for (const auto& [alias, stage] : kAliases) {
      if (alias == plain) list.stages.push_back(stage);
    }
    if (list.stages.size() == before) list.unknown.push_back(Printable(name));
  }
  return list;
}

SamplerList ParseSamplerLetters(std::string_view letters) {
  CheckCount(letters.size());
  SamplerList list;
  for (const char letter : letters) {
    for (const KnownElsewhere& known : kNotOffered) {
      if (known.letter == letter) RefuseSampler(known.name);
    }
    const auto found = std::find_if(std::begin(kStages), std::end(kStages),
                                    [letter](const StageName& s) { return s.letter == letter; });
    if (found == std::end(kStages)) {
      list.unknown.push_back(Printable({&letter, 1}));
    } else {
      list.stages.push_back(found->stage);
    }
  }
  return list;
}

namespace {

void CheckFinite(const SamplingParams& params) {
  const std::pair<std::string_view, double> numbers[] = {
      {"temperature", params.temperature},
      {"dynatemp_range", params.dynatemp_range},
      {"dynatemp_exponent", params.dynatemp_exponent},
      {"top_p", params.top_p},
      {"min_p", params.min_p},
      {"typical_p", params.typical_p},
      {"top_n_sigma", params.top_n_sigma},
      {"xtc_probability", params.xtc_probability},
      {"xtc_threshold", params.xtc_threshold},
      {"repeat_penalty", params.repeat_penalty},
      {"presence_penalty", params.presence_penalty},
      {"frequency_penalty", params.frequency_penalty},
      {"dry_multiplier", params.dry_multiplier},
      {"dry_base", params.dry_base},
      {"mirostat_tau", params.mirostat_tau},
      {"mirostat_eta", params.mirostat_eta},
      {"adaptive_target", params.adaptive_target},
      {"adaptive_decay", params.adaptive_decay},
  };
  for (const auto& [field, value] : numbers) {
    if (!std::isfinite(value)) Refuse(field, "must be a finite number");
  }
}

void CheckNotNegative(const SamplingParams& params) {
  const std::pair<std::string_view, int64_t> counts[] = {
      {"repeat_last_n", params.repeat_last_n},
      {"dry_allowed_length", params.dry_allowed_length},
      {"dry_penalty_last_n", params.dry_penalty_last_n},
      {"n_probs", params.n_probs},
      {"min_keep", params.min_keep},
  };
  for (const auto& [field, value] : counts) {
    if (value < 0) Refuse(field, std::to_string(value) + " is below 0");
  }
}

void CheckDryBreakers(const std::vector<std::string>& breakers) {
  if (breakers.empty()) Refuse("dry_sequence_breakers", "must hold at least one string");
  if (breakers.size() > limits::kDryBreakersMax) {
    Refuse("dry_sequence_breakers", std::to_string(breakers.size()) + " strings; at most " +
                                        std::to_string(limits::kDryBreakersMax) + " are taken");
  }
}

}  // namespace

void SamplingParams::Validate() {
  CheckFinite(*this);
  CheckNotNegative(*this);
  if (repeat_penalty <= 0.0 || !std::isfinite(1.0 / repeat_penalty)) {
    Refuse("repeat_penalty", "must be above 0 with a finite reciprocal");
  }
  if (adaptive_decay < 0.0 || adaptive_decay > 0.99) {
    Refuse("adaptive_decay", "must lie between 0 and 0.99");
  }
  CheckDryBreakers(dry_sequence_breakers);
  for (const LogitBias& entry : logit_bias) {
    if (std::isnan(entry.bias) || entry.bias == std::numeric_limits<float>::infinity()) {
      Refuse("logit_bias",
             "the bias of token " + std::to_string(entry.token) + " must be a number or -infinity");
    }
  }
  if (dry_base < 1.0) dry_base = SamplingParams().dry_base;
  temperature = std::max(temperature, 0.0);
  top_k = std::max<int64_t>(top_k, 0);
  top_p = std::clamp(top_p, 0.0, 1.0);
  min_p = std::clamp(min_p, 0.0, 1.0);
  xtc_probability = std::clamp(xtc_probability, 0.0, 1.0);
  xtc_threshold = std::clamp(xtc_threshold, 0.0, 1.0);
  adaptive_target = std::min(adaptive_target, 1.0);
  mirostat = std::clamp<int64_t>(mirostat, 0, 2);
}

void SamplingParams::BanEog(std::span<const TokenId> eog) {
  if (!ignore_eos) return;
  for (const TokenId id : eog) {
    logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
}

}  // namespace bloomery::text
