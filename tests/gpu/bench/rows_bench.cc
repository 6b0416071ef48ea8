// Decode linears, experts and top logits at the shapes of Qwen3-30B-A3B in Q4_K_M. Each repetition
// has weights of its own, beyond the L2 cache; "layer" is a whole layer but for its attention.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/linear/cuda/top_logits.h"
#include "kernels-common/moe/cuda/rows_experts.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::bench {
namespace {

using testing::Check;
using testing::DeviceArray;

constexpr std::size_t kWidth = 2048;
constexpr std::size_t kHeadWidth = 4096;
constexpr std::size_t kKvWidth = 512;
constexpr std::size_t kFf = 768;
constexpr std::size_t kVocabulary = 151936;
constexpr std::int32_t kExperts = 128;
constexpr std::int32_t kPicks = 8;
constexpr int kLayers = 48;
constexpr int kBanks = 8;  // expert banks; 48 repetitions pick other experts of them
constexpr int kF32 = 0;
constexpr int kQ4K = 12;
constexpr int kQ6K = 14;

// Matrices of one shape, one a layer. What the weights are does not matter, but that they are
// finite.
class Matrices {
 public:
  Matrices(int type, std::size_t n, std::size_t k, int count, std::size_t experts = 1)
      : count_(count),
        bytes_(experts * OneBytes(type, n, k)),
        memory_(bytes_ * Count(count), 0x11) {
    weight_.format = FindFormat(type);
    weight_.n = n;
    weight_.k = k;
    weight_.row_bytes = type == kF32 ? 4 * k : 0;
    weight_.expert_bytes = experts > 1 ? OneBytes(type, n, k) : 0;
  }
  cuda::CardWeight operator[](int i) const {
    cuda::CardWeight weight = weight_;
    weight.data = memory_.data() + Count(i % count_) * bytes_;
    return weight;
  }
  double bytes() const { return static_cast<double>(bytes_); }

 private:
  static std::size_t Count(int i) { return static_cast<std::size_t>(i); }
  static std::size_t OneBytes(int type, std::size_t n, std::size_t k) {
    return type == kF32 ? 4 * n * k : cuda::CardBytes(type, n, k);
  }
  int count_;
  std::size_t bytes_;
  DeviceArray<std::byte> memory_;
  cuda::CardWeight weight_;
};

std::vector<float> RandomLogits(std::size_t count) {
  std::vector<float> logits(count);
  std::uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525U + 1013904223U;
    logit = static_cast<float>(state >> 8U) * 0x1p-22F;
  }
  return logits;
}

// Buffers of a pass, and the launches of a layer.
class Pass {
 public:
  explicit Pass(std::int32_t rows)
      : rows_(rows),
        live_(std::vector<std::int32_t>{rows}),
        failed_(std::vector<std::int32_t>{0}),
        norm_(kWidth, 0x11),
        x_(Rows() * kWidth, 0x11),
        qkv_(Rows() * (kHeadWidth + 2 * kKvWidth), 0x11),
        attention_(Rows() * kHeadWidth, 0x11),
        router_logits_(Rows() * kExperts),
        logits_(RandomLogits(kLayers * Rows() * kExperts)),
        normed_(Rows() * QuantisedRowBytes(kWidth, 256), 0x11),
        ids_(Rows() * kPicks),
        weights_(Rows() * kPicks),
        h_(Rows() * kPicks * kFf, 0x11) {
    Check(cuda::PrepareRowsLinear());
    Check(cuda::PrepareRowsExperts());
    Check(cuda::PrepareTopLogits());
  }

  cudaError_t Qkv(const cuda::Launch& launch, const cuda::CardWeight& q, const cuda::CardWeight& k,
                  const cuda::CardWeight& v) const {
    cuda::RowsLinearArgs args = Normed();
    const std::size_t stride = kHeadWidth + 2 * kKvWidth;
    args.count = 3;
    args.matrices[0] = Matrix(q, qkv_.data(), stride);
    args.matrices[1] = Matrix(k, qkv_.data() + kHeadWidth, stride);
    args.matrices[2] = Matrix(v, qkv_.data() + kHeadWidth + kKvWidth, stride);
    return cuda::RowsLinear(launch, args);
  }
  cudaError_t Out(const cuda::Launch& launch, const cuda::CardWeight& o) const {
    cuda::RowsLinearArgs args;
    args.x = attention_.data();
    args.x_stride = kHeadWidth;
    args.k = kHeadWidth;
    args.rows = rows_;
    args.live = live_.data();
    args.count = 1;
    args.matrices[0] = Matrix(o, x_.data(), kWidth);
    args.matrices[0].residual = x_.data();
    args.matrices[0].residual_stride = kWidth;
    return cuda::RowsLinear(launch, args);
  }
  cudaError_t Router(const cuda::Launch& launch, const cuda::CardWeight& router) const {
    cuda::RowsLinearArgs args = Normed();
    args.count = 1;
    args.matrices[0] = Matrix(router, router_logits_.data(), kExperts);
    args.normed = MakeQuantisedRows(normed_.data(), kWidth, 256);
    return cuda::RowsLinear(launch, args);
  }
  cudaError_t GateUp(const cuda::Launch& launch, const cuda::CardWeight& gate,
                     const cuda::CardWeight& up, int repetition) const {
    cuda::ExpertGateUpRowsArgs args;
    args.rows = rows_;
    args.live = live_.data();
    args.logits =
        logits_.data() + static_cast<std::size_t>(repetition % kLayers) * Rows() * kExperts;
    args.logits_stride = kExperts;
    args.experts = kExperts;
    args.top_k = kPicks;
    args.ids = ids_.data();
    args.weights = weights_.data();
    args.failed_row = failed_.data();
    args.quantised = MakeQuantisedRows(normed_.data(), kWidth, 256);
    args.gate = gate;
    args.up = up;
    args.h = h_.data();
    args.h_stride = kFf;
    return cuda::ExpertGateUpRows(launch, args);
  }
  cudaError_t Down(const cuda::Launch& launch, const cuda::CardWeight& down) const {
    cuda::ExpertDownRowsArgs args;
    args.rows = rows_;
    args.live = live_.data();
    args.experts = kExperts;
    args.top_k = kPicks;
    args.ids = ids_.data();
    args.weights = weights_.data();
    args.h = h_.data();
    args.h_stride = kFf;
    args.down = down;
    args.residual = x_.data();
    args.residual_stride = kWidth;
    args.out = x_.data();
    args.out_stride = kWidth;
    args.failed_row = failed_.data();
    return cuda::ExpertDownRows(launch, args);
  }
  cudaError_t Head(const cuda::Launch& launch, const cuda::CardWeight& head, float* logits) const {
    cuda::RowsLinearArgs args = Normed();
    args.count = 1;
    args.matrices[0] = Matrix(head, logits, kVocabulary);
    return cuda::RowsLinear(launch, args);
  }
  // Distinct experts of a repetition, as expected of rows that pick at random.
  double DistinctExperts() const {
    double unpicked = 1.0;
    for (std::int32_t row = 0; row < rows_; ++row) unpicked *= 1.0 - double{kPicks} / kExperts;
    return kExperts * (1.0 - unpicked);
  }
  std::int32_t rows() const { return rows_; }
  std::int32_t* failed() const { return failed_.data(); }

 private:
  std::size_t Rows() const { return static_cast<std::size_t>(rows_); }
  static cuda::CardMatrix Matrix(const cuda::CardWeight& weight, float* y, std::size_t stride) {
    cuda::CardMatrix matrix;
    matrix.weight = weight;
    matrix.y = y;
    matrix.y_stride = stride;
    return matrix;
  }
  cuda::RowsLinearArgs Normed() const {
    cuda::RowsLinearArgs args;
    args.x = x_.data();
    args.x_stride = kWidth;
    args.norm_weight = norm_.data();
    args.eps = 1e-6F;
    args.k = kWidth;
    args.rows = rows_;
    args.live = live_.data();
    return args;
  }

  std::int32_t rows_;
  DeviceArray<std::int32_t> live_;
  DeviceArray<std::int32_t> failed_;
  DeviceArray<float> norm_;
  DeviceArray<float> x_;
  DeviceArray<float> qkv_;
  DeviceArray<float> attention_;
  DeviceArray<float> router_logits_;
  DeviceArray<float> logits_;
  DeviceArray<std::byte> normed_;
  DeviceArray<std::int32_t> ids_;
  DeviceArray<float> weights_;
  DeviceArray<float> h_;
};

// The repetition with and without dependent launches, each at 1 and 8 rows.
template <class Body>
void MeasureRows(const std::string& name, const Body& body) {
  for (const std::int32_t rows : {1, 8}) {
    const Pass pass(rows);
    for (const bool dependent : {true, false}) {
      const std::string full =
          name + " rows=" + std::to_string(rows) + (dependent ? " dependent" : " plain");
      body(full, pass, [dependent](cuda::Launch launch) {
        launch.dependent = launch.dependent && dependent;
        return launch;
      });
    }
  }
}

const Registered kQkv("decode qkv", [] {
  const Matrices q(kQ4K, kHeadWidth, kWidth, kLayers);
  const Matrices k(kQ4K, kKvWidth, kWidth, kLayers);
  const Matrices v(kQ6K, kKvWidth, kWidth, kLayers);
  MeasureRows("decode qkv", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(
        name, {q.bytes() + k.bytes() + v.bytes(), 0}, kLayers,
        [&](const cuda::Launch& launch, int i) { return pass.Qkv(as(launch), q[i], k[i], v[i]); });
  });
});

const Registered kOut("decode out", [] {
  const Matrices o(kQ4K, kWidth, kHeadWidth, kLayers);
  MeasureRows("decode out", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(name, {o.bytes(), 0}, kLayers,
            [&](const cuda::Launch& launch, int i) { return pass.Out(as(launch), o[i]); });
  });
});

const Registered kRouter("decode router", [] {
  const Matrices router(kF32, kExperts, kWidth, 2 * kLayers);
  MeasureRows("decode router", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(name, {router.bytes(), 0}, 2 * kLayers,
            [&](const cuda::Launch& launch, int i) { return pass.Router(as(launch), router[i]); });
  });
});

const Registered kGateUp("decode gate/up", [] {
  const Matrices gate(kQ4K, kFf, kWidth, kBanks, kExperts);
  const Matrices up(kQ4K, kFf, kWidth, kBanks, kExperts);
  MeasureRows("decode gate/up", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(name, {(gate.bytes() + up.bytes()) / kExperts * pass.DistinctExperts(), 0}, kLayers,
            [&](const cuda::Launch& launch, int i) {
              return pass.GateUp(as(launch), gate[i], up[i], i);
            });
  });
});

// Down alone would read the same experts each time: it follows gate/up, and the difference counts.
void MeasureDown(int type, const std::string& type_name) {
  const Matrices gate(kQ4K, kFf, kWidth, kBanks, kExperts);
  const Matrices up(kQ4K, kFf, kWidth, kBanks, kExperts);
  const Matrices down(type, kWidth, kFf, kBanks, kExperts);
  MeasureRows("decode gate/up+down " + type_name,
              [&](const std::string& name, const Pass& pass, const auto& as) {
                const double bytes = (gate.bytes() + up.bytes() + down.bytes()) / kExperts;
                Measure(name, {bytes * pass.DistinctExperts(), 0}, kLayers,
                        [&](const cuda::Launch& launch, int i) {
                          const cudaError_t status = pass.GateUp(as(launch), gate[i], up[i], i);
                          return status == cudaSuccess ? pass.Down(as(launch), down[i]) : status;
                        });
              });
}
const Registered kDown4("decode gate/up+down Q4_K", [] { MeasureDown(kQ4K, "Q4_K"); });
const Registered kDown6("decode gate/up+down Q6_K", [] { MeasureDown(kQ6K, "Q6_K"); });

const Registered kHead("decode head", [] {
  const Matrices head(kQ6K, kVocabulary, kWidth, 4);
  const DeviceArray<float> logits(kVocabulary * 8);
  MeasureRows("decode head", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(name, {head.bytes(), 0}, 8, [&](const cuda::Launch& launch, int i) {
      return pass.Head(as(launch), head[i], logits.data());
    });
  });
});

const Registered kTop("decode top logits", [] {
  const DeviceArray<float> logits(RandomLogits(kVocabulary * 8));
  const DeviceArray<std::int32_t> ids(8 * cuda::kTopLogits);
  const DeviceArray<float> values(8 * cuda::kTopLogits);
  const DeviceArray<std::byte> scratch(cuda::TopLogitsScratchBytes(8));
  MeasureRows("decode top logits", [&](const std::string& name, const Pass& pass, const auto& as) {
    Measure(name, {}, 16, [&](const cuda::Launch& launch, int) {
      cuda::TopLogitsArgs args;
      args.logits = logits.data();
      args.logits_stride = kVocabulary;
      args.vocabulary = kVocabulary;
      args.rows = pass.rows();
      args.ids = ids.data();
      args.values = values.data();
      args.failed_row = pass.failed();
      args.scratch = scratch.data();
      return cuda::TopLogits(as(launch), args);
    });
  });
});

const Registered kLayer("decode layer", [] {
  const Matrices q(kQ4K, kHeadWidth, kWidth, kLayers);
  const Matrices k(kQ4K, kKvWidth, kWidth, kLayers);
  const Matrices v(kQ6K, kKvWidth, kWidth, kLayers);
  const Matrices o(kQ4K, kWidth, kHeadWidth, kLayers);
  const Matrices router(kF32, kExperts, kWidth, kLayers);
  const Matrices gate(kQ4K, kFf, kWidth, kBanks, kExperts);
  const Matrices up(kQ4K, kFf, kWidth, kBanks, kExperts);
  const Matrices down(kQ6K, kWidth, kFf, kBanks, kExperts);
  MeasureRows("decode layer", [&](const std::string& name, const Pass& pass, const auto& as) {
    const double dense = q.bytes() + k.bytes() + v.bytes() + o.bytes() + router.bytes();
    const double experts = (gate.bytes() + up.bytes() + down.bytes()) / kExperts;
    Measure(name, {dense + experts * pass.DistinctExperts(), 0}, kLayers,
            [&](const cuda::Launch& plain, int i) {
              const cuda::Launch launch = as(plain);
              cudaError_t status = pass.Qkv(launch, q[i], k[i], v[i]);
              if (status == cudaSuccess) status = pass.Out(launch, o[i]);
              if (status == cudaSuccess) status = pass.Router(launch, router[i]);
              if (status == cudaSuccess) status = pass.GateUp(launch, gate[i], up[i], i);
              if (status == cudaSuccess) status = pass.Down(launch, down[i]);
              return status;
            });
  });
});

}  // namespace
}  // namespace bloomery::kernels::bench
