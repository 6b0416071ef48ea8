// The vocabulary of a model file as plain data, before anything is checked or indexed. Filled from
// GGUF metadata by ReadVocabulary(), or by hand in tests. Owns its strings; has no behaviour.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bloomery::model {
class Metadata;
}

namespace bloomery::text {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

// Values of `tokenizer.ggml.token_type`.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The ids that a file names; kNoToken where it does not.
struct SpecialIds {
  TokenId bos = kNoToken, eos = kNoToken, eot = kNoToken, eom = kNoToken;
  TokenId unknown = kNoToken, padding = kNoToken;
  TokenId fim_prefix = kNoToken, fim_suffix = kNoToken, fim_middle = kNoToken;
  TokenId fim_pad = kNoToken, fim_repo = kNoToken, fim_separator = kNoToken;
};

// Which key, after `tokenizer.ggml.`, gives which id.
inline constexpr std::pair<std::string_view, TokenId SpecialIds::*> kSpecialIdKeys[] = {
    {"bos_token_id", &SpecialIds::bos},
    {"eos_token_id", &SpecialIds::eos},
    {"eot_token_id", &SpecialIds::eot},
    {"eom_token_id", &SpecialIds::eom},
    {"unknown_token_id", &SpecialIds::unknown},
    {"padding_token_id", &SpecialIds::padding},
    {"fim_pre_token_id", &SpecialIds::fim_prefix},
    {"fim_suf_token_id", &SpecialIds::fim_suffix},
    {"fim_mid_token_id", &SpecialIds::fim_middle},
    {"fim_pad_token_id", &SpecialIds::fim_pad},
    {"fim_rep_token_id", &SpecialIds::fim_repo},
    {"fim_sep_token_id", &SpecialIds::fim_separator},
};

struct VocabularyData {
  std::string model = "gpt2";  // tokenizer.ggml.model
  std::string pre;             // tokenizer.ggml.pre
  // The split where `pre` names none that is known: expressions of the model's plugin.
  std::vector<std::string> pre_patterns;
  std::vector<std::string> tokens;   // id → text in the file's spelling
  std::vector<int32_t> token_types;  // empty, or one TokenType a token
  std::vector<std::string> merges;   // "left right", lowest rank first
  SpecialIds ids;

  std::vector<TokenId> stop_ids;  // end of generation, beside what the vocabulary itself says

  // Unset: what the pre-tokenizer's row says.
  std::optional<bool> add_bos, add_eos, ignore_merges;
};

// The `tokenizer.ggml.*` keys of a model file. Throws Error(kBadModel) naming the key that is
// missing or of the wrong kind, and for an id or type that no TokenId holds; what the values mean
// together is checked by Tokenizer.
VocabularyData ReadVocabulary(const model::Metadata& metadata);

}  // namespace bloomery::text
