#include "kernels-common/linear/cuda/prompt_linear.h"

#include <algorithm>
#include <array>

#include "kernels-common/linear/cuda/prompt_float.cuh"
#include "kernels-common/linear/cuda/prompt_linear.cuh"

namespace bloomery::kernels::cuda {
namespace {

struct Entry {
  int type;
  PromptKernelPointer kernels[2];  // units of at most 32 columns, and of at most 64
};

constexpr int kF16 = 1;
constexpr int kBf16 = 30;

template <int... types>
constexpr std::array<Entry, sizeof...(types) + 2> Entries() {
  return {{{types, {PromptKernel<types, 4>, PromptKernel<types, 8>}}...,
           {kF16, {FloatPromptKernel<true>, FloatPromptKernel<true>}},
           {kBf16, {FloatPromptKernel<false>, FloatPromptKernel<false>}}}};
}

PromptKernelPointer FindKernel(int ggml_type, std::int32_t columns) {
  static constexpr auto kEntries =
      Entries<kQ4_0, kQ8_0, kQ2K, kQ3K, kQ4K, kQ5K, kQ6K, kIq2Xxs, kIq2Xs, kIq3Xxs, kIq4Nl, kIq3S,
              kIq4Xs, kMxfp4, kNvfp4>();
  for (const Entry& entry : kEntries) {
    if (entry.type == ggml_type) {
      return entry.kernels[columns > 32 ? 1 : 0];
    }
  }
  return nullptr;
}

// Whether a matrix of k values can take these activations.
bool Fits(const CardWeight& weight, const PromptRows& input) {
  if (weight.format->activation_group == 0) {
    return weight.k % 8 == 0 && weight.row_bytes % 16 == 0 && weight.expert_bytes % 16 == 0 &&
           input.x != nullptr && input.x_stride % 4 == 0;
  }
  return weight.k == input.quantised.k && weight.format->activation_group == input.quantised.group;
}

void SetInput(const PromptRows& input, std::size_t k, PromptParameters& p) {
  p.x = View(input.quantised);
  p.x_rows = input.x;
  p.x_stride = input.x_stride;
  p.k = static_cast<std::int32_t>(k);
}

std::int32_t Blocks(std::size_t n, int block_rows) {
  return static_cast<std::int32_t>((n + static_cast<std::size_t>(block_rows) - 1) /
                                   static_cast<std::size_t>(block_rows));
}

// Columns of a block: what ends first. A wave is all the blocks that live at a time; blocks of
// fewer columns cost more for each (their weights are unpacked for fewer), but the last wave is
// emptier.
std::int32_t DenseColumns(const Launch& launch, std::int32_t weight_blocks, std::int32_t rows) {
  constexpr struct {
    std::int32_t columns;
    std::int32_t blocks;  // on a multiprocessor
    std::int32_t cost;    // of a wave
  } kChoices[] = {{64, 2, 100}, {32, 3, 75}, {16, 3, 45}};
  std::int32_t best = 64;
  std::int64_t least = INT64_MAX;
  for (const auto& choice : kChoices) {
    const std::int64_t blocks =
        static_cast<std::int64_t>(weight_blocks) * ((rows + choice.columns - 1) / choice.columns);
    const std::int64_t slots = choice.blocks * std::max(launch.multiprocessors, 1);
    const std::int64_t cost = (blocks + slots - 1) / slots * choice.cost;
    if (cost < least) {
      least = cost;
      best = choice.columns;
    }
  }
  return best;
}

// All the matrices of one format of a dense call.
cudaError_t LaunchDense(const Launch& launch, const PromptLinearArgs& args, int ggml_type) {
  PromptParameters p = {};
  std::int32_t blocks = 0;
  for (std::int32_t i = 0; i < args.count; ++i) {
    const CardMatrix& m = args.matrices[i];
    if (m.weight.format->ggml_type != ggml_type) {
      continue;
    }
    if (!Fits(m.weight, args.input) || (p.k != 0 && m.weight.k != static_cast<std::size_t>(p.k))) {
      return cudaErrorInvalidValue;
    }
    SetInput(args.input, m.weight.k, p);
    PromptJob& job = p.jobs[p.count++];
    job.weight = static_cast<const std::byte*>(m.weight.data);
    job.row_bytes = m.weight.row_bytes;
    job.n = static_cast<std::int32_t>(m.weight.n);
    job.first_block = blocks;
    job.scale = m.scale;
    job.bias = m.bias;
    job.residual = m.residual;
    job.residual_stride = m.residual_stride;
    job.y = m.y;
    job.y_stride = m.y_stride;
    blocks += Blocks(m.weight.n, kPromptBlockRows);
  }
  p.rows = args.rows;
  p.columns = DenseColumns(launch, blocks, args.rows.max);
  const PromptKernelPointer kernel = FindKernel(ggml_type, p.columns);
  if (kernel == nullptr) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>((args.rows.max + p.columns - 1) / p.columns));
  return Start(launch, grid, dim3(kPromptThreads), 0, kernel, p);
}

cudaError_t LaunchGrouped(const Launch& launch, const CardWeight& weight, const PromptJob& job,
                          int block_rows, const PromptRows& input, const PickGroups& groups,
                          const std::int32_t* place_rows, std::int32_t tiles_max) {
  const PromptKernelPointer kernel = FindKernel(weight.format->ggml_type, groups.tile_places);
  if (kernel == nullptr || groups.tile_places > kPromptColumns || !Fits(weight, input)) {
    return cudaErrorInvalidValue;
  }
  if (tiles_max == 0) {
    return cudaSuccess;
  }
  PromptParameters p = {};
  p.jobs[0] = job;
  p.jobs[0].weight = static_cast<const std::byte*>(weight.data);
  p.jobs[0].expert_bytes = weight.expert_bytes;
  p.jobs[0].n = static_cast<std::int32_t>(weight.n);
  p.jobs[0].row_bytes = weight.row_bytes;
  p.count = 1;
  SetInput(input, weight.k, p);
  p.tiles = groups.tiles;
  p.tile_count = groups.tile_count;
  p.place_rows = place_rows;
  const dim3 grid(static_cast<unsigned>(Blocks(weight.n, block_rows)),
                  static_cast<unsigned>(tiles_max));
  return Start(launch, grid, dim3(kPromptThreads), 0, kernel, p);
}

}  // namespace

bool HasPromptLinear(int ggml_type) { return FindKernel(ggml_type, kPromptColumns) != nullptr; }

cudaError_t PreparePromptLinear() { return cudaSuccess; }

cudaError_t PromptLinear(const Launch& launch, const PromptLinearArgs& args) {
  if (args.rows.max == 0) {
    return cudaSuccess;
  }
  for (std::int32_t i = 0; i < args.count; ++i) {
    const int type = args.matrices[i].weight.format->ggml_type;
    const bool done = std::any_of(args.matrices, args.matrices + i, [type](const CardMatrix& m) {
      return m.weight.format->ggml_type == type;
    });
    if (done) {
      continue;
    }
    const cudaError_t error = LaunchDense(launch, args, type);
    if (error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

cudaError_t PromptGateUp(const Launch& launch, const PromptGateUpArgs& args) {
  if (args.gate.format != args.up.format || args.gate.n != args.up.n || args.gate.k != args.up.k ||
      !Fits(args.up, args.input)) {
    return cudaErrorInvalidValue;
  }
  PromptJob job = {};
  job.up = static_cast<const std::byte*>(args.up.data);
  job.up_expert_bytes = args.up.expert_bytes;
  job.up_row_bytes = args.up.row_bytes;
  job.y = args.h;
  job.y_stride = args.h_stride;
  return LaunchGrouped(launch, args.gate, job, kPromptBlockRows / 2, args.input, args.groups,
                       args.groups.place_rows, args.tiles_max);
}

cudaError_t PromptDown(const Launch& launch, const PromptDownArgs& args) {
  PromptJob job = {};
  job.y = args.y;
  job.y_stride = args.y_stride;
  return LaunchGrouped(launch, args.down, job, kPromptBlockRows, args.input, args.groups, nullptr,
                       args.tiles_max);
}

}  // namespace bloomery::kernels::cuda
