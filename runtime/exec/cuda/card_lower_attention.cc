#include <bloomery/operators.h>

#include <algorithm>

#include "kernels-common/attention/cuda/append.h"
#include "kernels-common/attention/cuda/prompt_attention.h"
#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/layer/cuda/one_row_layers.h"
#include "kernels-common/rope/cuda/rope.h"
#include "runtime/exec/cuda/card_lowering.h"
#include "runtime/ops/attention.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

// The rope of a node as the fused launches take it; the table's place among the constants.
struct RopePlan {
  int32_t n_rot = 0;
  uint64_t frequencies = 0;
};

}  // namespace

void CardLowering::Rope(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto head_dim = static_cast<size_t>(shape.ne[0]);
  const auto heads = static_cast<size_t>(shape.ne[1]);
  const auto dims = static_cast<size_t>(node.attrs.I64("dims", shape.ne[0]));
  const uint64_t table = Frequencies(node.attrs.F64("base"), node.attrs.F64("scale", 1.0), dims);
  Emit({x, y}, [=](const CardBinder& b) {
    kernels::RopeArgs args;
    args.x = b.Floats(x);
    args.x_stride = head_dim * heads;
    args.y = b.Floats(y);
    args.y_stride = head_dim * heads;
    args.heads = heads;
    args.head_dim = head_dim;
    args.n_rot = dims;
    args.frequencies = reinterpret_cast<const double*>(b.Constant(table));
    return [args, rows = b.PassRows()](const cuda::Launch& launch) {
      return cuda::Rope(launch, rows, args);
    };
  });
}

void CardLowering::Append(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const uint32_t plane = node.planes[0].plane;
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).width());
  Emit({x}, [=](const CardBinder& b) {
    return [rows = b.PassRows(), values = b.Floats(x), width,
            view = b.Plane(plane)](const cuda::Launch& launch) {
      return cuda::Append(launch, rows, values, width, view);
    };
  });
}

cuda::CardAttention CardLowering::AttentionPlan::Bind(const CardBinder& binder) const {
  cuda::CardAttention bound = args;
  bound.rows = binder.PassRows();
  bound.out = binder.Floats(out);
  bound.keys = binder.Plane(k);
  bound.values = binder.Plane(v);
  if (sinks >= 0) bound.sinks = binder.WeightFloats(static_cast<uint32_t>(sinks));
  return bound;
}

CardLowering::AttentionPlan CardLowering::PlanAttention(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  AttentionPlan plan;
  plan.out = Make(node.outputs[0]);
  plan.k = node.planes[0].plane;
  plan.v = node.planes[1].plane;
  if (!node.weights.empty()) plan.sinks = int64_t{node.weights[0]};
  cuda::CardAttention& args = plan.args;
  args.heads = static_cast<int32_t>(shape.ne[1]);
  args.kv_heads = static_cast<int32_t>(node.attrs.I64("kv_heads"));
  args.key_dim = static_cast<int32_t>(shape.ne[0]);
  args.value_dim = static_cast<int32_t>(ShapeOf(node.outputs[0]).ne[0]);
  args.q_stride = static_cast<size_t>(args.heads) * static_cast<size_t>(args.key_dim);
  args.out_stride = static_cast<size_t>(args.heads) * static_cast<size_t>(args.value_dim);
  args.scale = static_cast<float>(node.attrs.F64("scale"));
  // No row sees more keys than its slot has.
  args.window =
      static_cast<int32_t>(std::min(node.attrs.I64("window", 0), int64_t{options_.slot_context}));
  // For sizes: the planes' types and capacity, without their memory.
  cuda::CardAttention sizes = args;
  sizes.rows.rows = out_.rows;
  for (const auto& [plane, view] :
       {std::pair{plan.k, &sizes.keys}, std::pair{plan.v, &sizes.values}}) {
    const plugin::Plane& described = description_.planes[plane];
    view->type = ops::KvTypeOf(described.type);
    view->width = described.width;
    view->row_bytes = kernels::KvRowBytes(view->type, described.width);
    view->capacity = static_cast<size_t>(options_.slot_context);
  }
  if (!cuda::RowsAttentionFits(sizes)) {
    Refuse("heads of " + std::to_string(args.key_dim) + " and " + std::to_string(args.value_dim) +
           " values, or planes of these types, are not what the card's kernels take");
  }
  out_.workspace_bytes =
      std::max<uint64_t>(out_.workspace_bytes, cuda::RowsAttentionWorkspaceBytes(sizes));
  if (!options_.split) {  // the one launch of a row's layers knows no host
    out_.state_bytes = std::max<uint64_t>(out_.state_bytes, cuda::OneRowLayersStateBytes(sizes));
  }
  return plan;
}

void CardLowering::Attention(const graph::Node& node) {
  const AttentionFusion* fusion = fusions_->attention(node_);
  const AttentionPlan plan = PlanAttention(node);
  if (!few_rows()) NoteBand(node.op->name);
  if (fusion != nullptr) {
    FusedAttention(plan, *fusion);
    return;
  }
  const BufferId q = Of(node.inputs[0]);
  if (!few_rows()) {
    EmitPromptAttention(plan, q);
    return;
  }
  Emit({q, plan.out}, [=](const CardBinder& b) {
    cuda::CardAttention bound = plan.Bind(b);
    bound.q = b.Floats(q);
    return [bound, workspace = b.workspace()](const cuda::Launch& launch) {
      return cuda::RowsAttention(launch, bound, workspace);
    };
  });
}

// Rows of slots that bring a few only (those that decode beside a prompt) keep the exact order, so
// that a row's bits do not depend on what else is in the pass: they are done again after the rest.
// One slot alone brings more, or the pass is none of a prompt.
void CardLowering::EmitPromptAttention(const AttentionPlan& plan, BufferId q) {
  Emit({q, plan.out}, [=](const CardBinder& b) {
    cuda::CardAttention bound = plan.Bind(b);
    bound.q = b.Floats(q);
    return [bound](const cuda::Launch& launch) { return cuda::PromptAttention(launch, bound); };
  });
  if (options_.slots == 1) return;
  // More rows than these kernels split over blocks: none of their workspace is used.
  const int32_t most = std::max(cuda::kMaxHeadRows + 1,
                                std::min(options_.rows, cuda::kMaxHeadRows * options_.slots));
  Emit({q, plan.out}, [=](const CardBinder& b) {
    cuda::CardAttention bound = plan.Bind(b);
    bound.q = b.Floats(q);
    bound.rows.live = b.rows().word(CardRows::kLiveExact);
    bound.rows.map = b.rows().array(CardRows::kExactRows);
    bound.rows.rows = most;
    return
        [bound](const cuda::Launch& launch) { return cuda::RowsAttention(launch, bound, nullptr); };
  });
}

CardLowering::HeadInputsMaker CardLowering::HeadInputsOf(const AttentionFusion& fusion,
                                                         const cuda::CardAttention& args) {
  const BufferId k_values = Of(fusion.k);
  const BufferId v_values = Of(fusion.v);
  RopePlan rope;
  if (fusion.rope >= 0) {
    const graph::Attrs& attrs = NodeAt(fusion.rope).attrs;
    rope.n_rot = static_cast<int32_t>(attrs.I64("dims", args.key_dim));
    rope.frequencies =
        Frequencies(attrs.F64("base"), attrs.F64("scale", 1.0), static_cast<size_t>(rope.n_rot));
  }
  struct Norm {
    int64_t weight = -1;  // -1: none
    float eps = 0;
  };
  const auto norm_of = [&](graph::NodeId id) {
    if (id < 0) return Norm{};
    return Norm{int64_t{NodeAt(id).weights[0]}, static_cast<float>(NodeAt(id).attrs.F64("eps"))};
  };
  const Norm q_norm = norm_of(fusion.q_norm);
  const Norm k_norm = norm_of(fusion.k_norm);
  const float v_scale =
      fusion.v_scale < 0 ? 1.0F : static_cast<float>(NodeAt(fusion.v_scale).attrs.F64("factor"));
  return [=](const CardBinder& b) {
    cuda::HeadInputs inputs;
    inputs.k = b.Floats(k_values);
    inputs.k_stride = static_cast<size_t>(args.kv_heads) * static_cast<size_t>(args.key_dim);
    inputs.v = b.Floats(v_values);
    inputs.v_stride = static_cast<size_t>(args.kv_heads) * static_cast<size_t>(args.value_dim);
    if (q_norm.weight >= 0) inputs.q_norm = b.WeightFloats(static_cast<uint32_t>(q_norm.weight));
    if (k_norm.weight >= 0) inputs.k_norm = b.WeightFloats(static_cast<uint32_t>(k_norm.weight));
    inputs.q_eps = q_norm.eps;
    inputs.k_eps = k_norm.eps;
    inputs.v_scale = v_scale;
    inputs.n_rot = rope.n_rot;
    if (rope.n_rot > 0) {
      inputs.frequencies = reinterpret_cast<const double*>(b.Constant(rope.frequencies));
    }
    return inputs;
  };
}

// Norms and rope of the heads and the appends: before attention in its own launch for few rows, by
// a launch in front of it for prompts.
void CardLowering::FusedAttention(const AttentionPlan& plan, const AttentionFusion& fusion) {
  const cuda::CardAttention& args = plan.args;
  const BufferId q = Of(fusion.q);
  const BufferId k_values = Of(fusion.k);
  const BufferId v_values = Of(fusion.v);
  const HeadInputsMaker inputs_of = HeadInputsOf(fusion, args);
  if (few_rows()) {
    Emit({q, k_values, v_values, plan.out}, [=](const CardBinder& b) {
      cuda::CardAttention bound = plan.Bind(b);
      bound.q = b.Floats(q);
      const HeadAttentionArgs all = {bound, inputs_of(b)};
      return CardLaunch(
          [all, workspace = b.workspace()](const cuda::Launch& on) {
            return cuda::HeadAttentionRows(on, all.attention, all.inputs, workspace);
          },
          all);
    });
    return;
  }
  const BufferId turned =
      buffers_.New(args.q_stride * sizeof(float) * static_cast<uint64_t>(out_.rows));
  Emit({q, k_values, v_values, turned}, [=](const CardBinder& b) {
    cuda::HeadAppendArgs append;
    append.rows = b.PassRows();
    append.inputs = inputs_of(b);
    append.q = b.Floats(q);
    append.q_stride = plan.args.q_stride;
    append.q_out = b.Floats(turned);
    append.q_out_stride = plan.args.q_stride;
    append.heads = plan.args.heads;
    append.kv_heads = plan.args.kv_heads;
    append.key_dim = plan.args.key_dim;
    append.value_dim = plan.args.value_dim;
    append.keys = b.Plane(plan.k);
    append.values = b.Plane(plan.v);
    return
        [append](const cuda::Launch& launch) { return cuda::HeadNormRopeAppend(launch, append); };
  });
  EmitPromptAttention(plan, turned);
}

}  // namespace bloomery::exec
