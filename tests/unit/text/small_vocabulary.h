// A vocabulary small enough to count by hand: the 256 bytes (id = byte), a few merges, and special
// tokens. Shared by the tests of this folder.
#pragma once

#include <string>

#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::text {

inline std::string Spell(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) AppendUtf8(SpellByte(static_cast<uint8_t>(byte)), spelling);
  return spelling;
}

inline TokenId AddToken(VocabularyData& data, std::string text, TokenType type) {
  data.tokens.push_back(std::move(text));
  data.token_types.push_back(static_cast<int32_t>(type));
  return static_cast<TokenId>(data.tokens.size() - 1);
}

inline void AddMerge(VocabularyData& data, std::string_view left, std::string_view right) {
  data.merges.push_back(Spell(left) + " " + Spell(right));
  AddToken(data, Spell(std::string(left) + std::string(right)), TokenType::kNormal);
}

struct SmallIds {
  static constexpr TokenId kHe = 256, kLl = 257, kHell = 258, kAb = 259, kBc = 260;
  static constexpr TokenId kEnd = 261, kEndoftext = 262, kThink = 263, kBos = 264, kEndLong = 265;
};

inline VocabularyData SmallVocabulary() {
  VocabularyData data;
  data.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte) {
    AddToken(data, Spell(std::string(1, static_cast<char>(byte))), TokenType::kNormal);
  }
  AddMerge(data, "h", "e");                              // 256, rank 0
  AddMerge(data, "l", "l");                              // 257, rank 1
  AddMerge(data, "he", "ll");                            // 258, rank 2
  AddMerge(data, "a", "b");                              // 259, rank 3
  AddMerge(data, "b", "c");                              // 260, rank 4
  AddToken(data, "<|im_end|>", TokenType::kControl);     // 261
  AddToken(data, "<|endoftext|>", TokenType::kControl);  // 262
  AddToken(data, "<think>", TokenType::kUserDefined);    // 263
  AddToken(data, "<|bos|>", TokenType::kControl);        // 264
  AddToken(data, "<|im_end|>!", TokenType::kControl);    // 265
  data.ids.eos = SmallIds::kEnd;
  data.ids.bos = SmallIds::kBos;
  return data;
}

}  // namespace bloomery::text
