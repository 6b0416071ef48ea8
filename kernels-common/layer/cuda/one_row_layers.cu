#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/layer/cuda/one_row_attention.cuh"
#include "kernels-common/linear/cuda/float_rows.cuh"

namespace bloomery::kernels::cuda {
namespace {

using S = LayerShape;

__global__ void __launch_bounds__(S::kThreads, 1)
    OneRowLayersKernel(const __grid_constant__ LayersParams params) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  OneRowBlock(params).Run();
#endif
}

constexpr std::size_t kHeaderBytes = 256;

bool IsType(const CardWeight& weight, int a, int b) {
  return weight.format->ggml_type == a || weight.format->ggml_type == b;
}

bool IsMatrix(const CardMatrix& m, int n, int k) {
  return IsType(m.weight, kQ4K, kQ6K) && m.weight.n == static_cast<std::size_t>(n) &&
         m.weight.k == static_cast<std::size_t>(k) && m.scale == nullptr && m.bias == nullptr;
}

bool IsLinear(const RowsLinearArgs& a, int k, int count) {
  return a.rows == 1 && a.row_map == nullptr && a.k == static_cast<std::size_t>(k) &&
         a.count == count && a.normed_f32 == nullptr;
}

bool FitsProjections(const OneRowLayer& l) {
  const CardMatrix* m = l.qkv.matrices;
  return IsLinear(l.qkv, S::kWidth, 3) && l.qkv.norm_weight != nullptr &&
         l.qkv.normed.data == nullptr && IsMatrix(m[0], S::kHeads * S::kHeadDim, S::kWidth) &&
         IsMatrix(m[1], S::kKvHeads * S::kHeadDim, S::kWidth) &&
         IsMatrix(m[2], S::kKvHeads * S::kHeadDim, S::kWidth) && m[0].residual == nullptr &&
         m[1].residual == nullptr && m[2].residual == nullptr;
}

bool IsAttention(const CardAttention& a) {
  return a.window == 0 && a.sinks == nullptr && a.rows.rows == 1 && a.heads == S::kHeads &&
         a.kv_heads == S::kKvHeads && a.key_dim == S::kHeadDim && a.value_dim == S::kHeadDim &&
         a.keys.type == KvType::kF16 && a.values.type == KvType::kF16;
}

bool FitsAttention(const OneRowLayer& l) {
  const CardAttention& a = l.attention;
  const HeadInputs& h = l.heads;
  return IsAttention(a) && a.rows.map == nullptr && a.keys.row_bytes == a.values.row_bytes &&
         a.keys.slot_bytes == a.values.slot_bytes && h.n_rot == S::kHeadDim &&
         h.q_norm != nullptr && h.k_norm != nullptr && h.v_scale == 1.0F &&
         a.q == l.qkv.matrices[0].y && h.k == l.qkv.matrices[1].y && h.v == l.qkv.matrices[2].y;
}

bool FitsOutput(const OneRowLayer& l) {
  const CardMatrix& m = l.output.matrices[0];
  return IsLinear(l.output, S::kHeads * S::kHeadDim, 1) && l.output.norm_weight == nullptr &&
         l.output.normed.data == nullptr && IsMatrix(m, S::kWidth, S::kHeads * S::kHeadDim) &&
         l.output.x == l.attention.out && m.residual == l.qkv.x;
}

bool FitsRouter(const OneRowLayer& l) {
  const CardMatrix& m = l.router.matrices[0];
  return IsLinear(l.router, S::kWidth, 1) && l.router.norm_weight != nullptr &&
         l.router.normed.data != nullptr && l.router.normed.group == 256 &&
         IsType(m.weight, kF32, kF32) && m.weight.n == S::kExperts && m.scale == nullptr &&
         m.bias == nullptr && m.residual == nullptr && l.router.x == l.output.matrices[0].y &&
         (m.weight.row_bytes == 0 || m.weight.row_bytes == sizeof(float) * S::kWidth);
}

bool FitsExperts(const OneRowLayer& l) {
  const ExpertGateUpRowsArgs& g = l.gate_up;
  const ExpertDownRowsArgs& d = l.down;
  return IsPlainRouter(g.scoring) && g.rows == 1 && g.experts == S::kExperts &&
         g.top_k == S::kPicks && IsType(g.gate, kQ4K, kQ4K) && IsType(g.up, kQ4K, kQ4K) &&
         g.gate.n == S::kFf && g.up.n == S::kFf && g.gate.k == S::kWidth && g.up.k == S::kWidth &&
         g.gate.expert_bytes == g.up.expert_bytes && g.logits == l.router.matrices[0].y &&
         g.quantised.data == l.router.normed.data && d.rows == 1 && d.experts == S::kExperts &&
         d.top_k == S::kPicks && d.ids == g.ids && d.weights == g.weights && d.h == g.h &&
         IsType(d.down, kQ4K, kQ6K) && d.down.n == S::kWidth && d.down.k == S::kFf &&
         g.gate.expert_bytes <= UINT32_MAX && d.down.expert_bytes <= UINT32_MAX &&
         g.frame_of == nullptr && d.frame_of == nullptr && d.residual == l.output.matrices[0].y &&
         d.failed_row == g.failed_row;
}

// Counts of picks lie layer after layer, or nothing is counted.
bool CountsFollow(const OneRowLayer& first, const OneRowLayer& l, std::size_t index) {
  const std::uint32_t* counts = first.gate_up.counts.experts;
  return l.gate_up.counts.experts == (counts == nullptr ? nullptr : counts + index * S::kExperts);
}

// What all layers share.
bool SamePass(const OneRowLayer& a, const OneRowLayer& b) {
  return a.attention.rows.index == b.attention.rows.index &&
         a.attention.rows.slot == b.attention.rows.slot &&
         a.attention.rows.position == b.attention.rows.position &&
         a.attention.rows.live == b.attention.rows.live && a.attention.scale == b.attention.scale &&
         a.attention.keys.slot_bytes == b.attention.keys.slot_bytes &&
         a.attention.keys.row_bytes == b.attention.keys.row_bytes &&
         a.attention.keys.capacity == b.attention.keys.capacity &&
         a.heads.frequencies == b.heads.frequencies && a.heads.magnitude == b.heads.magnitude &&
         a.gate_up.renormalise == b.gate_up.renormalise &&
         a.gate_up.weight_scale == b.gate_up.weight_scale &&
         a.gate_up.failed_row == b.gate_up.failed_row;
}

std::int32_t Windows(std::size_t capacity) {
  return static_cast<std::int32_t>((capacity + kAttentionWindow - 1) / kAttentionWindow);
}

LayerWeights WeightsOf(const OneRowLayer& l) {
  LayerWeights w = {};
  const auto bit = [&](const CardWeight& weight, int place) {
    if (weight.format->ggml_type == kQ6K) w.q6k |= 1U << place;
    return static_cast<const std::byte*>(weight.data);
  };
  for (int i = 0; i < 3; ++i) w.qkv[i] = bit(l.qkv.matrices[i].weight, i);
  w.output = bit(l.output.matrices[0].weight, kOutputBit);
  w.down = bit(l.down.down, kDownBit);
  w.gate = static_cast<const std::byte*>(l.gate_up.gate.data);
  w.up = static_cast<const std::byte*>(l.gate_up.up.data);
  w.router = static_cast<const float*>(l.router.matrices[0].weight.data);
  w.attention_norm = l.qkv.norm_weight;
  w.ffn_norm = l.router.norm_weight;
  w.q_norm = l.heads.q_norm;
  w.k_norm = l.heads.k_norm;
  w.keys = l.attention.keys.base;
  w.values = l.attention.values.base;
  w.attention_eps = l.qkv.eps;
  w.ffn_eps = l.router.eps;
  w.q_eps = l.heads.q_eps;
  w.k_eps = l.heads.k_eps;
  w.expert_bytes = static_cast<std::uint32_t>(l.gate_up.gate.expert_bytes);
  w.down_bytes = static_cast<std::uint32_t>(l.down.down.expert_bytes);
  return w;
}

}  // namespace

bool OneRowLayersFit(const Launch& launch, std::span<const OneRowLayer> layers) {
  if (!launch.dependent || launch.multiprocessors < S::kWorkers || layers.empty() ||
      layers.size() > kOneRowLayersMax || launch.shared_bytes_max < LayerRoom::kBytes) {
    return false;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const OneRowLayer& l = layers[i];
    if (!FitsProjections(l) || !FitsAttention(l) || !FitsOutput(l) || !FitsRouter(l) ||
        !FitsExperts(l) || !SamePass(l, layers[0]) || !CountsFollow(layers[0], l, i) ||
        (i > 0 && l.qkv.x != layers[i - 1].down.out)) {
      return false;
    }
  }
  return true;
}

std::size_t OneRowLayersStateBytes(const CardAttention& attention) {
  if (!IsAttention(attention)) return 0;
  const auto windows = static_cast<std::size_t>(Windows(attention.keys.capacity));
  return kHeaderBytes + sizeof(Word) * (LayerWords::kSums + LayerWords::OfWindows(windows));
}

cudaError_t PrepareOneRowLayers() {
  int device = 0;
  int most = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status != cudaSuccess || most < LayerRoom::kBytes) return status;
  return AllowShared(OneRowLayersKernel, LayerRoom::kBytes);
}

cudaError_t OneRowLayers(const Launch& launch, std::span<const OneRowLayer> layers,
                         std::byte* state) {
  if (!OneRowLayersFit(launch, layers) || state == nullptr) return cudaErrorInvalidValue;
  LayersParams params = {};
  for (std::size_t i = 0; i < layers.size(); ++i) params.layers[i] = WeightsOf(layers[i]);
  LayersPass& p = params.pass;
  const OneRowLayer& first = layers.front();
  p.count = static_cast<std::int32_t>(layers.size());
  p.x = first.qkv.x;
  p.out = layers.back().down.out;
  p.live = first.attention.rows.live;
  p.slot = first.attention.rows.slot;
  p.index = first.attention.rows.index;
  p.position = first.attention.rows.position;
  p.frequencies = first.heads.frequencies;
  p.magnitude = first.heads.magnitude;
  p.scale = first.attention.scale;
  p.weight_scale = first.gate_up.weight_scale;
  p.renormalise = first.gate_up.renormalise;
  p.slot_bytes = first.attention.keys.slot_bytes;
  p.row_bytes = first.attention.keys.row_bytes;
  p.windows_most = Windows(first.attention.keys.capacity);
  p.failed_row = first.gate_up.failed_row;
  p.picks = first.gate_up.counts.experts;
  p.epoch = reinterpret_cast<std::uint32_t*>(state);
  p.words = reinterpret_cast<Word*>(state + kHeaderBytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.multiprocessors));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = LayerRoom::kBytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, OneRowLayersKernel, params);
}

}  // namespace bloomery::kernels::cuda
