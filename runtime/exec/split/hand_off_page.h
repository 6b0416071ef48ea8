// The memory in which a card and the host meet inside a pass: a ring and an answer for each bank,
// and the rows, picks and sums of the bank whose turn it is. Whoever owns the bytes (pinned and
// mapped for the card; plain memory in tests) makes one page a seat. Banks come one after another,
// so that they share the arrays: the card writes a bank's rows only when it has read the sums of
// the one before. Plain addresses; owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plugin/description.h"

namespace bloomery::exec {

class HandOffPage {
 public:
  // An answer's value; a ring's are kernels-common/moe/cuda/hand_off.h's.
  static constexpr uint32_t kSums = 1;     // the sums are there
  static constexpr uint32_t kDrained = 2;  // nobody will bring them: the pass has failed

  // Of a seat whose passes have up to `rows_max` rows.
  static uint64_t Bytes(const plugin::Description& description, int32_t rows_max);

  HandOffPage() = default;
  // `base`: Bytes() of zeros, 64-byte aligned; `seen` is where the card sees them.
  HandOffPage(std::byte* base, std::byte* seen, const plugin::Description& description,
              int32_t rows_max);

  // Each word on a cache line of its own.
  uint32_t* ring(size_t bank) const { return Word(bank); }
  uint32_t* answer(size_t bank) const { return Word(banks_ + bank); }
  uint32_t* expired() const { return Word(2 * banks_); }
  int32_t* ids() const { return reinterpret_cast<int32_t*>(base_ + ids_); }
  float* weights() const { return reinterpret_cast<float*>(base_ + weights_); }
  std::byte* input() const { return base_ + input_; }
  int64_t* sums() const { return reinterpret_cast<int64_t*>(base_ + sums_); }

  // The same place as the card sees it.
  template <class T>
  T* Seen(T* here) const {
    return reinterpret_cast<T*>(seen_ + (reinterpret_cast<const std::byte*>(here) - base_));
  }

  // Before a pass: no ring, no answer.
  void Clear() const;
  // Lets every wait of the pass go on.
  void Drain() const;

 private:
  uint32_t* Word(size_t i) const { return reinterpret_cast<uint32_t*>(base_ + i * kLine); }
  static constexpr uint64_t kLine = 64;

  std::byte* base_ = nullptr;
  std::byte* seen_ = nullptr;
  size_t banks_ = 0;
  uint64_t ids_ = 0;
  uint64_t weights_ = 0;
  uint64_t input_ = 0;
  uint64_t sums_ = 0;
};

// Bytes of a row as the experts of a bank read it: quantised, or floats.
uint64_t BankInputRowBytes(const plugin::Description& description, const plugin::Bank& bank);

}  // namespace bloomery::exec
