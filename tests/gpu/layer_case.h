// Layers of the shape of one_row_layers.h with random weights, and a pass of one row over them: by
// six launches a layer, and as one.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/layer/cuda/one_row_layers.h"
#include "kernels-common/rope/rope.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::testing {

// Tiles of Q4_K and Q6_K in card form: random codes and scales, of a size that leaves sums finite.
class RandomTiles {
 public:
  static constexpr int kQ4K = 12;
  static constexpr int kQ6K = 14;

  RandomTiles() : q4_(Pool(kQ4K)), q6_(Pool(kQ6K)) {}

  cuda::CardWeight Matrix(int type, std::size_t n, std::size_t k, std::size_t experts = 1) {
    cuda::CardWeight weight;
    weight.format = FindFormat(type);
    weight.n = n;
    weight.k = k;
    const std::size_t bytes = cuda::CardBytes(type, n, k);
    weight.expert_bytes = experts > 1 ? bytes : 0;
    std::byte* to = Take(bytes * experts);
    const DeviceArray<std::byte>& pool = type == kQ4K ? q4_ : q6_;
    // Another place of the pool for each matrix; the pool's count of tiles is a prime.
    const std::size_t tile = pool.size() / kTiles;
    std::size_t from = memory_.size() * 977 % kTiles * tile;
    for (std::size_t at = 0; at < bytes * experts;) {
      const std::size_t some = std::min(bytes * experts - at, pool.size() - from);
      Check(cudaMemcpyAsync(to + at, pool.data() + from, some, cudaMemcpyDeviceToDevice));
      at += some;
      from = 0;
    }
    weight.data = to;
    return weight;
  }
  cuda::CardWeight Floats(std::size_t n, std::size_t k, float magnitude) {
    cuda::CardWeight weight;
    weight.format = FindFormat(0);
    weight.n = n;
    weight.k = k;
    weight.row_bytes = 4 * k;
    weight.data = Values(n * k, 0.0F, magnitude);
    return weight;
  }
  float* Values(std::size_t count, float mean, float magnitude) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = mean + magnitude * (static_cast<float>(Next() >> 40U) * 0x1p-23F - 1.0F);
    }
    auto* to = reinterpret_cast<float*>(Take(4 * count));
    Check(cudaMemcpy(to, values.data(), 4 * count, cudaMemcpyHostToDevice));
    return to;
  }
  std::byte* Take(std::size_t bytes) {
    memory_.emplace_back(bytes);
    return memory_.back().data();
  }
  std::uint64_t Next() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return state_;
  }

 private:
  static constexpr std::size_t kTiles = 4099;

  std::vector<std::byte> Pool(int type) {
    const std::size_t tile = cuda::CardBytes(type, 16, 256);
    std::vector<std::byte> bytes((kTiles * tile + 7) / 8 * 8);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const std::uint64_t word = Next();
      std::memcpy(bytes.data() + at, &word, 8);
    }
    bytes.resize(kTiles * tile);
    const auto half = [&](std::size_t at, unsigned exponent) {
      const auto bits = static_cast<std::uint16_t>(exponent << 10U | (Next() & 1023U));
      std::memcpy(bytes.data() + at, &bits, 2);
    };
    for (std::size_t i = 0; i < kTiles; ++i) {
      for (std::size_t row = 0; row < 16; ++row) {
        if (type == kQ4K) {
          half(i * tile + 2048 + 16 * row, 2);
          half(i * tile + 2048 + 16 * row + 2, 5);
        } else {
          half(i * tile + 3328 + 2 * row, 1);
        }
      }
    }
    return bytes;
  }

  std::uint64_t state_ = 88172645463325252U;
  std::deque<DeviceArray<std::byte>> memory_;
  DeviceArray<std::byte> q4_, q6_;
};

class LayerCase {
 public:
  static constexpr std::size_t kWidth = 2048;
  static constexpr std::size_t kHeads = 32;
  static constexpr std::size_t kKvHeads = 4;
  static constexpr std::size_t kDim = 128;
  static constexpr std::size_t kFf = 768;
  static constexpr std::size_t kExperts = 128;
  static constexpr std::size_t kSlots = 2;

  // Every second layer has v and down in Q6_K, every fourth the output, too. `banks` of experts
  // serve all layers.
  LayerCase(int layers, int banks, std::size_t capacity) : capacity_(capacity) {
    Check(cuda::PrepareRowsLinear());
    Check(cuda::PrepareRowsExperts());
    Check(cuda::PrepareAttention());
    Check(cuda::PrepareOneRowLayers());
    std::vector<double> frequencies(kDim / 2);
    RopeFrequencies(1e6, kDim, frequencies.data());
    frequencies_ = reinterpret_cast<double*>(tiles_.Take(8 * frequencies.size()));
    Check(cudaMemcpy(frequencies_, frequencies.data(), 8 * frequencies.size(),
                     cudaMemcpyHostToDevice));
    words_ = reinterpret_cast<std::int32_t*>(tiles_.Take(64));
    for (int i = 0; i < banks; ++i) {
      const int down = i % 2 == 0 ? RandomTiles::kQ4K : RandomTiles::kQ6K;
      banks_.push_back({tiles_.Matrix(RandomTiles::kQ4K, kFf, kWidth, kExperts),
                        tiles_.Matrix(RandomTiles::kQ4K, kFf, kWidth, kExperts),
                        tiles_.Matrix(down, kWidth, kFf, kExperts)});
    }
    picks_ = reinterpret_cast<std::uint32_t*>(
        tiles_.Take(4 * kExperts * static_cast<std::size_t>(layers)));
    float* x = tiles_.Values(kWidth, 0.0F, 1.0F);
    input_ = x;
    for (int i = 0; i < layers; ++i) x = AddLayer(i, x);
    Check(cudaDeviceSynchronize());
    workspace_ = tiles_.Take(cuda::RowsAttentionWorkspaceBytes(layers_[0].attention));
    state_ = tiles_.Take(cuda::OneRowLayersStateBytes(layers_[0].attention));
  }

  void SetRow(std::int32_t slot, std::int32_t index) {
    const std::int32_t words[] = {1, slot, index, index, INT32_MAX};
    Check(cudaMemcpy(words_, words, sizeof(words), cudaMemcpyHostToDevice));
    Check(cudaMemset(picks_, 0, 4 * kExperts * layers_.size()));
  }
  std::int32_t FailedRow() const {
    std::int32_t row = 0;
    Check(cudaMemcpy(&row, words_ + 4, 4, cudaMemcpyDeviceToHost));
    return row;
  }

  // Rows of each expert in the pass, layer after layer.
  std::vector<std::uint32_t> Picks() const {
    return Read<std::uint32_t>(picks_, kExperts * layers_.size());
  }

  cudaError_t SixLaunches(const cuda::Launch& launch) const {
    for (const cuda::OneRowLayer& l : layers_) {
      cudaError_t status = cuda::RowsLinear(launch, l.qkv);
      if (status == cudaSuccess) {
        status = cuda::HeadAttentionRows(launch, l.attention, l.heads, workspace_);
      }
      if (status == cudaSuccess) status = cuda::RowsLinear(launch, l.output);
      if (status == cudaSuccess) status = cuda::RowsLinear(launch, l.router);
      if (status == cudaSuccess) status = cuda::ExpertGateUpRows(launch, l.gate_up);
      if (status == cudaSuccess) status = cuda::ExpertDownRows(launch, l.down);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }
  cudaError_t OneLaunch(const cuda::Launch& launch) const {
    return cuda::OneRowLayers(launch, layers_, state_);
  }

  std::vector<cuda::OneRowLayer>& layers() { return layers_; }
  float* input() const { return input_; }
  std::byte* state() const { return state_; }
  std::vector<float> Output() const { return Read<float>(layers_.back().down.out, kWidth); }
  // Plane row `index` of every layer: keys, then values.
  std::vector<std::uint16_t> PlaneRows(std::int32_t slot, std::int32_t index) const {
    std::vector<std::uint16_t> all;
    for (const cuda::OneRowLayer& l : layers_) {
      for (const cuda::CardPlane& plane : {l.attention.keys, l.attention.values}) {
        const std::byte* row = plane.base + static_cast<std::size_t>(slot) * plane.slot_bytes +
                               static_cast<std::size_t>(index) * plane.row_bytes;
        const std::vector<std::uint16_t> values = Read<std::uint16_t>(row, kKvHeads * kDim);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

 private:
  struct Bank {
    cuda::CardWeight gate, up, down;
  };

  template <class T>
  static std::vector<T> Read(const void* from, std::size_t count) {
    std::vector<T> values(count);
    Check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  static cuda::CardMatrix To(const cuda::CardWeight& weight, float* y,
                             const float* residual = nullptr) {
    cuda::CardMatrix matrix;
    matrix.weight = weight;
    matrix.y = y;
    matrix.y_stride = weight.n;
    matrix.residual = residual;
    matrix.residual_stride = residual == nullptr ? 0 : weight.n;
    return matrix;
  }
  float* Buffer(std::size_t count) { return reinterpret_cast<float*>(tiles_.Take(4 * count)); }

  cuda::CardPlane Plane() {
    cuda::CardPlane plane;
    plane.type = KvType::kF16;
    plane.width = kKvHeads * kDim;
    plane.row_bytes = KvRowBytes(plane.type, plane.width);
    plane.capacity = capacity_;
    plane.slot_bytes = capacity_ * plane.row_bytes;
    std::vector<std::uint16_t> values(kSlots * capacity_ * plane.width);
    for (std::uint16_t& value : values) {  // 2^-3 to 2, of both signs
      const std::uint64_t bits = tiles_.Next();
      value = static_cast<std::uint16_t>((12U + (bits & 3U)) << 10U | (bits >> 8U & 0x83FFU));
    }
    plane.base = tiles_.Take(2 * values.size());
    Check(cudaMemcpy(plane.base, values.data(), 2 * values.size(), cudaMemcpyHostToDevice));
    return plane;
  }

  cuda::RowsLinearArgs Linear(const float* x, std::size_t k) const {
    cuda::RowsLinearArgs args;
    args.x = x;
    args.x_stride = k;
    args.k = k;
    args.rows = 1;
    args.live = words_;
    return args;
  }
  void Norm(cuda::RowsLinearArgs& args) {
    args.norm_weight = tiles_.Values(kWidth, 1.0F, 0.25F);
    args.eps = 1e-6F;
  }

  float* AddLayer(int i, float* x) {
    const int other = i % 2 == 1 ? RandomTiles::kQ6K : RandomTiles::kQ4K;
    cuda::OneRowLayer l;
    l.qkv = Linear(x, kWidth);
    Norm(l.qkv);
    l.qkv.count = 3;
    l.qkv.matrices[0] =
        To(tiles_.Matrix(RandomTiles::kQ4K, kHeads * kDim, kWidth), Buffer(kHeads * kDim));
    l.qkv.matrices[1] =
        To(tiles_.Matrix(RandomTiles::kQ4K, kKvHeads * kDim, kWidth), Buffer(kKvHeads * kDim));
    l.qkv.matrices[2] = To(tiles_.Matrix(other, kKvHeads * kDim, kWidth), Buffer(kKvHeads * kDim));
    cuda::CardAttention& a = l.attention;
    a.rows = {words_, words_ + 1, words_ + 2, words_ + 3, 1};
    a.q = l.qkv.matrices[0].y;
    a.q_stride = kHeads * kDim;
    a.out = Buffer(kHeads * kDim);
    a.out_stride = kHeads * kDim;
    a.heads = kHeads;
    a.kv_heads = kKvHeads;
    a.key_dim = kDim;
    a.value_dim = kDim;
    a.scale = 0.08838835F;
    a.keys = Plane();
    a.values = Plane();
    l.heads = {l.qkv.matrices[1].y,
               kKvHeads * kDim,
               l.qkv.matrices[2].y,
               kKvHeads * kDim,
               tiles_.Values(kDim, 1.0F, 0.25F),
               tiles_.Values(kDim, 1.0F, 0.25F),
               1e-6F,
               1e-6F,
               frequencies_,
               kDim,
               1.0F};
    l.output = Linear(a.out, kHeads * kDim);
    l.output.count = 1;
    float* x2 = Buffer(kWidth);
    l.output.matrices[0] =
        To(tiles_.Matrix(i % 4 == 3 ? RandomTiles::kQ6K : RandomTiles::kQ4K, kWidth, kHeads * kDim),
           x2, x);
    l.router = Linear(x2, kWidth);
    Norm(l.router);
    l.router.count = 1;
    l.router.matrices[0] = To(tiles_.Floats(kExperts, kWidth, 0.05F), Buffer(kExperts));
    l.router.normed = MakeQuantisedRows(tiles_.Take(QuantisedRowBytes(kWidth, 256)), kWidth, 256);
    AddExperts(l, banks_[static_cast<std::size_t>(i) % banks_.size()]);
    layers_.push_back(l);
    return l.down.out;
  }
  void AddExperts(cuda::OneRowLayer& l, const Bank& bank) {
    cuda::ExpertGateUpRowsArgs& g = l.gate_up;
    g.rows = 1;
    g.live = words_;
    g.logits = l.router.matrices[0].y;
    g.logits_stride = kExperts;
    g.experts = kExperts;
    g.top_k = 8;
    g.ids = reinterpret_cast<std::int32_t*>(Buffer(8));
    g.weights = Buffer(8);
    g.counts.experts = picks_ + layers_.size() * kExperts;
    g.failed_row = words_ + 4;
    g.quantised = l.router.normed;
    g.gate = bank.gate;
    g.up = bank.up;
    g.h = Buffer(8 * kFf);
    g.h_stride = kFf;
    cuda::ExpertDownRowsArgs& d = l.down;
    d.rows = 1;
    d.live = words_;
    d.experts = kExperts;
    d.top_k = 8;
    d.ids = g.ids;
    d.weights = g.weights;
    d.h = g.h;
    d.h_stride = kFf;
    d.down = bank.down;
    d.residual = l.output.matrices[0].y;
    d.residual_stride = kWidth;
    d.out = Buffer(kWidth);
    d.out_stride = kWidth;
    d.failed_row = words_ + 4;
  }

  std::size_t capacity_;
  RandomTiles tiles_;
  std::vector<Bank> banks_;
  std::vector<cuda::OneRowLayer> layers_;
  float* input_ = nullptr;
  double* frequencies_ = nullptr;
  std::uint32_t* picks_ = nullptr;
  std::int32_t* words_ = nullptr;  // live, slot, index, position, failed row
  std::byte* workspace_ = nullptr;
  std::byte* state_ = nullptr;
};

}  // namespace bloomery::kernels::testing
