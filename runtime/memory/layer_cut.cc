#include "runtime/memory/layer_cut.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace bloomery::memory {
namespace {

__extension__ using Wide = unsigned __int128;

// How full a card is.
struct Fullness {
  uint64_t bytes = 0;
  uint64_t room = 1;

  // Exact: the products have 128 bits.
  bool operator<(const Fullness& other) const {
    return Wide{bytes} * other.room < Wide{other.bytes} * room;
  }
};

// Sums over runs of layers, and how full they make the cards.
class Cards {
 public:
  Cards(const CutSizes& sizes, std::span<const uint64_t> rooms) : sizes_(sizes), rooms_(rooms) {
    for (const uint64_t bytes : sizes.layers) before_.push_back(Add(before_.back(), bytes));
  }

  size_t layers() const { return sizes_.layers.size(); }
  size_t count() const { return rooms_.size(); }

  // A card without room is fuller than any that has some.
  Fullness Of(size_t card, size_t first, size_t end) const {
    uint64_t bytes = Add(before_[end] - before_[first], sizes_.each);
    if (card == 0) bytes = Add(bytes, sizes_.first);
    if (card + 1 == count()) bytes = Add(bytes, sizes_.last);
    return {bytes, std::max<uint64_t>(1, rooms_[card])};
  }

 private:
  static uint64_t Add(uint64_t a, uint64_t b) {
    return CheckedAdd(a, b, ErrorKind::kNoMemory, "layers on a card");
  }

  const CutSizes& sizes_;
  std::span<const uint64_t> rooms_;
  std::vector<uint64_t> before_ = {0};  // bytes of the layers before each
};

// The least fullness of the fullest card, by card and layer: of this card and all behind it with
// this layer and all behind it. Defined where each of those cards has a layer.
using LeastFrom = std::vector<std::vector<Fullness>>;

LeastFrom LeastFullness(const Cards& cards) {
  const size_t layers = cards.layers();
  LeastFrom least(cards.count(), std::vector<Fullness>(layers));
  for (size_t card = cards.count(); card-- > 0;) {
    const size_t behind = cards.count() - 1 - card;
    for (size_t first = 0; first + behind < layers; ++first) {
      Fullness& here = least[card][first];
      if (behind == 0) {
        here = cards.Of(card, first, layers);
        continue;
      }
      for (size_t end = first + 1; end + behind <= layers; ++end) {
        const Fullness fullest = std::max(cards.Of(card, first, end), least[card + 1][end]);
        if (end == first + 1 || fullest < here) here = fullest;
      }
    }
  }
  return least;
}

[[noreturn]] void Refuse(const std::string& text) { throw Error(ErrorKind::kUsage, text); }

}  // namespace

std::vector<LayerRange> CutByRoom(const CutSizes& sizes, std::span<const uint64_t> rooms) {
  if (rooms.empty()) Refuse("the model's layers are cut over no card");
  if (rooms.size() > sizes.layers.size()) {
    Refuse("the devices (--device) are " + std::to_string(rooms.size()) +
           " cards, and the model has " + std::to_string(sizes.layers.size()) +
           " layers: each card gets one at least");
  }
  const Cards cards(sizes, rooms);
  const LeastFrom least = LeastFullness(cards);
  const Fullness most = least[0][0];  // that any card may be full
  std::vector<LayerRange> ranges;
  size_t first = 0;
  for (size_t card = 0; card + 1 < cards.count(); ++card) {
    size_t end = cards.layers() - (cards.count() - 1 - card);
    while (most < std::max(cards.Of(card, first, end), least[card + 1][end])) --end;
    ranges.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(end)});
    first = end;
  }
  ranges.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(cards.layers())});
  return ranges;
}

std::vector<LayerRange> CutByShares(uint32_t layers, std::span<const double> shares, size_t cards) {
  if (cards == 0) Refuse("--tensor-split: the model's layers are cut over no card");
  if (shares.size() > cards) {
    Refuse("--tensor-split has " + std::to_string(shares.size()) + " shares, and the devices are " +
           std::to_string(cards) + (cards == 1 ? " card" : " cards"));
  }
  double sum = 0;
  for (const double share : shares) {
    if (!std::isfinite(share) || share < 0) {
      Refuse("--tensor-split: a share is " + std::to_string(share) + ", must be 0 or more");
    }
    sum += share;
  }
  if (sum <= 0) Refuse("--tensor-split: no share is above 0");
  if (!std::isfinite(sum * (layers + 1.0))) Refuse("--tensor-split: the shares are too large");
  std::vector<LayerRange> ranges;
  uint32_t first = 0;
  double before = 0;
  for (size_t card = 0; card < cards; ++card) {
    if (card < shares.size()) before += shares[card];
    uint32_t end = first;
    // Products, not quotients: whole shares are compared exactly.
    while (end < layers && before * (layers + 1.0) > end * sum) ++end;
    ranges.push_back({first, end});
    first = end;
  }
  return ranges;
}

}  // namespace bloomery::memory
