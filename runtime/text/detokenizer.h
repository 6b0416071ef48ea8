// Token ids to text as they are generated: releases whole UTF-8 characters only and keeps the bytes
// of an unfinished one until it is completed. One object a sequence, one thread at a time; it
// refers to a Tokenizer that must outlive it. Everything it returns is valid UTF-8: all returned
// texts joined equal ReplaceInvalidUtf8(tokenizer.Detokenise(all ids)), however the ids were split.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/tokenizer.h"

namespace bloomery::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, SpecialText special = SpecialText::kHidden)
      : tokenizer_(&tokenizer), special_(special) {}

  // The text that `id` completes, perhaps "". The view is valid until the next call.
  std::string_view Next(TokenId id) { return Next(tokenizer_->Piece(id, special_)); }

  // The same for a piece of raw bytes.
  std::string_view Next(std::string_view bytes);

  // Ends the text: U+FFFD where a character was left unfinished, else "". Ready for a new text.
  std::string_view Finish();

  // Bytes of the unfinished character, 0..3.
  size_t held_bytes() const { return tail_.size(); }

 private:
  const Tokenizer* tokenizer_;
  SpecialText special_;
  std::string tail_;
  std::string released_;
};

}  // namespace bloomery::text
