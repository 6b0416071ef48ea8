#include <algorithm>
#include <string>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/sampling.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {
namespace {

// At most the limit's bytes, cut at a character.
std::string_view Shorten(std::string_view text) {
  if (text.size() <= limits::kDryBreakerBytesMax) return text;
  text = text.substr(0, limits::kDryBreakerBytesMax);
  return text.substr(0, text.size() - Utf8IncompleteTail(text));
}

}  // namespace

DryBreakers::DryBreakers(const Tokenizer& tokenizer, std::span<const std::string> strings) {
  for (const std::string& whole : strings) {
    const std::string_view breaker = Shorten(whole);
    if (breaker.empty()) continue;
    // The tokens of what is left of the breaker after its first n bytes, for every n.
    std::vector<std::vector<TokenId>> rests(breaker.size());
    for (size_t n = 1; n < breaker.size(); ++n) {
      rests[n] = tokenizer.Tokenise(breaker.substr(n));
      rests[n].resize(std::min(rests[n].size(), limits::kDryBreakerTailMax));
    }
    for (TokenId id = 0; tokenizer.Contains(id); ++id) {
      const std::string_view piece = tokenizer.Piece(id, SpecialText::kShown);
      if (piece.find(breaker) != std::string_view::npos) {
        sequences_.push_back({id, {}});
        continue;
      }
      for (size_t n = 1; n < breaker.size() && n <= piece.size(); ++n) {
        if (piece.ends_with(breaker.substr(0, n))) sequences_.push_back({id, rests[n]});
      }
    }
  }
  std::sort(sequences_.begin(), sequences_.end());
  sequences_.erase(std::unique(sequences_.begin(), sequences_.end()), sequences_.end());
}

bool DryBreakers::IsBreaker(TokenId token) const {
  return std::binary_search(sequences_.begin(), sequences_.end(), Sequence{token, {}});
}

int64_t DryBreakers::TailLength(std::span<const TokenId> newest_first, size_t at) const {
  const TokenId head = newest_first[at];
  int64_t longest = -1;
  auto sequence = std::lower_bound(sequences_.begin(), sequences_.end(), Sequence{head, {}});
  for (; sequence != sequences_.end() && sequence->head == head; ++sequence) {
    const std::vector<TokenId>& tail = sequence->tail;
    if (tail.size() > at || static_cast<int64_t>(tail.size()) <= longest) continue;
    // Towards the newer tokens, which lie below `at`.
    const auto newer =
        std::make_reverse_iterator(newest_first.begin() + static_cast<ptrdiff_t>(at));
    if (std::equal(tail.begin(), tail.end(), newer)) longest = static_cast<int64_t>(tail.size());
  }
  return longest;
}

}  // namespace bloomery::text
