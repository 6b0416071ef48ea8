#include "runtime/text/merges.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace bloomery::text {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

MergeTable::MergeTable(size_t merges) : entries_(std::bit_ceil(2 * merges + 2)) {}

uint64_t MergeTable::Pair(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// The entry that holds the pair, or the empty one where it would go.
size_t MergeTable::Place(uint64_t pair) const {
  const size_t mask = entries_.size() - 1;
  // Ids of a pair are small and close; a multiplication by an odd constant (2^64 over the golden
  // ratio) spreads them into the upper bits.
  size_t at = (pair * 0x9E3779B97F4A7C15u) >> 32 & mask;
  while (entries_[at].pair != kEmpty && entries_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::Add(TokenId left, TokenId right, Merge merge) {
  const uint64_t pair = Pair(left, right);
  Entry& entry = entries_[Place(pair)];
  if (entry.pair == kEmpty) entry = {pair, merge};
}

const Merge* MergeTable::Find(TokenId left, TokenId right) const {
  const Entry& entry = entries_[Place(Pair(left, right))];
  return entry.pair == kEmpty ? nullptr : &entry.merge;
}

void Merger::Run(std::span<const TokenId> word, std::vector<TokenId>& out) {
  if (word.empty()) return;
  const auto count = static_cast<uint32_t>(word.size());
  symbols_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols_[i] = {word[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  queue_.clear();
  for (uint32_t i = 0; i < count; ++i) Queue(i);
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const Queued best = queue_.back();
    queue_.pop_back();
    const Symbol& left = symbols_[best.left];
    if (left.id == kNoToken || left.next == kNone) continue;
    // An entry is stale when a neighbour changed since; each rank belongs to one pair, so the same
    // rank here means the same pair.
    const Merge* merge = table_->Find(left.id, symbols_[left.next].id);
    if (merge == nullptr || merge->rank != best.rank) continue;
    Join(best.left, merge->result);
  }
  for (uint32_t i = 0; i != kNone; i = symbols_[i].next) out.push_back(symbols_[i].id);
}

void Merger::Join(uint32_t left, TokenId result) {
  Symbol& kept = symbols_[left];
  Symbol& gone = symbols_[kept.next];
  kept.id = result;
  kept.next = gone.next;
  if (gone.next != kNone) symbols_[gone.next].previous = left;
  gone.id = kNoToken;
  if (kept.previous != kNone) Queue(kept.previous);
  Queue(left);
}

// Queues the pair that begins at `left`, if it merges.
void Merger::Queue(uint32_t left) {
  const Symbol& symbol = symbols_[left];
  if (symbol.next == kNone) return;
  const Merge* merge = table_->Find(symbol.id, symbols_[symbol.next].id);
  if (merge == nullptr) return;
  queue_.push_back({merge->rank, left});
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  ++pairs_queued_;
}

}  // namespace bloomery::text
