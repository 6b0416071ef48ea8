#include "runtime/memory/planes.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/memory/lanes.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::memory {
namespace {

int32_t BlocksPerSlot(int32_t slot_rows) {
  return (slot_rows + kPlaneBlockRows - 1) / kPlaneBlockRows;
}

// Calls `part(row, count)` for each stretch of rows [first, first + rows) within one block.
template <typename Part>
void ForBlocks(int32_t first, int32_t rows, Part part) {
  for (int32_t row = first; row < first + rows;) {
    const int32_t count = std::min(kPlaneBlockRows - row % kPlaneBlockRows, first + rows - row);
    part(row, count);
    row += count;
  }
}

}  // namespace

uint64_t PlaneRowBytes(const PlaneSpec& plane) {
  const model::TensorTypeInfo* type = model::FindTensorType(static_cast<uint32_t>(plane.type));
  if (type == nullptr || plane.width <= 0) {
    throw Error(ErrorKind::kUsage,
                "plane '" + plane.name + "' cannot have the type id " + std::to_string(plane.type));
  }
  const auto width = static_cast<uint64_t>(plane.width);
  if (width % type->block_values != 0) {
    throw Error(ErrorKind::kUsage,
                "plane '" + plane.name + "' has rows of " + std::to_string(width) +
                    " values, which " + std::string(type->name) + " cannot hold (blocks of " +
                    std::to_string(type->block_values) + "); choose another cache type");
  }
  return width / type->block_values * type->block_bytes;
}

uint64_t PlaneStore::Bytes(const PlaneSpec& plane, int32_t slots, int32_t slot_rows) {
  if (plane.rule == BL_PLANE_FIXED) {
    return CheckedMul(static_cast<uint64_t>(slots) * kLanesOfSlot, PlaneRowBytes(plane),
                      ErrorKind::kNoMemory, "bytes of plane '" + plane.name + "'");
  }
  const auto rows = static_cast<uint64_t>(slots) * static_cast<uint64_t>(BlocksPerSlot(slot_rows)) *
                    kPlaneBlockRows;
  return CheckedMul(rows, PlaneRowBytes(plane), ErrorKind::kNoMemory,
                    "bytes of plane '" + plane.name + "'");
}

PlaneStore::PlaneStore(std::vector<PlaneSpec> planes, int32_t slots, int32_t slot_rows)
    : planes_(std::move(planes)),
      slot_rows_(slot_rows),
      blocks_per_slot_(BlocksPerSlot(slot_rows)),
      blocks_(static_cast<size_t>(slots) * static_cast<size_t>(blocks_per_slot_)),
      valid_from_(static_cast<size_t>(slots), 0),
      lengths_(static_cast<size_t>(slots), 0) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
  for (size_t i = 0; i < planes_.size(); ++i) {
    const PlaneSpec& plane = planes_[i];
    const HostBuffer& buffer =
        buffers_.emplace_back(Bytes(plane, slots, slot_rows), "plane '" + plane.name + "'");
    bl_plane_view view{};
    view.size = sizeof(view);
    view.type = plane.type;
    view.width = plane.width;
    view.row_bytes = static_cast<int64_t>(PlaneRowBytes(plane));
    view.data = buffer.data();
    view.blocks = blocks_.data();
    view.blocks_per_slot = blocks_per_slot_;
    view.block_rows = kPlaneBlockRows;
    view.capacity = slot_rows_;
    view.valid_from = valid_from_.data();
    if (plane.rule == BL_PLANE_FIXED) {
      view.lanes = kLanesOfSlot;
      view.lane_bytes = view.row_bytes;
      lane_bytes_ += static_cast<uint64_t>(view.lane_bytes);
    }
    (plane.rule == BL_PLANE_FIXED ? fixed_ : append_).push_back(i);
    views_.push_back(view);
  }
}

void PlaneStore::SetLength(int32_t slot, int32_t length) {
  assert(length >= 0 && length <= slot_rows_);
  lengths_[static_cast<size_t>(slot)] = length;
}

void PlaneStore::Copy(int32_t from, int32_t to, int32_t length) {
  assert(length >= 0 && length <= Length(from));
  for (const size_t i : append_) {
    const bl_plane_view& view = views_[i];
    for (int32_t row = 0; row < length; row += kPlaneBlockRows) {
      const int32_t rows = std::min(kPlaneBlockRows, length - row);
      std::memcpy(bl_plane_row(&view, to, row), bl_plane_row(&view, from, row),
                  static_cast<size_t>(rows) * static_cast<size_t>(view.row_bytes));
    }
  }
  SetLength(to, length);
}

uint64_t PlaneStore::RowBytes() const {
  uint64_t bytes = 0;
  for (const size_t i : append_) bytes += static_cast<uint64_t>(views_[i].row_bytes);
  return bytes;
}

void PlaneStore::Read(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) const {
  assert(first >= 0 && rows >= 0 && first + rows <= Length(slot));
  assert(bytes.size() == static_cast<size_t>(rows) * RowBytes());
  std::byte* at = bytes.data();
  for (const size_t i : append_) {
    const bl_plane_view& view = views_[i];
    ForBlocks(first, rows, [&](int32_t row, int32_t count) {
      const size_t size = static_cast<size_t>(count) * static_cast<size_t>(view.row_bytes);
      std::memcpy(at, bl_plane_row(&view, slot, row), size);
      at += size;
    });
  }
}

void PlaneStore::Append(int32_t slot, std::span<const std::byte> bytes, int32_t rows, int32_t skip,
                        int32_t count) {
  const int32_t first = Length(slot);
  assert(skip >= 0 && count >= 0 && skip + count <= rows && first + count <= slot_rows_);
  assert(bytes.size() == static_cast<size_t>(rows) * RowBytes());
  const std::byte* plane = bytes.data();
  for (const size_t i : append_) {
    const bl_plane_view& view = views_[i];
    const auto row_bytes = static_cast<size_t>(view.row_bytes);
    const std::byte* at = plane + static_cast<size_t>(skip) * row_bytes;
    ForBlocks(first, count, [&](int32_t row, int32_t now) {
      const size_t size = static_cast<size_t>(now) * row_bytes;
      std::memcpy(bl_plane_row(&view, slot, row), at, size);
      at += size;
    });
    plane += static_cast<size_t>(rows) * row_bytes;
  }
  SetLength(slot, first + count);
}

void PlaneStore::ReadLane(int32_t slot, int32_t lane, std::span<std::byte> bytes) const {
  assert(bytes.size() == lane_bytes_);
  std::byte* at = bytes.data();
  for (const size_t i : fixed_) {
    const auto size = static_cast<size_t>(views_[i].lane_bytes);
    std::memcpy(at, bl_plane_lane(&views_[i], slot, lane), size);
    at += size;
  }
}

void PlaneStore::WriteLane(int32_t slot, int32_t lane, std::span<const std::byte> bytes) {
  assert(bytes.size() == lane_bytes_);
  const std::byte* at = bytes.data();
  for (const size_t i : fixed_) {
    const auto size = static_cast<size_t>(views_[i].lane_bytes);
    std::memcpy(bl_plane_lane(&views_[i], slot, lane), at, size);
    at += size;
  }
}

}  // namespace bloomery::memory
