// A grammar bound to a vocabulary: places (tables.h) moved by tokens, and the mask of the tokens
// allowed at a place, computed once and kept. Any thread; a lock guards the tables. When they have
// grown past their limit new ones begin, and places of the old ones are carried over as they are
// used.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/grammar/grammar.h"
#include "runtime/text/grammar/program.h"
#include "runtime/text/grammar/tables.h"
#include "runtime/text/grammar/token_trie.h"

namespace bloomery::text {

class GrammarAutomaton {
 public:
  // `preserved`: control tokens that match by their text.
  GrammarAutomaton(const Tokenizer& tokenizer, std::shared_ptr<const TokenTrie> trie,
                   GrammarProgram program, std::vector<TokenId> preserved);

  // A place with the tables it is of.
  struct Place {
    std::shared_ptr<GrammarTables> tables;
    PlaceId id = GrammarTables::kDead;
  };

  // Throw what GrammarTables' steps throw. `place` may be carried over to newer tables.
  Place Start();
  Place AfterToken(Place& place, TokenId token);  // kDead where it does not fit
  Place AfterText(Place& place, std::string_view text);
  std::shared_ptr<const TokenMask> Mask(Place& place);
  bool Accepting(const Place& place) const;
  bool Exhausted(const Place& place) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  void Settle(Place& place);
  PlaceId Walk(PlaceId place, std::string_view text);
  PlaceId Follow(PlaceId place, TokenId token);
  bool MatchesByText(TokenId token) const;
  std::shared_ptr<const TokenMask> BuildMask(PlaceId place);
  void MarkTrie(PlaceId place, std::vector<uint64_t>& bits);
  void MarkEdges(PlaceId place, std::vector<uint64_t>& bits);

  const Tokenizer& tokenizer_;
  const std::shared_ptr<const TokenTrie> trie_;
  const GrammarProgram program_;
  const std::vector<TokenId> preserved_;
  std::vector<bool> in_trie_;  // by token
  mutable std::mutex mutex_;
  std::shared_ptr<GrammarTables> tables_;
  std::vector<PlaceId> levels_;  // scratch of a walk: the place after so many bytes
};

}  // namespace bloomery::text
