#include "runtime/exec/cpu/ahead.h"

#include <algorithm>

namespace bloomery::exec {
namespace {

constexpr size_t kLineBytes = 64;
// Lines asked for between two looks at the pool: about what a core has in flight.
constexpr size_t kLinesAtOnce = 8;
// Bytes of one step: a thread's share of a layer's dense weights, and with two steps half of a
// second-level cache of 2 MiB (docs/measurements/cpu.md: 256 KiB to 1 MiB are alike).
constexpr size_t kBytesMax = size_t{512} << 10;

}  // namespace

void Prefetcher::Collect(const Ahead& ahead, int32_t thread, int32_t threads) {
  std::array<Target, kAheadSteps> next;
  for (size_t i = 0; i < kAheadSteps && ahead[i] != nullptr; ++i) {
    Target& target = next[i];
    for (const Target& before : targets_) {
      if (before.step == ahead[i]) target = before;
    }
    if (target.step != nullptr) continue;
    target.step = ahead[i];
    const ops::Shares shares{ahead[i]->Tasks(), threads};
    const int32_t begin = shares.begin(thread);
    const int32_t end = shares.begin(thread + 1);
    if (begin < end) target.count = ahead[i]->Foresee(begin, end, target.stretches);
    size_t left = kBytesMax;
    for (size_t s = 0; s < target.count; ++s) {
      target.stretches[s] = target.stretches[s].first(std::min(left, target.stretches[s].size()));
      left -= target.stretches[s].size();
    }
  }
  targets_ = next;
  target_ = 0;
}

bool Prefetcher::Next() {
  for (; target_ < kAheadSteps; ++target_) {
    Target& target = targets_[target_];
    while (target.at < target.count) {
      const std::span<const std::byte> stretch = target.stretches[target.at];
      const size_t end = std::min(stretch.size(), target.offset + kLinesAtOnce * kLineBytes);
      for (size_t line = target.offset; line < end; line += kLineBytes) {
        // Into the second level: the first is too small for what is read meanwhile.
        __builtin_prefetch(stretch.data() + line, 0, 2);
      }
      const bool any = end > target.offset;
      target.offset = end;
      if (end == stretch.size()) {
        ++target.at;
        target.offset = 0;
      }
      if (any) return true;
    }
  }
  return false;
}

}  // namespace bloomery::exec
