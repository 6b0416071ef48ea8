// How fast the pool's threads read memory together: the bound of decode, measured by the threads
// that decode and with the pieces they claim. Owns the memory it reads; the thread that calls the
// pool. Measures nothing but reading: no write, no arithmetic beyond a sum that keeps the loads.
//
//   ReadRate rate(ReadRateBytes());
//   double bytes_a_second = rate.Measure(pool);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/exec/cpu/pool.h"
#include "runtime/memory/host_buffer.h"

namespace bloomery::exec {

// Bytes that no cache of this machine holds a useful part of: eight times the last level cache, 1
// to 4 GiB, and at most a quarter of the memory that is left.
uint64_t ReadRateBytes();

class ReadRate {
 public:
  // Takes the memory; whole pieces of 1 MiB, at least one. Throws Error(kNoMemory).
  explicit ReadRate(uint64_t bytes);

  uint64_t bytes() const { return buffer_.size(); }

  // Reads everything once with all threads of the pool; bytes a second. The first call writes the
  // memory before, by the same threads.
  double Measure(Pool& pool);

  // The same for memory that is there and written: its whole pieces of 1 MiB, which `*sum` is of. 0
  // where it has none.
  static double Of(std::span<const std::byte> memory, Pool& pool, uint64_t* sum = nullptr);

  // Sum of all 64-bit words, of the last Measure.
  uint64_t sum() const { return sum_; }

 private:
  memory::HostBuffer buffer_;
  bool written_ = false;
  uint64_t sum_ = 0;
};

}  // namespace bloomery::exec
