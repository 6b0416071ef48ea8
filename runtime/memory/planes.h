// The planes of a seat's slots on the host: append planes (one row a position, immutable once
// written), each with a block table a slot, rings (the last rows alone: their block tables repeat),
// fixed planes (lanes of a state that rows overwrite), and the length of every slot. Kernels write
// and read through the views; cutting back is bookkeeping of lengths, of what rings still hold
// (rings.h), and of lanes (lanes.h). Used by the engine's thread between passes; the views are read
// by workers during one.
#pragma once

#include <bloomery/seat.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/host_buffer.h"
#include "runtime/memory/lanes.h"
#include "runtime/memory/rings.h"

namespace bloomery::memory {

struct PlaneSpec {
  std::string name;
  bl_plane_class plane_class = BL_CLASS_K;
  bl_plane_rule rule = BL_PLANE_APPEND;
  bl_dtype type = BL_F16;
  int64_t width = 0;   // values of a row, or of a lane
  int64_t window = 0;  // ring: rows that a row may read, its own included
};

// Rows of a block; a window of attention (128 keys at absolute positions) never crosses one.
inline constexpr int32_t kPlaneBlockRows = 128;
// Rows that a ring lets a slot be cut back by at least without a copy: answers that are made anew.
inline constexpr int32_t kRingBackRows = 256;

// Bytes of one row or lane. Throws Error(kUsage) naming the plane when its width is not a whole
// number of the type's blocks, and for a type planes cannot have.
uint64_t PlaneRowBytes(const PlaneSpec& plane);

// Rows of a ring in one slot: whole blocks, and no more than the slot has.
int32_t RingRows(const PlaneSpec& plane, int32_t slot_rows, int32_t pass_rows);

// Lanes of a fixed plane in one slot where passes take turns on `lanes_of_slot`. A tap has one
// more, the last: drafts keep theirs there.
int32_t PlaneLanes(const PlaneSpec& plane, int32_t lanes_of_slot);

// Bytes of what cannot be cut by position, one slot's: a lane of a fixed plane, the rows before the
// next one of a ring; 0 of an append plane.
uint64_t PlaneStateBytes(const PlaneSpec& plane);

class PlaneStore {
 public:
  // What the constructor will take for all slots; throws as PlaneRowBytes does. `pass_rows`: the
  // most rows of one slot in a pass.
  static uint64_t Bytes(const PlaneSpec& plane, int32_t slots, int32_t slot_rows, int32_t pass_rows,
                        int32_t lanes_of_slot = kLanesOfSlot);

  PlaneStore(std::vector<PlaneSpec> planes, int32_t slots, int32_t slot_rows, int32_t pass_rows,
             int32_t lanes_of_slot = kLanesOfSlot);

  // Final for the life of this object.
  const bl_plane_view& View(size_t plane) const { return views_[plane]; }

  int32_t slots() const { return static_cast<int32_t>(lengths_.size()); }
  int32_t slot_rows() const { return slot_rows_; }
  int32_t Length(int32_t slot) const { return lengths_[static_cast<size_t>(slot)]; }

  // The slot now holds rows up to `length`.
  void SetLength(int32_t slot, int32_t length);

  Rings& rings() { return rings_; }
  const Rings& rings() const { return rings_; }
  // Bytes of the rows that a row reads before its own over all rings, and they as bytes, plane
  // after plane, the oldest first; zeros stand for rows before position 0. Of the slot's present
  // length; writing makes it the state of the slot's rows, whatever the rings held.
  uint64_t RingBytes() const { return ring_bytes_; }
  void ReadRings(int32_t slot, std::span<std::byte> bytes) const;
  void WriteRings(int32_t slot, std::span<const std::byte> bytes);
  // Bytes of one lane over all fixed planes.
  uint64_t LaneBytes() const { return lane_bytes_; }
  // One lane of all fixed planes as bytes, plane after plane.
  void ReadLane(int32_t slot, int32_t lane, std::span<std::byte> bytes) const;
  void WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes);

  // Makes `to` hold the first `length` rows of `from`, in every append plane, and in every ring as
  // far as they are there.
  void Copy(int32_t from, int32_t to, int32_t length);

  // Bytes of one row over all append planes.
  uint64_t RowBytes() const;
  // Rows [first, first + rows) of the slot as bytes: plane after plane, the rows of each together.
  void Read(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) const;
  // Rows [skip, skip + count) of such bytes, which hold `rows` rows, become the slot's next ones;
  // rings then hold nothing.
  void Append(int32_t slot, std::span<const std::byte> bytes, int32_t rows, int32_t skip,
              int32_t count);

 private:
  void AddRing(size_t plane, int32_t rows, bl_plane_view* view);

  std::vector<PlaneSpec> planes_;
  std::vector<size_t> append_;  // indices into planes_
  std::vector<size_t> fixed_;
  Rings rings_;
  std::vector<size_t> ring_planes_;                      // by ring: index into planes_
  std::map<int32_t, std::vector<int32_t>> ring_blocks_;  // as blocks_, by the rows of a ring
  uint64_t ring_bytes_ = 0;
  uint64_t lane_bytes_ = 0;
  int32_t slot_rows_;
  int32_t blocks_per_slot_;
  std::vector<int32_t> blocks_;      // [slots][blocks_per_slot], the same for every plane
  std::vector<int32_t> valid_from_;  // [slots], all 0
  std::vector<int32_t> lengths_;
  std::vector<HostBuffer> buffers_;
  std::vector<bl_plane_view> views_;
};

}  // namespace bloomery::memory
