#include "runtime/memory/arena.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/checked.h"

namespace bloomery::memory {
namespace {

bool Meet(const BufferLife& a, const BufferLife& b) {
  return a.first <= b.last && b.first <= a.last;
}

// A wrapped sum would place a buffer outside the arena, and a kernel would write there.
uint64_t AlignUp(uint64_t bytes) {
  return CheckedAlignUp(bytes, kArenaAlignment, ErrorKind::kNoMemory, "a buffer of a pass");
}

uint64_t End(uint64_t offset, uint64_t bytes) {
  return CheckedAdd(offset, bytes, ErrorKind::kNoMemory, "the buffers of a pass");
}

}  // namespace

ArenaPlan PlanArena(std::span<const BufferLife> lives) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lives[a].bytes != lives[b].bytes ? lives[a].bytes > lives[b].bytes : a < b;
  });
  ArenaPlan plan{.offsets = std::vector<uint64_t>(lives.size(), 0)};
  std::vector<size_t> placed;  // by offset, ascending
  for (const size_t buffer : order) {
    const uint64_t bytes = AlignUp(lives[buffer].bytes);
    uint64_t offset = 0;
    for (const size_t other : placed) {
      if (!Meet(lives[buffer], lives[other])) continue;
      if (plan.offsets[other] >= End(offset, bytes)) break;  // the gap before it is wide enough
      offset = std::max(offset, End(plan.offsets[other], AlignUp(lives[other].bytes)));
    }
    plan.offsets[buffer] = offset;
    plan.bytes = std::max(plan.bytes, End(offset, bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), buffer,
                         [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        buffer);
  }
  return plan;
}

}  // namespace bloomery::memory
