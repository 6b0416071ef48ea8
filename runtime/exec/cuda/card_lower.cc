#include "runtime/exec/cuda/card_lower.h"

#include <bloomery/operators.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/norm/cuda/norm.h"
#include "kernels-common/quant/cuda/quantise.h"
#include "runtime/base/error.h"
#include "runtime/exec/cuda/card_lowering.h"
#include "runtime/ops/rope.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

CardLoweredGraph LowerForCard(const graph::Graph& graph, const plugin::Description& description,
                              const CardLowerOptions& options) {
  return CardLowering(graph, description, options).Run();
}

CardLowering::CardLowering(const graph::Graph& graph, const plugin::Description& description,
                           const CardLowerOptions& options)
    : graph_(graph), description_(description), options_(options), buffers_(graph) {
  out_.rows = options.rows;
  out_.top_rows = options.top_rows;
}

bool CardLowering::few_rows() const { return options_.rows <= cuda::kRowsMax; }

CardLowering::Emitter CardLowering::FindEmitter(std::string_view op) {
  struct Row {
    std::string_view op;
    Emitter emit;
  };
  static constexpr std::array<Row, 22> kEmitters = {{
      {BL_OP_EMBED, &CardLowering::Embed},
      {BL_OP_RMS_NORM, &CardLowering::RmsNorm},
      {BL_OP_ADD, &CardLowering::Add},
      {BL_OP_MUL, &CardLowering::Mul},
      {BL_OP_SCALE, &CardLowering::Scale},
      {BL_OP_LINEAR, &CardLowering::Linear},
      {BL_OP_HEAD, &CardLowering::Head},
      {BL_OP_ROPE, &CardLowering::Rope},
      {BL_OP_APPEND, &CardLowering::Append},
      {BL_OP_ATTENTION, &CardLowering::Attention},
      {BL_OP_ROUTER, &CardLowering::Router},
      {BL_OP_ROUTED_EXPERTS, &CardLowering::RoutedExperts},
      {BL_OP_SELECT_ROWS, &CardLowering::SelectRows},
      {BL_OP_SLICE, &CardLowering::Slice},
      {BL_OP_GATE, &CardLowering::Gate},
      {BL_OP_L2_NORM, &CardLowering::L2Norm},
      {BL_OP_SHORT_CONV, &CardLowering::ShortConv},
      {BL_OP_DELTA_RULE, &CardLowering::DeltaRule},
      {BL_OP_CONCAT, &CardLowering::Concat},
      {BL_OP_PREVIOUS, &CardLowering::Previous},
      {BL_OP_RECALL, &CardLowering::Recall},
      {BL_OP_KEEP, &CardLowering::Keep},
  }};
  for (const Row& row : kEmitters) {
    if (row.op == op) return row.emit;
  }
  return nullptr;
}

CardLoweredGraph CardLowering::Run() {
  for (const std::string& name : options_.wanted) {
    const graph::ValueId value = graph_.FindExport(name);
    if (value == 0) {
      throw Error(ErrorKind::kBadModel, "the plugin's graph exports no '" + name + "'");
    }
    wanted_.push_back(value);
  }
  live_ = graph::LiveNodes(graph_, wanted_);
  fusions_.emplace(graph_, live_, wanted_);
  lazy_.assign(graph_.nodes.size(), false);
  if (few_rows()) FindLazy();
  for (const graph::Crossing& crossing : options_.crossings) {
    out_.imports.push_back(
        {crossing, buffers_.BringIn(graph_, crossing.value), ShapeOf(crossing.value)});
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const auto id = static_cast<graph::NodeId>(i);
    // Rows are contiguous whatever their inner axes are called: a reshape is its source (Of).
    const bool reshape = NodeAt(id).op->name == BL_OP_RESHAPE;
    if (live_[i] && !lazy_[i] && !reshape && !fusions_->absorbed(id)) LowerNode(id);
  }
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const BufferId buffer = Of(wanted_[i]);
    buffers_.KeepToTheEnd(buffer);
    out_.exports.push_back({options_.wanted[i], buffer, ShapeOf(wanted_[i])});
  }
  if (options_.picks) KeepPicks();
  out_.arena_bytes = buffers_.Plan();
  out_.buffers = buffers_.Take();
  return std::move(out_);
}

void CardLowering::KeepPicks() {
  // Banks of drafts come behind those of passes, and are not in a pass.
  out_.picks.resize(static_cast<size_t>(std::ranges::count(description_.banks, BL_OWNER_MAIN,
                                                           &plugin::Bank::owner)),
                    -1);
  std::vector<bool> found(out_.picks.size(), false);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const graph::Node& node = graph_.nodes[i];
    if (!live_[i] || node.op->name != BL_OP_ROUTED_EXPERTS) continue;
    const auto bank = static_cast<size_t>(node.attrs.I64("bank"));
    found[bank] = ShapeOf(node.inputs[0]).domain == BL_DOMAIN_PASS_ROWS;
    out_.picks[bank] = Of(node.inputs[1]);
    buffers_.KeepToTheEnd(out_.picks[bank]);
  }
  for (const uint32_t bank : options_.banks) {
    if (bank >= found.size() || found[bank]) continue;
    throw Error(ErrorKind::kUnsupported,
                "bank " + std::to_string(bank) +
                    ": not all rows of a pass go through it, and what they pick cannot be told");
  }
}

void CardLowering::LowerNode(graph::NodeId id) {
  node_ = id;
  const graph::Node& node = NodeAt(id);
  const Emitter emit = node.op->plugin_op != nullptr ? nullptr : FindEmitter(node.op->name);
  if (emit == nullptr) Refuse("there is no kernel of the card for it");
  (this->*emit)(node);
}

void CardLowering::Refuse(const std::string& text) const {
  const graph::Node& node = NodeAt(node_);
  std::string where = "operator " + graph::OperatorName(*node.op);
  if (node.layer >= 0) where += ", layer " + std::to_string(node.layer);
  throw Error(ErrorKind::kUnsupported, where + ": " + text);
}

void CardLowering::NoteBand(std::string_view op) {
  out_.inexact.insert(std::string(op) + "/1 on the card, prompts (band)");
}

void CardLowering::Emit(const std::vector<BufferId>& uses, CardLaunchMaker make) {
  buffers_.Use(uses, static_cast<int32_t>(out_.launches.size()));
  const graph::Node& node = NodeAt(node_);
  out_.launches.push_back({node.op->name, node.layer, std::move(make)});
}

const kernels::FormatTraits& CardLowering::Format(uint32_t weight) const {
  const plugin::Weight& described = description_.weights[weight];
  const bool decoded = options_.weights->place(weight).layout == CardLayout::kDecoded;
  return *kernels::FindFormat(static_cast<int>(decoded ? model::TensorType::kF16 : described.type));
}

uint64_t CardLowering::Frequencies(double base, double scale, size_t dims) {
  const auto [place, is_new] = frequencies_.try_emplace({base, scale, dims}, out_.constants.size());
  if (is_new) {
    const std::vector<double> table = ops::RopeFrequencies(base, scale, dims);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(table));
    out_.constants.insert(out_.constants.end(), bytes.begin(), bytes.end());
    constexpr size_t kAlignment = 16;
    out_.constants.resize((out_.constants.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
  return place->second;
}

void CardLowering::Embed(const graph::Node& node) {
  const BufferId ids = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const uint32_t table = node.weights[0];
  if (options_.weights->place(table).layout == CardLayout::kCardForm) {
    Refuse("weight '" + description_.weights[table].name +
           "' is not described as a table; the card keeps other weights in a form whose rows "
           "cannot be looked up");
  }
  const kernels::FormatTraits* format = &Format(table);
  const auto k = static_cast<int32_t>(description_.weights[table].ne[0]);
  const auto rows = static_cast<int32_t>(description_.weights[table].ne[1]);
  const graph::Shape& shape = ShapeOf(node.outputs[0]);
  Emit({ids, y}, [=, domain = shape.domain, rows_max = shape.rows()](const CardBinder& b) {
    cuda::EmbedRowsArgs args;
    args.ggml_type = format->ggml_type;
    args.table = b.WeightData(table);
    args.row_bytes = kernels::RowBytes(*format, static_cast<size_t>(k));
    args.table_rows = rows;
    args.k = k;
    args.ids = b.Ints(ids);
    args.y = b.Floats(y);
    args.y_stride = static_cast<size_t>(k);
    args.rows = b.Bound(domain, rows_max);
    args.failed_row = b.failed_row();
    return [args](const cuda::Launch& launch) { return cuda::EmbedRows(launch, args); };
  });
}

void CardLowering::RmsNorm(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const auto dim = static_cast<size_t>(shape.ne[0]);
  const auto width = static_cast<size_t>(shape.width());
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  std::vector<size_t> groups = GroupsWanted(node.outputs[0]);
  const bool wanted = fusions_->wanted(fusions_->Source(node.outputs[0]));
  // One set of codes is made on the way where the whole row is one vector; without it, or beside
  // other readers, the row is kept as f32.
  size_t group = 0;
  if (dim == width && dim % kernels::kSumValues == 0) {
    for (const size_t candidate : groups) group = std::max(group, candidate);
  }
  const bool plain = group == 0 || wanted || groups.size() > 1;
  std::vector<BufferId> uses = {x};
  BufferId codes = -1;
  if (group != 0) {
    codes =
        buffers_.New(kernels::QuantisedRowBytes(dim, group) * static_cast<uint64_t>(shape.rows()));
    encoded_[{y, group}] = codes;
    uses.push_back(codes);
  }
  if (plain) uses.push_back(y);
  const uint32_t weight = node.weights[0];
  const auto eps = static_cast<float>(node.attrs.F64("eps"));
  Emit(uses, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::RmsNormRowsArgs args;
    args.norm.x = b.Floats(x);
    args.norm.x_stride = width;
    if (plain) args.norm.y = b.Floats(y);
    args.norm.y_stride = width;
    args.norm.groups = width / dim;
    args.norm.dim = dim;
    args.norm.weight = b.WeightFloats(weight);
    args.norm.eps = eps;
    if (codes >= 0) args.quantised = kernels::MakeQuantisedRows(b.Bytes(codes), dim, group);
    args.rows = b.Bound(domain, rows);
    return [args](const cuda::Launch& launch) { return cuda::RmsNormRows(launch, args); };
  });
}

void CardLowering::EmitPair(const graph::Node& node, bool product) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId a = Of(node.inputs[0]);
  const BufferId b = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(shape.width());
  Emit({a, b, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& binder) {
    cuda::PairRowsArgs args;
    args.a = binder.Floats(a);
    args.a_stride = width;
    args.b = binder.Floats(b);
    args.b_stride = width;
    args.y = binder.Floats(y);
    args.y_stride = width;
    args.width = static_cast<int32_t>(width);
    args.rows = binder.Bound(domain, rows);
    return [args, product](const cuda::Launch& launch) {
      return product ? cuda::MulRows(launch, args) : cuda::AddRows(launch, args);
    };
  });
}

void CardLowering::Scale(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  cuda::ScaleRowsArgs args;
  args.x_stride = args.y_stride = static_cast<size_t>(shape.width());
  args.width = static_cast<int32_t>(shape.width());
  args.factor = static_cast<float>(node.attrs.F64("factor"));
  Emit({x, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::ScaleRowsArgs bound = args;
    bound.x = b.Floats(x);
    bound.y = b.Floats(y);
    bound.rows = b.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::ScaleRows(launch, bound); };
  });
}

void CardLowering::SelectRows(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).width());
  Emit({x, y}, [=, rows = ShapeOf(node.outputs[0]).rows()](const CardBinder& b) {
    cuda::SelectRowsArgs args;
    args.x = b.Floats(x);
    args.x_stride = width;
    args.map = b.rows().array(CardRows::kLogitMap);
    args.y = b.Floats(y);
    args.y_stride = width;
    args.width = static_cast<int32_t>(width);
    args.rows = b.Bound(BL_DOMAIN_LOGIT_ROWS, rows);
    return [args](const cuda::Launch& launch) { return cuda::SelectRows(launch, args); };
  });
}

BufferId CardLowering::Encoded(BufferId x, size_t width, size_t group, bl_domain_kind domain,
                               int64_t rows, int32_t each) {
  const auto [place, is_new] = encoded_.try_emplace({x, group}, -1);
  if (!is_new) return place->second;
  if (width % kernels::kSumValues != 0) {
    Refuse("an input of " + std::to_string(width) + " values cannot be quantised");
  }
  const BufferId codes =
      buffers_.New(kernels::QuantisedRowBytes(width, group) * static_cast<uint64_t>(rows * each));
  place->second = codes;
  Emit({x, codes}, [=](const CardBinder& b) {
    cuda::QuantiseRowsArgs args;
    args.x = b.Floats(x);
    args.x_stride = width;
    args.out = kernels::MakeQuantisedRows(b.Bytes(codes), width, group);
    args.rows = b.Bound(domain, rows * each, each);
    return [args](const cuda::Launch& launch) { return cuda::QuantiseRows(launch, args); };
  });
  return codes;
}

}  // namespace bloomery::exec
