// Constrained output: which tokens may come next so that the whole output belongs to a grammar.
// A GrammarCompiler belongs to one vocabulary and makes Grammars from GBNF or JSON schemas; a
// Grammar is immutable to its users and shared by requests (what it learns of the vocabulary,
// token masks by place in the grammar, is kept inside, bounded and locked); a GrammarState follows
// one sequence and is cheap to copy. Compiler and Grammar may be used from any thread, a state by
// one at a time. Text is matched byte for byte as UTF-8: a token may end inside a character.
// Compiling and running are bounded in time and memory (limits::kGrammar*).
//
//   text::GrammarCompiler compiler(tokenizer);
//   auto grammar = compiler.FromGbnf("root ::= \"yes\" | \"no\"");
//   text::GrammarState state(grammar);
//   if (!state.Allows(token)) token = best of state.Mask();
//   state.Accept(token);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::text {

// Where a lazy grammar begins to constrain.
struct GrammarTrigger {
  enum class Kind {
    kWord,         // `value` occurs in the output: from its first byte on
    kPattern,      // the regular expression `value` (PCRE2) matches somewhere in the output
    kPatternFull,  // … matches the whole output so far
    kToken,        // `token` was drawn: from its text on
  };
  // Of a pattern the grammar's text begins at its first capture group, or at the match.
  Kind kind = Kind::kWord;
  std::string value{};
  TokenId token = kNoToken;
};

struct GrammarOptions {
  // Free until a trigger; the text from the trigger on belongs to the grammar. Needs triggers.
  bool lazy = false;
  std::vector<GrammarTrigger> triggers{};

  // A span of the output that the grammar does not see, as of thinking: nothing is constrained and
  // no trigger fires from `span_begin` (lazy grammars only; where nothing but white space comes
  // before it, for a later one is no span to those who read the output) until after `span_end`.
  // With starts_in_span the output begins inside it, and a grammar that is not lazy constrains from
  // the span's end on, a little white space after the end excepted. `span_break` ends the span too,
  // and is itself what the grammar or its triggers see. "" for none.
  std::string span_begin{};
  std::string span_end{};
  std::string span_break{};
  bool starts_in_span = false;

  // Control tokens whose text the grammar may match. Others never match by text, only by <token>.
  std::vector<TokenId> preserved_tokens{};
};

// The tokens that are allowed at one place.
struct TokenMask {
  size_t allowed = 0;  // how many
  // Exactly one of the two is filled, except where nothing is allowed.
  std::vector<TokenId> few{};    // ascending
  std::vector<uint64_t> bits{};  // one bit a token, the lowest id in the lowest bit

  bool Holds(TokenId token) const;
};

class GrammarAutomaton;  // internal: the compiled rules and what was learnt of the vocabulary
class GrammarTables;     // internal: the places it has found
class GrammarTriggers;   // internal: compiled triggers

class Grammar {
 public:
  Grammar(std::shared_ptr<GrammarAutomaton> automaton,
          std::shared_ptr<const GrammarTriggers> triggers, std::string source);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // As GBNF, for generation_settings.
  const std::string& source() const { return source_; }
  bool lazy() const;

 private:
  friend class GrammarState;
  std::shared_ptr<GrammarAutomaton> automaton_;
  std::shared_ptr<const GrammarTriggers> triggers_;  // null: constrains from the first token
  std::string source_;
};

class GrammarState {
 public:
  // Before the first token. `grammar` must not be null.
  explicit GrammarState(std::shared_ptr<const Grammar> grammar);

  // Whether Accept(token) would succeed. A few byte steps: cheap enough for every drawn token.
  // All methods throw Error(kBadRequest) when the grammar is too ambiguous for the limits here.
  bool Allows(TokenId token);

  // All tokens that may follow, end-of-generation tokens where the output may end. Costs a walk
  // over the vocabulary the first time at a place, a look-up later. Valid until the next call.
  const TokenMask& Mask();

  // The sequence goes on with `token`; false, and nothing changes, where that does not fit.
  bool Accept(TokenId token);

  // The same for text that is no token, such as a generation prompt that the grammar covers.
  bool AcceptText(std::string_view text);

  // False while nothing is constrained: before a lazy grammar's trigger and inside the span.
  bool constrains() const;
  // The output may end here.
  bool complete() const;
  // The output must end here: complete, and no text or token can follow.
  bool exhausted() const;

 private:
  enum class Phase { kSpan, kWaiting, kActive };

  void Begin();
  bool AcceptActive(TokenId token);
  bool AcceptFree(TokenId token);
  bool TakeFree(std::string_view piece, TokenId token);
  bool FeedSeen(size_t start);
  size_t PlaceOf(std::string_view mark) const;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<GrammarTables> tables_;  // place_ is one of theirs
  uint32_t place_ = 0;
  Phase phase_ = Phase::kActive;
  std::string seen_;      // while free: what triggers and the span's marks are looked for in
  bool dropped_ = false;  // of the output something is no longer in seen_
  std::vector<TokenId> refused_;  // while free: what would begin the grammar wrongly here
  std::shared_ptr<const TokenMask> mask_;
};

class GrammarCompiler {
 public:
  // The tokenizer must outlive the compiler and every Grammar and GrammarState made of it.
  explicit GrammarCompiler(const Tokenizer& tokenizer);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Throws Error(kBadRequest, "grammar: line L, column C: why") for a grammar that does not parse,
  // names an undefined rule, has no root, is left-recursive, names a token that does not exist, or
  // is too large; for options that do not fit (lazy without triggers, a pattern that does not
  // compile). Grammars of the same source are compiled once while they are kept.
  std::shared_ptr<const Grammar> FromGbnf(std::string_view source,
                                          const GrammarOptions& options = {});

  // The documents of a JSON schema (json_schema.h says which keywords count and what is refused).
  std::shared_ptr<const Grammar> FromJsonSchema(std::string_view schema,
                                                const GrammarOptions& options = {});

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace bloomery::text
