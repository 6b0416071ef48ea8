#include "runtime/ops/attention_plan.h"

#include <algorithm>

#include "kernels-common/attention/cpu/attention.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {
namespace {

size_t CeilDiv(size_t n, size_t unit) { return (n + unit - 1) / unit; }

// A task of up to this many times the even share is left whole: with kPiecesPerThread pieces a
// thread it is half a thread's work, and the largest tasks are handed out first.
constexpr size_t kUnevenMax = 2;

size_t SlotOf(const kernels::AttentionArgs& args, size_t row) {
  return args.slot_ids == nullptr ? 0 : static_cast<size_t>(args.slot_ids[row]);
}

// Multiply-adds of one row, one window and one kv head.
size_t WindowWork(const kernels::AttentionArgs& args) {
  return kernels::kAttentionWindow * (args.heads / args.kv_heads) * (args.key_dim + args.value_dim);
}

}  // namespace

AttentionPlan::AttentionPlan(const Backend& backend, const kernels::AttentionArgs& args,
                             size_t rows, int32_t threads, size_t parts_bytes)
    : backend_(backend), args_(args), rows_(rows), threads_(threads) {
  if (rows == 0) return;
  size_t keys = 0;
  for (size_t row = 0; row < rows; ++row) {
    keys += kernels::SeenKeys(args, row).count();
  }
  const size_t row_work = WindowWork(args) / kernels::kAttentionWindow * args.kv_heads;
  if (threads == 1 || keys * row_work < 2 * kTaskWorkMin) {
    whole_ = true;
    tasks_ = 1;
    return;
  }
  span_min_ = CeilDiv(kTaskWorkMin, WindowWork(args));
  merge_pieces_ = std::clamp<size_t>(static_cast<size_t>(threads) / args.kv_heads, 1,
                                     args.heads / args.kv_heads);
  CutRows(threads, parts_bytes > 0 && args.window == 0);
  if (parts_bytes_ > parts_bytes) CutRows(threads, false);
}

size_t AttentionPlan::Windows(size_t row) const {
  const kernels::SeenKeys seen(args_, row);
  return CeilDiv(seen.end, kernels::kAttentionWindow) - seen.begin / kernels::kAttentionWindow;
}

void AttentionPlan::CutRows(int32_t threads, bool may_split) {
  may_split_ = may_split;
  size_t deepest = 1;
  size_t work = 0;
  for (size_t row = 0; row < rows_; ++row) {
    deepest = std::max(deepest, Windows(row));
    work += Windows(row);
  }
  const auto wanted = static_cast<size_t>(threads * kPiecesPerThread);
  task_work_ = std::max<size_t>(1, CeilDiv(work * args_.kv_heads, wanted));
  // Few rows share their keys where the keys can be split instead.
  const size_t spans = may_split ? std::max<size_t>(1, deepest / span_min_) : 1;
  const size_t chunks = CeilDiv(wanted, args_.kv_heads * spans);
  chunk_rows_ =
      std::clamp<size_t>(CeilDiv(rows_, chunks), 1, kernels::cpu::AttentionChunkRows(args_));
  const Chunk end = Find([](const Chunk& /*chunk*/) { return false; });
  tasks_ = end.tasks_before;
  merges_ = end.merges_before;
  parts_bytes_ = end.parts_before;
}

// The chunk that begins with `row`, without its place among the others.
AttentionPlan::Chunk AttentionPlan::ChunkAt(size_t row) const {
  Chunk chunk;
  chunk.row_begin = row;
  chunk.row_end = row;
  while (chunk.row_end < rows_ && chunk.row_end - row < chunk_rows_ &&
         SlotOf(args_, chunk.row_end) == SlotOf(args_, row)) {
    chunk.windows = std::max(chunk.windows, Windows(chunk.row_end));
    ++chunk.row_end;
  }
  const size_t rows = chunk.row_end - row;
  const size_t work = rows * chunk.windows;
  chunk.spans = 1;
  if (may_split_ && work > kUnevenMax * task_work_) {
    chunk.spans = std::clamp<size_t>(CeilDiv(work, task_work_), 1,
                                     std::max<size_t>(1, chunk.windows / span_min_));
  }
  chunk.span_windows = std::max<size_t>(1, CeilDiv(chunk.windows, chunk.spans));
  chunk.spans = std::max<size_t>(1, CeilDiv(chunk.windows, chunk.span_windows));
  chunk.heads_apart = work * WindowWork(args_) >= kTaskWorkMin;
  chunk.tasks = static_cast<int32_t>(chunk.heads_apart ? args_.kv_heads * chunk.spans : 1);
  if (chunk.split()) {
    chunk.part_bytes = backend_.attention_part_bytes(args_, rows);
    chunk.head_parts_bytes = (1 + chunk.windows - chunk.span_windows) * chunk.part_bytes;
    chunk.merges = static_cast<int32_t>(args_.kv_heads * merge_pieces_);
  }
  return chunk;
}

// The first chunk that `found` takes, or where the next one would begin.
template <class Found>
AttentionPlan::Chunk AttentionPlan::Find(const Found& found) const {
  Chunk next;
  while (next.row_begin < rows_) {
    Chunk chunk = ChunkAt(next.row_begin);
    chunk.tasks_before = next.tasks_before;
    chunk.merges_before = next.merges_before;
    chunk.parts_before = next.parts_before;
    if (found(chunk)) return chunk;
    next.row_begin = chunk.row_end;
    next.tasks_before += chunk.tasks;
    next.merges_before += chunk.merges;
    next.parts_before += args_.kv_heads * chunk.head_parts_bytes;
  }
  return next;
}

AttentionTask AttentionPlan::Task(int32_t task) const {
  if (whole_) return {.row_end = rows_, .head_end = args_.kv_heads};
  // Rows that come last see most: what takes longest is begun first, a task a thread.
  const int32_t place = tasks_ - 1 - Shares{tasks_, threads_}.InTurns(task);
  const Chunk chunk = Find([&](const Chunk& c) { return place < c.tasks_before + c.tasks; });
  AttentionTask out = {
      .row_begin = chunk.row_begin, .row_end = chunk.row_end, .head_end = args_.kv_heads};
  if (!chunk.heads_apart) return out;
  const auto piece = static_cast<size_t>(place - chunk.tasks_before);
  out.head_begin = piece % args_.kv_heads;
  out.head_end = out.head_begin + 1;
  if (!chunk.split()) return out;
  const size_t span = piece / args_.kv_heads;
  out.split = true;
  out.window_begin = span * chunk.span_windows;
  out.window_end = std::min(chunk.windows, out.window_begin + chunk.span_windows);
  out.parts_at = chunk.parts_before + out.head_begin * chunk.head_parts_bytes;
  if (span > 0) {
    out.parts_at += (1 + out.window_begin - chunk.span_windows) * chunk.part_bytes;
  }
  return out;
}

AttentionMergeTask AttentionPlan::Merge(int32_t merge) const {
  const Chunk chunk = Find([&](const Chunk& c) { return merge < c.merges_before + c.merges; });
  const auto piece = static_cast<size_t>(merge - chunk.merges_before);
  const size_t group = args_.heads / args_.kv_heads;
  const size_t part = piece % merge_pieces_;
  AttentionMergeTask out = {.row_begin = chunk.row_begin, .row_end = chunk.row_end};
  out.kv_head = piece / merge_pieces_;
  out.group_begin = part * group / merge_pieces_;
  out.group_end = (part + 1) * group / merge_pieces_;
  out.first_windows = chunk.span_windows;
  out.parts_at = chunk.parts_before + out.kv_head * chunk.head_parts_bytes;
  return out;
}

size_t AttentionPlan::PartsBytes(const Backend& backend, const kernels::AttentionArgs& args,
                                 size_t slots, size_t slot_rows, int32_t threads) {
  const size_t windows = CeilDiv(slot_rows, kernels::kAttentionWindow);
  if (threads == 1 || backend.attention_part_bytes == nullptr || windows < 2) return 0;
  if (args.window != 0) return 0;  // few keys a row
  return slots * args.kv_heads * windows * backend.attention_part_bytes(args, 1);
}

}  // namespace bloomery::ops
