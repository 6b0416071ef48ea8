#include "runtime/exec/pass_inputs.h"

#include <bloomery/graph.h>

#include <array>
#include <cassert>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::exec {

void SetLanes(memory::Lanes& lanes, std::span<const PassRow> rows,
              std::span<const bl_segment> segments, std::span<int32_t> lane_in,
              std::span<int32_t> lane_out, std::span<const int32_t> before) {
  std::array<int32_t, limits::kWindowRowsMax> claimed{};
  for (const bl_segment& segment : segments) {
    const int32_t lane = lanes.Holding(segment.slot, segment.index0);
    if (lane < 0 && segment.index0 > 0) {
      throw Error(ErrorKind::kInternal, "slot " + std::to_string(segment.slot) + " holds " +
                                            std::to_string(segment.index0) +
                                            " rows, but not the state behind them");
    }
    lane_in[static_cast<size_t>(segment.row0)] = lane;
    const auto first = static_cast<size_t>(segment.row0);
    const auto end = first + static_cast<size_t>(segment.rows);
    const auto kept = [&](size_t row) { return row + 1 == end || rows[row].keep; };
    size_t count = 0;
    for (size_t row = first; row < end; ++row) count += kept(row) ? 1 : 0;
    if (count > claimed.size() || count >= static_cast<size_t>(lanes.lanes_of_slot())) {
      throw Error(ErrorKind::kInternal, "slot " + std::to_string(segment.slot) + ": " +
                                            std::to_string(count) +
                                            " states of one pass are to be kept, of " +
                                            std::to_string(lanes.lanes_of_slot()) + " lanes");
    }
    const int32_t kept_length = before.empty() ? 0 : before[static_cast<size_t>(segment.slot)];
    lanes.Claim(segment.slot, segment.index0, std::span(claimed).first(count), kept_length);
    count = 0;
    for (size_t row = first; row < end; ++row) {
      if (kept(row)) lane_out[row] = claimed[count++];
    }
  }
}

PassInputs::PassInputs(int32_t rows_max) {
  const auto n = static_cast<size_t>(rows_max);
  for (std::vector<int32_t>* array : {&slot_, &index_, &token_, &logit_map_}) array->resize(n, 0);
  row_class_.resize(n, BL_ROW_TEXT);
  embed_row_.resize(n, -1);
  lane_in_.resize(n, -1);
  lane_out_.resize(n, -1);
  positions_.resize(n * 4, 0);
  segments_.resize(n);
  rows_.size = sizeof(rows_);
  rows_.capacity = rows_max;
  rows_.live = &live_rows_;
  rows_.slot = slot_.data();
  rows_.index = index_.data();
  // Text rows only: every rope position of a row is its index.
  for (const int32_t*& position : rows_.pos) position = index_.data();
  rows_.token = token_.data();
  rows_.row_class = row_class_.data();
  rows_.embed_row = embed_row_.data();
  rows_.lane_in = lane_in_.data();
  rows_.lane_out = lane_out_.data();
  rows_.segments = segments_.data();
  rows_.n_segments = &n_segments_;
}

void PassInputs::Set(std::span<const PassRow> rows, memory::Lanes* lanes) {
  assert(rows.size() <= slot_.size());
  live_rows_ = static_cast<int32_t>(rows.size());
  live_logits_ = 0;
  n_segments_ = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    slot_[i] = row.slot;
    index_[i] = row.index;
    token_[i] = row.token;
    for (size_t p = 0; p < 4; ++p) positions_[i * 4 + p] = row.index;
    if (row.logits) {
      logit_map_[static_cast<size_t>(live_logits_++)] = static_cast<int32_t>(i);
    }
    if (i == 0 || rows[i - 1].slot != row.slot) {
      segments_[static_cast<size_t>(n_segments_++)] = {row.slot, static_cast<int32_t>(i), 0,
                                                       row.index};
    }
    ++segments_[static_cast<size_t>(n_segments_ - 1)].rows;
    lane_in_[i] = lane_out_[i] = memory::Lanes::kNone;
  }
  if (lanes == nullptr) return;
  SetLanes(*lanes, rows, std::span(segments_).first(static_cast<size_t>(n_segments_)), lane_in_,
           lane_out_);
}

void PassInputs::SetDraft(std::span<const PassRow> rows, std::span<const int32_t> lane_in,
                          int32_t lane_out) {
  assert(lane_in.size() == rows.size());
  Set(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    lane_in_[i] = lane_in[i];
    lane_out_[i] = lane_out;
  }
}

const int32_t* PassInputs::field(int32_t row_field) const {
  switch (row_field) {
    case BL_FIELD_TOKEN:
      return token_.data();
    case BL_FIELD_POS:
      return positions_.data();
    case BL_FIELD_INDEX:
      return index_.data();
    case BL_FIELD_SLOT:
      return slot_.data();
    case BL_FIELD_CLASS:
      return row_class_.data();
    default:
      return embed_row_.data();
  }
}

}  // namespace bloomery::exec
