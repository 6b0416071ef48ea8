// The prompt of /infill: what stands before and behind the gap, other files around, in the
// vocabulary's fill-in-the-middle tokens. Pure but for tokenising.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/serve/fields.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::serve {

struct InfillLimits {
  int64_t batch = 2048;   // prefix and suffix share it, three to one
  int64_t context = 0;    // of a slot
  int64_t n_predict = 0;  // tokens that are wanted; below 0: any number
  bool suffix_first = false;
};

// Reads `input_prefix` and `input_suffix` (required), `prompt` (text at the end of the prefix) and
// `input_extra` ([{text, filename}]). All text is plain: control tokens in it stay text. What is
// too long loses its far end: the prefix and the extras their beginning, the suffix its end.
// Error(kUnsupported) naming the tokens that the vocabulary lacks, Error(kBadRequest) naming the
// field.
std::vector<text::TokenId> InfillPrompt(const Fields& body, const text::Tokenizer& tokenizer,
                                        const InfillLimits& limits);

}  // namespace bloomery::serve
