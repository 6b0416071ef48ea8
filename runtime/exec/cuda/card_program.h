// A program on a card: a seat's graph lowered to launches for one row count. Like program.h, made
// in two phases: lowering decides launches and the places of buffers without touching the card;
// the constructor then puts addresses in. The launches enqueue in order on one stream; a CardSeat
// captures them once into a graph. Pointers and grids are final: what differs from pass to pass
// (ids, slots, lengths, counts) is read on the card from the arrays of CardRows.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/pass_rows.h"
#include "kernels-common/cuda/pass_states.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/linear/cuda/top_logits.h"
#include "kernels-common/moe/cuda/hand_off.h"
#include "kernels-common/moe/cuda/picks.h"
#include "kernels-common/moe/cuda/rows_experts.h"
#include "runtime/exec/cuda/card_planes.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/lower/buffers.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/stages.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// What a pass and the host tell each other, in device memory and in its pinned twin: words, eight
// arrays of `rows` words, then the best logits of the first `top_rows` logit rows. One copy brings
// words and arrays before the first launch, one takes everything back after the last.
struct CardRows {
  // kExactRows: the first kLiveExact rows that attention takes in the exact order though the pass
  // is a prompt's: those of slots with at most kMaxHeadRows rows in it.
  // Failed*: the lowest row that failed, of the pass or of the logit rows; INT32_MAX: none.
  // kSegments and the last three arrays: PassStatesView's.
  enum Word {
    kFailedRow,
    kFailedLogits,
    kLive,
    kLiveLogits,
    kLiveTop,
    kLiveExact,
    kSegments,
    kWords = 8
  };
  enum Array {
    kToken,
    kSlot,
    kIndex,
    kLogitMap,
    kExactRows,
    kSegmentRow,
    kLaneIn,
    kLaneOut,
    kArrays
  };

  int32_t* base = nullptr;
  int32_t rows = 0;      // the program's
  int32_t top_rows = 0;  // at most rows

  int32_t* word(Word word) const { return base + word; }
  int32_t* array(Array array) const { return base + kWords + array * rows; }
  // [top_rows][kTopLogits], best first.
  int32_t* top_ids() const { return array(kArrays); }
  float* top_values() const {
    return reinterpret_cast<float*>(top_ids() + top_rows * kernels::cuda::kTopLogits);
  }
  uint64_t BytesIn() const {
    return (kWords + uint64_t{kArrays} * static_cast<uint64_t>(rows)) * sizeof(int32_t);
  }
  uint64_t Bytes() const {
    return BytesIn() + static_cast<uint64_t>(top_rows) * kernels::cuda::kTopLogits * 8;
  }
};

// Counts of the experts that rows picked, one array on the card: a word an expert, bank after bank,
// then a word a bank, to which each pass of more than one row adds how many distinct experts it
// picked. Launches that see the picks count by the way; the words wrap around.
struct CardPicks {
  static uint64_t Words(const plugin::Description& description);
  // Of the first expert of a bank; of a bank that is not there: of the first word of banks.
  static uint64_t At(const plugin::Description& description, size_t bank);
};

class CardSplit;

// The addresses of a loaded seat. All outlive the programs bound to them.
struct CardMemory {
  const CardWeights* weights = nullptr;
  const CardPlanes* planes = nullptr;
  std::byte* arena = nullptr;
  std::byte* workspace = nullptr;  // zero at first; launches leave it as they found it
  std::byte* constants = nullptr;  // the program's
  std::byte* state = nullptr;      // the program's: zero at first, and from then on its own
  float* logits = nullptr;
  uint32_t* picks = nullptr;         // CardPicks
  const CardSplit* split = nullptr;  // null: banks lie whole on the card
  CardRows rows;
  kernels::cuda::Launch launch = {};  // how steps will be enqueued
};

// What a launch's maker asks for its pointers.
class CardBinder {
 public:
  CardBinder(const CardMemory& memory, const std::vector<Buffer>& buffers)
      : memory_(memory), buffers_(buffers) {}

  const CardRows& rows() const { return memory_.rows; }
  kernels::cuda::PassRowsView PassRows() const;
  // Stretches of at most `slots` slots.
  kernels::cuda::PassStatesView PassStates(int32_t slots) const;
  const int32_t* Live(bl_domain_kind domain) const;
  // Up to `max` rows of a domain, `each` things a row.
  kernels::cuda::RowBound Bound(bl_domain_kind domain, int64_t max, int32_t each = 1) const {
    return {static_cast<int32_t>(max), Live(domain), each};
  }
  int32_t* failed_row() const { return memory_.rows.word(CardRows::kFailedRow); }

  std::byte* Bytes(BufferId buffer) const;
  float* Floats(BufferId buffer) const { return reinterpret_cast<float*>(Bytes(buffer)); }
  int32_t* Ints(BufferId buffer) const { return reinterpret_cast<int32_t*>(Bytes(buffer)); }

  kernels::cuda::CardWeight Matrix(uint32_t weight) const {
    return memory_.weights->Matrix(weight);
  }
  const std::byte* WeightData(uint32_t weight) const { return memory_.weights->Data(weight); }
  const float* WeightFloats(uint32_t weight) const {
    return reinterpret_cast<const float*>(WeightData(weight));
  }
  const kernels::cuda::CardPlane& Plane(uint32_t plane) const {
    return memory_.planes->View(plane);
  }
  kernels::cuda::StatePlane State(uint32_t plane) const { return memory_.planes->State(plane); }
  uint32_t* picks() const { return memory_.picks; }
  // Of a bank; null where it lies whole on the card.
  kernels::cuda::FrameMap FrameOf(size_t bank) const;
  kernels::cuda::HandOff HandOffOf(size_t bank) const;
  // Of a bank of a prompt, the `number`-th of the program: the map with the frames of the experts
  // that come, too, and a matrix with the place where they lie.
  kernels::cuda::FrameMap StreamedFrameOf(size_t bank) const;
  kernels::cuda::CardWeight StreamedMatrix(size_t bank, uint32_t weight, int32_t number) const;
  const CardSplit* split() const { return memory_.split; }
  std::byte* workspace() const { return memory_.workspace; }
  const std::byte* Constant(uint64_t offset) const { return memory_.constants + offset; }

 private:
  const CardMemory& memory_;
  const std::vector<Buffer>& buffers_;
};

// What the launches of a layer of few rows take, for those that go together (card_layers.h).
struct HeadAttentionArgs {
  kernels::cuda::CardAttention attention;
  kernels::cuda::HeadInputs inputs;
};
using CardArguments =
    std::variant<std::monostate, kernels::cuda::RowsLinearArgs, HeadAttentionArgs,
                 kernels::cuda::ExpertGateUpRowsArgs, kernels::cuda::ExpertDownRowsArgs>;

// A launch with its pointers; where it may go together with others, also its arguments.
class CardLaunch {
 public:
  using Run = std::function<cudaError_t(const kernels::cuda::Launch&)>;

  template <class Function>
    requires std::constructible_from<Run, Function> &&
                 (!std::same_as<std::remove_cvref_t<Function>, CardLaunch>)
  CardLaunch(Function run, const CardArguments& arguments = {})
      : run_(std::move(run)), arguments_(arguments) {}

  cudaError_t operator()(const kernels::cuda::Launch& launch) const { return run_(launch); }
  const CardArguments& arguments() const { return arguments_; }

 private:
  Run run_;
  CardArguments arguments_;
};
using CardLaunchMaker = std::function<CardLaunch(const CardBinder&)>;

struct CardExport {
  std::string name;
  BufferId buffer = 0;
  graph::Shape shape;
};

// A value that another stage makes and that lies there before the first launch.
struct CardImport {
  graph::Crossing crossing;
  BufferId buffer = 0;
  graph::Shape shape;
};

// What a launch has to do with the host's part of a split bank.
struct SplitStep {
  int32_t rings = -1;  // bank whose picks it hands over: the host serves it while launches go on
  // Prompts, by the number of the bank in the program (CardSplit): before this launch it is decided
  // who takes which of its experts; those that come must have arrived; the host computes its part.
  // This launch is the last to read what came.
  int32_t shares = -1;
  int32_t arrives = -1;
  int32_t needs = -1;
  int32_t streamed = -1;
};

// A graph after the first phase.
struct CardLoweredGraph {
  struct Pending {
    std::string_view op;  // of the graph's operator set, which outlives the program
    int32_t layer = -1;
    CardLaunchMaker make;
    SplitStep split = {};
  };

  int32_t rows = 0;
  int32_t top_rows = 0;
  std::vector<Pending> launches;
  std::vector<Buffer> buffers;
  std::vector<CardExport> exports;
  std::vector<CardImport> imports;
  std::vector<uint32_t> streams;  // banks of a prompt that are shared with the host, in order
  std::set<std::string> inexact;  // "attention/1 (band)"
  // By bank, where they were asked for: what its rows picked; -1: the bank is another stage's.
  std::vector<BufferId> picks;
  bool best_logits = false;  // a launch leaves the best logits of the first rows
  uint64_t arena_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t state_bytes = 0;
  std::vector<std::byte> constants;  // copied to the card before the first pass
};

struct CardStep {
  std::string_view op;
  int32_t layer = -1;
  CardLaunch launch;
  SplitStep split = {};
};

class CardProgram {
 public:
  CardProgram(const CardLoweredGraph& lowered, const CardMemory& memory);

  struct Exported {
    std::string name;
    graph::Shape shape;
    const std::byte* data = nullptr;  // on the card
  };
  struct Imported {
    size_t from = 0;   // stage
    std::string name;  // of the export there
    graph::Shape shape;
    std::byte* data = nullptr;  // on the card
  };

  int32_t rows() const { return rows_; }
  const CardRows& inputs() const { return inputs_; }
  // Logit rows whose best logits a pass leaves.
  int32_t best_rows() const { return best_logits_ ? inputs_.top_rows : 0; }
  const std::vector<CardStep>& steps() const { return steps_; }
  // Banks that the host serves inside the pass, in order.
  std::span<const uint32_t> rings() const { return rings_; }
  // Banks of a prompt that card, link and host share, in order.
  const std::vector<uint32_t>& streams() const { return streams_; }
  // Whether the host has work between launches, so that they cannot be one graph.
  bool needs_host() const { return needs_host_; }
  const Exported* Find(std::string_view name) const;
  // What other stages make, and has to be brought here before the first launch.
  const std::vector<Imported>& imports() const { return imports_; }
  // By bank: what the rows of a pass picked, `used` experts a row, after it; on the card. Empty
  // where nobody asked; null of a bank of another stage.
  std::span<const int32_t* const> picks() const { return picks_; }

 private:
  int32_t rows_;
  bool best_logits_;
  CardRows inputs_;
  std::vector<CardStep> steps_;
  std::vector<Exported> exports_;
  std::vector<Imported> imports_;
  std::vector<const int32_t*> picks_;
  std::vector<uint32_t> rings_;
  std::vector<uint32_t> streams_;
  bool needs_host_ = false;
};

}  // namespace bloomery::exec
