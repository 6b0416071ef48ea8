#include "runtime/model/quant_mix.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

using enum TensorType;

using enum QuantMixWhen;

// Models of eight experts have few and small attention matrices beside them: more bits there cost
// little.
constexpr std::array kQ4KM{QuantMixRule{"attn_v.weight", kQ8_0, kEightExperts},
                           QuantMixRule{"attn_k.weight", kQ8_0, kEightExperts},
                           QuantMixRule{"attn_output.weight", kQ5_K, kEightExperts},
                           QuantMixRule{"attn_v.weight", kQ6_K, kChosenLayers},
                           QuantMixRule{"attn_qkv.weight", kQ5_K, kAlways},
                           QuantMixRule{"ffn_down", kQ6_K, kChosenLayers}};
constexpr std::array kQ5KM{QuantMixRule{"attn_v.weight", kQ8_0, kEightExperts},
                           QuantMixRule{"attn_k.weight", kQ8_0, kEightExperts},
                           QuantMixRule{"attn_v.weight", kQ6_K, kChosenLayers},
                           QuantMixRule{"attn_qkv.weight", kQ6_K, kAlways},
                           QuantMixRule{"ffn_down", kQ6_K, kChosenLayers}};

constexpr std::array kMixes{
    QuantMix{"F32", 0, kF32, kF32, kF32, {}},
    QuantMix{"F16", 1, kF16, kF16, kF16, {}},
    QuantMix{"BF16", 32, kBF16, kBF16, kBF16, {}},
    QuantMix{"Q8_0", 7, kQ8_0, kQ8_0, kQ8_0, {}},
    QuantMix{"Q4_0", 2, kQ4_0, kQ6_K, kQ4_0, {}},
    QuantMix{"Q4_K_M", 15, kQ4_K, kQ6_K, kQ4_K, kQ4KM},
    QuantMix{"Q5_K_M", 17, kQ5_K, kQ6_K, kQ5_K, kQ5KM},
    QuantMix{"Q6_K", 18, kQ6_K, kQ6_K, kQ6_K, {}},
    QuantMix{"IQ4_NL", 25, kIQ4_NL, kQ6_K, kIQ4_NL, {}},
    QuantMix{"MXFP4", 38, kMXFP4, kQ8_0, kQ8_0, {}},
};

// Tensors that stay as they are: small, and sensitive to rounding.
constexpr std::array<std::string_view, 3> kKept{"_norm.weight", "ffn_gate_inp.weight",
                                                "ssm_conv1d.weight"};

// The layer of "blk.12.attn_v.weight".
std::optional<uint64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  const char* end = name.data() + name.size();
  uint64_t layer = 0;
  const auto [next, error] = std::from_chars(name.data() + kBlock.size(), end, layer);
  if (error != std::errc() || next == end || *next != '.') return std::nullopt;
  return layer;
}

bool IsChosenLayer(uint64_t layer, uint64_t layers) {
  const uint64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

bool Applies(const QuantMixRule& rule, const MixModel& model, std::string_view name) {
  if (name.find(rule.part) == std::string_view::npos) return false;
  if (rule.when == kAlways) return true;
  if (rule.when == kEightExperts) return model.experts == 8;
  const std::optional<uint64_t> layer = LayerOf(name);
  return layer && IsChosenLayer(*layer, model.layers);
}

TensorType Wanted(const QuantMix& mix, const MixModel& model, std::string_view name,
                  std::span<const uint64_t> ne) {
  if (name == "output.weight" || (model.tied_head && name == "token_embd.weight")) return mix.head;
  for (const QuantMixRule& rule : mix.rules) {
    if (Applies(rule, model, name)) return rule.type;
  }
  return ne.size() > 2 && ne[2] > 1 ? mix.base : mix.dense;
}

// What stands in for a type of 256-value blocks where rows are no multiple of them.
TensorType WithSmallBlocks(TensorType type) {
  switch (type) {
    case kQ4_K:
      return kQ5_0;
    case kQ5_K:
      return kQ5_1;
    case kQ6_K:
      return kQ8_0;
    default:
      return type;
  }
}

bool SameName(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

std::span<const QuantMix> QuantMixes() { return kMixes; }

const QuantMix& GetQuantMix(std::string_view name) {
  std::string known;
  for (const QuantMix& mix : kMixes) {
    if (SameName(mix.name, name)) return mix;
    known += (known.empty() ? "" : ", ") + std::string(mix.name);
  }
  throw Error(ErrorKind::kUsage, "'" + Printable(name) + "' is no known type; known: " + known);
}

bool IsQuantisable(std::string_view name, std::span<const uint64_t> ne) {
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  return ne.size() > 1 && ends("weight") && std::ranges::none_of(kKept, ends);
}

TensorType TypeInMix(const QuantMix& mix, const MixModel& model, std::string_view name,
                     std::span<const uint64_t> ne, TensorType source) {
  if (!IsQuantisable(name, ne)) return source;
  const auto fits = [&](TensorType type) { return ne[0] % Info(type).block_values == 0; };
  const TensorType wanted = Wanted(mix, model, name, ne);
  if (fits(wanted)) return wanted;
  const TensorType small = WithSmallBlocks(wanted);
  if (fits(small)) return small;
  throw Error(ErrorKind::kBadModel,
              "tensor '" + Printable(name) + "': rows of " + std::to_string(ne[0]) +
                  " values fit neither " + std::string(Info(wanted).name) + " blocks of " +
                  std::to_string(Info(wanted).block_values) + " nor blocks of " +
                  std::to_string(Info(small).block_values) + "; choose F16 or BF16");
}

}  // namespace bloomery::model
