#include "runtime/memory/planes.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
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

int32_t PlaneLanes(const PlaneSpec& plane, int32_t lanes_of_slot) {
  return lanes_of_slot + (plane.plane_class == BL_CLASS_TAP ? 1 : 0);
}

int32_t RingRows(const PlaneSpec& plane, int32_t slot_rows, int32_t pass_rows) {
  const int64_t wanted = plane.window - 1 + std::max(pass_rows, kRingBackRows);
  const int64_t blocks = (wanted + kPlaneBlockRows - 1) / kPlaneBlockRows;
  return static_cast<int32_t>(std::min<int64_t>(blocks, BlocksPerSlot(slot_rows))) *
         kPlaneBlockRows;
}

uint64_t PlaneStateBytes(const PlaneSpec& plane) {
  if (plane.rule == BL_PLANE_APPEND) return 0;
  const uint64_t rows = plane.rule == BL_PLANE_RING ? static_cast<uint64_t>(plane.window - 1) : 1;
  return CheckedMul(rows, PlaneRowBytes(plane), ErrorKind::kNoMemory,
                    "bytes of the state in plane '" + plane.name + "'");
}

uint64_t PlaneStore::Bytes(const PlaneSpec& plane, int32_t slots, int32_t slot_rows,
                           int32_t pass_rows, int32_t lanes_of_slot) {
  if (plane.rule == BL_PLANE_FIXED) {
    return CheckedMul(
        static_cast<uint64_t>(slots) * static_cast<uint64_t>(PlaneLanes(plane, lanes_of_slot)),
        PlaneRowBytes(plane), ErrorKind::kNoMemory, "bytes of plane '" + plane.name + "'");
  }
  const int32_t of_slot = plane.rule == BL_PLANE_RING ? RingRows(plane, slot_rows, pass_rows)
                                                      : BlocksPerSlot(slot_rows) * kPlaneBlockRows;
  const auto rows = static_cast<uint64_t>(slots) * static_cast<uint64_t>(of_slot);
  return CheckedMul(rows, PlaneRowBytes(plane), ErrorKind::kNoMemory,
                    "bytes of plane '" + plane.name + "'");
}

PlaneStore::PlaneStore(std::vector<PlaneSpec> planes, int32_t slots, int32_t slot_rows,
                       int32_t pass_rows, int32_t lanes_of_slot)
    : planes_(std::move(planes)),
      rings_(slots),
      slot_rows_(slot_rows),
      blocks_per_slot_(BlocksPerSlot(slot_rows)),
      blocks_(static_cast<size_t>(slots) * static_cast<size_t>(blocks_per_slot_)),
      valid_from_(static_cast<size_t>(slots), 0),
      lengths_(static_cast<size_t>(slots), 0) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
  for (size_t i = 0; i < planes_.size(); ++i) {
    const PlaneSpec& plane = planes_[i];
    const HostBuffer& buffer = buffers_.emplace_back(
        Bytes(plane, slots, slot_rows, pass_rows, lanes_of_slot), "plane '" + plane.name + "'");
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
      view.lanes = PlaneLanes(plane, lanes_of_slot);
      view.lane_bytes = view.row_bytes;
      lane_bytes_ += static_cast<uint64_t>(view.lane_bytes);
    }
    if (plane.rule == BL_PLANE_RING) {
      AddRing(i, RingRows(plane, slot_rows, pass_rows), &view);
    } else {
      (plane.rule == BL_PLANE_FIXED ? fixed_ : append_).push_back(i);
    }
    views_.push_back(view);
  }
}

void PlaneStore::AddRing(size_t plane, int32_t rows, bl_plane_view* view) {
  std::vector<int32_t>& table = ring_blocks_[rows];
  const int32_t ring_blocks = rows / kPlaneBlockRows;
  for (int32_t slot = 0; table.size() < blocks_.size(); ++slot) {
    for (int32_t block = 0; block < blocks_per_slot_; ++block) {
      table.push_back(slot * ring_blocks + block % ring_blocks);
    }
  }
  const size_t ring = rings_.Add(rows, static_cast<int32_t>(planes_[plane].window));
  ring_planes_.push_back(plane);
  view->blocks = table.data();
  view->valid_from = rings_.from(ring);
  ring_bytes_ += PlaneStateBytes(planes_[plane]);
}

void PlaneStore::SetLength(int32_t slot, int32_t length) {
  assert(length >= 0 && length <= slot_rows_);
  lengths_[static_cast<size_t>(slot)] = length;
  if (length == 0) rings_.Empty(slot);
}

void PlaneStore::ReadRings(int32_t slot, std::span<std::byte> bytes) const {
  assert(bytes.size() == ring_bytes_ && rings_.Hold(slot, Length(slot)));
  std::byte* at = bytes.data();
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    const bl_plane_view& view = views_[ring_planes_[ring]];
    const auto row_bytes = static_cast<size_t>(view.row_bytes);
    const int32_t missing_rows = std::max(0, rings_.before(ring) - Length(slot));
    const auto missing = static_cast<size_t>(missing_rows) * row_bytes;
    std::memset(at, 0, missing);
    at += missing;
    rings_.ForBefore(ring, Length(slot), [&](int32_t row, int32_t count) {
      std::memcpy(at, bl_plane_row(&view, slot, row), static_cast<size_t>(count) * row_bytes);
      at += static_cast<size_t>(count) * row_bytes;
    });
  }
}

void PlaneStore::WriteRings(int32_t slot, std::span<const std::byte> bytes) {
  assert(bytes.size() == ring_bytes_);
  const std::byte* at = bytes.data();
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    const bl_plane_view& view = views_[ring_planes_[ring]];
    const auto row_bytes = static_cast<size_t>(view.row_bytes);
    at += static_cast<size_t>(std::max(0, rings_.before(ring) - Length(slot))) * row_bytes;
    rings_.ForBefore(ring, Length(slot), [&](int32_t row, int32_t count) {
      std::memcpy(bl_plane_row(&view, slot, row), at, static_cast<size_t>(count) * row_bytes);
      at += static_cast<size_t>(count) * row_bytes;
    });
  }
  rings_.Restored(slot, Length(slot));
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
  for (size_t ring = 0; ring < ring_planes_.size(); ++ring) {
    const bl_plane_view& view = views_[ring_planes_[ring]];
    const int32_t first = rings_.Copied(ring, from, to, length);
    rings_.ForStretches(ring, first, length, [&](int32_t row, int32_t count) {
      std::memcpy(bl_plane_row(&view, to, row), bl_plane_row(&view, from, row),
                  static_cast<size_t>(count) * static_cast<size_t>(view.row_bytes));
    });
  }
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
  rings_.Lose(slot, first + count);
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
