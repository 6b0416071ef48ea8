// Inside lowering: the state of one run over a graph. Each operator has a member that emits its
// steps (lower.cc; routed experts in lower_moe.cc, recurrent layers in lower_recurrent.cc, what
// drafts hang on in lower_taps.cc).
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "runtime/exec/lower/lower.h"
#include "runtime/ops/linear.h"

namespace bloomery::exec {

class Lowering {
 public:
  Lowering(graph::Graph graph, const plugin::Description& description, const LowerOptions& options);

  LoweredGraph Run();

 private:
  using Emitter = void (Lowering::*)(const graph::Node&);
  static Emitter FindEmitter(std::string_view op);

  void LowerNode(graph::NodeId id);
  void NoteClass(const graph::OperatorSchema& op, bl_numeric_class numeric_class);
  void Embed(const graph::Node& node);
  void RmsNorm(const graph::Node& node);
  void Reshape(const graph::Node& node);
  void Add(const graph::Node& node);
  void Mul(const graph::Node& node);
  void Scale(const graph::Node& node);
  void Linear(const graph::Node& node);
  void Head(const graph::Node& node);
  void Rope(const graph::Node& node);
  void Append(const graph::Node& node);
  void Attention(const graph::Node& node);
  void Router(const graph::Node& node);
  void RoutedExperts(const graph::Node& node);
  void SelectRows(const graph::Node& node);
  void Slice(const graph::Node& node);
  void Gate(const graph::Node& node);
  void L2Norm(const graph::Node& node);
  void ShortConv(const graph::Node& node);
  void DeltaRule(const graph::Node& node);
  void Concat(const graph::Node& node);
  void Previous(const graph::Node& node);
  void Recall(const graph::Node& node);
  void Keep(const graph::Node& node);
  void PluginOp(const graph::Node& node);
  void EmitBinary(const graph::Node& node, int kind);

  // Buffers of the activations that matrices of some formats read, and how to see them once bound.
  struct EncodedInput {
    BufferId f32 = -1;
    BufferId group_256 = -1;
    BufferId group_32 = -1;
    size_t width = 0;
    ops::Activations Bind(const Binder& binder) const;
    void AddTo(std::vector<BufferId>* uses) const;
  };
  // The encodings of `source` (rows of `width`, `rows_max` of them) that `formats` want; emits the
  // quantisation steps that are missing.
  EncodedInput Encode(BufferId source, size_t width, int64_t rows_max, bl_domain_kind domain,
                      int32_t per_row, const std::vector<const kernels::FormatTraits*>& formats);

  struct MatrixPlan {
    uint32_t weight = 0;
    int64_t bias = -1;  // weight index, or -1
    BufferId y = -1;
  };
  void EmitLinear(const graph::Node& node, graph::ValueId x, std::vector<MatrixPlan> matrices);

  void CheckHeadFits(uint32_t plane, size_t head_dim) const;
  const kernels::FormatTraits* Format(uint32_t weight) const;
  const graph::Shape& ShapeOf(graph::ValueId value) const { return out_.graph.value(value).shape; }
  BufferId Of(graph::ValueId value) { return buffers_.Of(out_.graph, value); }
  BufferId Make(graph::ValueId value) { return buffers_.Make(out_.graph, value); }
  BufferId NewBuffer(uint64_t bytes) { return buffers_.New(bytes); }
  void Scratch(uint64_t bytes);
  void Emit(const std::vector<BufferId>& uses, StepMaker make);
  std::string Where() const;

  const plugin::Description& description_;
  const LowerOptions& options_;
  LoweredGraph out_;
  graph::NodeId node_ = 0;  // being lowered
  ProgramBuffers buffers_;
  std::map<std::pair<BufferId, size_t>, BufferId> encoded_;  // (buffer, group) → its codes
};

}  // namespace bloomery::exec
