// Cuts text into the words that byte-pair merging works inside, by the regular expressions that a
// vocabulary was trained with. One table row a `tokenizer.ggml.pre` name; a plugin may bring
// expressions of its own. Owns compiled PCRE2 code; immutable once built, any thread may split with
// it. Work is linear in the text for the expressions of the table, and a match limit proportional
// to the text guards that.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace bloomery::text {

// Facts of one pre-tokenizer. The expressions run one after another, each splitting the pieces of
// the one before; stretches that none matches stay pieces.
struct PreTokenizerRow {
  std::string_view name;
  std::span<const std::string_view> expressions;
  bool add_bos;
  bool add_eos;
  bool ignore_merges;
};

// The rows, ascending by name.
std::span<const PreTokenizerRow> PreTokenizerRows();

// The row of a name; null for an unknown one.
const PreTokenizerRow* FindPreTokenizer(std::string_view name);

class PreTokenizer {
 public:
  // Throws Error(kBadModel) for an expression that does not compile, with the place in it.
  explicit PreTokenizer(const PreTokenizerRow& row);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // Takes a piece; false: no further one is wanted.
  using Emit = std::function<bool(std::string_view)>;

  // Calls `emit` with each piece of `text` in order; together they are the text. Bytes that are not
  // UTF-8 are pieces of their own, a run of them one piece. Returns false where `emit` has ended
  // it. Throws Error(kBadRequest) naming the byte at which an expression ran into its match limit.
  bool Split(std::string_view text, const Emit& emit) const;

 private:
  class Expression;
  class Matcher;
  bool SplitFrom(size_t level, std::string_view text, std::span<Matcher> matchers,
                 const Emit& emit) const;

  std::vector<Expression> expressions_;
};

}  // namespace bloomery::text
