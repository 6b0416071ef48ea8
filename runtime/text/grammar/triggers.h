// What makes a lazy grammar begin, and the spans in which it may not: looked for in the output as
// it grows. Immutable; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/grammar/grammar.h"

namespace bloomery::text {

class GrammarTriggers {
 public:
  // Throws Error(kBadRequest) naming the trigger: none though lazy, empty or too long values, a
  // token outside the vocabulary, a pattern that does not compile (with its column).
  GrammarTriggers(GrammarOptions options, const Tokenizer& tokenizer);
  ~GrammarTriggers();
  GrammarTriggers(const GrammarTriggers&) = delete;
  GrammarTriggers& operator=(const GrammarTriggers&) = delete;

  const GrammarOptions& options() const { return options_; }
  bool FiresOn(TokenId token) const;

  // Where the grammar's text begins in `seen`, whose last `newest` bytes are new; nothing where no
  // trigger has fired. `whole`: `seen` is all of the output.
  std::optional<size_t> Start(std::string_view seen, size_t newest, bool whole) const;

  // How many of the newest bytes must be kept for later looks.
  size_t window() const { return window_; }

 private:
  class Pattern;

  GrammarOptions options_;
  std::vector<std::string> words_;
  std::vector<TokenId> tokens_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
  size_t window_ = 0;
};

}  // namespace bloomery::text
