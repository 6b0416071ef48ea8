// An attention of a pass with everything around it, on the host and on the card: planes of several
// slots, rows of a QKV linear, head norms and rope. The host side is the references (attention
// itself by the CPU's kernels, which have the references' bits).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels-common/attention/cpu/attention.h"
#include "kernels-common/attention/cuda/append.h"
#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cpu/isa.h"
#include "kernels-common/norm/reference.h"
#include "kernels-common/quant/reference.h"
#include "kernels-common/rope/reference.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels::testing {

struct HeadShape {
  KvType type = KvType::kF16;
  std::size_t heads = 32;
  std::size_t kv_heads = 4;
  std::size_t key_dim = 128;
  std::size_t value_dim = 128;
  std::size_t n_rot = 128;  // 0: no rope
  bool norm = true;
  std::size_t window = 0;     // 0: all keys
  std::size_t ring_rows = 0;  // 0: a row for each position
  bool sinks = false;
  float v_scale = 1.0F;
};

// Rows of one slot that lie together in the pass: indices index0, index0 + 1, ..
struct PassSegment {
  std::int32_t slot = 0;
  std::int32_t index0 = 0;
  std::int32_t rows = 1;
};

class AttentionCase {
 public:
  AttentionCase(const HeadShape& shape, const std::vector<PassSegment>& segments,
                std::size_t padding, std::uint64_t seed)
      : shape_(shape), random_(seed) {
    for (const PassSegment& segment : segments) {
      for (std::int32_t i = 0; i < segment.rows; ++i) {
        slot_.push_back(segment.slot);
        index_.push_back(segment.index0 + i);
        position_.push_back(segment.index0 + i + 3);
        slots_ = std::max(slots_, static_cast<std::size_t>(segment.slot) + 1);
        capacity_ = std::max(capacity_, static_cast<std::size_t>(index_.back()) + 1);
      }
    }
    live_ = slot_.size();
    for (std::size_t i = 0; i < padding; ++i) {
      slot_.push_back(0);
      index_.push_back(-1);
      position_.push_back(0);
    }
    capacity_ += 5;
    for (std::size_t i = 0; shape.ring_rows > 0 && i <= capacity_ / kAttentionWindow; ++i) {
      ring_blocks_.push_back(static_cast<std::int32_t>(i % (shape.ring_rows / kAttentionWindow)));
    }
    MakeInputs();
    keys_ = MakePlane(shape.kv_heads * shape.key_dim);
    values_ = MakePlane(shape.kv_heads * shape.value_dim);
    FillOldRows(segments);
  }

  std::size_t live() const { return live_; }
  std::size_t rows() const { return slot_.size(); }

  // The host's side: ready q, the rows in the planes, attention. Fills expected_*.
  void RunHost() {
    ready_q_ = qkv_;
    const auto finish = [this](std::size_t at, std::size_t heads,
                               const std::vector<float>& weight) {
      float* x = ready_q_.data() + at;
      if (shape_.norm) {
        reference::RmsNorm({x, stride_, x, stride_, heads, shape_.key_dim, weight.data(), kEps}, 0,
                           live_);
      }
      if (shape_.n_rot != 0) {
        reference::Rope({x, stride_, x, stride_, heads, shape_.key_dim, shape_.n_rot,
                         frequencies_.data(), position_.data(), 1.0F},
                        0, live_);
      }
    };
    finish(0, shape_.heads, q_norm_);
    finish(KeyAt(), shape_.kv_heads, k_norm_);
    for (std::size_t row = 0; row < live_; ++row) {
      float* x = ready_q_.data() + row * stride_;
      for (std::size_t i = ValueAt(); i < stride_; ++i) x[i] *= shape_.v_scale;
      const auto index = static_cast<std::size_t>(index_[row]);
      reference::EncodeKvRow(shape_.type, x + KeyAt(), keys_.width, keys_.Row(slot_[row], index));
      reference::EncodeKvRow(shape_.type, x + ValueAt(), values_.width,
                             values_.Row(slot_[row], index));
    }
    out_ = Attend();
  }

  const std::vector<float>& expected() const { return out_; }
  const std::vector<float>& ready_q() const { return ready_q_; }
  std::size_t stride() const { return stride_; }
  const HeadShape& shape() const { return shape_; }

  // The card's side of the inputs, made before RunHost() puts this pass's rows into the planes.
  struct Card {
    DeviceArray<std::int32_t> live, slot, index, position;
    DeviceArray<float> qkv, q_norm, k_norm, sinks, out;
    DeviceArray<double> frequencies;
    DeviceArray<std::byte> keys, values;
    cuda::CardAttention attention;
    cuda::HeadInputs inputs;
    cuda::HeadAppendArgs append;
  };

  Card MakeCard() const {
    Card card{
        DeviceArray<std::int32_t>(std::vector<std::int32_t>{static_cast<std::int32_t>(live_)}),
        DeviceArray<std::int32_t>(slot_),
        DeviceArray<std::int32_t>(index_),
        DeviceArray<std::int32_t>(position_),
        DeviceArray<float>(qkv_),
        DeviceArray<float>(q_norm_),
        DeviceArray<float>(k_norm_),
        DeviceArray<float>(sinks_),
        DeviceArray<float>(rows() * shape_.heads * shape_.value_dim, 0xFF),
        DeviceArray<double>(frequencies_),
        DeviceArray<std::byte>(keys_.bytes),
        DeviceArray<std::byte>(values_.bytes),
        {},
        {},
        {}};
    cuda::CardAttention& a = card.attention;
    a.rows = {card.live.data(), card.slot.data(), card.index.data(), card.position.data(),
              static_cast<std::int32_t>(rows())};
    a.q = card.qkv.data();
    a.q_stride = stride_;
    a.out = card.out.data();
    a.out_stride = shape_.heads * shape_.value_dim;
    a.heads = static_cast<std::int32_t>(shape_.heads);
    a.kv_heads = static_cast<std::int32_t>(shape_.kv_heads);
    a.key_dim = static_cast<std::int32_t>(shape_.key_dim);
    a.value_dim = static_cast<std::int32_t>(shape_.value_dim);
    a.scale = Scale();
    a.keys = CardPlaneOf(keys_, card.keys.data());
    a.values = CardPlaneOf(values_, card.values.data());
    a.window = static_cast<std::int32_t>(shape_.window);
    a.sinks = shape_.sinks ? card.sinks.data() : nullptr;
    card.inputs = {card.qkv.data() + KeyAt(),
                   stride_,
                   card.qkv.data() + ValueAt(),
                   stride_,
                   shape_.norm ? card.q_norm.data() : nullptr,
                   shape_.norm ? card.k_norm.data() : nullptr,
                   kEps,
                   kEps,
                   card.frequencies.data(),
                   static_cast<std::int32_t>(shape_.n_rot),
                   1.0F,
                   shape_.v_scale};
    card.append = {a.rows,  card.inputs, a.q,       stride_,     card.qkv.data(), stride_,
                   a.heads, a.kv_heads,  a.key_dim, a.value_dim, a.keys,          a.values};
    return card;
  }

  // Whether the planes hold what the host's hold, byte for byte.
  ::testing::AssertionResult SamePlanes(const Card& card) const {
    const auto same = [](const char* name, const std::vector<std::byte>& got,
                         const Plane& expected) -> ::testing::AssertionResult {
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] != expected.bytes[i]) {
          const std::size_t at = i % expected.slot_bytes;
          return ::testing::AssertionFailure()
                 << name << ": slot " << i / expected.slot_bytes << " row "
                 << at / expected.row_bytes << " byte " << at % expected.row_bytes << ": got "
                 << static_cast<int>(got[i]) << ", expected "
                 << static_cast<int>(expected.bytes[i]);
        }
      }
      return ::testing::AssertionSuccess();
    };
    const auto keys = same("keys", card.keys.Read(), keys_);
    return keys ? same("values", card.values.Read(), values_) : keys;
  }

  // The live rows of the card's output; padding rows must be as they were.
  std::vector<float> LiveOut(const Card& card) const {
    std::vector<float> out = card.out.Read();
    const std::size_t live_values = live_ * shape_.heads * shape_.value_dim;
    for (std::size_t i = live_values; i < out.size(); ++i) {
      EXPECT_TRUE(out[i] != out[i]) << "a padding row was written";
      if (out[i] == out[i]) break;
    }
    out.resize(live_values);
    return out;
  }

 private:
  static constexpr float kEps = 1e-6F;

  struct Plane {
    std::size_t width = 0;
    std::size_t row_bytes = 0;
    std::size_t slot_bytes = 0;
    std::size_t ring_rows = 0;
    std::vector<std::byte> bytes;
    std::byte* Row(std::int32_t slot, std::size_t index) {
      const std::size_t row = ring_rows == 0 ? index : index % ring_rows;
      return bytes.data() + static_cast<std::size_t>(slot) * slot_bytes + row * row_bytes;
    }
  };

  std::size_t KeyAt() const { return shape_.heads * shape_.key_dim; }
  std::size_t ValueAt() const { return KeyAt() + shape_.kv_heads * shape_.key_dim; }
  float Scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.key_dim)); }

  void MakeInputs() {
    stride_ = ValueAt() + shape_.kv_heads * shape_.value_dim;
    qkv_ = random_.Values(rows() * stride_, 2.0F);
    q_norm_ = random_.Values(shape_.key_dim, 1.0F);
    k_norm_ = random_.Values(shape_.key_dim, 1.0F);
    for (std::size_t i = 0; i < shape_.key_dim; ++i) {  // sharp enough that keys matter
      q_norm_[i] = 1.5F + q_norm_[i];
      k_norm_[i] = 1.5F + k_norm_[i];
    }
    sinks_ = random_.Values(shape_.heads, 2.0F);
    sinks_.front() = 60.0F;  // larger than every score
    if (shape_.heads > 1) sinks_.back() = -200.0F;
    frequencies_.resize(std::max<std::size_t>(shape_.n_rot / 2, 1));
    RopeFrequencies(1e6, shape_.n_rot, frequencies_.data());
  }

  // Every byte 0xFF: a NaN in all three row formats.
  Plane MakePlane(std::size_t width) const {
    Plane plane;
    plane.width = width;
    plane.row_bytes = KvRowBytes(shape_.type, width);
    plane.ring_rows = shape_.ring_rows;
    const std::size_t rows = shape_.ring_rows == 0 ? capacity_ : shape_.ring_rows;
    plane.slot_bytes = (plane.row_bytes * rows + 15) / 16 * 16;
    plane.bytes.assign(plane.slot_bytes * slots_, std::byte{0xFF});
    return plane;
  }

  // Those that a row of the pass sees; the others stay NaNs.
  void FillOldRows(const std::vector<PassSegment>& segments) {
    for (const PassSegment& segment : segments) {
      const auto window = static_cast<std::int32_t>(shape_.window);
      const std::int32_t first = window == 0 ? 0 : std::max(segment.index0 + 1 - window, 0);
      for (std::int32_t i = first; i < segment.index0; ++i) {
        for (Plane* plane : {&keys_, &values_}) {
          const std::vector<float> x = random_.Values(plane->width, 2.0F);
          reference::EncodeKvRow(shape_.type, x.data(), plane->width,
                                 plane->Row(segment.slot, static_cast<std::size_t>(i)));
        }
      }
    }
  }

  std::vector<KvView> Views(Plane& plane) const {
    std::vector<KvView> views;
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      views.push_back(
          {shape_.type, plane.width, plane.row_bytes, plane.bytes.data() + slot * plane.slot_bytes,
           ring_blocks_.empty() ? nullptr : ring_blocks_.data(), kAttentionWindow, capacity_});
    }
    return views;
  }

  cuda::CardPlane CardPlaneOf(const Plane& plane, std::byte* base) const {
    return {shape_.type,
            plane.width,
            plane.row_bytes,
            base,
            plane.slot_bytes,
            capacity_,
            static_cast<std::int32_t>(plane.ring_rows)};
  }

  std::vector<float> Attend() {
    std::vector<float> out(live_ * shape_.heads * shape_.value_dim);
    const std::vector<KvView> keys = Views(keys_);
    const std::vector<KvView> values = Views(values_);
    AttentionArgs args;
    args.q = ready_q_.data();
    args.q_stride = stride_;
    args.out = out.data();
    args.out_stride = shape_.heads * shape_.value_dim;
    args.heads = shape_.heads;
    args.kv_heads = shape_.kv_heads;
    args.key_dim = shape_.key_dim;
    args.value_dim = shape_.value_dim;
    args.scale = Scale();
    args.keys = keys.data();
    args.values = values.data();
    args.slot_ids = slot_.data();
    args.index = index_.data();
    args.window = shape_.window;
    args.sinks = shape_.sinks ? sinks_.data() : nullptr;
    AlignedBytes scratch(cpu::AttentionScratchBytes(args));
    for (std::size_t row = 0; row < live_; row += 8) {
      for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
        cpu::Attention(DetectIsa(), args, row, std::min(row + 8, live_), head, scratch.span());
      }
    }
    return out;
  }

  HeadShape shape_;
  Random random_;
  std::size_t live_ = 0;
  std::size_t slots_ = 0;
  std::size_t capacity_ = 0;
  std::size_t stride_ = 0;
  std::vector<std::int32_t> slot_, index_, position_, ring_blocks_;
  std::vector<float> qkv_, q_norm_, k_norm_, sinks_, ready_q_, out_;
  std::vector<double> frequencies_;
  Plane keys_, values_;
};

}  // namespace bloomery::kernels::testing
