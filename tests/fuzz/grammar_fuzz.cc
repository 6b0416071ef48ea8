// Grammars from anywhere: the input is a grammar's source, a NUL and text for it. A grammar is
// refused with an Error or compiles; then the text is taken byte by byte, and at each place the
// mask, Allows and Accept agree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/text/grammar/grammar.h"
#include "tests/unit/text/grammar/grammar_test_support.h"

namespace {

using bloomery::text::GrammarState;
using bloomery::text::TokenId;

void Require(bool condition) {
  if (!condition) std::abort();
}

constexpr size_t kPlacesMax = 8;  // whose masks are compared with every token

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bloomery::text::Tokenizer tokenizer = bloomery::text::GrammarTokenizer();
  static bloomery::text::GrammarCompiler compiler(tokenizer);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  try {
    GrammarState state(compiler.FromGbnf(input.substr(0, cut)));
    std::string_view text = input.substr(std::min(cut + 1, input.size()));
    for (size_t place = 0; place < kPlacesMax; ++place) {
      const bloomery::text::TokenMask mask = state.Mask();
      size_t allowed = 0;
      for (TokenId token = 0; tokenizer.Contains(token); ++token) {
        GrammarState next = state;
        const bool holds = mask.Holds(token);
        allowed += holds ? 1 : 0;
        Require(holds == next.Allows(token));
        Require(holds == next.Accept(token));
      }
      Require(allowed == mask.allowed);
      if (text.empty()) break;
      // Text fits where its byte's token does, but for tokens that the grammar names.
      GrammarState by_text = state;
      const bool fits = state.Accept(static_cast<uint8_t>(text[0]));
      Require(fits == mask.Holds(static_cast<uint8_t>(text[0])));
      Require(fits || !by_text.AcceptText(text.substr(0, 1)));
      if (!fits) break;
      text.remove_prefix(1);
    }
  } catch (const bloomery::Error&) {
    return 0;
  }
  return 0;
}
