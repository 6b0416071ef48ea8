// Drafts by looking up: what followed the last tokens where they stood before in the same slot. An
// index of one slot's tokens by pairs, that grows and shrinks at its end; the longest match wins,
// then the latest. Sized once; allocates nothing after that. One thread.
//
//   lookup.Set(tokens);          // or Push(token), as they come
//   lookup.Draft(3, &draft);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace bloomery::engine {

class Lookup {
 public:
  // Tokens that a match has at least, and beyond which a longer one is not told from it.
  static constexpr int32_t kMatchMin = 2;
  static constexpr int32_t kMatchMax = 16;

  // Holds up to `tokens_max` tokens.
  explicit Lookup(int32_t tokens_max);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  void Push(text::TokenId token);
  // Holds these from now on; what they have in common with the ones before is not looked at again.
  void Set(std::span<const text::TokenId> tokens);

  // Up to `count` tokens that may come next into `draft`, which is cleared first; none where the
  // last tokens did not stand anywhere before. Returns how many tokens matched.
  int32_t Draft(int32_t count, std::vector<text::TokenId>* draft) const;

 private:
  size_t Bucket(int32_t at) const;  // of the pair that ends at `at`
  void Pop();
  int32_t Match(int32_t at) const;

  std::vector<text::TokenId> tokens_;
  std::vector<int32_t> newest_;    // by bucket: where its latest pair ends; -1: none
  std::vector<int32_t> previous_;  // by position: the one before in its bucket
};

}  // namespace bloomery::engine
