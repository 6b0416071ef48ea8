#include "kernels-common/linear/cuda/prompt_linear.h"

#include <algorithm>

#include "kernels-common/linear/cuda/prompt_job.cuh"

namespace bloomery::kernels::cuda {
namespace {

// Of the 227 KiB a block may have on the largest cards, and what a kernel declares itself.
constexpr std::size_t kSharedBytesMax = 225 * 1024;
constexpr std::size_t kOwnSharedBytes = 2 * 1024;

const PromptKernels* FindKernels(int ggml_type) {
  for (const auto find : {FindPromptKernelsK, FindPromptKernels32, FindPromptKernelsIq}) {
    if (const PromptKernels* kernels = find(ggml_type); kernels != nullptr) {
      return kernels;
    }
  }
  return nullptr;
}

// How a launch is cut: units of `columns` activation rows by blocks of `block_pairs` pairs of
// tiles.
struct Plan {
  PromptKernelPointer kernel = nullptr;
  std::int32_t columns = kPromptColumns;
  std::int32_t block_pairs = kFloatWarps;
  std::int32_t resident_steps = 0;
  unsigned threads = kFloatThreads;
  std::size_t shared_bytes = 0;
};

// What a launch has to do, for the choice of a plan.
struct Extent {
  std::int32_t pairs = 0;    // of tiles, in all matrices
  std::int32_t columns = 0;  // of a unit at most
  std::int32_t rows = 0;     // of the pass: activation rows
  std::int32_t units = 0;    // grouped: most there can be
  std::int32_t steps = 0;    // of 256 values
};

// Columns of a block whose every step fits in `shared` bytes: a multiple of 8, or 0.
std::int32_t ColumnsMax(const PromptKernels& kernels, std::int32_t steps, std::size_t shared) {
  const std::int64_t bytes =
      static_cast<std::int64_t>(shared) - 8 * static_cast<std::int64_t>(steps);
  const std::int64_t column =
      static_cast<std::int64_t>(steps) * kernels.column_bytes + kPromptColumnBytes;
  return static_cast<std::int32_t>(std::min<std::int64_t>(bytes / column / 8 * 8, kPromptColumns));
}

std::size_t SharedBytes(const PromptKernels& kernels, std::int32_t columns, std::int32_t resident,
                        std::int32_t steps) {
  return static_cast<std::size_t>(columns) *
             static_cast<std::size_t>(resident * kernels.column_bytes + kPromptColumnBytes) +
         8 * static_cast<std::size_t>(steps);
}

// Long rows whose steps do not all fit, for a useful number of columns: a block takes as many steps
// at a time as fit, and a pair a warp.
constexpr std::int32_t kFewColumns = 16;
Plan ChunkPlan(const PromptKernels& kernels, const Extent& extent, std::size_t shared) {
  Plan plan;
  plan.kernel = kernels.kernel;
  plan.threads = kPromptThreads;
  plan.columns = std::min(2 * kFewColumns, extent.columns);
  plan.block_pairs = kPromptWarps;
  plan.resident_steps = extent.steps;
  while (plan.resident_steps > 1 &&
         SharedBytes(kernels, plan.columns, plan.resident_steps, extent.steps) > shared) {
    --plan.resident_steps;
  }
  plan.shared_bytes = SharedBytes(kernels, plan.columns, plan.resident_steps, extent.steps);
  return plan;
}

// The cut that ends first if blocks ran in waves, one on a multiprocessor. A pair's step costs
// about three column groups besides its own (its weights are unpacked), a block's start about as
// much as a pair's step.
Plan ChoosePlan(const Launch& launch, const PromptKernels& kernels, const Extent& extent) {
  const std::size_t shared = SharedLimit(launch, kSharedBytesMax, kOwnSharedBytes);
  const std::int32_t columns_max =
      std::min(ColumnsMax(kernels, extent.steps, shared), extent.columns);
  if (columns_max < kFewColumns) {
    return ChunkPlan(kernels, extent, shared);
  }
  Plan best;
  const std::int64_t slots = std::max(launch.multiprocessors, 1);
  std::int64_t least = INT64_MAX;
  for (std::int32_t columns = columns_max; columns > 0; columns -= 8) {
    const std::int64_t units =
        extent.units != 0 ? extent.units : (extent.rows + columns - 1) / columns;
    for (std::int32_t pairs = 1; pairs <= extent.pairs; ++pairs) {
      const std::int64_t blocks = units * ((extent.pairs + pairs - 1) / pairs);
      const std::int64_t rounds = (pairs + kPromptWarps - 1) / kPromptWarps;
      const std::int64_t waves = (blocks + slots - 1) / slots;
      const std::int64_t time = waves * (columns / 8 + 3) * (rounds * extent.steps + 1);
      if (time < least) {
        least = time;
        best.columns = columns;
        best.block_pairs = pairs;
      }
    }
    if (extent.units != 0) {  // a unit has the columns it has
      break;
    }
  }
  best.kernel = kernels.kernel;
  best.threads = kPromptThreads;
  best.resident_steps = extent.steps;
  best.shared_bytes = SharedBytes(kernels, best.columns, extent.steps, extent.steps);
  return best;
}

// From here on a pass is one of many rows: the wgmma kernel beats the other by a ninth of a whole
// pass of 512 rows and a sixth of one of 4,096 (docs/measurements/card.md). Fewer are not measured;
// its units have at least 32 columns, the other's 8.
constexpr std::int32_t kWgmmaRowsMin = 512;

// The cut for the wgmma kernel: 64 or 32 columns, four pairs at a time by each of three warpgroups.
// Its plan has no kernel where not even 32 columns fit.
Plan ChooseWgmmaPlan(const Launch& launch, PromptKernelPointer kernel, const Extent& extent) {
  constexpr struct {
    std::int32_t columns;
    std::int64_t cost;  // of a pair's step
  } kChoices[] = {{64, 100}, {32, 60}};
  Plan best;
  const std::int64_t slots = std::max(launch.multiprocessors, 1);
  std::int64_t least = INT64_MAX;
  for (const auto& choice : kChoices) {
    const std::size_t bytes =
        static_cast<std::size_t>(choice.columns) *
        static_cast<std::size_t>(extent.steps * kWgmmaColumnBytes + kWgmmaResultBytes + 8);
    if (bytes > SharedLimit(launch, kSharedBytesMax, kOwnSharedBytes)) {
      continue;
    }
    const std::int64_t units =
        extent.units != 0 ? extent.units : (extent.rows + choice.columns - 1) / choice.columns;
    for (std::int32_t pairs = 4; pairs < extent.pairs + 4; pairs += 4) {
      const std::int64_t blocks = units * ((extent.pairs + pairs - 1) / pairs);
      const std::int64_t rounds = (pairs + kWgmmaWarps - 1) / kWgmmaWarps;
      const std::int64_t waves = (blocks + slots - 1) / slots;
      const std::int64_t time = waves * choice.cost * (rounds * extent.steps + 1);
      if (time < least) {
        least = time;
        best = {kernel, choice.columns, pairs, extent.steps, kWgmmaThreads, bytes};
      }
    }
    if (extent.units != 0 && best.kernel != nullptr) {  // a unit has the columns it has
      break;
    }
  }
  return best;
}

// Whether a matrix can take these activations.
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

// Plans a launch of the jobs in p, fills in their first blocks, and starts it.
cudaError_t StartPrompt(const Launch& launch, int ggml_type, Extent extent, PromptParameters& p) {
  const bool gate_up = p.jobs[0].up != nullptr;
  for (std::int32_t j = 0; j < p.count; ++j) {
    extent.pairs += PromptPairs(p.jobs[j].n, gate_up);
  }
  extent.steps = (p.k + 255) / 256;
  Plan plan;
  if (extent.rows >= kWgmmaRowsMin) {
    if (const PromptKernelPointer wgmma = FindWgmmaKernel(ggml_type); wgmma != nullptr) {
      plan = ChooseWgmmaPlan(launch, wgmma, extent);
    }
  }
  if (plan.kernel == nullptr) {
    if (const PromptKernels* kernels = FindKernels(ggml_type); kernels != nullptr) {
      plan = ChoosePlan(launch, *kernels, extent);
    } else {
      plan.kernel = FindFloatPromptKernel(ggml_type);
    }
  }
  if (plan.kernel == nullptr) {
    return cudaErrorInvalidValue;
  }
  std::int32_t blocks = 0;
  for (std::int32_t j = 0; j < p.count; ++j) {
    p.jobs[j].first_block = blocks;
    blocks += (PromptPairs(p.jobs[j].n, gate_up) + plan.block_pairs - 1) / plan.block_pairs;
  }
  p.block_pairs = plan.block_pairs;
  p.resident_steps = plan.resident_steps;
  p.columns = plan.columns;
  const std::int32_t units =
      extent.units != 0 ? extent.units : (extent.rows + plan.columns - 1) / plan.columns;
  const std::int32_t parts =
      extent.units != 0 ? (extent.columns + plan.columns - 1) / plan.columns : 1;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(units),
                  static_cast<unsigned>(parts));
  return Start(launch, grid, dim3(plan.threads), plan.shared_bytes, plan.kernel, p);
}

// All the matrices of one format of a dense call.
cudaError_t LaunchDense(const Launch& launch, const PromptLinearArgs& args, int ggml_type) {
  PromptParameters p = {};
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
    job.scale = m.scale;
    job.bias = m.bias;
    job.residual = m.residual;
    job.residual_stride = m.residual_stride;
    job.y = m.y;
    job.y_stride = m.y_stride;
  }
  p.rows = args.rows;
  Extent extent;
  extent.rows = args.rows.max;
  extent.columns = kPromptColumns;
  return StartPrompt(launch, ggml_type, extent, p);
}

cudaError_t LaunchGrouped(const Launch& launch, const CardWeight& weight, const PromptJob& job,
                          const PromptRows& input, const PickGroups& groups,
                          const std::int32_t* place_rows, std::int32_t tiles_max,
                          std::int32_t rows) {
  if (!Fits(weight, input)) {
    return cudaErrorInvalidValue;
  }
  if (tiles_max == 0) {
    return cudaSuccess;
  }
  PromptParameters p = {};
  p.jobs[0] = job;
  p.jobs[0].weight = static_cast<const std::byte*>(weight.data);
  p.jobs[0].expert_bytes = weight.expert_bytes;
  p.jobs[0].more = static_cast<const std::byte*>(weight.more);
  p.jobs[0].frames = weight.frames;
  p.jobs[0].row_bytes = weight.row_bytes;
  p.jobs[0].n = static_cast<std::int32_t>(weight.n);
  p.count = 1;
  SetInput(input, weight.k, p);
  p.tiles = groups.tiles;
  p.tile_count = groups.tile_count;
  p.place_rows = place_rows;
  Extent extent;
  extent.units = tiles_max;
  extent.rows = rows;
  extent.columns = kTilePlaces;
  return StartPrompt(launch, weight.format->ggml_type, extent, p);
}

}  // namespace

bool HasPromptLinear(int ggml_type) {
  return FindKernels(ggml_type) != nullptr || FindFloatPromptKernel(ggml_type) != nullptr;
}

cudaError_t PreparePromptLinear() {
  for (const FormatTraits& format : Formats()) {
    const PromptKernels* kernels = FindKernels(format.ggml_type);
    if (kernels == nullptr) {
      continue;
    }
    for (const auto kernel : {kernels->kernel, FindWgmmaKernel(format.ggml_type)}) {
      const cudaError_t error =
          kernel == nullptr ? cudaSuccess : AllowShared(kernel, kSharedBytesMax);
      if (error != cudaSuccess) {
        return error;
      }
    }
  }
  return cudaSuccess;
}

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
  PromptJob job = {};
  job.y = args.h;
  job.y_stride = args.h_stride;
  job.gated = args.part == GateUpPart::kUp;
  if (args.part == GateUpPart::kBoth) {
    if (args.gate.format != args.up.format || args.gate.n != args.up.n ||
        args.gate.k != args.up.k || !Fits(args.up, args.input)) {
      return cudaErrorInvalidValue;
    }
    job.up = static_cast<const std::byte*>(args.up.data);
    job.up_expert_bytes = args.up.expert_bytes;
    job.up_more = static_cast<const std::byte*>(args.up.more);
    job.up_row_bytes = args.up.row_bytes;
  }
  return LaunchGrouped(launch, job.gated ? args.up : args.gate, job, args.input, args.groups,
                       args.groups.place_rows, args.tiles_max, args.rows);
}

cudaError_t PromptDown(const Launch& launch, const PromptDownArgs& args) {
  PromptJob job = {};
  job.y = args.y;
  job.y_stride = args.y_stride;
  return LaunchGrouped(launch, args.down, job, args.input, args.groups, nullptr, args.tiles_max,
                       args.rows);
}

}  // namespace bloomery::kernels::cuda
