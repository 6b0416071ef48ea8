// Byte-pair merging: a table of ranked merges over token ids, and the merging of one word in
// O(n log n). The table is immutable once filled and shared by threads; a Merger holds one thread's
// scratch, reused from word to word.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace bloomery::text {

struct Merge {
  uint32_t rank;
  TokenId result;
};

// Pair of ids → merge, open addressing: one cache line a look-up, where a word asks for two or
// three a byte.
class MergeTable {
 public:
  explicit MergeTable(size_t merges);

  // Keeps the first of two merges of one pair: the lower rank. At most as many as announced.
  void Add(TokenId left, TokenId right, Merge merge);

  // Null where the pair does not merge.
  const Merge* Find(TokenId left, TokenId right) const;

 private:
  struct Entry {
    uint64_t pair = kEmpty;
    Merge merge{};
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are not negative, so no pair is this
  static uint64_t Pair(TokenId left, TokenId right);
  size_t Place(uint64_t pair) const;

  std::vector<Entry> entries_;  // a power of two, at most half full
};

class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(&table) {}

  // Merges the adjacent pair of lowest rank, the leftmost of equal ones, until none is left;
  // appends the ids to `out`. `word` has fewer than 2^32 - 1 ids, none negative.
  void Run(std::span<const TokenId> word, std::vector<TokenId>& out);

  // Pairs queued since construction: at most 3 a symbol, which tests hold it to.
  uint64_t pairs_queued() const { return pairs_queued_; }

 private:
  struct Symbol {
    TokenId id;  // kNoToken once merged into its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  struct Queued {
    uint32_t rank;
    uint32_t left;  // index of the left symbol
    auto operator<=>(const Queued&) const = default;
  };

  void Queue(uint32_t left);
  void Join(uint32_t left, TokenId result);

  const MergeTable* table_;
  std::vector<Symbol> symbols_;
  std::vector<Queued> queue_;  // a heap, lowest first
  uint64_t pairs_queued_ = 0;
};

}  // namespace bloomery::text
