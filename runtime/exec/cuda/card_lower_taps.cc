#include <bloomery/operators.h>

#include "kernels-common/elementwise/cuda/taps.h"
#include "runtime/exec/cuda/card_lowering.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

void CardLowering::Concat(const graph::Node& node) {
  const graph::Shape& shape = ShapeOf(node.outputs[0]);
  const BufferId a = Of(node.inputs[0]);
  const BufferId b = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  cuda::ConcatRowsArgs args;
  args.a_width = static_cast<int32_t>(ShapeOf(node.inputs[0]).width());
  args.b_width = static_cast<int32_t>(ShapeOf(node.inputs[1]).width());
  Emit({a, b, y}, [=, domain = shape.domain, rows = shape.rows()](const CardBinder& binder) {
    cuda::ConcatRowsArgs bound = args;
    bound.a = binder.Floats(a);
    bound.b = binder.Floats(b);
    bound.y = binder.Floats(y);
    bound.rows = binder.Bound(domain, rows);
    return [bound](const cuda::Launch& launch) { return cuda::ConcatRows(launch, bound); };
  });
}

void CardLowering::Previous(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  EmitTap(node, x, Make(node.outputs[0]), &cuda::PreviousRows);
}

void CardLowering::Recall(const graph::Node& node) {
  EmitTap(node, -1, Make(node.outputs[0]), &cuda::RecallRows);
}

void CardLowering::Keep(const graph::Node& node) {
  EmitTap(node, Of(node.inputs[0]), -1, &cuda::KeepRows);
}

void CardLowering::EmitTap(const graph::Node& node, BufferId x, BufferId y, TapRun run) {
  const uint32_t plane = node.planes[0].plane;
  const auto width = static_cast<int32_t>(description_.planes[plane].width);
  std::vector<BufferId> uses;
  for (const BufferId buffer : {x, y}) {
    if (buffer >= 0) uses.push_back(buffer);
  }
  Emit(uses, [=, slots = options_.slots](const CardBinder& b) {
    cuda::TapRowsArgs args;
    args.rows = b.PassRows();
    args.states = b.PassStates(slots);
    if (x >= 0) args.x = b.Floats(x);
    if (y >= 0) args.y = b.Floats(y);
    args.width = width;
    args.tap = b.State(plane);
    return [args, run](const cuda::Launch& launch) { return run(launch, args); };
  });
}

}  // namespace bloomery::exec
