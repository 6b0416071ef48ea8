#include "runtime/ops/backend.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <string>

#include "kernels-common/attention/cpu/attention.h"
#include "kernels-common/attention/reference.h"
#include "kernels-common/cpu/isa.h"
#include "kernels-common/delta/cpu/delta.h"
#include "kernels-common/delta/reference.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "kernels-common/elementwise/reference.h"
#include "kernels-common/linear/cpu/linear.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/cpu/moe.h"
#include "kernels-common/moe/reference.h"
#include "kernels-common/norm/cpu/norm.h"
#include "kernels-common/norm/reference.h"
#include "kernels-common/quant/cpu/quant.h"
#include "kernels-common/quant/reference.h"
#include "kernels-common/rope/cpu/rope.h"
#include "kernels-common/rope/reference.h"
#include "runtime/base/error.h"

namespace bloomery::ops {
namespace {

namespace cpu = kernels::cpu;
namespace ref = kernels::reference;
using kernels::Isa;

template <Isa kIsa>
constexpr Backend CpuBackend() {
  return {
      .name = kernels::kIsaNames[static_cast<size_t>(kIsa)],
      .quantise_rows = [](const float* x, size_t stride, const kernels::QuantisedRows& out,
                          size_t begin,
                          size_t end) { cpu::QuantiseRows(kIsa, x, stride, out, begin, end); },
      .linear_scratch = cpu::LinearScratchBytes,
      .linear =
          [](const kernels::LinearArgs& args, size_t begin, size_t end,
             std::span<std::byte> scratch) { return cpu::Linear(kIsa, args, begin, end, scratch); },
      .rms_norm = [](const kernels::RmsNormArgs& args, size_t begin,
                     size_t end) { cpu::RmsNorm(kIsa, args, begin, end); },
      .l2_norm = [](const kernels::L2NormArgs& args, size_t begin,
                    size_t end) { cpu::L2Norm(kIsa, args, begin, end); },
      .rope = [](const kernels::RopeArgs& args, size_t begin,
                 size_t end) { cpu::Rope(kIsa, args, begin, end); },
      .add = [](const float* a, const float* b, float* y,
                size_t count) { cpu::Add(kIsa, a, b, y, count); },
      .gate = [](const kernels::GateArgs& args, size_t begin,
                 size_t end) { cpu::Gate(kIsa, args, begin, end); },
      .short_conv = [](const kernels::ShortConvArgs& args, size_t rows, size_t begin,
                       size_t end) { cpu::ShortConv(kIsa, args, rows, begin, end); },
      .delta = [](const kernels::DeltaArgs& args, size_t rows,
                  size_t head) { cpu::Delta(kIsa, args, rows, head); },
      .delta_chunks_scratch = cpu::DeltaChunksScratchBytes,
      .delta_chunks =
          [](const kernels::DeltaArgs& args, size_t rows, size_t head,
             std::span<std::byte> scratch) { cpu::DeltaChunks(kIsa, args, rows, head, scratch); },
      .embed = [](const kernels::EmbedArgs& args, size_t begin,
                  size_t end) { cpu::Embed(kIsa, args, begin, end); },
      .attention_scratch = cpu::AttentionScratchBytes,
      .attention =
          [](const kernels::AttentionArgs& args, size_t begin, size_t end, size_t kv_head,
             std::span<std::byte> scratch) {
            cpu::Attention(kIsa, args, begin, end, kv_head, scratch);
          },
      .attention_part_bytes = cpu::AttentionPartBytes,
      .attention_windows =
          [](const kernels::AttentionArgs& args, size_t begin, size_t end, size_t kv_head,
             size_t window_begin, size_t window_end, std::byte* parts,
             std::span<std::byte> scratch) {
            cpu::AttentionWindows(kIsa, args, begin, end, kv_head, window_begin, window_end, parts,
                                  scratch);
          },
      .attention_merge = cpu::AttentionMerge,
      .append = [](const kernels::KvAppendArgs& args, size_t begin,
                   size_t end) { cpu::KvAppend(kIsa, args, begin, end); },
      .route = [](const kernels::RouterArgs& args, size_t begin,
                  size_t end) { return cpu::Route(kIsa, args, begin, end); },
      .gate_up_scratch =
          [](size_t k, size_t places) { return cpu::ExpertGateUpScratchBytes(kIsa, k, places); },
      .gate_up =
          [](const kernels::ExpertGateUpArgs& args, size_t begin, size_t end,
             std::span<std::byte> scratch) {
            return cpu::ExpertGateUp(kIsa, args, begin, end, scratch);
          },
      .pick_sum = [](const kernels::PickSumArgs& args, size_t begin, size_t end, size_t c_begin,
                     size_t c_end) { return cpu::PickSum(kIsa, args, begin, end, c_begin, c_end); },
  };
}

size_t AttentionReferenceFloats(const kernels::AttentionArgs& args) {
  return kernels::kAttentionWindow + args.key_dim + 2 * args.value_dim;
}

void AttentionByReference(const kernels::AttentionArgs& args, size_t begin, size_t end,
                          size_t kv_head, std::span<std::byte> scratch) {
  const std::span<float> floats(reinterpret_cast<float*>(scratch.data()),
                                AttentionReferenceFloats(args));
  const size_t group = args.heads / args.kv_heads;
  for (size_t row = begin; row < end; ++row) {
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      ref::Attention(args, row, head, floats);
    }
  }
}

void AppendByReference(const kernels::KvAppendArgs& args, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    if (args.index[row] < 0) continue;
    const kernels::KvView& view =
        args.views[args.slot_ids == nullptr ? 0 : static_cast<size_t>(args.slot_ids[row])];
    ref::EncodeKvRow(view.type, args.x + row * args.x_stride, view.width,
                     view.Row(static_cast<size_t>(args.index[row])));
  }
}

int64_t PickSumByReference(const kernels::PickSumArgs& args, size_t begin, size_t end,
                           size_t column_begin, size_t /*column_end*/) {
  if (column_begin != 0) return kernels::kNoFailingRow;  // the piece at column 0 does whole rows
  for (size_t row = begin; row < end; ++row) {
    if (!ref::PickSum(args, row)) return static_cast<int64_t>(row);
  }
  return kernels::kNoFailingRow;
}

constexpr Backend kReference = {
    .name = "reference",
    .quantise_rows =
        [](const float* x, size_t stride, const kernels::QuantisedRows& out, size_t begin,
           size_t end) {
          for (size_t row = begin; row < end; ++row) ref::QuantiseRow(x + row * stride, out, row);
        },
    .linear_scratch = [](size_t) -> size_t { return 0; },
    .linear = [](const kernels::LinearArgs& args, size_t begin, size_t end,
                 std::span<std::byte>) -> size_t {
      ref::Linear(args, begin, end);
      return (end - begin) * args.weight.row_bytes;
    },
    .rms_norm = ref::RmsNorm,
    .l2_norm = ref::L2Norm,
    .rope = ref::Rope,
    .add = ref::Add,
    .gate = ref::Gate,
    .short_conv = ref::ShortConv,
    .delta = ref::Delta,
    .delta_chunks_scratch = nullptr,
    .delta_chunks = nullptr,
    .embed = ref::Embed,
    .attention_scratch = [](const kernels::AttentionArgs& args) -> size_t {
      return AttentionReferenceFloats(args) * sizeof(float);
    },
    .attention = AttentionByReference,
    .attention_part_bytes = nullptr,
    .attention_windows = nullptr,
    .attention_merge = nullptr,
    .append = AppendByReference,
    .route = [](const kernels::RouterArgs& args, size_t begin, size_t end) -> int64_t {
      for (size_t row = begin; row < end; ++row) {
        if (!ref::RouteRow(args, row)) return static_cast<int64_t>(row);
      }
      return kernels::kNoFailingRow;
    },
    .gate_up_scratch = [](size_t, size_t) -> size_t { return 0; },
    .gate_up = [](const kernels::ExpertGateUpArgs& args, size_t begin, size_t end,
                  std::span<std::byte>) -> size_t {
      for (size_t place = 0; place < args.places; ++place) {
        ref::ExpertGateUp(args, place, begin, end);
      }
      return (end - begin) * (args.gate.row_bytes + args.up.row_bytes);
    },
    .pick_sum = PickSumByReference,
};

// By Isa.
constexpr std::array<Backend, kernels::kIsaNames.size()> kOfIsa = {
    CpuBackend<Isa::kScalar>(), CpuBackend<Isa::kAvx2>(), CpuBackend<Isa::kAvx512Vnni>(),
    CpuBackend<Isa::kAmx>()};

const Backend& BackendOf(Isa isa) { return kOfIsa[static_cast<size_t>(isa)]; }

// " (why)", where the CPU has what the system withholds.
std::string Reason(Isa isa) {
  const std::string_view why = kernels::WhyNoAmx();
  return isa != Isa::kAmx || why.empty() ? "" : " (" + std::string(why) + ")";
}

}  // namespace

const Backend& FindBackend(std::string_view name) {
  if (name == "auto") {
    const Isa best = kernels::DetectIsa();
    if (!kernels::WhyNoAmx().empty()) {
      LOG(WARNING) << "this CPU's AMX is not used: " << kernels::WhyNoAmx() << "; the kernels are '"
                   << kernels::IsaName(best) << "'";
    }
    return BackendOf(best);
  }
  if (name == kReference.name) return kReference;
  for (size_t i = 0; i < kOfIsa.size(); ++i) {
    const Isa isa{static_cast<int>(i)};
    if (name != BackendOf(isa).name) continue;
    const std::span<const Isa> available = kernels::AvailableIsas();
    if (std::find(available.begin(), available.end(), isa) == available.end()) {
      throw Error(ErrorKind::kUsage, "this machine or build has no '" + std::string(name) +
                                         "' kernels" + Reason(isa) + "; choose auto or scalar");
    }
    return BackendOf(isa);
  }
  std::string known = "auto";
  for (const std::string_view isa : kernels::kIsaNames) known.append(", ").append(isa);
  throw Error(ErrorKind::kUsage,
              "unknown kernels '" + std::string(name) + "'; choose " + known + " or reference");
}

}  // namespace bloomery::ops
