#include "runtime/engine/lookup.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace bloomery::engine {
namespace {

// Places that are looked at before the best so far is taken: frequent pairs stand everywhere.
constexpr int32_t kPlacesMax = 64;

}  // namespace

Lookup::Lookup(int32_t tokens_max)
    : newest_(std::bit_ceil(static_cast<size_t>(std::max(tokens_max, 16))), -1) {
  tokens_.reserve(static_cast<size_t>(tokens_max));
  previous_.reserve(static_cast<size_t>(tokens_max));
}

size_t Lookup::Bucket(int32_t at) const {
  const auto i = static_cast<size_t>(at);
  const uint64_t pair =
      (uint64_t{static_cast<uint32_t>(tokens_[i - 1])} << 32) | static_cast<uint32_t>(tokens_[i]);
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
  return static_cast<size_t>((pair * kOdd) >> 32) & (newest_.size() - 1);
}

void Lookup::Push(text::TokenId token) {
  assert(tokens_.size() < tokens_.capacity());
  tokens_.push_back(token);
  previous_.push_back(-1);
  if (size() < kMatchMin) return;
  int32_t& newest = newest_[Bucket(size() - 1)];
  previous_.back() = newest;
  newest = size() - 1;
}

void Lookup::Pop() {
  if (size() >= kMatchMin) newest_[Bucket(size() - 1)] = previous_.back();
  tokens_.pop_back();
  previous_.pop_back();
}

void Lookup::Set(std::span<const text::TokenId> tokens) {
  const auto common = std::ranges::mismatch(tokens_, tokens).in1 - tokens_.begin();
  while (size() > common) Pop();
  for (const text::TokenId token : tokens.subspan(static_cast<size_t>(common))) Push(token);
}

// Tokens that agree, backwards from `at` and from the end.
int32_t Lookup::Match(int32_t at) const {
  const int32_t most = std::min(at + 1, kMatchMax);
  int32_t length = 0;
  while (length < most && tokens_[static_cast<size_t>(at - length)] ==
                              tokens_[static_cast<size_t>(size() - 1 - length)]) {
    ++length;
  }
  return length;
}

int32_t Lookup::Draft(int32_t count, std::vector<text::TokenId>* draft) const {
  draft->clear();
  if (size() < kMatchMin || count < 1) return 0;
  int32_t best = -1;
  int32_t best_match = kMatchMin - 1;
  int32_t places = 0;
  for (int32_t at = previous_.back(); at >= 0 && places < kPlacesMax && best_match < kMatchMax;
       at = previous_[static_cast<size_t>(at)], ++places) {
    const int32_t match = Match(at);
    if (match <= best_match) continue;
    best = at;
    best_match = match;
  }
  if (best < 0) return 0;
  // Past the end it goes on with itself: what repeats is repeated.
  for (int32_t i = 1; i <= count; ++i) {
    const int32_t from = best + i;
    draft->push_back(from < size() ? tokens_[static_cast<size_t>(from)]
                                   : (*draft)[static_cast<size_t>(from - size())]);
  }
  return best_match;
}

}  // namespace bloomery::engine
