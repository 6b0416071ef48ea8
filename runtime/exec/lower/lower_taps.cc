#include "runtime/exec/lower/lowering.h"
#include "runtime/ops/taps.h"

namespace bloomery::exec {

void Lowering::Concat(const graph::Node& node) {
  const BufferId a = Of(node.inputs[0]);
  const BufferId b = Of(node.inputs[1]);
  const BufferId y = Make(node.outputs[0]);
  const auto a_width = static_cast<size_t>(ShapeOf(node.inputs[0]).ne[0]);
  const auto b_width = static_cast<size_t>(ShapeOf(node.inputs[1]).ne[0]);
  const bl_domain_kind domain = ShapeOf(node.inputs[0]).domain;
  Emit({a, b, y}, [=](const Binder& binder) {
    return ops::MakeConcat(binder.Floats(a), a_width, binder.Floats(b), b_width, binder.Floats(y),
                           binder.Rows(domain));
  });
}

void Lowering::Previous(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).ne[0]);
  Emit({x, y}, [=, plane = node.planes[0].plane](const Binder& b) {
    return ops::MakePrevious(b.Floats(x), b.Floats(y), width, b.Plane(plane), b.inputs().rows());
  });
}

void Lowering::Recall(const graph::Node& node) {
  const BufferId y = Make(node.outputs[0]);
  const auto width = static_cast<size_t>(ShapeOf(node.outputs[0]).ne[0]);
  Emit({y}, [=, plane = node.planes[0].plane](const Binder& b) {
    return ops::MakeRecall(b.Floats(y), width, b.Plane(plane), b.inputs().rows());
  });
}

void Lowering::Keep(const graph::Node& node) {
  const BufferId x = Of(node.inputs[0]);
  const auto width = static_cast<size_t>(ShapeOf(node.inputs[0]).ne[0]);
  Emit({x}, [=, plane = node.planes[0].plane](const Binder& b) {
    return ops::MakeKeep(b.Floats(x), width, b.Plane(plane), b.inputs().rows());
  });
}

}  // namespace bloomery::exec
