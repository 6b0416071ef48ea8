#include "runtime/exec/lower/lower.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/exec/lower/lowering.h"
#include "runtime/graph/abi.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/attention_plan.h"
#include "runtime/ops/elementwise.h"
#include "runtime/ops/plugin_step.h"
#include "runtime/ops/rope.h"
#include "runtime/ops/rows.h"

namespace bloomery::exec {
namespace {

// A value's tensor for a plugin's kernel; data may be null while kernels are chosen.
bl_tensor ValueTensor(const graph::Shape& shape, void* data) {
  auto tensor = graph::MakeAbi<bl_tensor>();
  tensor.dtype = shape.dtype;
  tensor.encoding = shape.dtype == BL_I32 ? BL_ENC_I32 : BL_ENC_F32;
  tensor.domain = shape.domain;
  tensor.ndim = shape.ndim;
  int64_t bytes = 4;
  for (uint32_t axis = 0; axis < shape.ndim; ++axis) {
    tensor.ne[axis] = shape.ne[axis];
    tensor.nb[axis] = bytes;
    bytes *= shape.ne[axis];
  }
  tensor.data = data;
  return tensor;
}

bl_tensor WeightTensor(const plugin::Weight& weight, const std::byte* data) {
  auto tensor = graph::MakeAbi<bl_tensor>();
  tensor.dtype = static_cast<bl_dtype>(weight.type);
  tensor.encoding = BL_ENC_WEIGHT;
  tensor.ndim = weight.n_dims;
  const model::TensorTypeInfo& type = model::Info(weight.type);
  auto bytes = static_cast<int64_t>(weight.ne[0] / type.block_values * type.block_bytes);
  tensor.nb[0] = static_cast<int64_t>(type.block_bytes);
  for (uint32_t axis = 0; axis < weight.n_dims; ++axis) {
    tensor.ne[axis] = static_cast<int64_t>(weight.ne[axis]);
    if (axis == 0) continue;
    tensor.nb[axis] = bytes;
    bytes *= tensor.ne[axis];
  }
  tensor.data = const_cast<std::byte*>(data);  // kernels do not write weights
  return tensor;
}

}  // namespace

LoweredGraph Lower(graph::Graph graph, const plugin::Description& description,
                   const LowerOptions& options) {
  return Lowering(std::move(graph), description, options).Run();
}

Lowering::Lowering(graph::Graph graph, const plugin::Description& description,
                   const LowerOptions& options)
    : description_(description), options_(options), buffers_(graph) {
  out_.graph = std::move(graph);
  out_.rows = options.rows;
}

Lowering::Emitter Lowering::FindEmitter(std::string_view op) {
  struct Row {
    std::string_view op;
    Emitter emit;
  };
  static constexpr std::array<Row, 23> kEmitters = {{
      {"embed", &Lowering::Embed},
      {"rms_norm", &Lowering::RmsNorm},
      {"reshape", &Lowering::Reshape},
      {"add", &Lowering::Add},
      {"mul", &Lowering::Mul},
      {"scale", &Lowering::Scale},
      {"linear", &Lowering::Linear},
      {"head", &Lowering::Head},
      {"rope", &Lowering::Rope},
      {"append", &Lowering::Append},
      {"attention", &Lowering::Attention},
      {"router", &Lowering::Router},
      {"routed_experts", &Lowering::RoutedExperts},
      {"select_rows", &Lowering::SelectRows},
      {"slice", &Lowering::Slice},
      {"gate", &Lowering::Gate},
      {"l2_norm", &Lowering::L2Norm},
      {"short_conv", &Lowering::ShortConv},
      {"delta_rule", &Lowering::DeltaRule},
      {"concat", &Lowering::Concat},
      {"previous", &Lowering::Previous},
      {"recall", &Lowering::Recall},
      {"keep", &Lowering::Keep},
  }};
  for (const Row& row : kEmitters) {
    if (row.op == op) return row.emit;
  }
  return nullptr;
}

LoweredGraph Lowering::Run() {
  std::vector<graph::ValueId> wanted;
  for (const std::string& name : options_.wanted) {
    const graph::ValueId value = out_.graph.FindExport(name);
    if (value == 0) {
      throw Error(ErrorKind::kBadModel, "the plugin's graph exports no '" + name + "'");
    }
    wanted.push_back(value);
  }
  const std::vector<bool> live = graph::LiveNodes(out_.graph, wanted);
  for (size_t i = 0; i < out_.graph.nodes.size(); ++i) {
    if (live[i]) LowerNode(static_cast<graph::NodeId>(i));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const BufferId buffer = Of(wanted[i]);
    buffers_.KeepToTheEnd(buffer);
    out_.exports.push_back({options_.wanted[i], buffer, ShapeOf(wanted[i])});
  }
  out_.arena_bytes = buffers_.Plan();
  out_.buffers = buffers_.Take();
  return std::move(out_);
}

void Lowering::LowerNode(graph::NodeId id) {
  node_ = id;
  const graph::Node& node = out_.graph.nodes[static_cast<size_t>(id)];
  if (node.op->plugin_op != nullptr) {
    PluginOp(node);
    return;
  }
  const Emitter emit = FindEmitter(node.op->name);
  if (emit == nullptr) {
    throw Error(ErrorKind::kUnsupported, Where() + "this host has no CPU kernel for it");
  }
  NoteClass(*node.op, node.op->numeric_class);
  (this->*emit)(node);
}

void Lowering::NoteClass(const graph::OperatorSchema& op, bl_numeric_class numeric_class) {
  if (numeric_class == BL_EXACT) return;
  out_.inexact.insert(graph::OperatorName(op) +
                      (numeric_class == BL_BAND ? " (band)" : " (row-stable)"));
}

std::string Lowering::Where() const {
  const graph::Node& node = out_.graph.nodes[static_cast<size_t>(node_)];
  std::string where = "operator " + graph::OperatorName(*node.op);
  if (node.layer >= 0) where += ", layer " + std::to_string(node.layer);
  return where + ": ";
}

void Lowering::Scratch(uint64_t bytes) { out_.scratch_bytes = std::max(out_.scratch_bytes, bytes); }

void Lowering::Emit(const std::vector<BufferId>& uses, StepMaker make) {
  buffers_.Use(uses, static_cast<int32_t>(out_.steps.size()));
  out_.steps.push_back({node_, std::move(make)});
}

const kernels::FormatTraits* Lowering::Format(uint32_t weight) const {
  const plugin::Weight& described = description_.weights[weight];
  const kernels::FormatTraits* format = kernels::FindFormat(static_cast<int>(described.type));
  if (format == nullptr) {
    std::string known;
    for (const kernels::FormatTraits& f : kernels::Formats()) {
      known += (known.empty() ? "" : ", ") + std::string(f.name);
    }
    throw Error(ErrorKind::kUnsupported, Where() + "weight '" + described.name + "' is " +
                                             std::string(model::Info(described.type).name) +
                                             ", which this version has no kernels for; it has " +
                                             known);
  }
  return format;
}

ops::Activations Lowering::EncodedInput::Bind(const Binder& binder) const {
  ops::Activations x;
  if (f32 >= 0) x.f32 = binder.Floats(f32);
  x.stride = width;
  if (group_256 >= 0) x.group_256 = kernels::MakeQuantisedRows(binder.Bytes(group_256), width, 256);
  if (group_32 >= 0) x.group_32 = kernels::MakeQuantisedRows(binder.Bytes(group_32), width, 32);
  return x;
}

void Lowering::EncodedInput::AddTo(std::vector<BufferId>* uses) const {
  for (const BufferId buffer : {f32, group_256, group_32}) {
    if (buffer >= 0) uses->push_back(buffer);
  }
}

Lowering::EncodedInput Lowering::Encode(BufferId source, size_t width, int64_t rows_max,
                                        bl_domain_kind domain, int32_t per_row,
                                        const std::vector<const kernels::FormatTraits*>& formats) {
  EncodedInput input;
  input.width = width;
  for (const kernels::FormatTraits* format : formats) {
    const size_t group = format->activation_group;
    if (group == 0) {
      input.f32 = source;
      continue;
    }
    const auto [place, is_new] = encoded_.try_emplace({source, group}, -1);
    if (is_new) {
      if (width % kernels::kSumValues != 0) {
        throw Error(ErrorKind::kUnsupported, Where() + "an input of " + std::to_string(width) +
                                                 " values cannot be quantised for " + format->name +
                                                 " weights");
      }
      const BufferId codes =
          NewBuffer(kernels::QuantisedRowBytes(width, group) * static_cast<uint64_t>(rows_max));
      place->second = codes;
      Emit({source, codes}, [=](const Binder& b) {
        ops::RowCount rows = b.Rows(domain);
        rows.per_row = per_row;
        return ops::MakeQuantise(b.backend(), b.Floats(source), width,
                                 kernels::MakeQuantisedRows(b.Bytes(codes), width, group), rows,
                                 b.threads());
      });
    }
    (group == 256 ? input.group_256 : input.group_32) = place->second;
  }
  return input;
}

void Lowering::EmitLinear(const graph::Node& /*node*/, graph::ValueId x,
                          std::vector<MatrixPlan> matrices) {
  const graph::Shape& shape = ShapeOf(x);
  std::vector<const kernels::FormatTraits*> formats;
  formats.reserve(matrices.size());
  for (const MatrixPlan& m : matrices) formats.push_back(Format(m.weight));
  const auto width = static_cast<size_t>(shape.ne[0]);
  const EncodedInput input = Encode(Of(x), width, shape.rows(), shape.domain, 1, formats);
  std::vector<BufferId> uses;
  input.AddTo(&uses);
  for (const MatrixPlan& m : matrices) uses.push_back(m.y);
  Scratch(options_.backend->linear_scratch(width));
  const bl_domain_kind domain = shape.domain;
  const plugin::Description* description = &description_;
  Emit(uses, [=, matrices = std::move(matrices)](const Binder& b) {
    std::vector<ops::Matrix> bound;
    for (const MatrixPlan& m : matrices) {
      ops::Matrix matrix;
      matrix.weight = b.WeightRows(m.weight);
      matrix.n = description->weights[m.weight].ne[1];
      if (m.bias >= 0) matrix.bias = b.WeightFloats(static_cast<uint32_t>(m.bias));
      matrix.y = b.Floats(m.y);
      matrix.y_stride = matrix.n;
      bound.push_back(matrix);
    }
    return ops::MakeLinear(b.backend(), input.Bind(b), std::move(bound), b.Rows(domain),
                           b.threads());
  });
  out_.steps.back().foreseen_after = PendingStep::kForeseenAlways;
}

void Lowering::Embed(const graph::Node& node) {
  const BufferId ids = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t table = node.weights[0];
  Format(table);
  const bl_domain_kind domain = ShapeOf(node.outputs[0]).domain;
  const auto vocabulary = static_cast<int64_t>(description_.weights[table].ne[1]);
  Emit({ids, y}, [=](const Binder& b) {
    kernels::EmbedArgs args;
    args.table = b.WeightRows(table);
    args.ids = b.Ints(ids);
    args.y = b.Floats(y);
    args.y_stride = args.table.k;
    return ops::MakeEmbed(b.backend(), args, vocabulary, b.Rows(domain), b.threads());
  });
}

void Lowering::RmsNorm(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t weight = node.weights[0];
  const auto eps = static_cast<float>(node.attrs.F64("eps"));
  const auto dim = static_cast<size_t>(shape.ne[0]);
  const auto width = static_cast<size_t>(shape.width());
  const bl_domain_kind domain = shape.domain;
  Emit({x, y}, [=](const Binder& b) {
    kernels::RmsNormArgs args;
    args.x = b.Floats(x);
    args.x_stride = width;
    args.y = b.Floats(y);
    args.y_stride = width;
    args.groups = width / dim;
    args.dim = dim;
    args.weight = b.WeightFloats(weight);
    args.eps = eps;
    return ops::MakeRmsNorm(b.backend(), args, b.Rows(domain), b.threads());
  });
}

void Lowering::Reshape(const graph::Node& node) {
  // The same bytes: rows are contiguous whatever their inner axes are called.
  buffers_.Alias(node.outputs[0], Of(node.inputs[0]));
}

void Lowering::EmitBinary(const graph::Node& node, int kind) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId a = Of(node.inputs[0]);
  const BufferId b = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(shape.width());
  const bl_domain_kind domain = shape.domain;
  Emit({a, b, y}, [=](const Binder& binder) {
    return ops::MakeBinary(binder.backend(), static_cast<ops::Binary>(kind), binder.Floats(a),
                           binder.Floats(b), binder.Floats(y), width, binder.Rows(domain),
                           binder.threads());
  });
}

void Lowering::Add(const graph::Node& node) {
  EmitBinary(node, static_cast<int>(ops::Binary::kAdd));
}

void Lowering::Mul(const graph::Node& node) {
  EmitBinary(node, static_cast<int>(ops::Binary::kMul));
}

void Lowering::Scale(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto factor = static_cast<float>(node.attrs.F64("factor"));
  const auto width = static_cast<size_t>(shape.width());
  Emit({x, y}, [=, domain = shape.domain](const Binder& b) {
    return ops::MakeScale(b.Floats(x), factor, b.Floats(y), width, b.Rows(domain), b.threads());
  });
}

void Lowering::Linear(const graph::Node& node) {
  const size_t stride = node.attrs.Bool("biases") ? 2 : 1;
  std::vector<MatrixPlan> matrices;
  matrices.reserve(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    matrices.push_back({.weight = node.weights[i * stride],
                        .bias = stride == 2 ? int64_t{node.weights[i * 2 + 1]} : -1,
                        .y = Make(node.outputs[i])});
  }
  EmitLinear(node, node.inputs[0], std::move(matrices));
}

void Lowering::Head(const graph::Node& node) {
  EmitLinear(node, node.inputs[0], {{.weight = node.weights[0], .y = Make(node.outputs[0])}});
}

void Lowering::Rope(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto head_dim = static_cast<size_t>(shape.ne[0]);
  const auto heads = static_cast<size_t>(shape.ne[1]);
  const auto dims = static_cast<size_t>(node.attrs.I64("dims", shape.ne[0]));
  const double base = node.attrs.F64("base");
  const double scale = node.attrs.F64("scale", 1.0);
  Emit({x, y}, [=](const Binder& b) {
    kernels::RopeArgs args;
    args.x = b.Floats(x);
    args.x_stride = head_dim * heads;
    args.y = b.Floats(y);
    args.y_stride = head_dim * heads;
    args.heads = heads;
    args.head_dim = head_dim;
    args.n_rot = dims;
    args.positions = b.inputs().rows().pos[0];
    return ops::MakeRope(b.backend(), args, ops::RopeFrequencies(base, scale, dims),
                         b.Rows(BL_DOMAIN_PASS_ROWS), b.threads());
  });
}

void Lowering::Append(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const uint32_t plane = node.planes[0].plane;
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).width());
  Emit({x}, [=](const Binder& b) {
    kernels::KvAppendArgs args;
    args.x = b.Floats(x);
    args.x_stride = width;
    args.slot_ids = b.inputs().rows().slot;
    args.index = b.inputs().rows().index;
    return ops::MakeAppend(b.backend(), args, ops::KvViews(b.Plane(plane), b.slots()),
                           b.Rows(BL_DOMAIN_PASS_ROWS), b.threads());
  });
}

void Lowering::Attention(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId q = Of(node.inputs[0]);
  const BufferId out = Make(node.outputs[0]);
  kernels::AttentionArgs args;
  args.heads = static_cast<size_t>(shape.ne[1]);
  args.kv_heads = static_cast<size_t>(node.attrs.I64("kv_heads"));
  args.key_dim = static_cast<size_t>(shape.ne[0]);
  args.value_dim = static_cast<size_t>(ShapeOf(node.outputs[0]).ne[0]);
  args.q_stride = args.heads * args.key_dim;
  args.out_stride = args.heads * args.value_dim;
  args.scale = static_cast<float>(node.attrs.F64("scale"));
  args.window = static_cast<size_t>(node.attrs.I64("window", 0));
  const int64_t sinks = node.weights.empty() ? -1 : int64_t{node.weights[0]};
  Scratch(options_.backend->attention_scratch(args));
  const uint32_t k = node.planes[0].plane;
  const uint32_t v = node.planes[1].plane;
  CheckHeadFits(k, args.key_dim);
  CheckHeadFits(v, args.value_dim);
  const size_t parts_bytes = ops::AttentionPlan::PartsBytes(
      *options_.backend, args, static_cast<size_t>(std::min(options_.rows, options_.slots)),
      static_cast<size_t>(options_.slot_context), options_.threads);
  const BufferId parts = parts_bytes > 0 ? NewBuffer(parts_bytes) : -1;
  const auto bind = [=](const Binder& b) {
    ops::AttentionBinding bound = {.backend = b.backend(),
                                   .args = args,
                                   .keys = ops::KvViews(b.Plane(k), b.slots()),
                                   .values = ops::KvViews(b.Plane(v), b.slots()),
                                   .rows = b.Rows(BL_DOMAIN_PASS_ROWS),
                                   .threads = b.threads(),
                                   .parts = {}};
    bound.args.q = b.Floats(q);
    bound.args.out = b.Floats(out);
    if (sinks >= 0) bound.args.sinks = b.WeightFloats(static_cast<uint32_t>(sinks));
    bound.args.slot_ids = b.inputs().rows().slot;
    bound.args.index = b.inputs().rows().index;
    if (parts >= 0) bound.parts = {b.Bytes(parts), parts_bytes};
    return bound;
  };
  if (parts < 0) {
    Emit({q, out}, [=](const Binder& b) { return ops::MakeAttention(bind(b)); });
    return;
  }
  Emit({q, out, parts}, [=](const Binder& b) { return ops::MakeAttention(bind(b)); });
  Emit({out, parts}, [=](const Binder& b) { return ops::MakeAttentionMerge(bind(b)); });
}

void Lowering::CheckHeadFits(uint32_t plane, size_t head_dim) const {
  const plugin::Plane& described = description_.planes[plane];
  const model::TensorTypeInfo& type = model::Info(static_cast<model::TensorType>(described.type));
  if (head_dim % type.block_values == 0) return;
  throw Error(ErrorKind::kUnsupported, Where() + "heads of " + std::to_string(head_dim) +
                                           " values are not whole blocks of " +
                                           std::string(type.name) + ", the type of plane '" +
                                           described.name + "'; choose another cache type");
}

void Lowering::SelectRows(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).width());
  Emit({x, y}, [=](const Binder& b) {
    return ops::MakeSelectRows(b.Floats(x), b.Floats(y), width, b.inputs().logit_map(),
                               b.Rows(BL_DOMAIN_LOGIT_ROWS), b.threads());
  });
}

void Lowering::PluginOp(const graph::Node& node) {
  ops::PluginBinding shapes;
  shapes.attrs = node.attrs;
  std::vector<BufferId> in, out, uses;
  for (const graph::ValueId value : node.inputs) {
    shapes.in.push_back(value == 0 ? graph::MakeAbi<bl_tensor>()
                                   : ValueTensor(ShapeOf(value), nullptr));
    in.push_back(value == 0 ? -1 : Of(value));
    if (value != 0) uses.push_back(in.back());
  }
  for (const graph::ValueId value : node.outputs) {
    shapes.out.push_back(ValueTensor(ShapeOf(value), nullptr));
    out.push_back(Make(value));
    uses.push_back(out.back());
  }
  for (const uint32_t weight : node.weights) {
    shapes.weights.push_back(WeightTensor(description_.weights[weight], nullptr));
  }
  shapes.kernel = ops::ChoosePluginKernel(*node.op->plugin_op, shapes);
  if (shapes.kernel == nullptr) {
    throw Error(ErrorKind::kUnsupported, Where() + "none of its " +
                                             std::to_string(node.op->plugin_op->n_kernels) +
                                             " kernels fits these shapes with f32 values");
  }
  NoteClass(*node.op, shapes.kernel->numeric_class);
  const bl_workspace workspace = ops::PluginWorkspace(*shapes.kernel, shapes);
  const BufferId space = workspace.bytes == 0 ? -1 : NewBuffer(workspace.bytes);
  if (space >= 0) uses.push_back(space);
  const std::vector<uint32_t> weights = node.weights;
  const plugin::Description* description = &description_;
  Emit(uses, [=](const Binder& b) {
    ops::PluginBinding bound = shapes;
    for (size_t i = 0; i < in.size(); ++i) bound.in[i].data = in[i] < 0 ? nullptr : b.Bytes(in[i]);
    for (size_t i = 0; i < out.size(); ++i) bound.out[i].data = b.Bytes(out[i]);
    for (size_t i = 0; i < weights.size(); ++i) {
      bound.weights[i] = WeightTensor(description->weights[weights[i]], b.WeightBytes(weights[i]));
    }
    bound.rows = &b.inputs().rows();
    if (space >= 0) bound.workspace = b.Bytes(space);
    bound.workspace_bytes = workspace.bytes;
    bound.workspace_zeroed = workspace.zeroed != 0 && space >= 0;
    return ops::MakePluginStep(std::move(bound));
  });
}

}  // namespace bloomery::exec
