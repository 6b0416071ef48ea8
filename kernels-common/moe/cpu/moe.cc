#include "kernels-common/moe/cpu/moe.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "kernels-common/linear/cpu/linear.h"
#include "kernels-common/moe/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {
namespace {

// Columns of up kept in scratch at a time: 16 KiB at 64 places.
constexpr std::size_t kUpColumns = 64;
// Activation rows gathered at a time, where tiles want them one after another.
constexpr std::size_t kGatherRows = 256;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The ids of the top_k largest of `choice`, descending; of equal ones the lower id first. Those are
// consumed.
void PickTop(float* choice, const RouterArgs& args, std::int32_t* ids) {
  for (std::size_t pick = 0; pick < args.top_k; ++pick) {
    const auto id =
        std::max_element(choice, choice + args.experts) - choice;  // the first of equals
    ids[pick] = static_cast<std::int32_t>(id);
    choice[id] = -std::numeric_limits<float>::infinity();
  }
}

// Columns [n_begin, n_end) of h for all places of args; `up` holds args.places * kUpColumns.
std::size_t GateUp(Isa isa, const ExpertGateUpArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::span<std::byte> linear_scratch, float* up) {
  LinearArgs gate;
  gate.weight = args.gate;
  gate.x = args.x;
  gate.x_stride = args.x_stride;
  gate.quantised = args.quantised;
  gate.row_ids = args.place_rows;
  gate.rows = args.places;
  LinearArgs up_linear = gate;
  gate.y = args.h;
  gate.y_stride = args.h_stride;
  up_linear.weight = args.up;
  up_linear.y_stride = kUpColumns;
  std::size_t bytes = 0;
  for (std::size_t n = n_begin; n < n_end; n += kUpColumns) {
    const std::size_t end = std::min(n + kUpColumns, n_end);
    // Rows of up from n on, so that column 0 of the scratch is column n.
    up_linear.weight.data = args.up.data + n * args.up.row_bytes;
    up_linear.y = up;
    bytes += Linear(isa, gate, n, end, linear_scratch);
    bytes += Linear(isa, up_linear, 0, end - n, linear_scratch);
    for (std::size_t place = 0; place < args.places; ++place) {
      float* h = args.h + place * args.h_stride + n;
      SwiGlu(isa, h, up + place * kUpColumns, h, end - n);
    }
  }
  return bytes;
}

}  // namespace

std::int64_t Route(Isa isa, const RouterArgs& args, std::size_t row_begin, std::size_t row_end) {
  assert(args.experts <= kMaxExperts && args.top_k <= args.experts && args.top_k <= kMaxPicks);
  float p[kMaxExperts];
  float choice[kMaxExperts];
  float picked[kMaxPicks];
  std::int64_t failing = kNoFailingRow;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const float* logits = args.logits + row * args.logits_stride;
    const bool finite = args.gate == RouterGate::kSigmoid
                            ? BLOOMERY_KERNEL(isa, Sigmoid)(logits, args.experts, p)
                            : BLOOMERY_KERNEL(isa, Softmax)(logits, args.experts, p);
    if (!finite && failing == kNoFailingRow) {
      failing = static_cast<std::int64_t>(row);
    }
    for (std::size_t e = 0; e < args.experts; ++e) {
      choice[e] = args.bias == nullptr ? p[e] : p[e] + args.bias[e];
    }
    std::int32_t* ids = args.ids + row * args.top_k;
    PickTop(choice, args, ids);
    float sum = 0.0F;
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      picked[pick] = p[ids[pick]];
      sum += picked[pick];
    }
    sum = std::max(sum, args.sum_min);
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      const float w = args.renormalise ? picked[pick] / sum : picked[pick];
      args.weights[row * args.top_k + pick] = finite ? w * args.weight_scale : kNan;
    }
  }
  return failing;
}

void GroupPicks(const std::int32_t* ids, std::size_t rows, std::size_t top_k, std::size_t experts,
                ExpertGroups* groups) {
  const std::size_t pairs = rows * top_k;
  std::int32_t* next = groups->offsets;  // next[e + 1] counts, then becomes the next free place
  std::fill_n(next, experts + 1, 0);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    if (ids[pair] >= 0) ++next[ids[pair] + 1];
  }
  groups->active_count = 0;
  std::int32_t start = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::int32_t count = next[e + 1];
    if (count > 0) {
      groups->active[groups->active_count++] = static_cast<std::int32_t>(e);
    }
    next[e + 1] = start;
    start += count;
  }
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    if (ids[pair] < 0) {
      groups->pair_places[pair] = -1;
      continue;
    }
    const std::int32_t place = next[ids[pair] + 1]++;
    groups->pair_places[pair] = place;
    groups->place_rows[place] = static_cast<std::int32_t>(pair / top_k);
  }
}

std::size_t ExpertGateUpScratchBytes(Isa isa, std::size_t k, std::size_t places_max) {
  const std::size_t gathered =
      isa == Isa::kAmx ? std::min(places_max, kGatherRows) * QuantisedRowBytes(k, kStepValues) : 0;
  return LinearScratchBytes(k) + places_max * kUpColumns * sizeof(float) + gathered;
}

std::size_t ExpertGateUp(Isa isa, const ExpertGateUpArgs& args, std::size_t n_begin,
                         std::size_t n_end, std::span<std::byte> scratch) {
  assert(scratch.size() >= ExpertGateUpScratchBytes(isa, args.gate.k, args.places));
  const std::span<std::byte> linear_scratch = scratch.first(LinearScratchBytes(args.gate.k));
  const std::span<std::byte> rest = scratch.subspan(linear_scratch.size());
  auto* up = reinterpret_cast<float*>(rest.data());
  if (args.place_rows == nullptr || !WantsGatheredRows(isa, args.gate, args.places)) {
    return GateUp(isa, args, n_begin, n_end, linear_scratch, up);
  }
  std::size_t bytes = 0;
  ExpertGateUpArgs part = args;
  part.place_rows = nullptr;
  part.quantised.data = rest.data() + args.places * kUpColumns * sizeof(float);
  for (std::size_t first = 0; first < args.places; first += kGatherRows) {
    part.places = std::min(kGatherRows, args.places - first);
    part.h = args.h + first * args.h_stride;
    for (std::size_t place = 0; place < part.places; ++place) {
      const auto row = static_cast<std::size_t>(args.place_rows[first + place]);
      std::memcpy(part.quantised.data + place * args.quantised.row_bytes,
                  args.quantised.data + row * args.quantised.row_bytes,
                  QuantisedRowBytes(args.quantised.k, args.quantised.group));
    }
    bytes = GateUp(isa, part, n_begin, n_end, linear_scratch, up);  // read once, then from cache
  }
  return bytes;
}

std::int64_t PickSum(Isa isa, const PickSumArgs& args, std::size_t row_begin, std::size_t row_end,
                     std::size_t column_begin, std::size_t column_end) {
  assert(args.top_k <= kMaxPicks && column_end <= args.dim);
  std::int64_t failing = kNoFailingRow;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const bool valid = BLOOMERY_KERNEL_512(isa, PickSumRow)(args, row, column_begin, column_end);
    if (!valid && failing == kNoFailingRow) {
      failing = static_cast<std::int64_t>(row);
    }
  }
  return failing;
}

}  // namespace bloomery::kernels::cpu
