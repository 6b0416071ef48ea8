#include <bloomery/operators.h>

#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/norm/cuda/norm.h"
#include "runtime/exec/cuda/card_lowering.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

kernels::GateFunction FunctionOf(const graph::Node& gate) {
  return gate.attrs.Str("function", "sigmoid") == "silu" ? kernels::GateFunction::kSilu
                                                         : kernels::GateFunction::kSigmoid;
}

}  // namespace

void CardLowering::Slice(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  cuda::SliceRowsArgs args;
  args.x_stride = static_cast<size_t>(shape.width());
  args.y_stride = static_cast<size_t>(ShapeOf(node.outputs[0]).width());
  args.dim = static_cast<int32_t>(shape.ne[0]);
  args.groups = static_cast<int32_t>(shape.width() / shape.ne[0]);
  args.first = static_cast<int32_t>(node.attrs.I64("first"));
  args.count = static_cast<int32_t>(node.attrs.I64("count"));
  Emit({x, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::SliceRowsArgs bound = args;
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    bound.rows = b.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::SliceRows(launch, bound); };
  });
}

void CardLowering::Gate(const graph::Node& node) {
  const GateFusion& fusion = fusions_->gate(node_);
  if (fusion.norm >= 0) {
    GatedNorm(node, NodeAt(fusion.norm));
    return;
  }
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  cuda::GateRowsArgs args;
  args.single = ShapeOf(node.inputs[1]) != shape;
  args.function = FunctionOf(node);
  args.dim = static_cast<int32_t>(shape.ne[0]);
  args.groups = static_cast<int32_t>(shape.width() / shape.ne[0]);
  args.x_stride = args.y_stride = args.residual_stride = static_cast<size_t>(shape.width());
  // Gates that are a slice of longer vectors are read where those lie.
  const graph::ValueId gates = fusion.slice >= 0 ? NodeAt(fusion.slice).inputs[0] : node.inputs[1];
  const size_t first =
      fusion.slice >= 0 ? static_cast<size_t>(NodeAt(fusion.slice).attrs.I64("first")) : 0;
  args.gate_stride = static_cast<size_t>(ShapeOf(gates).width());
  args.gate_group_stride = fusion.slice >= 0 ? static_cast<size_t>(ShapeOf(gates).ne[0])
                                             : static_cast<size_t>(shape.ne[0]);
  const BufferId gate = Of(gates);
  BufferId residual = -1;
  if (fusion.add >= 0) {
    const graph::Node& sum = NodeAt(fusion.add);
    const bool made_first = fusions_->Source(sum.inputs[0]) == fusions_->Source(node.outputs[0]);
    residual = Of(sum.inputs[made_first ? 1 : 0]);
  }
  const BufferId y = Make(fusion.add >= 0 ? NodeAt(fusion.add).outputs[0] : node.outputs[0]);
  std::vector<BufferId> uses = {x, gate, y};
  if (residual >= 0) uses.push_back(residual);
  Emit(uses, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::GateRowsArgs bound = args;
    bound.x = b.Floats(x);
    bound.gate = b.Floats(gate) + first;
    if (residual >= 0) bound.residual = b.Floats(residual);
    bound.y = b.Floats(y);
    bound.rows = b.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::GateRows(launch, bound); };
  });
}

void CardLowering::GatedNorm(const graph::Node& node, const graph::Node& norm) {
  const graph::Shape& shape = ShapeOf(norm.inputs[0]);
  const BufferId x = Of(norm.inputs[0]);
  const BufferId gate = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t weight = norm.weights[0];
  cuda::RmsNormRowsArgs args;
  args.norm.x_stride = args.norm.y_stride = args.gate_stride = static_cast<size_t>(shape.width());
  args.norm.dim = static_cast<size_t>(shape.ne[0]);
  args.norm.groups = args.norm.x_stride / args.norm.dim;
  args.norm.eps = static_cast<float>(norm.attrs.F64("eps"));
  args.function = FunctionOf(node);
  Emit({x, gate, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::RmsNormRowsArgs bound = args;
    bound.norm.x = b.Floats(x);
    bound.norm.y = b.Floats(y);
    bound.norm.weight = b.WeightFloats(weight);
    bound.gate = b.Floats(gate);
    bound.rows = b.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::RmsNormRows(launch, bound); };
  });
}

void CardLowering::L2Norm(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  cuda::L2NormRowsArgs args;
  args.norm.x_stride = args.norm.y_stride = static_cast<size_t>(shape.width());
  args.norm.dim = static_cast<size_t>(shape.ne[0]);
  args.norm.groups = args.norm.x_stride / args.norm.dim;
  args.norm.eps = static_cast<float>(node.attrs.F64("eps"));
  args.norm.scale = static_cast<float>(node.attrs.F64("scale", 1.0));
  Emit({x, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::L2NormRowsArgs bound = args;
    bound.norm.x = b.Floats(x);
    bound.norm.y = b.Floats(y);
    bound.rows = b.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::L2NormRows(launch, bound); };
  });
}

void CardLowering::ShortConv(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t weight = node.weights[0];
  const uint32_t plane = node.planes[0].plane;
  cuda::ShortConvRowsArgs args;
  args.channels = static_cast<int32_t>(ShapeOf(node.inputs[0]).ne[0]);
  args.x_stride = args.y_stride = static_cast<size_t>(args.channels);
  args.taps = static_cast<int32_t>(description_.weights[weight].ne[0]);
  args.silu = node.attrs.Str("activation", "silu") == "silu";
  Emit({x, y}, [=, slots = options_.slots](const CardBinder& b) {
    cuda::ShortConvRowsArgs bound = args;
    bound.rows = b.PassRows();
    bound.states = b.PassStates(slots);
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    bound.weight = b.WeightFloats(weight);
    bound.state = b.State(plane);
    return [bound](const cuda::Launch& launch) { return cuda::ShortConvRows(launch, bound); };
  });
}

void CardLowering::DeltaRule(const graph::Node& node) {
  const DeltaFusion& fusion = fusions_->delta(node_);
  const graph::Shape& keys = ShapeOf(node.inputs[1]);
  const graph::Shape& values = ShapeOf(node.inputs[2]);
  cuda::DeltaRowsArgs args;
  args.key_dim = static_cast<int32_t>(keys.ne[0]);
  args.key_heads = static_cast<int32_t>(keys.ne[1]);
  args.value_dim = static_cast<int32_t>(values.ne[0]);
  args.value_heads = static_cast<int32_t>(values.ne[1]);
  args.tiled = node.attrs.Str("head_order", "tiled") == "tiled";
  if (args.key_dim > cuda::kDeltaRowsKeysMax) {
    Refuse("heads of " + std::to_string(args.key_dim) + " keys; the card's kernel takes up to " +
           std::to_string(cuda::kDeltaRowsKeysMax));
  }
  const auto norm = [&](const DeltaInput& input, cuda::DeltaHeads* heads) {
    heads->stride = static_cast<size_t>(ShapeOf(input.x).width());
    if (input.l2_norm < 0) return;
    const graph::Attrs& attrs = NodeAt(input.l2_norm).attrs;
    heads->eps = static_cast<float>(attrs.F64("eps"));
    heads->scale = static_cast<float>(attrs.F64("scale", 1.0));
  };
  norm(fusion.q, &args.q);
  norm(fusion.k, &args.k);
  args.v_stride = static_cast<size_t>(ShapeOf(fusion.v.x).width());
  struct Place {
    BufferId buffer;
    size_t first;
    const float* In(const CardBinder& b) const { return b.Floats(buffer) + first; }
  };
  const auto place = [&](const DeltaInput& input) {
    return Place{Of(input.x), static_cast<size_t>(input.first)};
  };
  const Place q = place(fusion.q);
  const Place k = place(fusion.k);
  const Place v = place(fusion.v);
  const BufferId decays = Of(node.inputs[3]);
  const BufferId strengths = Of(node.inputs[4]);
  const BufferId out = Make(node.outputs[0]);
  const uint32_t plane = node.planes[0].plane;
  Emit({q.buffer, k.buffer, v.buffer, decays, strengths, out},
       [=, decay = node.weights[0], dt_bias = node.weights[1],
        slots = options_.slots](const CardBinder& b) {
         cuda::DeltaRowsArgs bound = args;
         bound.rows = b.PassRows();
         bound.states = b.PassStates(slots);
         bound.q.x = q.In(b);
         bound.k.x = k.In(b);
         bound.v = v.In(b);
         bound.a = b.Floats(decays);
         bound.b = b.Floats(strengths);
         bound.out = b.Floats(out);
         bound.decay = b.WeightFloats(decay);
         bound.dt_bias = b.WeightFloats(dt_bias);
         bound.state = b.State(plane);
         return [bound](const cuda::Launch& launch) { return cuda::DeltaRows(launch, bound); };
       });
}

}  // namespace bloomery::exec
