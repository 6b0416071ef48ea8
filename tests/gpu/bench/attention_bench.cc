// Attention at the shape of Qwen3-30B-A3B: 32 heads of 128, 4 kv heads. Each repetition is another
// layer's planes, so that keys come from device memory.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels-common/attention/cuda/append.h"
#include "kernels-common/attention/cuda/prompt_attention.h"
#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/rope/rope.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::bench {
namespace {

using testing::Check;
using testing::DeviceArray;

constexpr std::int32_t kHeads = 32;
constexpr std::int32_t kKvHeads = 4;
constexpr std::int32_t kDim = 128;
constexpr std::size_t kWidth = std::size_t{kKvHeads} * kDim;
constexpr std::size_t kStride = std::size_t{kHeads + 2 * kKvHeads} * kDim;
constexpr std::size_t kPlanesBytes = std::size_t{160} << 20U;  // of all layers, beyond the L2 cache
constexpr std::size_t kMostLayers = 48;

// `slots` slots with `rows` rows each from index `depth` on.
class Pass {
 public:
  Pass(KvType type, std::int32_t slots, std::int32_t rows, std::int32_t depth)
      : live_(std::vector<std::int32_t>{slots * rows}),
        slot_(Repeat(slots, rows, 0, true)),
        index_(Repeat(slots, rows, depth, false)),
        frequencies_(Frequencies()),
        norm_(std::vector<float>(kDim, 1.0F)),
        qkv_(static_cast<std::size_t>(slots * rows) * kStride, 0x11),
        out_(static_cast<std::size_t>(slots * rows) * kHeads * kDim) {
    cuda::CardPlane plane;
    plane.type = type;
    plane.width = kWidth;
    plane.row_bytes = KvRowBytes(type, kWidth);
    plane.capacity = static_cast<std::size_t>(depth + rows + 127) / 128 * 128;
    plane.slot_bytes = plane.capacity * plane.row_bytes;
    const std::size_t layer = static_cast<std::size_t>(slots) * plane.slot_bytes;
    layers_ = std::clamp(kPlanesBytes / (2 * layer), std::size_t{1}, kMostLayers);
    planes_ = std::make_unique<DeviceArray<std::byte>>(2 * layer * layers_, 0x11);
    attention_.rows = {live_.data(), slot_.data(), index_.data(), index_.data(), slots * rows};
    attention_.q = qkv_.data();
    attention_.q_stride = kStride;
    attention_.out = out_.data();
    attention_.out_stride = std::size_t{kHeads} * kDim;
    attention_.heads = kHeads;
    attention_.kv_heads = kKvHeads;
    attention_.key_dim = kDim;
    attention_.value_dim = kDim;
    attention_.scale = 0.088F;
    attention_.keys = plane;
    attention_.values = plane;
    inputs_ = {qkv_.data() + std::size_t{kHeads} * kDim,
               kStride,
               qkv_.data() + std::size_t{kHeads + kKvHeads} * kDim,
               kStride,
               norm_.data(),
               norm_.data(),
               1e-6F,
               1e-6F,
               frequencies_.data(),
               kDim,
               1.0F};
    layer_bytes_ = layer;
    workspace_ =
        std::make_unique<DeviceArray<std::byte>>(cuda::RowsAttentionWorkspaceBytes(attention_));
  }

  int Layers() const { return static_cast<int>(layers_); }
  cuda::CardAttention Layer(int i) const {
    cuda::CardAttention attention = attention_;
    const std::size_t at = static_cast<std::size_t>(i) % layers_ * 2 * layer_bytes_;
    attention.keys.base = planes_->data() + at;
    attention.values.base = attention.keys.base + layer_bytes_;
    return attention;
  }
  const cuda::HeadInputs& inputs() const { return inputs_; }
  std::byte* workspace() const { return workspace_->data(); }

 private:
  static std::vector<std::int32_t> Repeat(std::int32_t slots, std::int32_t rows, std::int32_t first,
                                          bool slot_ids) {
    std::vector<std::int32_t> values;
    for (std::int32_t slot = 0; slot < slots; ++slot) {
      for (std::int32_t row = 0; row < rows; ++row) {
        values.push_back(slot_ids ? slot : first + row);
      }
    }
    return values;
  }
  static std::vector<double> Frequencies() {
    std::vector<double> values(kDim / 2);
    RopeFrequencies(1e6, kDim, values.data());
    return values;
  }

  DeviceArray<std::int32_t> live_, slot_, index_;
  DeviceArray<double> frequencies_;
  DeviceArray<float> norm_, qkv_, out_;
  std::unique_ptr<DeviceArray<std::byte>> planes_, workspace_;
  cuda::CardAttention attention_;
  cuda::HeadInputs inputs_;
  std::size_t layers_ = 1;
  std::size_t layer_bytes_ = 0;
};

const char* TypeName(KvType type) {
  return type == KvType::kF16 ? "f16" : type == KvType::kQ8_0 ? "q8_0" : "f32";
}

std::string Name(const char* what, KvType type, std::int32_t slots, std::int32_t rows,
                 std::int32_t depth) {
  return std::string("attention ") + what + " " + TypeName(type) + " " + std::to_string(slots) +
         "x" + std::to_string(rows) + " rows, depth " + std::to_string(depth);
}

void Decode(KvType type, std::int32_t slots, std::int32_t rows, std::int32_t depth) {
  const Pass pass(type, slots, rows, depth);
  const double bytes = 2.0 * slots * depth * static_cast<double>(KvRowBytes(type, kWidth));
  Measure(Name("decode", type, slots, rows, depth), {bytes, 0}, 2 * pass.Layers(),
          [&](const cuda::Launch& launch, int i) {
            return cuda::HeadAttentionRows(launch, pass.Layer(i), pass.inputs(), pass.workspace());
          });
}

void Prompt(KvType type, std::int32_t rows, std::int32_t depth) {
  const Pass pass(type, 1, rows, depth);
  const double pairs = static_cast<double>(rows) * (depth + 0.5 * (rows + 1));
  const int repetitions = rows > 1000 ? 3 : 12;
  Measure(Name("prompt", type, 1, rows, depth), {0, pairs * kDim * 4 * kHeads}, repetitions,
          [&](const cuda::Launch& launch, int i) {
            return cuda::PromptAttention(launch, pass.Layer(i));
          });
}

void Appends(KvType type, std::int32_t rows) {
  const Pass pass(type, 1, rows, 0);
  const double bytes = static_cast<double>(rows) * (kHeads * 2 + kKvHeads * 3) * kDim * 4;
  Measure(Name("norm, rope, append", type, 1, rows, 0), {bytes, 0}, 12,
          [&](const cuda::Launch& launch, int i) {
            const cuda::CardAttention a = pass.Layer(i);
            return cuda::HeadNormRopeAppend(
                launch, {a.rows, pass.inputs(), a.q, a.q_stride, a.out, a.out_stride, a.heads,
                         a.kv_heads, a.key_dim, a.value_dim, a.keys, a.values});
          });
}

const Registered kAttention("attention", [] {
  Check(cuda::PrepareAttention());
  for (const std::int32_t depth : {0, 100, 512, 1024, 4096, 16384}) {
    Decode(KvType::kF16, 1, 1, depth);
  }
  Decode(KvType::kF16, 8, 1, 512);
  Decode(KvType::kF16, 1, 8, 512);
  Decode(KvType::kF16, 8, 1, 4096);
  Decode(KvType::kQ8_0, 1, 1, 4096);
  Decode(KvType::kF32, 1, 1, 4096);
  for (const KvType type : {KvType::kF16, KvType::kQ8_0, KvType::kF32}) {
    Prompt(type, 512, 0);
    Prompt(type, 4096, 0);
  }
  Prompt(KvType::kF16, 512, 4096);
  for (const std::int32_t rows : {16, 64, 128}) {
    Prompt(KvType::kF16, rows, 4096);
  }
  Appends(KvType::kF16, 512);
  Appends(KvType::kF16, 4096);
});

}  // namespace
}  // namespace bloomery::kernels::bench
