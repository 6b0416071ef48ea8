// Steps of a model's own draft head on a card: a program a row count, as passes have.
#include <algorithm>
#include <climits>
#include <cmath>
#include <string>

#include "runtime/base/error.h"
#include "runtime/exec/cuda/card_seat.h"

namespace bloomery::exec {

// A draft's first step starts from the slot's state, each further one from the step before, which
// is in the tap's lane behind those of passes.
void CardSeat::WriteDraftStates(const CardRows& in, std::span<const DraftRow> rows) {
  const int32_t own = LanesOfSlot();
  for (size_t i = 0; i < rows.size(); ++i) {
    const DraftRow& row = rows[i];
    const bool first = row.depth == 0 && lanes_;
    in.array(CardRows::kSegmentRow)[i] = static_cast<int32_t>(i);
    in.array(CardRows::kLaneIn)[i] = first ? lanes_->Holding(row.slot, Length(row.slot)) : own;
    in.array(CardRows::kLaneOut)[i] = own;
  }
  *in.word(CardRows::kSegments) = static_cast<int32_t>(rows.size());
}

std::span<const Drafted> CardSeat::RunDraft(std::span<const DraftRow> rows, bool probabilities) {
  if (draft_buckets_.empty() || rows.empty()) {
    throw Error(ErrorKind::kInternal, "a draft of a seat that has none, or of no rows");
  }
  DraftRows(rows, &draft_rows_);
  const size_t bucket = BucketOf(draft_buckets_, rows.size());
  const CardProgram& program = last_stage().draft(bucket).program;
  ran_ = false;
  const auto count = static_cast<int32_t>(rows.size());
  parts_.assign(1, {.bucket = bucket, .rows = count, .logits = count});
  WriteDraftStates(WriteInputs(program, parts_.front(), draft_rows_), rows);
  Start(Programs::kDrafts);
  Finish(Programs::kDrafts);
  const CardRows out = last_stage().Returned(program, 0);
  int32_t failed = *out.word(CardRows::kFailedRow);
  failed = std::min(failed, *out.word(CardRows::kFailedLogits));  // a row of logits is a row
  if (failed != INT32_MAX) FailPass("of the card, a draft", -1, BL_BAD_DATA, failed, draft_rows_);
  drafted_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (probabilities || program.best_rows() <= static_cast<int32_t>(i)) {
      drafted_.push_back(DraftedOfRow(i));
    } else {
      drafted_.push_back({.token = out.top_ids()[i * size_t{kernels::cuda::kTopLogits}]});
    }
  }
  return drafted_;
}

// From the whole row of logits, which is fetched.
Drafted CardSeat::DraftedOfRow(size_t row) const {
  PinnedBuffer& home = host_logits_[0];
  last_stage().Fetch(home.data(), last_stage().logits() + row * LogitRowBytes(), LogitRowBytes(),
                     "fetching logits");
  const std::span logits(reinterpret_cast<const float*>(home.data()),
                         static_cast<size_t>(limits_.vocabulary));
  const auto best = std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *best));
  return {.token = static_cast<int32_t>(best - logits.begin()),
          .probability = static_cast<float>(1 / sum)};
}

}  // namespace bloomery::exec
