// The planes of a seat's slots that lie on a card: append planes, whose rows of a slot lie
// together, rings, which keep the last of them (memory/rings.h), and fixed ones, lanes of a state
// that rows overwrite (memory/lanes.h says which holds what). Cutting back is bookkeeping, of which
// a seat has one for all of its cards. Used by the passes' thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/pass_states.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/memory/planes.h"
#include "runtime/memory/rings.h"

namespace bloomery::exec {

// How many rows each slot of a seat holds, and which of them its rings do.
class SlotRows {
 public:
  // As CardPlanes has them.
  SlotRows(const std::vector<memory::PlaneSpec>& planes, int32_t slots, int32_t slot_rows,
           int32_t pass_rows);

  int32_t Length(int32_t slot) const { return lengths_[static_cast<size_t>(slot)]; }
  std::span<const int32_t> lengths() const { return lengths_; }
  void SetLength(int32_t slot, int32_t length);
  memory::Rings& rings() { return rings_; }
  const memory::Rings& rings() const { return rings_; }

 private:
  std::vector<int32_t> lengths_;
  memory::Rings rings_;
};

class CardPlanes {
 public:
  // Bytes of one plane for all slots; throws as memory::PlaneRowBytes does. `pass_rows`: the most
  // rows of one slot in a pass. Lanes are those of memory::PlaneLanes.
  static uint64_t Bytes(const memory::PlaneSpec& plane, int32_t slots, int32_t slot_rows,
                        int32_t pass_rows, int32_t lanes_of_slot);

  // Takes memory for the planes that are `here`, by plane. `rows` is the seat's.
  CardPlanes(const std::vector<memory::PlaneSpec>& planes, const std::vector<bool>& here,
             int32_t slots, int32_t slot_rows, int32_t pass_rows, int32_t lanes_of_slot,
             SlotRows* rows);

  // Final for the life of this object. Of an append plane or a ring.
  const kernels::cuda::CardPlane& View(size_t plane) const { return views_[plane]; }
  // Of a fixed plane.
  kernels::cuda::StatePlane State(size_t plane) const;

  // Everything below concerns the planes that are here; what lies outside of a card, all of a
  // slot's planes one after another, is read and written at their places in it.

  // Enqueues: `to` holds the first `length` rows of `from`, in every append plane, and in every
  // ring as far as they are there.
  void Copy(int32_t from, int32_t to, int32_t length, cudaStream_t stream);
  // Enqueues: rows [first, first + rows) of the slot to `pinned`, plane after plane.
  void Read(int32_t slot, int32_t first, int32_t rows, std::byte* pinned,
            cudaStream_t stream) const;
  // Enqueues: rows [skip, skip + count) of `rows` such rows at `pinned` become the slot's next
  // ones, once its length says so; rings do not hold them.
  void Append(int32_t slot, const std::byte* pinned, int32_t rows, int32_t skip, int32_t count,
              cudaStream_t stream) const;

  // Bytes of the rows that a row reads before its own over all rings. Enqueues: they as bytes, as
  // PlaneStore::ReadRings lays them out, of the slot's present length; and from there.
  uint64_t RingBytes() const { return ring_bytes_; }
  void ReadRings(int32_t slot, std::span<std::byte> bytes, cudaStream_t stream) const;
  void WriteRings(int32_t slot, std::span<const std::byte> bytes, cudaStream_t stream);

  // Bytes of one lane over all fixed planes.
  uint64_t LaneBytes() const { return lane_bytes_; }
  // Enqueues: one lane of all fixed planes to `bytes`, plane after plane; from there; and from one
  // slot to another.
  void ReadLane(int32_t slot, int32_t lane, std::span<std::byte> bytes, cudaStream_t stream) const;
  void WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes,
                 cudaStream_t stream) const;
  void CopyLane(int32_t from, int32_t to, int32_t lane, cudaStream_t stream) const;

 private:
  std::byte* Lane(size_t plane, int32_t slot, int32_t lane) const;
  std::byte* RingRow(size_t ring, int32_t slot, int32_t position) const;
  bool Here(size_t plane) const { return views_[plane].base != nullptr; }
  memory::Rings& rings() const { return rows_->rings(); }
  int32_t Length(int32_t slot) const { return rows_->Length(slot); }

  SlotRows* rows_;
  CardBuffer memory_;
  // Of all planes, without a base where they lie elsewhere; of a fixed plane: its lanes are rows.
  std::vector<kernels::cuda::CardPlane> views_;
  std::vector<size_t> append_;  // indices into views_
  std::vector<size_t> fixed_;
  std::vector<size_t> ring_planes_;  // by ring: index into views_
  uint64_t ring_bytes_ = 0;
  uint64_t lane_bytes_ = 0;
};

}  // namespace bloomery::exec
