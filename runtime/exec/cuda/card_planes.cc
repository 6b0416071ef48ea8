#include "runtime/exec/cuda/card_planes.h"

#include <cassert>
#include <cstring>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/ops/attention.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kAlignment = 256;

// Of a slot: rows of an append plane or a ring, lanes of a fixed one.
int32_t RowsOf(const memory::PlaneSpec& plane, int32_t slot_rows, int32_t pass_rows,
               int32_t lanes_of_slot) {
  if (plane.rule == BL_PLANE_RING) return memory::RingRows(plane, slot_rows, pass_rows);
  return plane.rule == BL_PLANE_FIXED ? memory::PlaneLanes(plane, lanes_of_slot) : slot_rows;
}

uint64_t SlotBytes(const memory::PlaneSpec& plane, int32_t rows_of_slot) {
  const auto count = static_cast<uint64_t>(rows_of_slot);
  const uint64_t rows = CheckedMul(memory::PlaneRowBytes(plane), count, ErrorKind::kNoMemory,
                                   "plane '" + plane.name + "'");
  return CheckedAlignUp(rows, kAlignment, ErrorKind::kNoMemory, "plane '" + plane.name + "'");
}

// Of an append plane.
std::byte* Row(const kernels::cuda::CardPlane& view, int32_t slot, int32_t row) {
  return view.base + static_cast<size_t>(slot) * view.slot_bytes +
         static_cast<size_t>(row) * view.row_bytes;
}

}  // namespace

uint64_t CardPlanes::Bytes(const memory::PlaneSpec& plane, int32_t slots, int32_t slot_rows,
                           int32_t pass_rows, int32_t lanes_of_slot) {
  const int32_t rows = RowsOf(plane, slot_rows, pass_rows, lanes_of_slot);
  return CheckedMul(SlotBytes(plane, rows), static_cast<uint64_t>(slots), ErrorKind::kNoMemory,
                    "plane '" + plane.name + "'");
}

SlotRows::SlotRows(const std::vector<memory::PlaneSpec>& planes, int32_t slots, int32_t slot_rows,
                   int32_t pass_rows)
    : lengths_(static_cast<size_t>(slots), 0), rings_(slots) {
  for (const memory::PlaneSpec& plane : planes) {
    if (plane.rule != BL_PLANE_RING) continue;
    rings_.Add(memory::RingRows(plane, slot_rows, pass_rows), static_cast<int32_t>(plane.window));
  }
}

void SlotRows::SetLength(int32_t slot, int32_t length) {
  lengths_[static_cast<size_t>(slot)] = length;
  if (length == 0) rings_.Empty(slot);
}

CardPlanes::CardPlanes(const std::vector<memory::PlaneSpec>& planes, const std::vector<bool>& here,
                       int32_t slots, int32_t slot_rows, int32_t pass_rows, int32_t lanes_of_slot,
                       SlotRows* slot_rows_held)
    : rows_(slot_rows_held) {
  const auto bytes_of = [&](size_t plane) {
    return here[plane] ? Bytes(planes[plane], slots, slot_rows, pass_rows, lanes_of_slot) : 0;
  };
  uint64_t bytes = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    bytes = CheckedAdd(bytes, bytes_of(i), ErrorKind::kNoMemory, "planes");
  }
  memory_ = CardBuffer(bytes, "planes");
  std::byte* at = memory_.data();
  for (size_t i = 0; i < planes.size(); ++i) {
    const memory::PlaneSpec& plane = planes[i];
    const uint64_t row_bytes = memory::PlaneRowBytes(plane);
    const int32_t rows = RowsOf(plane, slot_rows, pass_rows, lanes_of_slot);
    const bool ring = plane.rule == BL_PLANE_RING;
    const bool fixed = plane.rule == BL_PLANE_FIXED;
    (ring ? ring_planes_ : fixed ? fixed_ : append_).push_back(views_.size());
    if (ring) ring_bytes_ += memory::PlaneStateBytes(plane);
    if (fixed) lane_bytes_ += row_bytes;
    views_.push_back({.type = ops::KvTypeOf(plane.type),
                      .width = static_cast<size_t>(plane.width),
                      .row_bytes = row_bytes,
                      .base = here[i] ? at : nullptr,
                      .slot_bytes = SlotBytes(plane, rows),
                      .capacity = static_cast<size_t>(ring ? slot_rows : rows),
                      .ring_rows = ring ? rows : 0});
    at += bytes_of(i);
  }
}

void CardPlanes::Copy(int32_t from, int32_t to, int32_t length, cudaStream_t stream) {
  for (const size_t i : append_) {
    if (!Here(i)) continue;
    const kernels::cuda::CardPlane& view = views_[i];
    CheckCuda(cudaMemcpyAsync(view.base + static_cast<size_t>(to) * view.slot_bytes,
                              view.base + static_cast<size_t>(from) * view.slot_bytes,
                              static_cast<size_t>(length) * view.row_bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "copying rows between slots");
  }
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    if (!Here(ring_planes_[ring])) continue;
    const size_t row_bytes = views_[ring_planes_[ring]].row_bytes;
    const int32_t first = rings().Copied(ring, from, to, length);
    rings().ForStretches(ring, first, length, [&](int32_t position, int32_t count) {
      CheckCuda(
          cudaMemcpyAsync(RingRow(ring, to, position), RingRow(ring, from, position),
                          static_cast<size_t>(count) * row_bytes, cudaMemcpyDeviceToDevice, stream),
          "copying rows between slots");
    });
  }
}

std::byte* CardPlanes::RingRow(size_t ring, int32_t slot, int32_t position) const {
  const kernels::cuda::CardPlane& view = views_[ring_planes_[ring]];
  return view.base + static_cast<size_t>(slot) * view.slot_bytes +
         static_cast<size_t>(position % view.ring_rows) * view.row_bytes;
}

void CardPlanes::ReadRings(int32_t slot, std::span<std::byte> bytes, cudaStream_t stream) const {
  assert(bytes.size() == ring_bytes_ && rings().Hold(slot, Length(slot)));
  std::byte* to = bytes.data();
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    const size_t row_bytes = views_[ring_planes_[ring]].row_bytes;
    const auto before = static_cast<size_t>(rings().before(ring));
    const auto missing = before - std::min(before, static_cast<size_t>(Length(slot)));
    if (!Here(ring_planes_[ring])) {
      to += before * row_bytes;
      continue;
    }
    std::memset(to, 0, missing * row_bytes);
    to += missing * row_bytes;
    rings().ForBefore(ring, Length(slot), [&](int32_t position, int32_t count) {
      const size_t size = static_cast<size_t>(count) * row_bytes;
      CheckCuda(
          cudaMemcpyAsync(to, RingRow(ring, slot, position), size, cudaMemcpyDeviceToHost, stream),
          "copying a window of rows from the card");
      to += size;
    });
  }
}

void CardPlanes::WriteRings(int32_t slot, std::span<const std::byte> bytes, cudaStream_t stream) {
  assert(bytes.size() == ring_bytes_);
  const std::byte* from = bytes.data();
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    const size_t row_bytes = views_[ring_planes_[ring]].row_bytes;
    const auto before = static_cast<size_t>(rings().before(ring));
    if (!Here(ring_planes_[ring])) {
      from += before * row_bytes;
      continue;
    }
    from += (before - std::min(before, static_cast<size_t>(Length(slot)))) * row_bytes;
    rings().ForBefore(ring, Length(slot), [&](int32_t position, int32_t count) {
      const size_t size = static_cast<size_t>(count) * row_bytes;
      CheckCuda(cudaMemcpyAsync(RingRow(ring, slot, position), from, size, cudaMemcpyHostToDevice,
                                stream),
                "copying a window of rows to the card");
      from += size;
    });
  }
  rings().Restored(slot, Length(slot));
}

void CardPlanes::Read(int32_t slot, int32_t first, int32_t rows, std::byte* pinned,
                      cudaStream_t stream) const {
  for (const size_t i : append_) {
    const kernels::cuda::CardPlane& view = views_[i];
    const size_t bytes = static_cast<size_t>(rows) * view.row_bytes;
    if (Here(i)) {
      CheckCuda(
          cudaMemcpyAsync(pinned, Row(view, slot, first), bytes, cudaMemcpyDeviceToHost, stream),
          "copying rows of a slot from the card");
    }
    pinned += bytes;
  }
}

void CardPlanes::Append(int32_t slot, const std::byte* pinned, int32_t rows, int32_t skip,
                        int32_t count, cudaStream_t stream) const {
  for (const size_t i : append_) {
    const kernels::cuda::CardPlane& view = views_[i];
    if (Here(i)) {
      CheckCuda(cudaMemcpyAsync(Row(view, slot, Length(slot)),
                                pinned + static_cast<size_t>(skip) * view.row_bytes,
                                static_cast<size_t>(count) * view.row_bytes, cudaMemcpyHostToDevice,
                                stream),
                "copying rows of a slot to the card");
    }
    pinned += static_cast<size_t>(rows) * view.row_bytes;
  }
}

kernels::cuda::StatePlane CardPlanes::State(size_t plane) const {
  const kernels::cuda::CardPlane& view = views_[plane];
  return {.base = reinterpret_cast<float*>(view.base),
          .slot_floats = view.slot_bytes / sizeof(float),
          .lane_floats = view.row_bytes / sizeof(float)};
}

std::byte* CardPlanes::Lane(size_t plane, int32_t slot, int32_t lane) const {
  const kernels::cuda::CardPlane& view = views_[plane];
  return view.base + static_cast<size_t>(slot) * view.slot_bytes +
         static_cast<size_t>(lane) * view.row_bytes;
}

void CardPlanes::ReadLane(int32_t slot, int32_t lane, std::span<std::byte> bytes,
                          cudaStream_t stream) const {
  std::byte* to = bytes.data();
  for (const size_t i : fixed_) {
    if (Here(i)) {
      CheckCuda(cudaMemcpyAsync(to, Lane(i, slot, lane), views_[i].row_bytes,
                                cudaMemcpyDeviceToHost, stream),
                "copying a state from the card");
    }
    to += views_[i].row_bytes;
  }
  assert(to == bytes.data() + bytes.size());
}

void CardPlanes::WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes,
                           cudaStream_t stream) const {
  const std::byte* from = bytes.data();
  for (const size_t i : fixed_) {
    if (Here(i)) {
      CheckCuda(cudaMemcpyAsync(Lane(i, slot, lane), from, views_[i].row_bytes,
                                cudaMemcpyHostToDevice, stream),
                "copying a state to the card");
    }
    from += views_[i].row_bytes;
  }
  assert(from == bytes.data() + bytes.size());
}

void CardPlanes::CopyLane(int32_t from, int32_t to, int32_t lane, cudaStream_t stream) const {
  for (const size_t i : fixed_) {
    if (!Here(i)) continue;
    CheckCuda(cudaMemcpyAsync(Lane(i, to, lane), Lane(i, from, lane), views_[i].row_bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "copying a state between slots");
  }
}

}  // namespace bloomery::exec
