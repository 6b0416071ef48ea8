// How one pass's attention is cut into tasks. Rows of one slot that follow each other make chunks,
// which share the decoding of keys and values; a chunk's tasks are its kv heads. Where that gives
// too few tasks, or one that is too large beside the others, a chunk's keys are split too: spans of
// windows leave parts, which a second step merges in the order of the definition. A value computed
// from the pass's indices alone, so every thread sees the same cut; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/attention/attention.h"
#include "runtime/ops/backend.h"

namespace bloomery::ops {

// Windows [begin, end) of rows and kv heads.
struct AttentionTask {
  size_t row_begin = 0;
  size_t row_end = 0;
  size_t head_begin = 0;
  size_t head_end = 0;
  bool split = false;  // what follows counts
  size_t window_begin = 0;
  size_t window_end = 0;
  size_t parts_at = 0;  // byte of the first part it writes
};

// Query heads [group_begin, group_end) of a kv head whose keys were split.
struct AttentionMergeTask {
  size_t row_begin = 0;
  size_t row_end = 0;
  size_t kv_head = 0;
  size_t group_begin = 0;
  size_t group_end = 0;
  size_t first_windows = 0;
  size_t parts_at = 0;
};

class AttentionPlan {
 public:
  // Of args index, slot_ids and sizes are read; `rows` may be 0. `parts_bytes` is the room there is
  // for parts; with too little of it no keys are split.
  AttentionPlan(const Backend& backend, const kernels::AttentionArgs& args, size_t rows,
                int32_t threads, size_t parts_bytes);

  int32_t tasks() const { return tasks_; }
  AttentionTask Task(int32_t task) const;
  int32_t merges() const { return merges_; }
  AttentionMergeTask Merge(int32_t merge) const;
  // Of parts_bytes, what this pass writes.
  size_t parts_bytes() const { return parts_bytes_; }

  // Room for splitting the keys of one row a slot, each `slot_rows` deep, or 0 where nothing is
  // ever split.
  static size_t PartsBytes(const Backend& backend, const kernels::AttentionArgs& args, size_t slots,
                           size_t slot_rows, int32_t threads);

 private:
  struct Chunk {
    size_t row_begin = 0;
    size_t row_end = 0;
    size_t windows = 0;
    size_t spans = 0;
    size_t span_windows = 0;
    bool heads_apart = false;
    size_t part_bytes = 0;        // of one kv head's part
    size_t head_parts_bytes = 0;  // of all parts of a kv head
    int32_t tasks = 0;
    int32_t merges = 0;
    int32_t tasks_before = 0;
    int32_t merges_before = 0;
    size_t parts_before = 0;
    bool split() const { return spans > 1; }
  };

  size_t Windows(size_t row) const;
  void CutRows(int32_t threads, bool may_split);
  Chunk ChunkAt(size_t row) const;
  template <class Found>
  Chunk Find(const Found& found) const;

  const Backend& backend_;
  const kernels::AttentionArgs& args_;
  size_t rows_;
  int32_t threads_;
  size_t chunk_rows_ = 1;
  bool whole_ = false;       // one task does everything
  size_t span_min_ = 1;      // windows worth handing over
  size_t task_work_ = 1;     // row-windows of a task that is neither too large nor too small
  size_t merge_pieces_ = 1;  // of a kv head
  bool may_split_ = false;
  int32_t tasks_ = 0;
  int32_t merges_ = 0;
  size_t parts_bytes_ = 0;
};

}  // namespace bloomery::ops
