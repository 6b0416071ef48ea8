// JSON schemas and patterns from anywhere: refused with an Error, or a grammar that compiles. What
// the grammar makes when its first allowed byte is taken again and again is JSON where it is whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/grammar/json_schema.h"
#include "tests/unit/text/grammar/grammar_test_support.h"

namespace {

constexpr size_t kStepsMax = 200;

// A grammar of a schema must parse; what its rules may still be refused for is their size and
// schemas that refer to themselves without end.
std::shared_ptr<const bloomery::text::Grammar> Compile(bloomery::text::GrammarCompiler& compiler,
                                                       const std::string& gbnf) {
  try {
    return compiler.FromGbnf(gbnf);
  } catch (const bloomery::Error& error) {
    const std::string_view why = error.what();
    for (const char* fine : {"too large", "left-recursive", "too many ways", "beyond the limit",
                             "nested", "repetitions", "bytes; at most"}) {
      if (why.find(fine) != std::string_view::npos) return nullptr;
    }
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bloomery::text::Tokenizer tokenizer = bloomery::text::GrammarTokenizer();
  static bloomery::text::GrammarCompiler compiler(tokenizer);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const std::string gbnf = bloomery::text::JsonSchemaToGbnf(input);
    const auto grammar = Compile(compiler, gbnf);
    if (!grammar) return 0;
    bloomery::text::GrammarState state(grammar);
    std::string text;
    // Closing brackets and quotes first, so that documents end.
    static constexpr std::string_view kFirst = "}]\"0,:{[tfn";
    for (size_t step = 0; step < kStepsMax && !state.complete(); ++step) {
      const bloomery::text::TokenMask mask = state.Mask();
      int chosen = -1;
      for (const char c : kFirst) {
        if (chosen < 0 && mask.Holds(static_cast<uint8_t>(c))) chosen = static_cast<uint8_t>(c);
      }
      for (int byte = 0; byte < 256 && chosen < 0; ++byte) {
        if (mask.Holds(byte)) chosen = byte;
      }
      if (chosen < 0) return 0;  // a rule that nothing satisfies
      if (!state.Accept(chosen)) std::abort();
      text += static_cast<char>(chosen);
    }
    if (state.complete())
      bloomery::ParseJson(text, "what the grammar makes", {.kind = bloomery::ErrorKind::kInternal});
  } catch (const bloomery::Error& error) {
    if (error.kind() == bloomery::ErrorKind::kInternal) std::abort();
  }
  return 0;
}
