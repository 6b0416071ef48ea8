#include "runtime/exec/cuda/card_planes.h"

#include <cassert>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/ops/attention.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kAlignment = 256;

// Of a slot: rows of an append plane, lanes of a fixed one.
int32_t RowsOf(const memory::PlaneSpec& plane, int32_t slot_rows, int32_t lanes_of_slot) {
  return plane.rule == BL_PLANE_FIXED ? memory::PlaneLanes(plane, lanes_of_slot) : slot_rows;
}

uint64_t SlotBytes(const memory::PlaneSpec& plane, int32_t slot_rows, int32_t lanes_of_slot) {
  const auto count = static_cast<uint64_t>(RowsOf(plane, slot_rows, lanes_of_slot));
  const uint64_t rows = CheckedMul(memory::PlaneRowBytes(plane), count, ErrorKind::kNoMemory,
                                   "plane '" + plane.name + "'");
  return CheckedAlignUp(rows, kAlignment, ErrorKind::kNoMemory, "plane '" + plane.name + "'");
}

}  // namespace

uint64_t CardPlanes::Bytes(const memory::PlaneSpec& plane, int32_t slots, int32_t slot_rows,
                           int32_t lanes_of_slot) {
  return CheckedMul(SlotBytes(plane, slot_rows, lanes_of_slot), static_cast<uint64_t>(slots),
                    ErrorKind::kNoMemory, "plane '" + plane.name + "'");
}

CardPlanes::CardPlanes(const std::vector<memory::PlaneSpec>& planes, int32_t slots,
                       int32_t slot_rows, int32_t lanes_of_slot)
    : lengths_(static_cast<size_t>(slots), 0) {
  uint64_t bytes = 0;
  for (const memory::PlaneSpec& plane : planes) {
    bytes = CheckedAdd(bytes, Bytes(plane, slots, slot_rows, lanes_of_slot), ErrorKind::kNoMemory,
                       "planes");
  }
  memory_ = CardBuffer(bytes, "planes");
  std::byte* at = memory_.data();
  for (const memory::PlaneSpec& plane : planes) {
    const uint64_t row_bytes = memory::PlaneRowBytes(plane);
    (plane.rule == BL_PLANE_FIXED ? fixed_ : append_).push_back(views_.size());
    views_.push_back({.type = ops::KvTypeOf(plane.type),
                      .width = static_cast<size_t>(plane.width),
                      .row_bytes = row_bytes,
                      .base = at,
                      .slot_bytes = SlotBytes(plane, slot_rows, lanes_of_slot),
                      .capacity = static_cast<size_t>(RowsOf(plane, slot_rows, lanes_of_slot))});
    at += Bytes(plane, slots, slot_rows, lanes_of_slot);
  }
}

void CardPlanes::Copy(int32_t from, int32_t to, int32_t length, cudaStream_t stream) {
  for (const size_t i : append_) {
    const kernels::cuda::CardPlane& view = views_[i];
    CheckCuda(cudaMemcpyAsync(view.base + static_cast<size_t>(to) * view.slot_bytes,
                              view.base + static_cast<size_t>(from) * view.slot_bytes,
                              static_cast<size_t>(length) * view.row_bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "copying rows between slots");
  }
  lengths_[static_cast<size_t>(to)] = length;
}

void CardPlanes::Read(int32_t slot, int32_t first, int32_t rows, std::byte* pinned,
                      cudaStream_t stream) const {
  for (const size_t i : append_) {
    const kernels::cuda::CardPlane& view = views_[i];
    const size_t bytes = static_cast<size_t>(rows) * view.row_bytes;
    const std::byte* from = view.base + static_cast<size_t>(slot) * view.slot_bytes +
                            static_cast<size_t>(first) * view.row_bytes;
    CheckCuda(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream),
              "copying rows of a slot from the card");
    pinned += bytes;
  }
}

void CardPlanes::Append(int32_t slot, const std::byte* pinned, int32_t rows, int32_t skip,
                        int32_t count, cudaStream_t stream) const {
  for (const size_t i : append_) {
    const kernels::cuda::CardPlane& view = views_[i];
    std::byte* to = view.base + static_cast<size_t>(slot) * view.slot_bytes +
                    static_cast<size_t>(Length(slot)) * view.row_bytes;
    CheckCuda(cudaMemcpyAsync(to, pinned + static_cast<size_t>(skip) * view.row_bytes,
                              static_cast<size_t>(count) * view.row_bytes, cudaMemcpyHostToDevice,
                              stream),
              "copying rows of a slot to the card");
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
    CheckCuda(cudaMemcpyAsync(to, Lane(i, slot, lane), views_[i].row_bytes, cudaMemcpyDeviceToHost,
                              stream),
              "copying a state from the card");
    to += views_[i].row_bytes;
  }
  assert(to == bytes.data() + bytes.size());
}

void CardPlanes::WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes,
                           cudaStream_t stream) const {
  const std::byte* from = bytes.data();
  for (const size_t i : fixed_) {
    CheckCuda(cudaMemcpyAsync(Lane(i, slot, lane), from, views_[i].row_bytes,
                              cudaMemcpyHostToDevice, stream),
              "copying a state to the card");
    from += views_[i].row_bytes;
  }
  assert(from == bytes.data() + bytes.size());
}

void CardPlanes::CopyLane(int32_t from, int32_t to, int32_t lane, cudaStream_t stream) const {
  for (const size_t i : fixed_) {
    CheckCuda(cudaMemcpyAsync(Lane(i, to, lane), Lane(i, from, lane), views_[i].row_bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "copying a state between slots");
  }
}

}  // namespace bloomery::exec
