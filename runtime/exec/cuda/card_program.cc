#include "runtime/exec/cuda/card_program.h"

#include <algorithm>

#include "runtime/exec/cuda/card_layers.h"
#include "runtime/exec/cuda/card_split.h"

namespace bloomery::exec {

kernels::cuda::PassRowsView CardBinder::PassRows() const {
  const CardRows& rows = memory_.rows;
  kernels::cuda::PassRowsView view;
  view.live = rows.word(CardRows::kLive);
  view.slot = rows.array(CardRows::kSlot);
  view.index = rows.array(CardRows::kIndex);
  view.position = rows.array(CardRows::kIndex);  // text rows only: a position is an index
  view.rows = rows.rows;
  return view;
}

kernels::cuda::PassStatesView CardBinder::PassStates(int32_t slots) const {
  const CardRows& rows = memory_.rows;
  return {.segments = rows.word(CardRows::kSegments),
          .first_row = rows.array(CardRows::kSegmentRow),
          .lane_in = rows.array(CardRows::kLaneIn),
          .lane_out = rows.array(CardRows::kLaneOut),
          .most = std::min(rows.rows, slots)};
}

const int32_t* CardBinder::Live(bl_domain_kind domain) const {
  return memory_.rows.word(domain == BL_DOMAIN_LOGIT_ROWS ? CardRows::kLiveLogits
                                                          : CardRows::kLive);
}

std::byte* CardBinder::Bytes(BufferId buffer) const {
  const Buffer& home = buffers_[static_cast<size_t>(buffer)];
  switch (home.home) {
    case BufferHome::kRowField: {
      const CardRows& rows = memory_.rows;
      const CardRows::Array array = home.field == BL_FIELD_TOKEN  ? CardRows::kToken
                                    : home.field == BL_FIELD_SLOT ? CardRows::kSlot
                                                                  : CardRows::kIndex;
      return reinterpret_cast<std::byte*>(rows.array(array));
    }
    case BufferHome::kLogits:
      return reinterpret_cast<std::byte*>(memory_.logits);
    default:
      return memory_.arena + home.offset;
  }
}

kernels::cuda::FrameMap CardBinder::FrameOf(size_t bank) const {
  return memory_.split == nullptr ? nullptr : memory_.split->frame_of(bank);
}

kernels::cuda::HandOff CardBinder::HandOffOf(size_t bank) const {
  return memory_.split == nullptr ? kernels::cuda::HandOff{} : memory_.split->hand_off(bank);
}

kernels::cuda::FrameMap CardBinder::StreamedFrameOf(size_t bank) const {
  return memory_.split->streamed_frame_of(bank);
}

kernels::cuda::CardWeight CardBinder::StreamedMatrix(size_t bank, uint32_t weight,
                                                     int32_t number) const {
  return memory_.split->Streamed(Matrix(weight), bank, weight, number);
}

uint64_t CardPicks::Words(const plugin::Description& description) {
  return At(description, description.banks.size()) + description.banks.size();
}

uint64_t CardPicks::At(const plugin::Description& description, size_t bank) {
  uint64_t at = 0;
  for (size_t i = 0; i < bank; ++i) at += description.banks[i].experts;
  return at;
}

CardProgram::CardProgram(const CardLoweredGraph& lowered, const CardMemory& memory)
    : rows_(lowered.rows),
      best_logits_(lowered.best_logits),
      inputs_(memory.rows),
      streams_(lowered.streams) {
  const CardBinder binder(memory, lowered.buffers);
  for (const CardLoweredGraph::Pending& pending : lowered.launches) {
    steps_.push_back({pending.op, pending.layer, pending.make(binder), pending.split});
    if (pending.split.rings >= 0) rings_.push_back(static_cast<uint32_t>(pending.split.rings));
    needs_host_ = needs_host_ || pending.split.shares >= 0;
  }
  for (const CardExport& exported : lowered.exports) {
    exports_.push_back({exported.name, exported.shape, binder.Bytes(exported.buffer)});
  }
  for (const CardImport& imported : lowered.imports) {
    imports_.push_back({imported.crossing.from, graph::CrossingName(imported.crossing.value),
                        imported.shape, binder.Bytes(imported.buffer)});
  }
  for (const BufferId picks : lowered.picks) {
    picks_.push_back(picks < 0 ? nullptr : binder.Ints(picks));
  }
  if (memory.state == nullptr) return;
  std::vector<const std::byte*> kept;
  for (const Exported& exported : exports_) kept.push_back(exported.data);
  for (const int32_t* picks : picks_) kept.push_back(reinterpret_cast<const std::byte*>(picks));
  JoinLayers(memory.launch, kept, memory.state, &steps_);
}

const CardProgram::Exported* CardProgram::Find(std::string_view name) const {
  for (const Exported& value : exports_) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

}  // namespace bloomery::exec
