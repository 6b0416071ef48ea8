// Which positions the rings of slots hold. A ring of C rows keeps position p in row p mod C until
// position p + C is written. A pass appends its rows before they are read, so C covers the window
// before the first of them, and a slot can be cut back as far as the rows in front of the cut are
// still there; further back only with a copy. Bookkeeping alone: the bytes lie in the stores of
// planes, of the host and of cards. The engine's thread, between passes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bloomery::memory {

class Rings {
 public:
  explicit Rings(int32_t slots) : slots_(static_cast<size_t>(slots)) {}

  // A ring of `rows` rows a slot, of which a row reads up to `window`, its own included. Its
  // number.
  size_t Add(int32_t rows, int32_t window);

  // The slot holds no rows: there is nothing that rings could lack.
  void Empty(int32_t slot);
  // A pass will write the slot's rows up to `end`: what rings lose by it is lost though it fails.
  void WillWrite(int32_t slot, int32_t end);
  // Whether all rings hold the rows that a row at `length` reads before its own.
  bool Hold(int32_t slot, int32_t length) const;
  // Those rows were put there, and nothing else is.
  void Restored(int32_t slot, int32_t length);
  // The slot got rows up to `length` elsewhere than in its rings.
  void Lose(int32_t slot, int32_t length);
  // Of slot `to`, which gets the rows of slot `from` up to `length`, as far as they are there: the
  // first of them in this ring.
  int32_t Copied(size_t ring, int32_t from, int32_t to, int32_t length);

  // Rows that a row reads before its own.
  int32_t before(size_t ring) const { return rings_[ring].before; }
  // [slots] positions from here to the slot's length are there. Final for the life of this object.
  const int32_t* from(size_t ring) const { return rings_[ring].from.data(); }

  // Calls `part(position, count)` for each stretch of positions [first, end) whose rows lie
  // together.
  template <typename Part>
  void ForStretches(size_t ring, int32_t first, int32_t end, Part part) const {
    const int32_t rows = rings_[ring].rows;
    for (int32_t at = first; at < end;) {
      const int32_t count = std::min(rows - at % rows, end - at);
      part(at, count);
      at += count;
    }
  }
  // The same of what a row at `length` reads before its own.
  template <typename Part>
  void ForBefore(size_t ring, int32_t length, Part part) const {
    ForStretches(ring, std::max(0, length - before(ring)), length, part);
  }

 private:
  struct Ring {
    int32_t rows = 0;
    int32_t before = 0;
    std::vector<int32_t> from;
  };
  size_t slots_;
  std::vector<Ring> rings_;
};

}  // namespace bloomery::memory
