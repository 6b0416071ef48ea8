// The planes of a seat's slots on a card, and the length of every slot: append planes, whose rows
// of a slot lie together, and fixed ones, lanes of a state that rows overwrite (memory/lanes.h says
// which holds what). Cutting back is bookkeeping of lengths. Used by the passes' thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/pass_states.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/memory/planes.h"

namespace bloomery::exec {

class CardPlanes {
 public:
  // Bytes of one plane for all slots; throws as memory::PlaneRowBytes does. Lanes are those of
  // memory::PlaneLanes.
  static uint64_t Bytes(const memory::PlaneSpec& plane, int32_t slots, int32_t slot_rows,
                        int32_t lanes_of_slot);

  CardPlanes(const std::vector<memory::PlaneSpec>& planes, int32_t slots, int32_t slot_rows,
             int32_t lanes_of_slot);

  // Final for the life of this object. Of an append plane.
  const kernels::cuda::CardPlane& View(size_t plane) const { return views_[plane]; }
  // Of a fixed plane.
  kernels::cuda::StatePlane State(size_t plane) const;

  int32_t Length(int32_t slot) const { return lengths_[static_cast<size_t>(slot)]; }
  void SetLength(int32_t slot, int32_t length) { lengths_[static_cast<size_t>(slot)] = length; }
  // Enqueues: `to` holds the first `length` rows of `from`, in every append plane.
  void Copy(int32_t from, int32_t to, int32_t length, cudaStream_t stream);
  // Enqueues: rows [first, first + rows) of the slot to `pinned`, plane after plane.
  void Read(int32_t slot, int32_t first, int32_t rows, std::byte* pinned,
            cudaStream_t stream) const;
  // Enqueues: rows [skip, skip + count) of `rows` such rows at `pinned` become the slot's next
  // ones.
  void Append(int32_t slot, const std::byte* pinned, int32_t rows, int32_t skip, int32_t count,
              cudaStream_t stream) const;

  // Enqueues: one lane of all fixed planes to `bytes`, plane after plane; from there; and from one
  // slot to another.
  void ReadLane(int32_t slot, int32_t lane, std::span<std::byte> bytes, cudaStream_t stream) const;
  void WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes,
                 cudaStream_t stream) const;
  void CopyLane(int32_t from, int32_t to, int32_t lane, cudaStream_t stream) const;

 private:
  std::byte* Lane(size_t plane, int32_t slot, int32_t lane) const;

  std::vector<int32_t> lengths_;
  CardBuffer memory_;
  std::vector<kernels::cuda::CardPlane> views_;  // of a fixed plane: its lanes are rows
  std::vector<size_t> append_;                   // indices into views_
  std::vector<size_t> fixed_;
};

}  // namespace bloomery::exec
