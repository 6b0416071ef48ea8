#include "runtime/exec/lower/lowering.h"
#include "runtime/ops/recurrent.h"

namespace bloomery::exec {

void Lowering::Slice(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  ops::SliceArgs args;
  args.dim = static_cast<size_t>(shape.ne[0]);
  args.groups = static_cast<size_t>(shape.width()) / args.dim;
  args.first = static_cast<size_t>(node.attrs.I64("first"));
  args.count = static_cast<size_t>(node.attrs.I64("count"));
  Emit({x, y}, [=, domain = shape.domain](const Binder& b) {
    ops::SliceArgs bound = args;
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    return ops::MakeSlice(bound, b.Rows(domain), b.threads());
  });
}

void Lowering::Gate(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId gate = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  kernels::GateArgs args;
  args.width = static_cast<size_t>(shape.width());
  args.single = ShapeOf(node.inputs[1]) != shape;
  args.function = node.attrs.Str("function", "sigmoid") == "silu" ? kernels::GateFunction::kSilu
                                                                  : kernels::GateFunction::kSigmoid;
  Emit({x, gate, y}, [=, domain = shape.domain](const Binder& b) {
    kernels::GateArgs bound = args;
    bound.x = b.Floats(x);
    bound.gate = b.Floats(gate);
    bound.y = b.Floats(y);
    return ops::MakeGate(b.backend(), bound, b.Rows(domain), b.threads());
  });
}

void Lowering::L2Norm(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  kernels::L2NormArgs args;
  args.dim = static_cast<size_t>(shape.ne[0]);
  args.x_stride = args.y_stride = static_cast<size_t>(shape.width());
  args.groups = args.x_stride / args.dim;
  args.eps = static_cast<float>(node.attrs.F64("eps"));
  args.scale = static_cast<float>(node.attrs.F64("scale", 1.0));
  Emit({x, y}, [=, domain = shape.domain](const Binder& b) {
    kernels::L2NormArgs bound = args;
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    return ops::MakeL2Norm(b.backend(), bound, b.Rows(domain), b.threads());
  });
}

void Lowering::ShortConv(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t weight = node.weights[0];
  const uint32_t plane = node.planes[0].plane;
  kernels::ShortConvArgs args;
  args.channels = static_cast<size_t>(ShapeOf(node.inputs[0]).ne[0]);
  args.x_stride = args.y_stride = args.channels;
  args.taps = description_.weights[weight].ne[0];
  args.silu = node.attrs.Str("activation", "silu") == "silu";
  Emit({x, y}, [=](const Binder& b) {
    kernels::ShortConvArgs bound = args;
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    bound.weight = b.WeightFloats(weight);
    return ops::MakeShortConv(b.backend(), bound, b.Plane(plane), b.inputs().rows(), b.threads());
  });
}

void Lowering::DeltaRule(const graph::Node& node) {
  const graph::Shape& keys = ShapeOf(node.inputs[1]);
  const graph::Shape& values = ShapeOf(node.inputs[2]);
  std::array<BufferId, 5> in{};
  for (size_t i = 0; i < in.size(); ++i) in[i] = Of(node.inputs[i]);
  const BufferId out = Make(node.outputs[0]);
  const uint32_t decay = node.weights[0];
  const uint32_t dt_bias = node.weights[1];
  const uint32_t plane = node.planes[0].plane;
  kernels::DeltaArgs args;
  args.key_dim = static_cast<size_t>(keys.ne[0]);
  args.key_heads = static_cast<size_t>(keys.ne[1]);
  args.value_dim = static_cast<size_t>(values.ne[0]);
  args.value_heads = static_cast<size_t>(values.ne[1]);
  args.tiled = node.attrs.Str("head_order", "tiled") == "tiled";
  std::vector<BufferId> uses(in.begin(), in.end());
  uses.push_back(out);
  const bool chunks = options_.delta_chunks && options_.backend->delta_chunks != nullptr;
  if (chunks) {
    Scratch(options_.backend->delta_chunks_scratch(args));
    NoteClass(*node.op, BL_BAND);
  }
  Emit(uses, [=](const Binder& b) {
    kernels::DeltaArgs bound = args;
    bound.q = b.Floats(in[0]);
    bound.k = b.Floats(in[1]);
    bound.v = b.Floats(in[2]);
    bound.a = b.Floats(in[3]);
    bound.b = b.Floats(in[4]);
    bound.out = b.Floats(out);
    bound.decay = b.WeightFloats(decay);
    bound.dt_bias = b.WeightFloats(dt_bias);
    return ops::MakeDelta(b.backend(), bound, b.Plane(plane), b.inputs().rows(), chunks);
  });
}

}  // namespace bloomery::exec
