#include <bloomery/operators.h>

#include <array>

#include "kernels-common/linear/cuda/prompt_linear.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/moe/cuda/rows_experts.h"
#include "runtime/exec/cuda/card_lowering.h"
#include "runtime/exec/cuda/card_split.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

// The weight of a router's selection bias, or -1.
int64_t BiasOf(const graph::Node& router) {
  return router.weights.size() > 1 ? int64_t{router.weights[1]} : -1;
}

}  // namespace

// The experts' first launch selects by the logits of the router itself, where nothing but these
// experts reads what the router selects and both look at the same rows.
graph::NodeId CardLowering::FusedRouter(const graph::Node& experts) const {
  const graph::NodeId router = graph_.value(fusions_->Source(experts.inputs[1])).producer;
  if (router < 0) return -1;
  const graph::Node& node = NodeAt(router);
  if (node.op->plugin_op != nullptr || node.op->name != BL_OP_ROUTER) return -1;
  if (fusions_->Source(experts.inputs[2]) != node.outputs[1]) return -1;
  if (fusions_->Source(node.inputs[0]) != fusions_->Source(experts.inputs[0])) return -1;
  for (const size_t output : {0U, 1U}) {
    if (fusions_->readers(node.outputs[output]).size() != 1) return -1;
  }
  return router;
}

void CardLowering::CheckBank(const plugin::Bank& bank) const {
  for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
    CheckMatrix(weight);
    const kernels::FormatTraits& format = Format(weight);
    if (!cuda::HasPromptLinear(format.ggml_type)) {
      Refuse("weight '" + description_.weights[weight].name + "' is " + format.name +
             ", which the experts' kernels of the card do not take");
    }
  }
}

CardLowering::MatrixPlan CardLowering::PlanRouter(graph::NodeId router, RowsSideOutputs* side) {
  const graph::Node& node = NodeAt(router);
  const graph::Shape& x = ShapeOf(node.inputs[0]);
  const MatrixPlan plan = {.weight = node.weights[0], .y = Make(node.outputs[2])};
  if (!few_rows()) return plan;
  for (const graph::NodeId reader : fusions_->readers(node.outputs[0])) {
    const graph::Node& experts = NodeAt(reader);
    if (experts.op->name != BL_OP_ROUTED_EXPERTS || FusedRouter(experts) != router) continue;
    // The rows that the experts read are made by the way.
    const auto bank = static_cast<size_t>(experts.attrs.I64("bank"));
    side->group = Format(description_.banks[bank].gate).activation_group;
    const bool both = side->group == Format(description_.banks[bank].up).activation_group;
    const auto width = static_cast<size_t>(x.width());
    if (both && side->group != 0) {
      side->quantised = buffers_.New(kernels::QuantisedRowBytes(width, side->group) *
                                     static_cast<uint64_t>(x.rows()));
    } else if (InputOf(node.inputs[0]).norm >= 0) {
      side->f32 = buffers_.New(width * sizeof(float) * static_cast<uint64_t>(x.rows()));
    }
    router_side_[router] = *side;
    break;
  }
  return plan;
}

kernels::RouterScoring CardLowering::ScoringOf(const graph::Node& router) const {
  const bool sigmoid = router.attrs.Str("scoring", "softmax") == "sigmoid";
  return {.gate = sigmoid ? kernels::RouterGate::kSigmoid : kernels::RouterGate::kSoftmax,
          .sum_min = static_cast<float>(router.attrs.F64("sum_min", 0.0))};
}

void CardLowering::Router(const graph::Node& node) {
  if (!router_done_.contains(node_)) {
    RowsSideOutputs side;
    const MatrixPlan matrix = PlanRouter(node_, &side);
    EmitMatrices(node.inputs[0], {matrix}, side);
  }
  const BufferId ids = Make(node.outputs[0]);
  const BufferId weights = Make(node.outputs[1]);
  if (router_side_.contains(node_)) return;  // the experts' first launch selects
  const BufferId logits = Of(node.outputs[2]);
  const graph::Shape& x = ShapeOf(node.inputs[0]);
  kernels::RouterArgs args;
  static_cast<kernels::RouterScoring&>(args) = ScoringOf(node);
  args.renormalise = node.attrs.Bool("renormalise", true);
  args.weight_scale = static_cast<float>(node.attrs.F64("scale", 1.0));
  args.experts = static_cast<size_t>(ShapeOf(node.outputs[2]).ne[0]);
  args.top_k = static_cast<size_t>(node.attrs.I64("used"));
  args.logits_stride = args.experts;
  const int64_t bias = BiasOf(node);
  Emit({logits, ids, weights}, [=, domain = x.domain, rows = x.rows()](const CardBinder& b) {
    cuda::RouteRowsArgs route;
    route.router = args;
    if (bias >= 0) route.router.bias = b.WeightFloats(static_cast<uint32_t>(bias));
    route.router.logits = b.Floats(logits);
    route.router.ids = b.Ints(ids);
    route.router.weights = b.Floats(weights);
    route.rows = b.Bound(domain, rows);
    route.failed_row = b.failed_row();
    return [route](const cuda::Launch& launch) { return cuda::RouteRows(launch, route); };
  });
}

void CardLowering::RoutedExperts(const graph::Node& node) {
  CheckBank(description_.banks[static_cast<size_t>(node.attrs.I64("bank"))]);
  const graph::NodeId router = few_rows() ? FusedRouter(node) : -1;
  if (router >= 0) {
    FewRowsExperts(node, router);
  } else {
    PromptExperts(node);
  }
}

CardLowering::PicksMaker CardLowering::PicksOf(size_t bank) const {
  const uint64_t first = CardPicks::At(description_, bank);
  const uint64_t distinct = CardPicks::At(description_, description_.banks.size()) + bank;
  // What one row picks is known without counting.
  return [=, several = options_.rows > 1](const CardBinder& b) {
    return cuda::PickCounts{.experts = b.picks() + first,
                            .distinct = several ? b.picks() + distinct : nullptr};
  };
}

struct CardLowering::GateUpPlan {
  const plugin::Bank* bank;
  size_t index;             // of the bank
  BufferId x_f32 = -1;      // for float formats
  BufferId quantised = -1;  // for integer formats
  size_t group = 0;         // of these
  BufferId logits;
  BufferId ids;
  BufferId weights;
  BufferId h;
  int32_t rows;
  bl_domain_kind domain;
  kernels::RouterScoring scoring;
  int64_t bias;  // of the router, a weight, or -1
  bool renormalise;
  float scale;
  PicksMaker counts;  // or none
};

void CardLowering::EmitGateUp(const GateUpPlan& plan, cuda::GateUpPart part) {
  const BufferId x = plan.group == 0 ? plan.x_f32 : plan.quantised;
  Emit({plan.logits, plan.ids, plan.weights, x, plan.h}, [plan, part](const CardBinder& b) {
    const plugin::Bank& bank = *plan.bank;
    cuda::ExpertGateUpRowsArgs args;
    args.rows = plan.rows;
    args.live = b.Live(plan.domain);
    args.logits = b.Floats(plan.logits);
    args.logits_stride = bank.experts;
    args.experts = static_cast<int32_t>(bank.experts);
    args.top_k = static_cast<int32_t>(bank.used);
    args.scoring = plan.scoring;
    if (plan.bias >= 0) args.scoring.bias = b.WeightFloats(static_cast<uint32_t>(plan.bias));
    args.renormalise = plan.renormalise;
    args.weight_scale = plan.scale;
    args.ids = b.Ints(plan.ids);
    args.weights = b.Floats(plan.weights);
    args.failed_row = b.failed_row();
    if (plan.counts) args.counts = plan.counts(b);
    args.frame_of = b.FrameOf(plan.index);
    if (part != cuda::GateUpPart::kUp) args.hand_off = b.HandOffOf(plan.index);
    args.part = part;
    if (plan.group != 0) {
      args.quantised = kernels::MakeQuantisedRows(b.Bytes(plan.quantised), bank.width, plan.group);
    } else {
      args.x = b.Floats(plan.x_f32);
      args.x_stride = bank.width;
    }
    args.gate = b.Matrix(bank.gate);
    args.up = b.Matrix(bank.up);
    args.h = b.Floats(plan.h);
    args.h_stride = bank.ff;
    const auto start = [args](const cuda::Launch& on) { return cuda::ExpertGateUpRows(on, args); };
    // One that does half of the work is no part of a layer that others may join.
    return part == cuda::GateUpPart::kBoth ? CardLaunch(start, args) : CardLaunch(start);
  });
  if (options_.split && part != cuda::GateUpPart::kUp) {
    out_.launches.back().split.rings = static_cast<int32_t>(plan.index);
  }
}

void CardLowering::FewRowsExperts(const graph::Node& node, graph::NodeId router) {
  const auto index = static_cast<size_t>(node.attrs.I64("bank"));
  const plugin::Bank& bank = description_.banks[index];
  const graph::Node& route = NodeAt(router);
  const graph::Shape& x_shape = ShapeOf(node.inputs[0]);
  const RowsSideOutputs side = router_side_.at(router);
  const auto rows = static_cast<int32_t>(x_shape.rows());
  const size_t ff = bank.ff;
  const size_t width = bank.width;
  const auto used = static_cast<int32_t>(bank.used);
  const auto experts = static_cast<int32_t>(bank.experts);
  const bl_domain_kind domain = x_shape.domain;
  const BufferId residual = Of(node.inputs[3]);
  const BufferId out = Make(node.outputs[0]);
  const BufferId h = buffers_.New(static_cast<uint64_t>(rows) * bank.used * ff * sizeof(float));
  GateUpPlan plan{.bank = &bank,
                  .index = index,
                  .quantised = side.quantised,
                  .group = Format(bank.gate).activation_group,
                  .logits = Of(route.outputs[2]),
                  .ids = Of(node.inputs[1]),
                  .weights = Of(node.inputs[2]),
                  .h = h,
                  .rows = rows,
                  .domain = domain,
                  .scoring = ScoringOf(route),
                  .bias = BiasOf(route),
                  .renormalise = route.attrs.Bool("renormalise", true),
                  .scale = static_cast<float>(route.attrs.F64("scale", 1.0)),
                  .counts = PicksOf(index)};
  if (side.quantised < 0) plan.x_f32 = side.f32 >= 0 ? side.f32 : Of(node.inputs[0]);
  const BufferId ids = plan.ids;
  const BufferId weights = plan.weights;
  if (plan.group == Format(bank.up).activation_group) {
    EmitGateUp(plan, cuda::GateUpPart::kBoth);
  } else {
    const auto encode = [&] {
      if (plan.group != 0) plan.quantised = Encoded(plan.x_f32, width, plan.group, domain, rows, 1);
    };
    encode();
    EmitGateUp(plan, cuda::GateUpPart::kGate);
    plan.group = Format(bank.up).activation_group;
    plan.counts = nullptr;
    encode();
    EmitGateUp(plan, cuda::GateUpPart::kUp);
  }
  Emit({ids, weights, h, residual, out}, [=](const CardBinder& b) {
    cuda::ExpertDownRowsArgs args;
    args.rows = rows;
    args.live = b.Live(domain);
    args.experts = experts;
    args.top_k = used;
    args.ids = b.Ints(ids);
    args.weights = b.Floats(weights);
    args.h = b.Floats(h);
    args.h_stride = ff;
    args.down = b.Matrix(bank.down);
    args.residual = b.Floats(residual);
    args.residual_stride = width;
    args.out = b.Floats(out);
    args.out_stride = width;
    args.failed_row = b.failed_row();
    args.frame_of = b.FrameOf(index);
    args.hand_off = b.HandOffOf(index);
    return CardLaunch([args](const cuda::Launch& on) { return cuda::ExpertDownRows(on, args); },
                      args);
  });
}

// Before the experts of a prompt: ids and weights to the page, so that the host can tell who takes
// which expert; then the map of that, and the rows where the host has a part.
void CardLowering::Publish(const graph::Node& node, const PromptInput& input, size_t group,
                           int32_t number) {
  const auto index = static_cast<size_t>(node.attrs.I64("bank"));
  const plugin::Bank& bank = description_.banks[index];
  const BufferId ids = Of(node.inputs[1]);
  const BufferId weights = Of(node.inputs[2]);
  const auto rows = static_cast<uint64_t>(ShapeOf(node.inputs[0]).rows());
  const uint64_t pick_bytes = rows * bank.used * sizeof(int32_t);
  const uint64_t row_bytes = BankInputRowBytes(description_, bank);
  const auto to_page = [](const cuda::Launch& launch, void* to, const void* from, uint64_t bytes) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, launch.stream);
  };
  Emit({ids, weights}, [=](const CardBinder& b) {
    return [=, split = b.split(), from_ids = b.Ints(ids),
            from_weights = b.Floats(weights)](const cuda::Launch& launch) {
      cudaError_t status = to_page(launch, split->page().ids(), from_ids, pick_bytes);
      if (status == cudaSuccess) {
        status = to_page(launch, split->page().weights(), from_weights, pick_bytes);
      }
      if (status == cudaSuccess) split->PicksPublished(launch.stream);
      return status;
    };
  });
  std::vector<BufferId> uses = {ids, weights};
  input.AddTo(&uses);
  Emit(uses, [=](const CardBinder& b) {
    const void* from =
        group == 0 ? static_cast<const void*>(b.Floats(input.x)) : input.Quantised(b, group).data;
    return [=, split = b.split()](const cuda::Launch& launch) {
      cudaError_t status = split->PublishMap(index, launch.stream);
      if (status != cudaSuccess || !split->host_share()) return status;
      status = to_page(launch, split->page().input(), from, rows * row_bytes);
      if (status == cudaSuccess) split->RowsPublished(launch.stream);
      return status;
    };
  });
  out_.launches.back().split.shares = number;
}

void CardLowering::PromptExperts(const graph::Node& node) {
  const auto index = static_cast<size_t>(node.attrs.I64("bank"));
  const plugin::Bank& bank = description_.banks[index];
  const graph::Shape& x_shape = ShapeOf(node.inputs[0]);
  const bl_domain_kind domain = x_shape.domain;
  const auto rows = static_cast<int32_t>(x_shape.rows());
  const auto used = static_cast<int32_t>(bank.used);
  const auto experts = static_cast<int32_t>(bank.experts);
  const size_t ff = bank.ff;
  const size_t width = bank.width;
  const auto picks = static_cast<uint64_t>(rows) * bank.used;
  const BufferId x = Of(node.inputs[0]);
  const BufferId ids = Of(node.inputs[1]);
  const BufferId weights = Of(node.inputs[2]);
  const BufferId residual = Of(node.inputs[3]);
  const BufferId out = Make(node.outputs[0]);

  const int32_t tiles_max = cuda::PickTilesMax(rows, used, experts);
  const BufferId offsets = buffers_.New((static_cast<uint64_t>(experts) + 2) * sizeof(int32_t));
  const BufferId places = buffers_.New(2 * picks * sizeof(int32_t));
  const BufferId tiles = buffers_.New(static_cast<uint64_t>(tiles_max) * sizeof(cuda::ExpertTile));
  const PicksMaker counts = PicksOf(index);
  const auto groups = [=](const CardBinder& b) {
    cuda::PickGroups bound;
    bound.offsets = b.Ints(offsets);
    bound.tile_count = bound.offsets + experts + 1;
    bound.place_rows = b.Ints(places);
    bound.pair_places = bound.place_rows + picks;
    bound.tiles = reinterpret_cast<cuda::ExpertTile*>(b.Bytes(tiles));
    return bound;
  };
  const std::array<size_t, 2> in_groups = {Format(bank.gate).activation_group,
                                           Format(bank.up).activation_group};
  const PromptInput input = PromptInputOf(x, width, domain, rows, 1, in_groups);
  const bool shared = options_.split;
  const int32_t number = shared ? static_cast<int32_t>(out_.streams.size()) : -1;
  if (shared) {
    out_.streams.push_back(static_cast<uint32_t>(index));
    Publish(node, input, in_groups[0], number);
  }
  const auto matrix = [=](const CardBinder& b, uint32_t weight) {
    return shared ? b.StreamedMatrix(index, weight, number) : b.Matrix(weight);
  };
  Emit({ids, offsets, places, tiles}, [=](const CardBinder& b) {
    cuda::GroupPicksArgs args;
    args.ids = b.Ints(ids);
    args.top_k = used;
    args.experts = experts;
    args.rows = b.Bound(domain, rows);
    args.groups = groups(b);
    args.counts = counts(b);
    if (shared) args.frame_of = b.StreamedFrameOf(index);
    return [args](const cuda::Launch& launch) { return cuda::GroupPicks(launch, args); };
  });
  out_.launches.back().split.arrives = number;

  const BufferId h = buffers_.New(picks * ff * sizeof(float));
  std::vector<BufferId> uses = {offsets, places, tiles, h};
  input.AddTo(&uses);
  const auto rows_in = [](const CardBinder& b, const PromptInput& from, size_t group) {
    cuda::PromptRows bound;
    if (group == 0) {
      bound.x = b.Floats(from.x);
      bound.x_stride = from.width;
    } else {
      bound.quantised = from.Quantised(b, group);
    }
    return bound;
  };
  const auto gate_up = [&](cuda::GateUpPart part, size_t group) {
    Emit(uses, [=](const CardBinder& b) {
      cuda::PromptGateUpArgs args;
      args.part = part;
      args.gate = matrix(b, bank.gate);
      args.up = matrix(b, bank.up);
      args.input = rows_in(b, input, group);
      args.groups = groups(b);
      args.tiles_max = tiles_max;
      args.rows = rows;
      args.h = b.Floats(h);
      args.h_stride = ff;
      return [args](const cuda::Launch& launch) { return cuda::PromptGateUp(launch, args); };
    });
  };
  if (Format(bank.gate).ggml_type == Format(bank.up).ggml_type) {
    gate_up(cuda::GateUpPart::kBoth, in_groups[0]);
  } else {
    gate_up(cuda::GateUpPart::kGate, in_groups[0]);
    gate_up(cuda::GateUpPart::kUp, in_groups[1]);
  }

  const size_t inner_group = Format(bank.down).activation_group;
  const PromptInput inner = PromptInputOf(h, ff, domain, rows, used, std::span(&inner_group, 1));
  const BufferId y = buffers_.New(picks * width * sizeof(float));
  uses = {offsets, places, tiles, y};
  inner.AddTo(&uses);
  Emit(uses, [=](const CardBinder& b) {
    cuda::PromptDownArgs args;
    args.down = matrix(b, bank.down);
    args.input = rows_in(b, inner, inner_group);
    args.groups = groups(b);
    args.tiles_max = tiles_max;
    args.rows = rows;
    args.y = b.Floats(y);
    args.y_stride = width;
    return [args](const cuda::Launch& launch) { return cuda::PromptDown(launch, args); };
  });
  out_.launches.back().split.streamed = number;
  if (in_groups[0] == 0 || in_groups[1] == 0 || inner_group == 0) NoteBand(node.op->name);

  Emit({places, y, weights, residual, out}, [=](const CardBinder& b) {
    cuda::PickSumRowsArgs args;
    args.sum.y = b.Floats(y);
    args.sum.y_stride = width;
    args.sum.pair_places = groups(b).pair_places;
    args.sum.weights = b.Floats(weights);
    args.sum.top_k = static_cast<size_t>(used);
    args.sum.dim = width;
    args.sum.residual = b.Floats(residual);
    args.sum.residual_stride = width;
    args.sum.out = b.Floats(out);
    args.sum.out_stride = width;
    args.rows = b.Bound(domain, rows);
    args.failed_row = b.failed_row();
    return [args, split = b.split()](const cuda::Launch& launch) {
      cuda::PickSumRowsArgs now = args;
      if (split != nullptr) now.others = split->prompt_sums();  // there when this is enqueued
      return cuda::PickSumRows(launch, now);
    };
  });
  out_.launches.back().split.needs = number;
}

}  // namespace bloomery::exec
