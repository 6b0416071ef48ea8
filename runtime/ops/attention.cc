#include "runtime/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "runtime/ops/attention_plan.h"
#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

class AppendStep : public Step {
 public:
  AppendStep(const Backend& backend, const kernels::KvAppendArgs& args,
             std::vector<kernels::KvView> views, RowCount rows, int32_t threads)
      : backend_(backend), args_(args), views_(std::move(views)), rows_(rows), threads_(threads) {
    args_.views = views_.data();
  }

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    backend_.append(args_, static_cast<size_t>(rows.begin(task)),
                    static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    const auto width = static_cast<int64_t>(args_.x_stride);
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / width, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::KvAppendArgs args_;
  std::vector<kernels::KvView> views_;
  RowCount rows_;
  int32_t threads_;
};

class AttentionStep : public Step {
 public:
  explicit AttentionStep(AttentionBinding binding) : bound_(std::move(binding)) {
    bound_.args.keys = bound_.keys.data();
    bound_.args.values = bound_.values.data();
  }

  int32_t Tasks() const override { return Plan().tasks(); }

  bl_status Run(int32_t task, Worker* worker) const override {
    const AttentionTask cut = Plan().Task(task);
    for (size_t head = cut.head_begin; head < cut.head_end; ++head) {
      if (cut.split) {
        bound_.backend.attention_windows(bound_.args, cut.row_begin, cut.row_end, head,
                                         cut.window_begin, cut.window_end,
                                         bound_.parts.data() + cut.parts_at, worker->scratch);
      } else {
        bound_.backend.attention(bound_.args, cut.row_begin, cut.row_end, head, worker->scratch);
      }
    }
    return BL_OK;
  }

 protected:
  AttentionPlan Plan() const {
    return {bound_.backend, bound_.args, static_cast<size_t>(bound_.rows.Get()), bound_.threads,
            bound_.parts.size()};
  }
  const AttentionBinding& bound() const { return bound_; }

 private:
  AttentionBinding bound_;
};

class MergeStep : public AttentionStep {
 public:
  using AttentionStep::AttentionStep;

  int32_t Tasks() const override { return Plan().merges(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const AttentionMergeTask cut = Plan().Merge(task);
    bound().backend.attention_merge(bound().args, cut.row_begin, cut.row_end, cut.kv_head,
                                    cut.group_begin, cut.group_end, cut.first_windows,
                                    bound().parts.data() + cut.parts_at);
    return BL_OK;
  }
};

void InferAppend(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  const graph::PlaneInfo& plane = call.seat.planes[call.planes[0]];
  if (x.domain != BL_DOMAIN_PASS_ROWS || x.width() != plane.width) {
    RefuseGraph("input 'x' is " + ToString(x) + "; plane '" + plane.name + "' takes rows of " +
                std::to_string(plane.width) + " values over the rows of the pass");
  }
}

void InferAttention(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& q = RowsInput(op, call, 0, BL_F32, 3, 3);
  if (q.domain != BL_DOMAIN_PASS_ROWS) {
    RefuseGraph("input 'q' is " + ToString(q) + ", must be over the rows of the pass");
  }
  const std::string_view source = call.attrs.Str("source", "plane");
  if (source != "plane") {
    RefuseGraph("attribute 'source' is '" + std::string(source) + "'; this host has 'plane' only");
  }
  const int64_t kv_heads = call.attrs.I64("kv_heads");
  if (kv_heads < 1 || q.ne[1] % kv_heads != 0) {
    RefuseGraph("attribute 'kv_heads' is " + std::to_string(kv_heads) +
                ", must divide the heads of input 'q' " + ToString(q));
  }
  const graph::PlaneInfo& k = call.seat.planes[call.planes[0]];
  const graph::PlaneInfo& v = call.seat.planes[call.planes[1]];
  if (k.width != q.ne[0] * kv_heads) {
    RefuseGraph("plane '" + k.name + "' is " + std::to_string(k.width) + " wide, input 'q' " +
                ToString(q) + " with " + std::to_string(kv_heads) + " kv heads needs " +
                std::to_string(q.ne[0] * kv_heads));
  }
  if (v.width % kv_heads != 0) {
    RefuseGraph("plane '" + v.name + "' is " + std::to_string(v.width) +
                " wide, which does not divide by " + std::to_string(kv_heads) + " kv heads");
  }
  if (!std::isfinite(call.attrs.F64("scale"))) RefuseGraph("attribute 'scale' is not finite");
  const int64_t window = call.attrs.I64("window", 0);
  if (window < 0) {
    RefuseGraph("attribute 'window' is " + std::to_string(window) + ", must be 0 or more");
  }
  for (const graph::PlaneInfo* plane : {&k, &v}) {
    if (plane->rule == BL_PLANE_RING && (window == 0 || window > plane->window)) {
      RefuseGraph("attribute 'window' is " + std::to_string(window) + ", plane '" + plane->name +
                  "' is a ring of " + std::to_string(plane->window) + " rows");
    }
  }
  if (!call.weights.empty()) {
    const graph::Shape& sinks = WeightOver(call, 0, 1, q.ne[1], "the heads of 'q' " + ToString(q));
    if (sinks.dtype != BL_F32) RefuseGraph(DescribeWeight(call, 0) + " must be F32");
  }
  call.outputs[0] = q;
  call.outputs[0].ne[0] = v.width / kv_heads;
}

}  // namespace

kernels::KvType KvTypeOf(bl_dtype type) {
  switch (type) {
    case BL_F32:
      return kernels::KvType::kF32;
    case BL_F16:
      return kernels::KvType::kF16;
    case BL_Q8_0:
      return kernels::KvType::kQ8_0;
    default:
      throw Error(ErrorKind::kUnsupported, "planes of type id " + std::to_string(type) +
                                               " have no kernels; choose f32, f16 or q8_0");
  }
}

std::vector<kernels::KvView> KvViews(const bl_plane_view& plane, int32_t slots) {
  std::vector<kernels::KvView> views(static_cast<size_t>(slots));
  for (int32_t slot = 0; slot < slots; ++slot) {
    kernels::KvView& view = views[static_cast<size_t>(slot)];
    view.type = KvTypeOf(plane.type);
    view.width = static_cast<size_t>(plane.width);
    view.row_bytes = static_cast<size_t>(plane.row_bytes);
    view.base = static_cast<std::byte*>(plane.data);
    view.blocks = plane.blocks + int64_t{slot} * plane.blocks_per_slot;
    view.block_rows = static_cast<size_t>(plane.block_rows);
    view.capacity = static_cast<size_t>(plane.capacity);
  }
  return views;
}

std::unique_ptr<Step> MakeAppend(const Backend& backend, const kernels::KvAppendArgs& args,
                                 std::vector<kernels::KvView> views, RowCount rows,
                                 int32_t threads) {
  return std::make_unique<AppendStep>(backend, args, std::move(views), rows, threads);
}

std::unique_ptr<Step> MakeAttention(AttentionBinding binding) {
  return std::make_unique<AttentionStep>(std::move(binding));
}

std::unique_ptr<Step> MakeAttentionMerge(AttentionBinding binding) {
  return std::make_unique<MergeStep>(std::move(binding));
}

void AddAttentionOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "append",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .planes = {{.name = "plane", .access = BL_WRITE, .or_ring = true}},
                  .outputs_min = 0,
                  .outputs_max = 0,
                  .infer = InferAppend});
  out->push_back({.name = "attention",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"q"}},
                  .weights_min = 0,
                  .weights_max = 1,
                  .planes = {{.name = "k", .or_ring = true}, {.name = "v", .or_ring = true}},
                  .attrs = {{.key = "kv_heads", .type = BL_ATTR_I64, .required = true},
                            {.key = "scale", .type = BL_ATTR_F64, .required = true},
                            {.key = "window", .type = BL_ATTR_I64},
                            {.key = "source", .type = BL_ATTR_STR}},
                  .infer = InferAttention});
}

}  // namespace bloomery::ops
