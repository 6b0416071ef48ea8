// What the grammar tests share: a vocabulary of all bytes and some longer tokens, and helpers that
// feed text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {

// Bytes are 0..255, then these.
inline constexpr std::string_view kLongTokens[] = {
    "ab",    "abc",       "aba",      "ca",       "aa", "bb",   "true", "{\"",
    "\":",   "\",",       "\"}",      "}}",       "12", " \"",  "],",   "\xC3",
    "\xA9!", "\xC3\xA9x", "\xF0\x9F", "\x98\x80", "  ", "\n\n", "x\"",  "_call>"};
inline constexpr TokenId kFirstLong = 256;
inline constexpr TokenId kThink = kFirstLong + static_cast<TokenId>(std::size(kLongTokens));
inline constexpr TokenId kToolCall = kThink + 1;  // a control token
inline constexpr TokenId kEnd = kThink + 2;       // ends generation

inline Tokenizer GrammarTokenizer() {
  VocabularyData data;
  data.pre = "qwen2";
  const auto spell = [](std::string_view bytes) {
    std::string out;
    for (const char c : bytes) AppendUtf8(SpellByte(static_cast<uint8_t>(c)), out);
    return out;
  };
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(spell(std::string(1, static_cast<char>(byte))));
  }
  for (const std::string_view token : kLongTokens) {
    // One byte tokens would be there twice.
    data.tokens.push_back(token.size() == 1 ? spell(std::string(token) + "\xA9") : spell(token));
  }
  data.token_types.assign(data.tokens.size(), static_cast<int32_t>(TokenType::kNormal));
  for (const auto& [text, type] : {std::pair("<think>", TokenType::kUserDefined),
                                   std::pair("<tool_call>", TokenType::kControl),
                                   std::pair("<|im_end|>", TokenType::kControl)}) {
    data.tokens.emplace_back(text);
    data.token_types.push_back(static_cast<int32_t>(type));
  }
  data.ids.eos = kEnd;
  return Tokenizer(data);
}

class GrammarFixture : public testing::Test {
 protected:
  GrammarState State(std::string_view gbnf, const GrammarOptions& options = {}) {
    return GrammarState(compiler_.FromGbnf(gbnf, options));
  }

  // Whether the grammar's language has the text.
  bool Matches(std::string_view gbnf, std::string_view text) {
    GrammarState state = State(gbnf);
    return state.AcceptText(text) && state.complete();
  }

  std::string Refusal(std::string_view gbnf, const GrammarOptions& options = {}) {
    try {
      compiler_.FromGbnf(gbnf, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      return error.what();
    }
    return "";
  }

  Tokenizer tokenizer_ = GrammarTokenizer();
  GrammarCompiler compiler_{tokenizer_};
};

}  // namespace bloomery::text
