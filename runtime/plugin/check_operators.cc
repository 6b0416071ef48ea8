#include <algorithm>
#include <set>

#include "runtime/plugin/check_context.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kEncodingNames[] = {"F32",     "BF16", "F16",   "INT8_256",
                                               "INT8_32", "I32",  "WEIGHT"};

std::vector<Port> CheckPorts(const Item& op, const char* side, const bl_port* ports, uint32_t n) {
  op.Require(n <= limits::kOperatorPortsMax, side,
             std::to_string(n) + " ports, at most " + std::to_string(limits::kOperatorPortsMax));
  const SizedArray<bl_port> raw = op.Array(ports, n, side);
  std::vector<Port> out;
  for (uint32_t i = 0; i < raw.size(); ++i) {
    const bl_port port = raw[i];
    const Item item = op.Part(std::string(side) + " " + std::to_string(i));
    item.Require(port.optional <= 1, "optional", "neither 0 nor 1");
    out.push_back({item.Text("name", port.name), port.optional != 0});
  }
  return out;
}

std::vector<bl_encoding> CheckEncodings(const Item& item, const char* field,
                                        const bl_encoding* encodings, uint32_t n, size_t ports) {
  item.Require(n == ports, field,
               std::to_string(n) + " encodings for " + std::to_string(ports) + " ports");
  item.Require(n == 0 || encodings != nullptr, field, "null");
  std::vector<bl_encoding> out;
  for (uint32_t i = 0; i < n; ++i) {
    item.Enum(field, encodings[i], BL_ENC_WEIGHT + 1);
    if (encodings[i] != BL_ENC_F32 && encodings[i] != BL_ENC_I32) {
      item.NotOffered(field, std::string(kEncodingNames[encodings[i]]));
    }
    out.push_back(encodings[i]);
  }
  return out;
}

// A kernel for another device is checked and left out.
void CheckKernel(const Item& item, const bl_kernel& raw, Operator& op) {
  item.Require(item.Text("op", raw.op) == op.name && raw.op_version == op.version, "op",
               "'" + std::string(raw.op) + "' version " + std::to_string(raw.op_version) +
                   " is not its operator");
  item.Reserved(raw.reserved);
  item.Enum("device", raw.device, BL_DEVICE_CUDA + 1);
  item.Enum("numeric_class", raw.numeric_class, BL_BAND + 1);
  if (raw.device == BL_DEVICE_CUDA) {
    item.Require(raw.launch != nullptr, "launch", "null in a CUDA kernel");
    item.Require(raw.cc_min > 0 && raw.cc_min <= raw.cc_max, "cc_min", "no range of capabilities");
    return;
  }
  item.Require(raw.cc_min == 0 && raw.cc_max == 0, "cc_min", "has no meaning on a CPU");
  item.Require(raw.launch == nullptr, "launch", "has no meaning on a CPU");
  item.Require(raw.tasks != nullptr, "tasks", "null in a CPU kernel");
  item.Require(raw.run != nullptr, "run", "null in a CPU kernel");
  Kernel kernel;
  kernel.numeric_class = raw.numeric_class;
  kernel.in = CheckEncodings(item, "in_enc", raw.in_enc, raw.n_in, op.inputs.size());
  kernel.out = CheckEncodings(item, "out_enc", raw.out_enc, raw.n_out, op.outputs.size());
  kernel.priority = raw.priority;
  kernel.supports = raw.supports;
  kernel.workspace = raw.workspace;
  kernel.prepare = raw.prepare;
  kernel.tasks = raw.tasks;
  kernel.run = raw.run;
  // Highest priority first; among equals, the order of registration.
  const auto place = std::ranges::upper_bound(op.kernels, kernel.priority, std::ranges::greater(),
                                              &Kernel::priority);
  op.kernels.insert(place, std::move(kernel));
}

void CheckPlanePorts(const Item& item, const bl_op& raw) {
  const SizedArray<bl_plane_port> planes = item.Array(raw.planes, raw.n_planes, "plane port");
  for (uint32_t i = 0; i < planes.size(); ++i) {
    const Item part = item.Part("plane port " + std::to_string(i));
    part.Text("name", planes[i].name);
    part.Require(planes[i].access >= BL_READ && planes[i].access <= BL_READ_WRITE, "access",
                 std::to_string(planes[i].access) + " is not one of the ABI's values");
  }
  if (planes.size() > 0) item.NotOffered("planes", "a plane port in a plugin's operator");
}

Operator CheckOperator(const CheckContext& context, const Item& item, const bl_op& raw,
                       const std::string& name) {
  const std::string prefix = std::string(context.plugin) + ".";
  item.Require(name.starts_with(prefix) && name.size() > prefix.size(), "name",
               "a plugin's operators are named '" + prefix + "<something>'");
  item.Require(raw.version > 0, "version", "0: versions count from 1");
  Operator op;
  op.name = name;
  op.version = raw.version;
  op.inputs = CheckPorts(item, "input", raw.inputs, raw.n_inputs);
  op.weights = CheckPorts(item, "weight", raw.weights, raw.n_weights);
  op.outputs = CheckPorts(item, "output", raw.outputs, raw.n_outputs);
  CheckPlanePorts(item, raw);
  item.Require(!op.outputs.empty(), "n_outputs", "0: nothing could use it");
  item.Require(raw.n_attrs <= limits::kOperatorPortsMax, "n_attrs",
               std::to_string(raw.n_attrs) + " keys");
  item.Require(raw.n_attrs == 0 || raw.attrs != nullptr, "attrs", "null");
  for (uint32_t i = 0; i < raw.n_attrs; ++i) op.attrs.push_back(item.Text("attrs", raw.attrs[i]));
  item.Require(raw.infer != nullptr, "infer", "null");
  op.infer = raw.infer;
  op.expand = raw.expand;
  const SizedArray<bl_kernel> kernels = item.Array(raw.kernels, raw.n_kernels, "kernel");
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    CheckKernel(item.Part("kernel " + std::to_string(i)), kernels[i], op);
  }
  item.Require(!op.kernels.empty() || op.expand != nullptr, "kernels",
               "neither a CPU kernel nor an expansion");
  return op;
}

}  // namespace

std::vector<Operator> CheckOperators(const CheckContext& context, const bl_seat& seat) {
  const SizedArray<bl_op> raw = Item(context, "seat").Array(seat.ops, seat.n_ops, "operator");
  std::vector<Operator> operators;
  std::set<std::pair<std::string, uint32_t>> names;
  for (uint32_t i = 0; i < raw.size(); ++i) {
    const bl_op op = raw[i];
    const Item unnamed(context, "operator " + std::to_string(i));
    const std::string name = unnamed.Text("name", op.name);
    const Item item = unnamed.Named(name);
    operators.push_back(CheckOperator(context, item, op, name));
    item.Require(names.emplace(name, op.version).second, "name", "registered twice");
  }
  return operators;
}

}  // namespace bloomery::plugin
