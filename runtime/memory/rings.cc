#include "runtime/memory/rings.h"

namespace bloomery::memory {

size_t Rings::Add(int32_t rows, int32_t window) {
  rings_.push_back({.rows = rows, .before = window - 1, .from = std::vector<int32_t>(slots_, 0)});
  return rings_.size() - 1;
}

void Rings::Empty(int32_t slot) {
  for (Ring& ring : rings_) ring.from[static_cast<size_t>(slot)] = 0;
}

void Rings::WillWrite(int32_t slot, int32_t end) {
  for (Ring& ring : rings_) {
    int32_t& from = ring.from[static_cast<size_t>(slot)];
    from = std::max(from, end - ring.rows);
  }
}

bool Rings::Hold(int32_t slot, int32_t length) const {
  if (length == 0) return true;
  return std::ranges::all_of(rings_, [&](const Ring& ring) {
    return std::max(0, length - ring.before) >= ring.from[static_cast<size_t>(slot)];
  });
}

void Rings::Restored(int32_t slot, int32_t length) {
  for (Ring& ring : rings_) {
    ring.from[static_cast<size_t>(slot)] = std::max(0, length - ring.before);
  }
}

void Rings::Lose(int32_t slot, int32_t length) {
  for (Ring& ring : rings_) ring.from[static_cast<size_t>(slot)] = length;
}

int32_t Rings::Copied(size_t ring, int32_t from, int32_t to, int32_t length) {
  std::vector<int32_t>& of = rings_[ring].from;
  return of[static_cast<size_t>(to)] = std::min(length, of[static_cast<size_t>(from)]);
}

}  // namespace bloomery::memory
