#include "runtime/ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

// Steps that work on rows independently of each other, some values of each.
template <class WorkOn>
class RowsStep : public Step {
 public:
  RowsStep(WorkOn work_on, size_t work, RowCount rows, int32_t threads)
      : work_on_(std::move(work_on)), work_(work), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    work_on_(static_cast<size_t>(rows.begin(task)), static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / static_cast<int64_t>(work_),
                     threads_ * kPiecesPerThread);
  }

  WorkOn work_on_;  // rows [begin, end)
  size_t work_;     // of a row
  RowCount rows_;
  int32_t threads_;
};

template <class WorkOn>
std::unique_ptr<Step> MakeRowsStep(WorkOn work_on, size_t work, RowCount rows, int32_t threads) {
  return std::make_unique<RowsStep<WorkOn>>(std::move(work_on), work, rows, threads);
}

float* Lane(const bl_plane_view& plane, int32_t slot, int32_t lane) {
  return lane < 0 ? nullptr : static_cast<float*>(bl_plane_lane(&plane, slot, lane));
}

// Walks a segment in stretches that end at a row whose state is kept: `run(first row, rows, state
// before or null, state behind)`.
template <class Run>
void ForStretches(const bl_plane_view& plane, const bl_rows& rows, const bl_segment& segment,
                  const Run& run) {
  const float* state = Lane(plane, segment.slot, rows.lane_in[segment.row0]);
  int32_t first = segment.row0;
  for (int32_t row = segment.row0; row < segment.row0 + segment.rows; ++row) {
    if (rows.lane_out[row] < 0) continue;
    float* const behind = Lane(plane, segment.slot, rows.lane_out[row]);
    run(static_cast<size_t>(first), static_cast<size_t>(row + 1 - first), state, behind);
    state = behind;
    first = row + 1;
  }
}

class ShortConvStep : public Step {
 public:
  ShortConvStep(const Backend& backend, const kernels::ShortConvArgs& args,
                const bl_plane_view& plane, const bl_rows& rows, int32_t threads)
      : backend_(backend), args_(args), plane_(plane), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return *rows_.n_segments * Channels().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split channels = Channels();
    const int32_t piece = task % channels.pieces();
    ForStretches(plane_, rows_, rows_.segments[task / channels.pieces()],
                 [&](size_t first, size_t count, const float* before, float* behind) {
                   kernels::ShortConvArgs args = args_;
                   args.x += first * args.x_stride;
                   args.y += first * args.y_stride;
                   args.state_in = before;
                   args.state_out = behind;
                   backend_.short_conv(args, count, static_cast<size_t>(channels.begin(piece)),
                                       static_cast<size_t>(channels.end(piece)));
                 });
    return BL_OK;
  }

 private:
  Split Channels() const {
    // About 16 multiply-adds a channel and row, the activation counted.
    const int64_t work = 16 * std::max<int64_t>(*rows_.live, 1);
    return Split::Of(static_cast<int64_t>(args_.channels), 16, kTaskWorkMin / work,
                     threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::ShortConvArgs args_;
  bl_plane_view plane_;
  const bl_rows& rows_;
  int32_t threads_;
};

// A task is a head of a segment.
class DeltaStep : public Step {
 public:
  DeltaStep(const Backend& backend, const kernels::DeltaArgs& args, const bl_plane_view& plane,
            const bl_rows& rows, bool chunks)
      : backend_(backend), args_(args), plane_(plane), rows_(rows), chunks_(chunks) {}

  int32_t Tasks() const override {
    return *rows_.n_segments * static_cast<int32_t>(args_.value_heads);
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const auto heads = static_cast<int32_t>(args_.value_heads);
    const auto head = static_cast<size_t>(task % heads);
    ForStretches(plane_, rows_, rows_.segments[task / heads],
                 [&](size_t first, size_t count, const float* before, float* behind) {
                   kernels::DeltaArgs args = args_;
                   args.q += first * args.key_heads * args.key_dim;
                   args.k += first * args.key_heads * args.key_dim;
                   args.v += first * args.value_heads * args.value_dim;
                   args.a += first * args.value_heads;
                   args.b += first * args.value_heads;
                   args.out += first * args.value_heads * args.value_dim;
                   args.state_in = before;
                   args.state_out = behind;
                   if (chunks_ && count >= kDeltaChunkRowsMin) {
                     backend_.delta_chunks(args, count, head, worker->scratch);
                   } else {
                     backend_.delta(args, count, head);
                   }
                 });
    return BL_OK;
  }

 private:
  const Backend& backend_;
  kernels::DeltaArgs args_;
  bl_plane_view plane_;
  const bl_rows& rows_;
  bool chunks_;
};

void CheckPositive(std::string_view key, double value) {
  if (!(value > 0.0) || !std::isfinite(value)) {
    RefuseGraph("attribute '" + std::string(key) + "' must be a finite number above 0");
  }
}

void InferSlice(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  const int64_t first = call.attrs.I64("first");
  const int64_t count = call.attrs.I64("count");
  if (first < 0 || count < 1 || count > x.ne[0] || first > x.ne[0] - count) {
    RefuseGraph("values " + std::to_string(first) + " and " + std::to_string(count) +
                " from there are outside of input 'x' " + ToString(x));
  }
  call.outputs[0] = x;
  call.outputs[0].ne[0] = count;
}

void InferGate(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  const graph::Shape& gate = RowsInput(op, call, 1, BL_F32, 2, 3);
  const bool single = gate.width() == 1 && gate.domain == x.domain && gate.rows() == x.rows();
  if (gate != x && !single) {
    RefuseGraph("input 'gate' is " + ToString(gate) + ", must be of the shape of 'x' " +
                ToString(x) + ", or one value a row");
  }
  const std::string_view function = call.attrs.Str("function", "sigmoid");
  if (function != "sigmoid" && function != "silu") {
    RefuseGraph("attribute 'function' is '" + std::string(function) +
                "'; this host has 'sigmoid' and 'silu'");
  }
  call.outputs[0] = x;
}

void InferL2Norm(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  CheckPositive("eps", call.attrs.F64("eps"));
  CheckPositive("scale", call.attrs.F64("scale", 1.0));
  call.outputs[0] = x;
}

void CheckStatePlane(const graph::InferCall& call, int64_t width, const std::string& of) {
  const graph::PlaneInfo& plane = call.seat.planes[call.planes[0]];
  if (plane.width != width) {
    RefuseGraph("plane '" + plane.name + "' has lanes of " + std::to_string(plane.width) +
                " values, " + of + " needs " + std::to_string(width));
  }
}

void InferShortConv(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  if (x.domain != BL_DOMAIN_PASS_ROWS) {
    RefuseGraph("input 'x' is " + ToString(x) + ", must be over the rows of the pass");
  }
  const graph::Shape& weight = call.weight(0);
  const auto taps_max = static_cast<int64_t>(kernels::kConvTapsMax);
  if (weight.dtype != BL_F32 || weight.ndim != 2 || weight.ne[0] < 2 || weight.ne[0] > taps_max ||
      weight.ne[1] != x.ne[0]) {
    RefuseGraph(DescribeWeight(call, 0) + " must be F32 [taps, " + std::to_string(x.ne[0]) +
                "] with 2 to " + std::to_string(taps_max) + " taps");
  }
  const std::string_view activation = call.attrs.Str("activation", "silu");
  if (activation != "silu" && activation != "none") {
    RefuseGraph("attribute 'activation' is '" + std::string(activation) +
                "'; this host has 'silu' and 'none'");
  }
  CheckStatePlane(call, (weight.ne[0] - 1) * x.ne[0], "the convolution");
  call.outputs[0] = x;
}

void InferDelta(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& q = RowsInput(op, call, 0, BL_F32, 3, 3);
  const graph::Shape& k = RowsInput(op, call, 1, BL_F32, 3, 3);
  const graph::Shape& v = RowsInput(op, call, 2, BL_F32, 3, 3);
  if (q.domain != BL_DOMAIN_PASS_ROWS || k != q || v.domain != q.domain) {
    RefuseGraph("inputs 'q' " + ToString(q) + ", 'k' " + ToString(k) + " and 'v' " + ToString(v) +
                " must be heads over the rows of the pass, the first two of one shape");
  }
  const int64_t heads = v.ne[1];
  if (heads % q.ne[1] != 0) {
    RefuseGraph(std::to_string(heads) + " value heads are no multiple of " +
                std::to_string(q.ne[1]) + " key heads");
  }
  constexpr int64_t kUnit = 16;
  if (v.ne[0] % kUnit != 0 || v.ne[0] > static_cast<int64_t>(kernels::kDeltaValuesMax)) {
    RefuseGraph("input 'v' is " + ToString(v) + ": heads must be a multiple of 16 wide, at most " +
                std::to_string(kernels::kDeltaValuesMax));
  }
  for (const size_t i : {3U, 4U}) {
    const graph::Shape& x = RowsInput(op, call, i, BL_F32, 2, 2);
    if (x.ne[0] != heads || x.domain != q.domain) {
      RefuseGraph("input '" + std::string(op.inputs[i].name) + "' is " + ToString(x) +
                  ", must have a value for each of " + std::to_string(heads) + " heads");
    }
  }
  for (const size_t i : {0U, 1U}) {
    const graph::Shape& weight = WeightOver(call, i, 1, heads, "input 'v' " + ToString(v));
    if (weight.dtype != BL_F32) RefuseGraph(DescribeWeight(call, i) + " must be F32");
  }
  const std::string_view order = call.attrs.Str("head_order", "tiled");
  if (order != "tiled" && order != "grouped") {
    RefuseGraph("attribute 'head_order' is '" + std::string(order) +
                "', must be 'tiled' or 'grouped'");
  }
  CheckStatePlane(call, heads * q.ne[0] * v.ne[0], "the delta rule");
  call.outputs[0] = v;
}

}  // namespace

std::unique_ptr<Step> MakeSlice(const SliceArgs& args, RowCount rows, int32_t threads) {
  return MakeRowsStep(
      [args](size_t begin, size_t end) {
        for (size_t group = begin * args.groups; group < end * args.groups; ++group) {
          std::memcpy(args.y + group * args.count, args.x + group * args.dim + args.first,
                      args.count * sizeof(float));
        }
      },
      args.groups * args.count, rows, threads);
}

std::unique_ptr<Step> MakeGate(const Backend& backend, const kernels::GateArgs& args, RowCount rows,
                               int32_t threads) {
  return MakeRowsStep(
      [&backend, args](size_t begin, size_t end) { backend.gate(args, begin, end); },
      args.width * 8, rows, threads);
}

std::unique_ptr<Step> MakeL2Norm(const Backend& backend, const kernels::L2NormArgs& args,
                                 RowCount rows, int32_t threads) {
  return MakeRowsStep(
      [&backend, args](size_t begin, size_t end) { backend.l2_norm(args, begin, end); },
      args.groups * args.dim, rows, threads);
}

std::unique_ptr<Step> MakeShortConv(const Backend& backend, const kernels::ShortConvArgs& args,
                                    const bl_plane_view& plane, const bl_rows& rows,
                                    int32_t threads) {
  return std::make_unique<ShortConvStep>(backend, args, plane, rows, threads);
}

std::unique_ptr<Step> MakeDelta(const Backend& backend, const kernels::DeltaArgs& args,
                                const bl_plane_view& plane, const bl_rows& rows, bool chunks) {
  return std::make_unique<DeltaStep>(backend, args, plane, rows, chunks);
}

void AddRecurrentOperators(std::vector<graph::OperatorSchema>* out) {
  const graph::PlanePortSpec state = {
      .name = "state", .access = BL_READ_WRITE, .rule = BL_PLANE_FIXED};
  out->push_back({.name = "slice",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "first", .type = BL_ATTR_I64, .required = true},
                            {.key = "count", .type = BL_ATTR_I64, .required = true}},
                  .infer = InferSlice});
  out->push_back({.name = "gate",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}, {"gate"}},
                  .attrs = {{.key = "function", .type = BL_ATTR_STR}},
                  .infer = InferGate});
  out->push_back({.name = "l2_norm",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "eps", .type = BL_ATTR_F64, .required = true},
                            {.key = "scale", .type = BL_ATTR_F64}},
                  .infer = InferL2Norm});
  out->push_back({.name = "short_conv",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .weights_min = 1,
                  .weights_max = 1,
                  .planes = {state},
                  .attrs = {{.key = "activation", .type = BL_ATTR_STR}},
                  .infer = InferShortConv});
  out->push_back({.name = "delta_rule",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"q"}, {"k"}, {"v"}, {"a"}, {"b"}},
                  .weights_min = 2,
                  .weights_max = 2,
                  .planes = {state},
                  .attrs = {{.key = "head_order", .type = BL_ATTR_STR}},
                  .infer = InferDelta});
}

}  // namespace bloomery::ops
