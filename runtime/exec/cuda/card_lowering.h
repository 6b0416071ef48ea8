// Inside lowering for a card: the state of one run over a graph. Each operator has a member that
// emits its launches (card_lower.cc; linears in card_lower_linear.cc, routed experts in
// card_lower_moe.cc, attention in card_lower_attention.cc, what recurrent layers need in
// card_lower_recurrent.cc, what draft heads need in card_lower_taps.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/elementwise/cuda/taps.h"
#include "kernels-common/moe/moe.h"
#include "kernels-common/quant/quant.h"
#include "runtime/exec/cuda/card_fusions.h"
#include "runtime/exec/cuda/card_lower.h"

namespace bloomery::exec {

class CardLowering {
 public:
  CardLowering(const graph::Graph& graph, const plugin::Description& description,
               const CardLowerOptions& options);

  CardLoweredGraph Run();

 private:
  using Emitter = void (CardLowering::*)(const graph::Node&);
  static Emitter FindEmitter(std::string_view op);

  // What a launch of few rows reads: rows of `x`, chosen by the logit map where `selected`, normed
  // where `norm` is a node.
  struct FewRowsInput {
    BufferId x = -1;
    graph::NodeId norm = -1;
    bool selected = false;
  };
  // What a prompt launch reads, in the encodings that some matrix wants.
  struct PromptInput {
    BufferId x = -1;
    BufferId group_256 = -1;
    BufferId group_32 = -1;
    std::size_t width = 0;
    kernels::QuantisedRows Quantised(const CardBinder& binder, size_t group) const;
    void AddTo(std::vector<BufferId>* uses) const;
  };
  struct MatrixPlan {
    uint32_t weight = 0;
    int64_t bias = -1;  // weight index, or -1
    BufferId y = -1;
    BufferId residual = -1;  // or -1
  };

  // What every launch of one attention takes; Bind adds the pointers but q.
  struct AttentionPlan {
    kernels::cuda::CardAttention args;
    BufferId out = -1;
    uint32_t k = 0;  // planes
    uint32_t v = 0;
    int64_t sinks = -1;  // weight, or -1
    kernels::cuda::CardAttention Bind(const CardBinder& binder) const;
  };
  using HeadInputsMaker = std::function<kernels::cuda::HeadInputs(const CardBinder&)>;

  // What the rows of each bank pick lies there when the pass has ended.
  void KeepPicks();
  void LowerNode(graph::NodeId id);
  void Embed(const graph::Node& node);
  void RmsNorm(const graph::Node& node);
  void Add(const graph::Node& node) { EmitPair(node, false); }
  void Mul(const graph::Node& node) { EmitPair(node, true); }
  void Scale(const graph::Node& node);
  void Linear(const graph::Node& node);
  void Head(const graph::Node& node);
  void Rope(const graph::Node& node);
  void Append(const graph::Node& node);
  void Attention(const graph::Node& node);
  AttentionPlan PlanAttention(const graph::Node& node);
  HeadInputsMaker HeadInputsOf(const AttentionFusion& fusion,
                               const kernels::cuda::CardAttention& args);
  void EmitPromptAttention(const AttentionPlan& plan, BufferId q);
  void FusedAttention(const AttentionPlan& plan, const AttentionFusion& fusion);
  void Router(const graph::Node& node);
  void RoutedExperts(const graph::Node& node);
  void SelectRows(const graph::Node& node);
  void Slice(const graph::Node& node);
  void Gate(const graph::Node& node);
  // The norm in front of a gate and the gate.
  void GatedNorm(const graph::Node& node, const graph::Node& norm);
  void L2Norm(const graph::Node& node);
  void ShortConv(const graph::Node& node);
  void DeltaRule(const graph::Node& node);
  void Concat(const graph::Node& node);
  void Previous(const graph::Node& node);
  void Recall(const graph::Node& node);
  void Keep(const graph::Node& node);
  // A tap's launch over rows of x and y; -1: it has none.
  using TapRun = cudaError_t (*)(const kernels::cuda::Launch&, const kernels::cuda::TapRowsArgs&);
  void EmitTap(const graph::Node& node, BufferId x, BufferId y, TapRun run);
  void EmitPair(const graph::Node& node, bool product);

  // Few rows: norms and selections that their readers do themselves.
  void FindLazy();
  bool LazyNorm(const graph::Node& node) const;
  FewRowsInput InputOf(graph::ValueId value);
  // The router whose selection the experts' first launch makes, for a pass of few rows; or -1.
  graph::NodeId FusedRouter(const graph::Node& experts) const;

  // Quantised rows of `x`, made by a launch where no step has made them.
  BufferId Encoded(BufferId x, size_t width, size_t group, bl_domain_kind domain, int64_t rows,
                   int32_t each);
  PromptInput PromptInputOf(BufferId x, size_t width, bl_domain_kind domain, int64_t rows,
                            int32_t each, std::span<const size_t> groups);
  // Groups of activations that the readers of a value want; 0: f32.
  std::vector<size_t> GroupsWanted(graph::ValueId value) const;

  struct RowsSideOutputs {
    BufferId quantised = -1;
    size_t group = 0;
    BufferId f32 = -1;
  };
  void EmitMatrices(graph::ValueId x, const std::vector<MatrixPlan>& matrices,
                    const RowsSideOutputs& side);
  // A router of few rows that a linear's launch may do by the way: it reads the same rows, and both
  // are of float weights; or -1.
  graph::NodeId RouterBeside(const graph::Node& linear) const;
  // How a router scores, without the bias, which binding knows.
  kernels::RouterScoring ScoringOf(const graph::Node& router) const;
  // The router's matrix, and in *side what its launch leaves for the experts' first one.
  MatrixPlan PlanRouter(graph::NodeId router, RowsSideOutputs* side);
  void EmitFewRows(graph::ValueId x, const std::vector<MatrixPlan>& matrices,
                   const RowsSideOutputs& side);
  void EmitPrompt(graph::ValueId x, const std::vector<MatrixPlan>& matrices);
  void EmitFloatMatrix(graph::ValueId x, const MatrixPlan& matrix);
  void EmitTopLogits(BufferId logits, int64_t vocabulary);

  using PicksMaker = std::function<kernels::cuda::PickCounts(const CardBinder&)>;
  // Where a bank's picks are counted.
  PicksMaker PicksOf(size_t bank) const;
  struct GateUpPlan;
  // Gate, up and activation of a pass of few rows: one launch, or one for each of the two.
  void EmitGateUp(const GateUpPlan& plan, kernels::cuda::GateUpPart part);
  void FewRowsExperts(const graph::Node& node, graph::NodeId router);
  void PromptExperts(const graph::Node& node);
  void Publish(const graph::Node& node, const PromptInput& input, size_t group, int32_t number);
  void CheckBank(const plugin::Bank& bank) const;
  // Refuses a matrix that does not lie as the kernels read it: a table of blocks.
  void CheckMatrix(uint32_t weight) const;

  bool few_rows() const;
  // The format a weight has on the card.
  const kernels::FormatTraits& Format(uint32_t weight) const;
  const graph::Node& NodeAt(graph::NodeId id) const {
    return graph_.nodes[static_cast<size_t>(id)];
  }
  const graph::Shape& ShapeOf(graph::ValueId value) const { return graph_.value(value).shape; }
  BufferId Of(graph::ValueId value) { return buffers_.Of(graph_, fusions_->Source(value)); }
  BufferId Make(graph::ValueId value) { return buffers_.Make(graph_, value); }
  void Emit(const std::vector<BufferId>& uses, CardLaunchMaker make);
  void NoteBand(std::string_view op);
  uint64_t Frequencies(double base, double scale, size_t dims);
  [[noreturn]] void Refuse(const std::string& text) const;

  const graph::Graph& graph_;
  const plugin::Description& description_;
  const CardLowerOptions& options_;
  CardLoweredGraph out_;
  ProgramBuffers buffers_;
  std::vector<bool> live_;
  std::vector<graph::ValueId> wanted_;
  std::optional<CardFusions> fusions_;
  std::vector<bool> lazy_;                                   // by node
  graph::NodeId node_ = 0;                                   // being lowered
  std::map<std::pair<BufferId, size_t>, BufferId> encoded_;  // (buffer, group) → its codes
  std::map<graph::NodeId, RowsSideOutputs> router_side_;     // what a router's launch left
  std::map<graph::NodeId, bool> router_done_;                // by a linear's launch
  std::map<std::tuple<double, double, size_t>, uint64_t> frequencies_;
};

}  // namespace bloomery::exec
