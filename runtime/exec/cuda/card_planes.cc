#include "runtime/exec/cuda/card_planes.h"

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/ops/attention.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t SlotBytes(const memory::PlaneSpec& plane, int32_t slot_rows) {
  const uint64_t rows = CheckedMul(memory::PlaneRowBytes(plane), static_cast<uint64_t>(slot_rows),
                                   ErrorKind::kNoMemory, "plane '" + plane.name + "'");
  return CheckedAlignUp(rows, kAlignment, ErrorKind::kNoMemory, "plane '" + plane.name + "'");
}

}  // namespace

uint64_t CardPlanes::Bytes(const memory::PlaneSpec& plane, int32_t slots, int32_t slot_rows) {
  return CheckedMul(SlotBytes(plane, slot_rows), static_cast<uint64_t>(slots), ErrorKind::kNoMemory,
                    "plane '" + plane.name + "'");
}

CardPlanes::CardPlanes(const std::vector<memory::PlaneSpec>& planes, int32_t slots,
                       int32_t slot_rows)
    : lengths_(static_cast<size_t>(slots), 0) {
  uint64_t bytes = 0;
  for (const memory::PlaneSpec& plane : planes) {
    bytes = CheckedAdd(bytes, Bytes(plane, slots, slot_rows), ErrorKind::kNoMemory, "planes");
  }
  memory_ = CardBuffer(bytes, "planes");
  std::byte* at = memory_.data();
  for (const memory::PlaneSpec& plane : planes) {
    const uint64_t row_bytes = memory::PlaneRowBytes(plane);
    views_.push_back({.type = ops::KvTypeOf(plane.type),
                      .width = static_cast<size_t>(plane.width),
                      .row_bytes = row_bytes,
                      .base = at,
                      .slot_bytes = SlotBytes(plane, slot_rows),
                      .capacity = static_cast<size_t>(slot_rows)});
    at += Bytes(plane, slots, slot_rows);
  }
}

void CardPlanes::Copy(int32_t from, int32_t to, int32_t length, cudaStream_t stream) {
  for (const kernels::cuda::CardPlane& view : views_) {
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
  for (const kernels::cuda::CardPlane& view : views_) {
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
  for (const kernels::cuda::CardPlane& view : views_) {
    std::byte* to = view.base + static_cast<size_t>(slot) * view.slot_bytes +
                    static_cast<size_t>(Length(slot)) * view.row_bytes;
    CheckCuda(cudaMemcpyAsync(to, pinned + static_cast<size_t>(skip) * view.row_bytes,
                              static_cast<size_t>(count) * view.row_bytes, cudaMemcpyHostToDevice,
                              stream),
              "copying rows of a slot to the card");
    pinned += static_cast<size_t>(rows) * view.row_bytes;
  }
}

}  // namespace bloomery::exec
