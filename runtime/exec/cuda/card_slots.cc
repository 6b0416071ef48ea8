// What a seat on a card does to its slots between passes: rows and states are cut, copied, read and
// restored.
#include <cstring>

#include "runtime/exec/cuda/card_seat.h"

namespace bloomery::exec {

void CardSeat::Cut(int32_t slot, int32_t length) {
  CheckCut(slot, length);
  driver().RowsCut(slot, length);
  if (length >= planes_->Length(slot)) return;
  planes_->SetLength(slot, length);
  if (lanes_) lanes_->Cut(slot, length);
}

void CardSeat::CopySlot(int32_t from, int32_t to, int32_t length) {
  CheckCopy(from, to, length);
  Enter();
  planes_->Copy(from, to, length, stream());
  if (!lanes_) return;
  lanes_->Cut(to, 0);
  const int32_t lane = lanes_->Holding(from, length);
  if (lane < 0) return;  // of no rows
  planes_->CopyLane(from, to, lane, stream());
  lanes_->Set(to, lane, length);
}

void CardSeat::ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) {
  const int32_t lane = CheckpointLane(slot, bytes.size());
  Enter();
  const uint64_t lane_bytes = planes_->LaneBytes();
  if (lanes_) planes_->ReadLane(slot, lane, bytes.first(lane_bytes), stream());
  planes_->ReadRings(slot, bytes.subspan(lane_bytes), stream());
  CheckCuda(cudaStreamSynchronize(stream()), "copying a state from the card");
}

void CardSeat::RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) {
  CheckRestore(slot, length, bytes.size());
  Enter();
  driver().RowsCut(slot, length);
  planes_->SetLength(slot, length);
  const uint64_t lane_bytes = planes_->LaneBytes();
  planes_->WriteRings(slot, bytes.subspan(lane_bytes), stream());
  int32_t lane = memory::Lanes::kNone;
  if (lanes_) {
    lanes_->Cut(slot, 0);
    lane = lanes_->Claim(slot, 0);
    planes_->WriteLane(slot, lane, bytes.first(lane_bytes), stream());
  }
  CheckCuda(cudaStreamSynchronize(stream()), "copying a state to the card");
  if (lanes_) lanes_->Set(slot, lane, length);
}

void CardSeat::ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) {
  CheckRead(slot, first, rows, bytes.size());
  Enter();
  planes_->Read(slot, first, rows, state_rows_.data(), stream());
  CheckCuda(cudaStreamSynchronize(stream()), "copying rows of a slot from the card");
  std::memcpy(bytes.data(), state_rows_.data(), bytes.size());
}

void CardSeat::AppendRows(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) {
  CheckAppend(slot, chunk, skip, count);
  Enter();
  std::memcpy(state_rows_.data(), chunk.bytes.data(), chunk.bytes.size());
  planes_->Append(slot, state_rows_.data(), chunk.rows, skip, count, stream());
  // Before the length grows: a copy that fails leaves the slot as it was, and the buffer is free.
  CheckCuda(cudaStreamSynchronize(stream()), "copying rows of a slot to the card");
  planes_->SetLength(slot, planes_->Length(slot) + count);
  planes_->rings().Lose(slot, planes_->Length(slot));
}

}  // namespace bloomery::exec
