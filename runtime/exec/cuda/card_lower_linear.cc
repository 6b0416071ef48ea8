#include <bloomery/operators.h>

#include <algorithm>

#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/linear/cuda/prompt_linear.h"
#include "kernels-common/linear/cuda/router.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/linear/cuda/top_logits.h"
#include "runtime/exec/cuda/card_lowering.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

bool Is(const graph::Node& node, std::string_view op) { return node.op->name == op; }

constexpr size_t kMatricesMax = cuda::kRowsMatricesMax;

}  // namespace

// A norm of whole rows that nothing but linears, heads, routers and the experts of such a router
// read is done again by each of them, in front of its own work.
bool CardLowering::LazyNorm(const graph::Node& node) const {
  const graph::Shape& shape = ShapeOf(node.inputs[0]);
  if (shape.ne[0] != shape.width() || fusions_->wanted(fusions_->Source(node.outputs[0]))) {
    return false;
  }
  return std::ranges::all_of(
      fusions_->readers(fusions_->Source(node.outputs[0])), [&](graph::NodeId id) {
        const graph::Node& reader = NodeAt(id);
        if (Is(reader, BL_OP_ROUTED_EXPERTS)) {
          const graph::NodeId router = FusedRouter(reader);
          return router >= 0 &&
                 fusions_->Source(reader.inputs[3]) != fusions_->Source(node.outputs[0]);
        }
        return Is(reader, BL_OP_LINEAR) || Is(reader, BL_OP_HEAD) || Is(reader, BL_OP_ROUTER);
      });
}

void CardLowering::FindLazy() {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const graph::Node& node = graph_.nodes[i];
    if (!live_[i] || fusions_->absorbed(static_cast<graph::NodeId>(i))) continue;
    if (Is(node, BL_OP_RMS_NORM)) lazy_[i] = LazyNorm(node);
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const graph::Node& node = graph_.nodes[i];
    if (!live_[i] || !Is(node, BL_OP_SELECT_ROWS)) continue;
    const graph::ValueId made = fusions_->Source(node.outputs[0]);
    lazy_[i] = !fusions_->wanted(made) &&
               std::ranges::all_of(fusions_->readers(made), [&](graph::NodeId id) {
                 return lazy_[static_cast<size_t>(id)] || Is(NodeAt(id), BL_OP_LINEAR) ||
                        Is(NodeAt(id), BL_OP_HEAD);
               });
  }
}

CardLowering::FewRowsInput CardLowering::InputOf(graph::ValueId value) {
  FewRowsInput input;
  value = fusions_->Source(value);
  const auto lazy_producer = [&](std::string_view op) {
    const graph::NodeId producer = graph_.value(value).producer;
    return producer >= 0 && lazy_[static_cast<size_t>(producer)] && Is(NodeAt(producer), op)
               ? producer
               : -1;
  };
  input.norm = lazy_producer(BL_OP_RMS_NORM);
  if (input.norm >= 0) value = fusions_->Source(NodeAt(input.norm).inputs[0]);
  const graph::NodeId select = lazy_producer(BL_OP_SELECT_ROWS);
  input.selected = select >= 0;
  if (input.selected) value = fusions_->Source(NodeAt(select).inputs[0]);
  input.x = Of(value);
  return input;
}

std::vector<size_t> CardLowering::GroupsWanted(graph::ValueId value) const {
  std::vector<size_t> groups;
  const auto add = [&](size_t group) {
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  };
  for (const graph::NodeId id : fusions_->readers(fusions_->Source(value))) {
    const graph::Node& reader = NodeAt(id);
    if (Is(reader, BL_OP_LINEAR) || Is(reader, BL_OP_HEAD) || Is(reader, BL_OP_ROUTER)) {
      const size_t stride = reader.attrs.Bool("biases") ? 2 : 1;
      for (size_t i = 0; i < reader.weights.size(); i += stride) {
        add(Format(reader.weights[i]).activation_group);
      }
    } else if (Is(reader, BL_OP_ROUTED_EXPERTS) &&
               fusions_->Source(reader.inputs[3]) != fusions_->Source(value)) {
      const auto bank = static_cast<size_t>(reader.attrs.I64("bank"));
      add(Format(description_.banks[bank].gate).activation_group);
      add(Format(description_.banks[bank].up).activation_group);
    } else {
      add(0);
    }
  }
  return groups;
}

kernels::QuantisedRows CardLowering::PromptInput::Quantised(const CardBinder& binder,
                                                            size_t group) const {
  const BufferId codes = group == 256 ? group_256 : group_32;
  return kernels::MakeQuantisedRows(binder.Bytes(codes), width, group);
}

void CardLowering::PromptInput::AddTo(std::vector<BufferId>* uses) const {
  for (const BufferId buffer : {x, group_256, group_32}) {
    if (buffer >= 0) uses->push_back(buffer);
  }
}

CardLowering::PromptInput CardLowering::PromptInputOf(BufferId x, size_t width,
                                                      bl_domain_kind domain, int64_t rows,
                                                      int32_t each,
                                                      std::span<const size_t> groups) {
  PromptInput input;
  input.width = width;
  for (const size_t group : groups) {
    if (group == 0) {
      input.x = x;
    } else {
      (group == 256 ? input.group_256 : input.group_32) =
          Encoded(x, width, group, domain, rows, each);
    }
  }
  return input;
}

void CardLowering::Linear(const graph::Node& node) {
  const size_t stride = node.attrs.Bool("biases") ? 2 : 1;
  const graph::NodeId add = fusions_->residual_add(node_);
  BufferId residual = -1;
  if (add >= 0) {
    const graph::Node& sum = NodeAt(add);
    const bool first = fusions_->Source(sum.inputs[0]) == fusions_->Source(node.outputs[0]);
    residual = Of(sum.inputs[first ? 1 : 0]);
  }
  std::vector<MatrixPlan> matrices;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    matrices.push_back({.weight = node.weights[i * stride],
                        .bias = stride == 2 ? int64_t{node.weights[i * 2 + 1]} : -1,
                        .y = Make(add >= 0 ? NodeAt(add).outputs[0] : node.outputs[i]),
                        .residual = residual});
  }
  RowsSideOutputs side;
  const graph::NodeId router = RouterBeside(node);
  if (router >= 0) {
    matrices.push_back(PlanRouter(router, &side));
    router_done_[router] = true;
  }
  EmitMatrices(node.inputs[0], matrices, side);
}

graph::NodeId CardLowering::RouterBeside(const graph::Node& linear) const {
  if (!few_rows() || linear.outputs.size() != 1 ||
      Format(linear.weights[0]).activation_group != 0) {
    return -1;
  }
  for (const graph::NodeId id : fusions_->readers(fusions_->Source(linear.inputs[0]))) {
    const graph::Node& reader = NodeAt(id);
    if (Is(reader, BL_OP_ROUTER) && id > node_ && !router_done_.contains(id) &&
        Format(reader.weights[0]).activation_group == 0) {
      return id;
    }
  }
  return -1;
}

void CardLowering::Head(const graph::Node& node) {
  const BufferId y = Make(node.outputs[0]);
  EmitMatrices(node.inputs[0], {{.weight = node.weights[0], .y = y}}, {});
  const graph::ValueId logits = graph_.FindExport("logits");
  if (logits != 0 && node.outputs[0] == fusions_->Source(logits)) {
    EmitTopLogits(y, ShapeOf(node.outputs[0]).width());
  }
}

void CardLowering::CheckMatrix(uint32_t weight) const {
  const kernels::FormatTraits& format = Format(weight);
  if (format.activation_group == 0 ||
      options_.weights->place(weight).layout == CardLayout::kCardForm) {
    return;
  }
  Refuse("weight '" + description_.weights[weight].name + "' (" + format.name +
         ") is described as a table, whose rows the card keeps as in the file; a matrix over the "
         "same tensor must be a weight of its own");
}

// Matrices of one activation group and at most kMatricesMax go together.
void CardLowering::EmitMatrices(graph::ValueId x, const std::vector<MatrixPlan>& matrices,
                                const RowsSideOutputs& side) {
  std::vector<size_t> groups;
  for (const MatrixPlan& matrix : matrices) {
    CheckMatrix(matrix.weight);
    const size_t group = Format(matrix.weight).activation_group;
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  RowsSideOutputs left = side;
  for (const size_t group : groups) {
    std::vector<MatrixPlan> together;
    const auto flush = [&] {
      if (together.empty()) return;
      if (few_rows()) {
        EmitFewRows(x, together, left);
      } else {
        EmitPrompt(x, together);
      }
      left = {};
      together.clear();
    };
    for (const MatrixPlan& matrix : matrices) {
      if (Format(matrix.weight).activation_group != group) continue;
      if (!few_rows() && Format(matrix.weight).ggml_type == BL_F32) {
        EmitFloatMatrix(x, matrix);
        continue;
      }
      together.push_back(matrix);
      if (together.size() == kMatricesMax) flush();
    }
    flush();
  }
}

void CardLowering::EmitFewRows(graph::ValueId x, const std::vector<MatrixPlan>& matrices,
                               const RowsSideOutputs& side) {
  const graph::Shape& shape = ShapeOf(x);
  const FewRowsInput input = InputOf(x);
  const auto k = static_cast<size_t>(shape.width());
  if (k % 32 != 0) Refuse("an input of " + std::to_string(k) + " values is no multiple of 32");
  int64_t norm_weight = -1;
  float eps = 0;
  if (input.norm >= 0) {
    norm_weight = NodeAt(input.norm).weights[0];
    eps = static_cast<float>(NodeAt(input.norm).attrs.F64("eps"));
  }
  std::vector<BufferId> uses = {input.x};
  for (const MatrixPlan& matrix : matrices) {
    uses.push_back(matrix.y);
    if (matrix.residual >= 0) uses.push_back(matrix.residual);
  }
  for (const BufferId buffer : {side.quantised, side.f32}) {
    if (buffer >= 0) uses.push_back(buffer);
  }
  const plugin::Description* description = &description_;
  Emit(uses, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::RowsLinearArgs args;
    args.x = b.Floats(input.x);
    args.x_stride = k;
    if (norm_weight >= 0) args.norm_weight = b.WeightFloats(static_cast<uint32_t>(norm_weight));
    args.eps = eps;
    args.k = k;
    args.rows = static_cast<int32_t>(rows);
    args.live = b.Live(domain);
    if (input.selected) args.row_map = b.rows().array(CardRows::kLogitMap);
    for (const MatrixPlan& plan : matrices) {
      cuda::CardMatrix& matrix = args.matrices[args.count++];
      matrix.weight = b.Matrix(plan.weight);
      if (plan.bias >= 0) matrix.bias = b.WeightFloats(static_cast<uint32_t>(plan.bias));
      matrix.y = b.Floats(plan.y);
      matrix.y_stride = description->weights[plan.weight].ne[1];
      if (plan.residual >= 0) {
        matrix.residual = b.Floats(plan.residual);
        matrix.residual_stride = matrix.y_stride;
      }
    }
    if (side.quantised >= 0) {
      args.normed = kernels::MakeQuantisedRows(b.Bytes(side.quantised), k, side.group);
    }
    if (side.f32 >= 0) args.normed_f32 = b.Floats(side.f32);
    return CardLaunch([args](const cuda::Launch& on) { return cuda::RowsLinear(on, args); }, args);
  });
}

void CardLowering::EmitPrompt(graph::ValueId x, const std::vector<MatrixPlan>& matrices) {
  const graph::Shape& shape = ShapeOf(x);
  const auto k = static_cast<size_t>(shape.width());
  const size_t group = Format(matrices.front().weight).activation_group;
  for (const MatrixPlan& matrix : matrices) {
    const kernels::FormatTraits& format = Format(matrix.weight);
    if (!cuda::HasPromptLinear(format.ggml_type)) {
      Refuse("weight '" + description_.weights[matrix.weight].name + "' is " + format.name +
             ", which prompts on the card have no kernel for");
    }
  }
  if (group == 0) NoteBand(NodeAt(node_).op->name);
  const PromptInput input =
      PromptInputOf(Of(x), k, shape.domain, shape.rows(), 1, std::span(&group, 1));
  std::vector<BufferId> uses;
  input.AddTo(&uses);
  for (const MatrixPlan& matrix : matrices) {
    uses.push_back(matrix.y);
    if (matrix.residual >= 0) uses.push_back(matrix.residual);
  }
  const plugin::Description* description = &description_;
  Emit(uses, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    cuda::PromptLinearArgs args;
    if (group == 0) {
      args.input.x = b.Floats(input.x);
      args.input.x_stride = k;
    } else {
      args.input.quantised = input.Quantised(b, group);
    }
    for (const MatrixPlan& plan : matrices) {
      cuda::CardMatrix& matrix = args.matrices[args.count++];
      matrix.weight = b.Matrix(plan.weight);
      if (plan.bias >= 0) matrix.bias = b.WeightFloats(static_cast<uint32_t>(plan.bias));
      matrix.y = b.Floats(plan.y);
      matrix.y_stride = description->weights[plan.weight].ne[1];
      if (plan.residual >= 0) {
        matrix.residual = b.Floats(plan.residual);
        matrix.residual_stride = matrix.y_stride;
      }
    }
    args.rows = b.Bound(domain, rows);
    return [args](const cuda::Launch& launch) { return cuda::PromptLinear(launch, args); };
  });
}

// F32 weights keep N8's order at every row count.
void CardLowering::EmitFloatMatrix(graph::ValueId x, const MatrixPlan& matrix) {
  const graph::Shape& shape = ShapeOf(x);
  const BufferId from = Of(x);
  const auto k = static_cast<size_t>(shape.width());
  const auto n = static_cast<size_t>(description_.weights[matrix.weight].ne[1]);
  const auto bind = [=, domain = shape.domain, rows = shape.rows()](const CardBinder& b) {
    return b.Bound(domain, rows);
  };
  Emit({from, matrix.y}, [=](const CardBinder& b) {
    cuda::RouterLinearArgs args;
    args.weight = b.WeightFloats(matrix.weight);
    args.n = static_cast<int32_t>(n);
    args.k = static_cast<int32_t>(k);
    if (matrix.bias >= 0) args.bias = b.WeightFloats(static_cast<uint32_t>(matrix.bias));
    args.x = b.Floats(from);
    args.x_stride = k;
    args.y = b.Floats(matrix.y);
    args.y_stride = n;
    args.rows = bind(b);
    return [args](const cuda::Launch& launch) { return cuda::RouterLinear(launch, args); };
  });
  if (matrix.residual < 0) return;
  Emit({matrix.residual, matrix.y}, [=](const CardBinder& b) {
    cuda::PairRowsArgs args;
    args.a = b.Floats(matrix.residual);
    args.a_stride = n;
    args.b = b.Floats(matrix.y);
    args.b_stride = n;
    args.y = b.Floats(matrix.y);
    args.y_stride = n;
    args.width = static_cast<int32_t>(n);
    args.rows = bind(b);
    return [args](const cuda::Launch& launch) { return cuda::AddRows(launch, args); };
  });
}

void CardLowering::EmitTopLogits(BufferId logits, int64_t vocabulary) {
  if (options_.top_rows == 0 || vocabulary < cuda::kTopLogits ||
      vocabulary > cuda::kTopLogitsVocabularyMax) {
    return;  // the host looks at whole rows instead
  }
  const int32_t rows = options_.top_rows;
  const auto width = static_cast<int32_t>(vocabulary);
  out_.best_logits = true;
  const BufferId scratch = buffers_.New(cuda::TopLogitsScratchBytes(rows));
  Emit({logits, scratch}, [=](const CardBinder& b) {
    cuda::TopLogitsArgs args;
    args.logits = b.Floats(logits);
    args.logits_stride = static_cast<size_t>(width);
    args.vocabulary = width;
    args.rows = rows;
    args.live = b.rows().word(CardRows::kLiveTop);
    args.ids = b.rows().top_ids();
    args.values = b.rows().top_values();
    args.failed_row = b.rows().word(CardRows::kFailedLogits);
    args.scratch = b.Bytes(scratch);
    return [args](const cuda::Launch& launch) { return cuda::TopLogits(launch, args); };
  });
}

}  // namespace bloomery::exec
