#include "runtime/exec/lower/seat_info.h"

#include "runtime/graph/abi.h"

namespace bloomery::exec {
namespace {

std::vector<bl_port> Ports(const std::vector<plugin::Port>& ports) {
  std::vector<bl_port> out;
  for (const plugin::Port& port : ports) {
    auto made = graph::MakeAbi<bl_port>();
    made.optional = port.optional ? 1 : 0;
    made.name = port.name.c_str();
    out.push_back(made);
  }
  return out;
}

bl_kernel MakeKernel(const plugin::Operator& op, const plugin::Kernel& kernel) {
  auto made = graph::MakeAbi<bl_kernel>();
  made.op_version = op.version;
  made.op = op.name.c_str();
  made.device = BL_DEVICE_CPU;
  made.numeric_class = kernel.numeric_class;
  made.in_enc = kernel.in.data();
  made.n_in = static_cast<uint32_t>(kernel.in.size());
  made.out_enc = kernel.out.data();
  made.n_out = static_cast<uint32_t>(kernel.out.size());
  made.priority = kernel.priority;
  made.supports = kernel.supports;
  made.workspace = kernel.workspace;
  made.prepare = kernel.prepare;
  made.tasks = kernel.tasks;
  made.run = kernel.run;
  return made;
}

}  // namespace

graph::SeatInfo MakeSeatInfo(const plugin::Description& description) {
  graph::SeatInfo info{.layers = static_cast<int32_t>(description.layers)};
  for (const plugin::Weight& weight : description.weights) {
    graph::WeightInfo& made = info.weights.emplace_back();
    made.name = weight.name;
    made.present = weight.present;
    made.shape.dtype = static_cast<bl_dtype>(weight.type);
    made.shape.ndim = weight.n_dims;
    for (size_t axis = 0; axis < 4; ++axis) {
      made.shape.ne[axis] = static_cast<int64_t>(weight.ne[axis]);
    }
  }
  for (const plugin::Plane& plane : description.planes) {
    info.planes.push_back({.name = plane.name,
                           .rule = plane.rule,
                           .width = static_cast<int64_t>(plane.width),
                           .window = static_cast<int64_t>(plane.window)});
  }
  for (const plugin::Bank& bank : description.banks) {
    info.banks.push_back({.experts = bank.experts,
                          .used = bank.used,
                          .width = static_cast<int64_t>(bank.width),
                          .ff = static_cast<int64_t>(bank.ff)});
  }
  return info;
}

SeatOperators::SeatOperators(std::string_view plugin, const plugin::Description& description) {
  for (const plugin::Operator& op : description.operators) {
    Parts& parts = parts_.emplace_back();
    parts.inputs = Ports(op.inputs);
    parts.weights = Ports(op.weights);
    parts.outputs = Ports(op.outputs);
    for (const std::string& key : op.attrs) parts.attrs.push_back(key.c_str());
    for (const plugin::Kernel& kernel : op.kernels) parts.kernels.push_back(MakeKernel(op, kernel));
    parts.op = graph::MakeAbi<bl_op>();
    parts.op.version = op.version;
    parts.op.name = op.name.c_str();
    parts.op.inputs = parts.inputs.data();
    parts.op.n_inputs = static_cast<uint32_t>(parts.inputs.size());
    parts.op.weights = parts.weights.data();
    parts.op.n_weights = static_cast<uint32_t>(parts.weights.size());
    parts.op.outputs = parts.outputs.data();
    parts.op.n_outputs = static_cast<uint32_t>(parts.outputs.size());
    parts.op.attrs = parts.attrs.data();
    parts.op.n_attrs = static_cast<uint32_t>(parts.attrs.size());
    parts.op.kernels = parts.kernels.data();
    parts.op.n_kernels = static_cast<uint32_t>(parts.kernels.size());
    parts.op.infer = op.infer;
    parts.op.expand = op.expand;
    set_.Add(plugin, parts.op);
  }
}

}  // namespace bloomery::exec
