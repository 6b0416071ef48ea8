#include "runtime/base/error.h"
#include "runtime/exec/lower/lowering.h"
#include "runtime/ops/moe.h"

namespace bloomery::exec {

void Lowering::Router(const graph::Node& node) {
  const graph::Shape& x = ShapeOf(node.inputs[0]);
  const BufferId ids = Make(node.outputs[0]);
  const BufferId weights = Make(node.outputs[1]);
  const BufferId logits = Make(node.outputs[2]);
  EmitLinear(node, node.inputs[0], {{.weight = node.weights[0], .y = logits}});
  kernels::RouterArgs args;
  args.gate = node.attrs.Str("scoring", "softmax") == "sigmoid" ? kernels::RouterGate::kSigmoid
                                                                : kernels::RouterGate::kSoftmax;
  const int64_t bias = node.weights.size() > 1 ? int64_t{node.weights[1]} : -1;
  args.renormalise = node.attrs.Bool("renormalise", true);
  args.sum_min = static_cast<float>(node.attrs.F64("sum_min", 0.0));
  args.weight_scale = static_cast<float>(node.attrs.F64("scale", 1.0));
  args.experts = static_cast<size_t>(ShapeOf(node.outputs[2]).ne[0]);
  args.top_k = static_cast<size_t>(node.attrs.I64("used"));
  args.logits_stride = args.experts;
  const bl_domain_kind domain = x.domain;
  Emit({logits, ids, weights}, [=](const Binder& b) {
    kernels::RouterArgs bound = args;
    bound.logits = b.Floats(logits);
    bound.ids = b.Ints(ids);
    bound.weights = b.Floats(weights);
    if (bias >= 0) bound.bias = b.WeightFloats(static_cast<uint32_t>(bias));
    return ops::MakeRoute(b.backend(), bound, b.Rows(domain), b.threads());
  });
}

void Lowering::RoutedExperts(const graph::Node& node) {
  const auto bank_index = static_cast<size_t>(node.attrs.I64("bank"));
  const plugin::Bank& bank = description_.banks[bank_index];
  const kernels::FormatTraits* gate_format = Format(bank.gate);
  const kernels::FormatTraits* up_format = Format(bank.up);
  const kernels::FormatTraits* down_format = Format(bank.down);
  if (gate_format->activation_group != up_format->activation_group) {
    throw Error(ErrorKind::kUnsupported,
                Where() + "weights '" + description_.weights[bank.gate].name + "' (" +
                    gate_format->name + ") and '" + description_.weights[bank.up].name + "' (" +
                    up_format->name +
                    ") need different activation groups, which one step cannot serve");
  }
  const graph::Shape& x_shape = ShapeOf(node.inputs[0]);
  const BufferId x = Of(node.inputs[0]);
  const BufferId ids = Of(node.inputs[1]);
  const BufferId pick_weights = Of(node.inputs[2]);
  const BufferId residual = Of(node.inputs[3]);
  const BufferId out = Make(node.outputs[0]);
  const bl_domain_kind domain = x_shape.domain;
  const auto used = static_cast<int32_t>(bank.used);
  const size_t ff = bank.ff;
  const size_t width = bank.width;
  const size_t experts = bank.experts;
  const int64_t picks_max = x_shape.rows() * used;
  const auto pick_bytes = static_cast<uint64_t>(picks_max) * 4;

  const auto bind_bank = [=](const Binder& b) {
    ops::BankRows rows;
    rows.gate = b.WeightRows(bank.gate);
    rows.up = b.WeightRows(bank.up);
    rows.down = b.WeightRows(bank.down);
    rows.gate_expert_bytes = rows.gate.row_bytes * ff;
    rows.up_expert_bytes = rows.up.row_bytes * ff;
    rows.down_expert_bytes = rows.down.row_bytes * width;
    rows.experts = experts;
    rows.ff = ff;
    rows.width = width;
    return rows;
  };
  // Offsets, the rows and places of the picks, the active experts; the pieces of two steps.
  const uint64_t group_bytes = 3 * (experts + 1 + experts) * 4 + 2 * pick_bytes;
  const BufferId group = NewBuffer(group_bytes);
  // Shared by the steps below; its arrays are set when the first of them is bound.
  const auto groups = std::make_shared<ops::PickGroups>();
  groups->gate_up.n = static_cast<int64_t>(ff);
  groups->gate_up.k = 2 * static_cast<int64_t>(width);
  groups->down.n = static_cast<int64_t>(width);
  groups->down.k = static_cast<int64_t>(ff);
  Emit({ids, group}, [=](const Binder& b) {
    int32_t* at = b.Ints(group);
    groups->offsets = at;
    groups->active = at + experts + 1;
    groups->place_rows = groups->active + experts;
    groups->pair_places = groups->place_rows + picks_max;
    groups->gate_up.first = groups->pair_places + picks_max;
    groups->gate_up.per_piece = groups->gate_up.first + experts + 1;
    groups->down.first = groups->gate_up.per_piece + experts;
    groups->down.per_piece = groups->down.first + experts + 1;
    groups->counts = b.PickCounters(bank_index);
    groups->record = b.PickRecord(bank_index, domain);
    const ops::BankRows rows = bind_bank(b);
    const uint64_t expert_bytes =
        rows.gate_expert_bytes + rows.up_expert_bytes + rows.down_expert_bytes;
    return ops::MakeGroupPicks(b.Ints(ids), static_cast<size_t>(used), experts, expert_bytes,
                               groups, b.Rows(domain), b.threads());
  });

  const auto grouped = static_cast<int32_t>(out_.steps.size()) - 1;

  const auto picks = [=](const Binder& b) {
    ops::RowCount rows = b.Rows(domain);
    rows.per_row = used;
    return rows;
  };

  const EncodedInput input = Encode(x, width, x_shape.rows(), domain, 1, {gate_format, up_format});
  const BufferId h = NewBuffer(pick_bytes * ff);
  std::vector<BufferId> uses = {group, h};
  input.AddTo(&uses);
  Scratch(options_.backend->gate_up_scratch(width, static_cast<size_t>(x_shape.rows())));
  Emit(uses, [=](const Binder& b) {
    return ops::MakeExpertGateUp(b.backend(), bind_bank(b), groups, input.Bind(b), b.Floats(h),
                                 picks(b));
  });

  const EncodedInput inner = Encode(h, ff, picks_max, domain, used, {down_format});
  const BufferId y = NewBuffer(pick_bytes * width);
  uses = {group, y};
  inner.AddTo(&uses);
  Scratch(options_.backend->linear_scratch(ff));
  Emit(uses, [=](const Binder& b) {
    return ops::MakeExpertDown(b.backend(), bind_bank(b), groups, inner.Bind(b), b.Floats(y),
                               picks(b));
  });
  out_.steps.back().foreseen_after = grouped;

  Emit({group, y, pick_weights, residual, out}, [=](const Binder& b) {
    kernels::PickSumArgs args;
    args.y = b.Floats(y);
    args.y_stride = width;
    args.weights = b.Floats(pick_weights);
    args.top_k = static_cast<size_t>(used);
    args.dim = width;
    args.residual = b.Floats(residual);
    args.residual_stride = width;
    args.out = b.Floats(out);
    args.out_stride = width;
    return ops::MakePickSum(b.backend(), args, groups, b.Rows(domain), b.threads());
  });
}

}  // namespace bloomery::exec
