// Text to token ids and back, for byte-level BPE vocabularies (GGUF `tokenizer.ggml.model` = gpt2).
// Owns its vocabulary, merge table and compiled pre-tokenizer. Immutable once built: every method
// is const and may be called from any thread. Never normalises text, and never loses a byte:
// Detokenise(Tokenise(x), shown) == x for any bytes x, well-formed UTF-8 or not.
//
//   text::Tokenizer tokenizer(vocabulary);
//   auto ids = tokenizer.Tokenise("Hello <|im_end|>", {.parse_special = true});
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/text_range.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::text {

struct TokeniseOptions {
  // Put BOS before and EOS behind, where the vocabulary asks for them.
  bool add_special = false;
  // Take the text of control tokens (`<|im_end|>`) as those tokens. User-defined tokens always
  // match.
  bool parse_special = false;
  // With parse_special: byte ranges, ascending and disjoint, in which control tokens stay text: a
  // control token is taken only where none of its bytes lies in such a range. Words may cross a
  // range's border, so a prompt without control tokens gives the same ids with and without ranges.
  std::span<const TextRange> plain = {};
  // Where the text has more ids than this, the result does too, but may be only the front of them:
  // the work ends about there.
  size_t tokens_max = SIZE_MAX;
};

// How control tokens read when ids become text again.
enum class SpecialText { kHidden, kShown };

class Tokenizer {
 public:
  // Checks and indexes the vocabulary. Throws Error(kBadModel) naming the metadata key and the
  // entry for an unknown model or pre-tokenizer (with the list of known ones), a duplicate token, a
  // merge of unknown tokens, an id out of range, an array of the wrong length, or a type that does
  // not exist.
  explicit Tokenizer(const VocabularyData& vocabulary);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Throws Error(kBadRequest) for a byte that has no token (full vocabularies have all 256), for
  // text above limits::kTokeniseBytesMax, and for plain ranges that are not ascending, disjoint and
  // inside.
  std::vector<TokenId> Tokenise(std::string_view text, const TokeniseOptions& options = {}) const;

  // The text of the ids, byte for byte (not always valid UTF-8: ids may end inside a character).
  // Throws Error(kBadRequest) for an id outside the vocabulary.
  std::string Detokenise(std::span<const TokenId> ids,
                         SpecialText special = SpecialText::kHidden) const;

  // The bytes of one token; "" for a control token that is hidden. The view lives as long as this
  // object. Throws Error(kBadRequest) for an id outside the vocabulary.
  std::string_view Piece(TokenId id, SpecialText special = SpecialText::kHidden) const;

  // As shown, of one of special_ids(): "" where the file names none (kNoToken).
  std::string_view SpecialPiece(TokenId id) const;

  // The id whose piece (as shown) is exactly `text`, or kNoToken; where a control or user-defined
  // token and a normal one read the same, the former.
  TokenId Find(std::string_view text) const;

  size_t size() const;
  bool Contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size(); }
  TokenType Type(TokenId id) const;  // throws as Piece does
  bool IsControl(TokenId id) const { return Type(id) == TokenType::kControl; }

  // End of generation: eos, eot, eom, the FIM pad, repository and separator tokens, and every
  // control or user-defined token whose text is a known end marker. `eog()` is ascending.
  bool IsEog(TokenId id) const;
  std::span<const TokenId> eog() const;

  // Ids by name; FIM ids are found by text where the file names none.
  const SpecialIds& special_ids() const;
  bool add_bos() const;
  bool add_eos() const;

 private:
  struct State;
  class Run;
  std::unique_ptr<const State> state_;
};

}  // namespace bloomery::text
