// The vocabulary of a model file as plain data, before anything is checked or indexed. Filled from
// GGUF metadata, or by hand in tests. Owns its strings; has no behaviour.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

struct VocabularyData {
  std::string model = "gpt2";        // tokenizer.ggml.model
  std::string pre;                   // tokenizer.ggml.pre
  std::vector<std::string> tokens;   // id → text in the file's spelling
  std::vector<int32_t> token_types;  // empty, or one TokenType a token
  std::vector<std::string> merges;   // "left right", lowest rank first

  // Ids that the file names; kNoToken where it does not.
  TokenId bos = kNoToken, eos = kNoToken, eot = kNoToken, eom = kNoToken;
  TokenId unknown = kNoToken, padding = kNoToken;
  TokenId fim_prefix = kNoToken, fim_suffix = kNoToken, fim_middle = kNoToken;
  TokenId fim_pad = kNoToken, fim_repo = kNoToken, fim_separator = kNoToken;

  // Unset: what the pre-tokenizer's row says.
  std::optional<bool> add_bos, add_eos, ignore_merges;
};

}  // namespace bloomery::text
