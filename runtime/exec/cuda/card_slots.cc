// What a seat on a card does to its slots between passes: rows and states are cut, copied, read and
// restored.
#include <cstring>

#include "runtime/exec/cuda/card_seat.h"

namespace bloomery::exec {

void CardSeat::Cut(int32_t slot, int32_t length) {
  CheckCut(slot, length);
  driver().RowsCut(slot, length);
  if (length >= Length(slot)) return;
  rows_->SetLength(slot, length);
  if (lanes_) lanes_->Cut(slot, length);
}

void CardSeat::CopySlot(int32_t from, int32_t to, int32_t length) {
  CheckCopy(from, to, length);
  rows_->SetLength(to, length);
  const int32_t lane = lanes_ ? lanes_->Holding(from, length) : memory::Lanes::kNone;
  for (const auto& stage : stages_) {
    stage->Enter();
    stage->planes().Copy(from, to, length, stage->stream());
    if (lane >= 0) stage->planes().CopyLane(from, to, lane, stage->stream());
  }
  if (!lanes_) return;
  lanes_->Cut(to, 0);
  if (lane >= 0) lanes_->Set(to, lane, length);  // else of no rows
}

void CardSeat::Await(const char* what) const {
  for (const auto& stage : stages_) CheckCuda(cudaStreamSynchronize(stage->stream()), what);
}

void CardSeat::ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) {
  const int32_t lane = CheckpointLane(slot, bytes.size());
  for (const auto& stage : stages_) {
    stage->Enter();
    const uint64_t lane_bytes = stage->planes().LaneBytes();
    if (lanes_) stage->planes().ReadLane(slot, lane, bytes.first(lane_bytes), stage->stream());
    stage->planes().ReadRings(slot, bytes.subspan(lane_bytes), stage->stream());
  }
  Await("copying a state from the card");
}

void CardSeat::RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) {
  CheckRestore(slot, length, bytes.size());
  driver().RowsCut(slot, length);
  rows_->SetLength(slot, length);
  int32_t lane = memory::Lanes::kNone;
  if (lanes_) {
    lanes_->Cut(slot, 0);
    lane = lanes_->Claim(slot, 0);
  }
  for (const auto& stage : stages_) {
    stage->Enter();
    const uint64_t lane_bytes = stage->planes().LaneBytes();
    stage->planes().WriteRings(slot, bytes.subspan(lane_bytes), stage->stream());
    if (lanes_) stage->planes().WriteLane(slot, lane, bytes.first(lane_bytes), stage->stream());
  }
  Await("copying a state to the card");
  if (lanes_) lanes_->Set(slot, lane, length);
}

void CardSeat::ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) {
  CheckRead(slot, first, rows, bytes.size());
  for (const auto& stage : stages_) {
    stage->Enter();
    stage->planes().Read(slot, first, rows, state_rows_.data(), stage->stream());
  }
  Await("copying rows of a slot from the card");
  std::memcpy(bytes.data(), state_rows_.data(), bytes.size());
}

void CardSeat::AppendRows(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) {
  CheckAppend(slot, chunk, skip, count);
  std::memcpy(state_rows_.data(), chunk.bytes.data(), chunk.bytes.size());
  for (const auto& stage : stages_) {
    stage->Enter();
    stage->planes().Append(slot, state_rows_.data(), chunk.rows, skip, count, stage->stream());
  }
  // Before the length grows: a copy that fails leaves the slot as it was, and the buffer is free.
  Await("copying rows of a slot to the card");
  rows_->SetLength(slot, Length(slot) + count);
  rows_->rings().Lose(slot, Length(slot));
}

}  // namespace bloomery::exec
