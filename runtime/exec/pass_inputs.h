// The arrays that say which rows a pass has: written before it starts, read by its steps through
// pointers that never change. Sized once for the largest pass. Padding rows (from the live count to
// the capacity) are never looked at.
#pragma once

#include <bloomery/tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exec/pass.h"
#include "runtime/memory/lanes.h"

namespace bloomery::exec {

// For each segment of a pass: the lane that its first row reads, which holds its slot's length (-1
// for no rows), and those that its last row, and each that is `keep`, leave the state in, which it
// claims. Other rows' are not touched. Throws Error(kInternal) for a slot whose state is not there,
// or that has too few lanes. `before`: the slots' lengths before a pass of which these rows are a
// part, whose states stay; empty: they are the whole pass.
void SetLanes(memory::Lanes& lanes, std::span<const PassRow> rows,
              std::span<const bl_segment> segments, std::span<int32_t> lane_in,
              std::span<int32_t> lane_out, std::span<const int32_t> before = {});

class PassInputs {
 public:
  explicit PassInputs(int32_t rows_max);
  PassInputs(const PassInputs&) = delete;
  PassInputs& operator=(const PassInputs&) = delete;

  // Takes a checked pass of at most rows_max rows. Where there are `lanes`, each segment reads the
  // one that holds its slot's length, and its last row, and each that may be cut back to, leaves
  // the state in one that it claims. Throws Error(kInternal) for a slot whose state is not there.
  void Set(std::span<const PassRow> rows, memory::Lanes* lanes = nullptr);

  // Takes rows of drafts, at most one a slot: each reads its lane of `lane_in`, and writes
  // `lane_out`.
  void SetDraft(std::span<const PassRow> rows, std::span<const int32_t> lane_in, int32_t lane_out);

  const bl_rows& rows() const { return rows_; }
  const int32_t* live(bl_domain_kind domain) const {
    return domain == BL_DOMAIN_LOGIT_ROWS ? &live_logits_ : &live_rows_;
  }
  // Row of the pass of each logit row.
  const int32_t* logit_map() const { return logit_map_.data(); }
  // A row field as the graph's i32 value: [1, rows], for positions [4, rows].
  const int32_t* field(int32_t row_field) const;

 private:
  int32_t live_rows_ = 0;
  int32_t live_logits_ = 0;
  int32_t n_segments_ = 0;
  std::vector<int32_t> slot_, index_, token_, row_class_, embed_row_, lane_in_, lane_out_,
      logit_map_;
  std::vector<int32_t> positions_;  // [4, rows]
  std::vector<bl_segment> segments_;
  bl_rows rows_{};
};

}  // namespace bloomery::exec
