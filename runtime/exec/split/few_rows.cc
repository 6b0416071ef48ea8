#include "runtime/exec/split/few_rows.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "runtime/exec/cpu/relax.h"

namespace bloomery::exec {
namespace {

// Pieces of each phase a thread: half a piece is what the last thread ends later than the mean.
constexpr int64_t kPiecesPerThread = 8;
// Weight rows that a kernel takes at a time where reading bounds it.
constexpr int64_t kRowsUnit = 8;
// Two pieces of gate and up begin two streams of memory, and of down one of every expert: shorter
// ones do not get up to speed.
constexpr int64_t kRowsLeast = 16;

constexpr int kLooksPerClock = 256;
constexpr int kLooksBeforeYield = 4096;  // where there are more threads than cores

// Of a share, asked for while others are waited for: a part of a second-level cache.
constexpr size_t kAheadBytes = size_t{512} << 10;
constexpr size_t kLineBytes = 64;
constexpr size_t kLinesAtOnce = 8;

// Calls `each` for the pieces of `shares` that nobody has taken, those of `thread` first.
template <class Each>
void TakeAll(const ops::Shares& shares, FewRowsExperts::Count* taken, int32_t thread,
             const Each& each) {
  for (int32_t i = 0; i < shares.threads; ++i) {
    const int32_t of = (thread + i) % shares.threads;
    const int32_t begin = shares.begin(of);
    const int32_t count = shares.begin(of + 1) - begin;
    std::atomic<int32_t>& next = taken[static_cast<size_t>(of)].value;
    while (next.load(std::memory_order_relaxed) < count) {
      const int32_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece < count) each(begin + piece);
    }
  }
}

}  // namespace

FewRowsExperts::FewRowsExperts(Args args) : args_(std::move(args)) {
  gate_up_args_.gate = args_.bank.gate;
  gate_up_args_.up = args_.bank.up;
  args_.x.SetInput(*args_.bank.gate.format, 0, &gate_up_args_);
  gate_up_args_.h_stride = args_.bank.ff;
}

void FewRowsExperts::Begin() {
  const int64_t wanted = kPiecesPerThread * args_.threads;
  const auto active = static_cast<int64_t>(Active());
  rows_ = ops::Split::Of(static_cast<int64_t>(args_.bank.ff), kRowsUnit, kRowsLeast,
                         std::max<int64_t>(1, (wanted + active - 1) / active));
  columns_ = ops::Split::Of(static_cast<int64_t>(args_.bank.width), kRowsUnit, kRowsLeast, wanted);
  gate_up_ = {Active() * rows_.pieces(), args_.threads};
  down_ = {columns_.pieces(), args_.threads};
  Counts& counts = *args_.counts;
  for (int32_t thread = 0; thread < args_.threads; ++thread) {
    counts.gate_up[static_cast<size_t>(thread)].value.store(0, std::memory_order_relaxed);
    counts.down[static_cast<size_t>(thread)].value.store(0, std::memory_order_relaxed);
  }
  for (int32_t i = 0; i < Active(); ++i) {
    counts.left[static_cast<size_t>(i)].value.store(rows_.pieces(), std::memory_order_relaxed);
  }
  counts.done.value.store(0, std::memory_order_relaxed);  // the dispatch makes all of it seen
}

bl_status FewRowsExperts::Run(int32_t task, ops::Worker* worker) const {
  Counts& counts = *args_.counts;
  TakeAll(gate_up_, counts.gate_up.get(), task, [&](int32_t piece) { GateUp(piece, worker); });
  if (!WaitForOthers(task)) return BL_INTERNAL;
  bl_status status = BL_OK;
  TakeAll(down_, counts.down.get(), task, [&](int32_t piece) {
    if (Down(piece, worker) != BL_OK) status = BL_BAD_DATA;
  });
  return status;
}

void FewRowsExperts::GateUp(int32_t piece, ops::Worker* worker) const {
  const int32_t of_expert = rows_.pieces();
  const auto at = static_cast<size_t>(piece / of_expert);
  const auto expert = static_cast<size_t>(args_.groups->active[at]);
  const size_t first = First(expert);
  kernels::ExpertGateUpArgs args = gate_up_args_;
  args.gate.data += expert * args_.bank.gate_expert_bytes;
  args.up.data += expert * args_.bank.up_expert_bytes;
  args.place_rows = args_.groups->place_rows + first;
  args.places = First(expert + 1) - first;
  args.h = args_.h + first * args_.bank.ff;
  worker->weight_bytes_read +=
      args_.backend->gate_up(args, static_cast<size_t>(rows_.begin(piece % of_expert)),
                             static_cast<size_t>(rows_.end(piece % of_expert)), worker->scratch);
  Counts& counts = *args_.counts;
  // Acquired: the last one reads what the others wrote.
  if (counts.left[at].value.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const size_t group = args_.bank.down.format->activation_group;
  if (group != 0) {
    args_.backend->quantise_rows(args_.h, args_.bank.ff, args_.inner.Quantised(group), first,
                                 first + args.places);
  }
  counts.done.value.fetch_add(1, std::memory_order_release);
}

// Meanwhile the thread's own stretch of down comes into its cache, expert by expert.
bool FewRowsExperts::WaitForOthers(int32_t thread) const {
  const std::atomic<int32_t>& done = args_.counts->done.value;
  const size_t row_bytes = args_.bank.down.row_bytes;
  const auto begin = static_cast<size_t>(columns_.begin(down_.begin(thread)));
  const int32_t last = down_.begin(thread + 1);
  const size_t bytes = last == down_.begin(thread)
                           ? 0
                           : (static_cast<size_t>(columns_.end(last - 1)) - begin) * row_bytes;
  size_t asked = 0;
  int32_t at = 0;
  size_t offset = 0;
  for (int looks = 1; done.load(std::memory_order_acquire) != Active(); ++looks) {
    if (looks % kLooksPerClock == 0) {
      if (std::chrono::steady_clock::now() > *args_.until) return false;
      if (looks >= kLooksBeforeYield) sched_yield();
    }
    if (at == Active() || bytes == 0 || asked >= kAheadBytes) {
      Relax();
      continue;
    }
    const std::byte* const stretch =
        args_.bank.down.data +
        static_cast<size_t>(args_.groups->active[at]) * args_.bank.down_expert_bytes +
        begin * row_bytes;
    const size_t end = std::min(bytes, offset + kLinesAtOnce * kLineBytes);
    for (; offset < end; offset += kLineBytes) __builtin_prefetch(stretch + offset, 0, 2);
    asked += kLinesAtOnce * kLineBytes;
    if (offset < bytes) continue;
    ++at;
    offset = 0;
  }
  return true;
}

bl_status FewRowsExperts::Down(int32_t piece, ops::Worker* worker) const {
  const auto begin = static_cast<size_t>(columns_.begin(piece));
  const auto end = static_cast<size_t>(columns_.end(piece));
  for (int32_t i = 0; i < Active(); ++i) {
    const auto expert = static_cast<size_t>(args_.groups->active[i]);
    const size_t first = First(expert);
    kernels::LinearArgs linear;
    linear.rows = First(expert + 1) - first;
    linear.weight = args_.bank.down;
    linear.weight.data += expert * args_.bank.down_expert_bytes;
    args_.inner.SetInput(*args_.bank.down.format, first, &linear);
    linear.y = args_.y + first * args_.bank.width;
    linear.y_stride = args_.bank.width;
    worker->weight_bytes_read += args_.backend->linear(linear, begin, end, worker->scratch);
  }
  const int64_t failed =
      args_.backend->pick_sum(args_.sum, 0, static_cast<size_t>(*args_.live), begin, end);
  if (failed == kernels::kNoFailingRow) return BL_OK;
  if (worker->failed_row < 0 || failed < worker->failed_row) worker->failed_row = failed;
  return BL_BAD_DATA;
}

}  // namespace bloomery::exec
