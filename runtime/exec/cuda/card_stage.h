// A stage of a seat: a run of the model's layers on one card. Owns what lies there (weights,
// planes, buffers, the card's side of split banks) and the programs that run there, each a graph on
// a stream of its own. A pass runs the stages one after another: before its first launch a stage
// brings the values that earlier ones have made from their cards. After loading nothing of a pass
// allocates. Used by the passes' thread; CardSeat decides what runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/cuda/card.h"
#include "runtime/exec/cuda/card_planes.h"
#include "runtime/exec/cuda/card_program.h"
#include "runtime/exec/cuda/card_split.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/seat.h"
#include "runtime/graph/stages.h"
#include "runtime/memory/placement.h"

namespace bloomery::exec {

// Of the allocations on a card beside weights and planes, in bytes.
struct CardStageSizes {
  uint64_t arena = 0;
  uint64_t logits = 0;
  uint64_t workspace = 0;
  uint64_t constants = 0;
  uint64_t words = 0;
  uint64_t picks = 0;
  uint64_t Small() const { return workspace + constants + words + picks; }
};

// What a stage will be, before anything is allocated.
struct CardStagePlan {
  CardInfo card;
  memory::LayerRange layers;
  std::vector<bool> weights = {};             // of the seat's description: what lies here
  std::vector<bool> planes = {};              // the same
  std::vector<uint32_t> banks = {};           // the same: which, ascending
  std::vector<CardLoweredGraph> passes = {};  // row buckets ascending
  std::vector<CardLoweredGraph> drafts = {};  // the last stage's
  uint64_t logits_bytes = 0;                  // the same

  // That the nodes of `graph` run here.
  void Take(const plugin::Description& description, const graph::Graph& graph);
  // The seat's, without the weights of other stages.
  plugin::Description Describe(const plugin::Description& seat) const;
  CardStageSizes Sizes(const plugin::Description& seat) const;
};

// What the stages of a seat share; outlives them.
struct CardStageSeat {
  const plugin::Description* description = nullptr;
  const SeatOptions* options = nullptr;  // while stages are made
  SeatLimits limits;
  int32_t lanes_of_slot = 1;
  std::vector<uint32_t> frames = {};  // by bank; empty: banks lie whole on their cards
  SlotRows* rows = nullptr;
  SplitHost* host = nullptr;            // where there are frames
  bool alone = true;                    // the seat has one stage
  int32_t parts = 1;                    // of a pass, at most
  uint64_t words_bytes = 0;             // of the rows of a part
  const std::byte* words_in = nullptr;  // pinned: they, part after part
  std::byte* picks_out = nullptr;       // pinned: where picks are asked for
  // From there to a bank's picks, in words.
  std::function<uint64_t(size_t bank)> picks_at = {};
};

// Rows of a pass that go through the stages as one; most passes have one part. Parts of a pass are
// passes that follow one another without the host: while a stage is at one, the stage before is at
// the next.
struct PassPart {
  size_t number = 0;
  size_t bucket = 0;
  int32_t first = 0;  // row of the pass
  int32_t rows = 0;
  int32_t first_logits = 0;  // the same of its logit rows
  int32_t logits = 0;
};

class CardStage {
 public:
  // A program with its captured graph; of one that the host works for between launches: without.
  // The graph has the copies of the rows' words where the stage is alone; they go beside it where
  // others are, and the rows can come while the stage before still works.
  struct Ready {
    CardProgram program;
    CardGraph graph;
  };
  // Whether the pass still runs; throws where a card has failed.
  using Check = std::function<bool()>;

  // Takes the card's memory and loads weights. Throws Error(kDevice), CardMemoryError, the errors
  // of reading, and what `progress` throws.
  CardStage(const model::ModelFile& model, CardStagePlan plan, const CardStageSeat& seat,
            const std::function<void(uint64_t, uint64_t)>& progress);
  ~CardStage();

  // Binds and captures every program, once what they copy to is there.
  void MakePrograms(const CardStageSeat& seat);
  // Copies from `from`'s card need none of the host's memory, where the two can do so.
  void OpenWay(const CardStage& from) const;

  // One thread loads, another runs passes: each has its own present card.
  void Enter() const;
  const CardInfo& card() const { return card_; }
  const memory::LayerRange& layers() const { return layers_; }
  std::span<const uint32_t> banks() const { return banks_; }
  cudaStream_t stream() const { return stream_.get(); }
  const kernels::cuda::Launch& launch() const { return launch_; }
  CardPlanes& planes() { return *planes_; }
  const CardWeights& weights() const { return *weights_; }
  CardSplit* split() const { return split_.get(); }
  const Ready& pass(size_t bucket) const { return passes_[bucket]; }
  const Ready& draft(size_t bucket) const { return drafts_[bucket]; }
  size_t draft_buckets() const { return drafts_.size(); }
  const std::byte* logits() const { return logits_.data(); }

  // What starting a part of a pass on a stage is, in order: its words come; once later stages have
  // taken what they read of the part before, the values that earlier stages made come; the graph,
  // or launches one by one; what comes back; the end that later stages wait for. `made` are the
  // part's programs of the stages before, with which `stages` begin.
  void EnqueueIn(const CardProgram& program, const PassPart& part) const;
  void AwaitTaken(const CardStage& by) const;
  void BringIn(const CardProgram& program, std::span<const std::unique_ptr<CardStage>> stages,
               std::span<const CardProgram* const> made, const PassPart& part) const;
  void LaunchGraph(const Ready& ready) const;
  // The program's launches one by one, and the host's parts that they need in between. `seats`:
  // experts that come for the pass may stay. `mark` is called before each and after the last.
  void RunLaunches(
      const CardProgram& program, int32_t rows, bool seats, const Check& check,
      const std::function<void()>& mark = [] {});
  // The same, each launch between two events, and waits for the end.
  void RunObserved(const CardProgram& program, const PassPart& part, bool seats, const Check& check,
                   StepObserver* observer);
  void EnqueueOut(const CardProgram& program, const PassPart& part) const;
  void MarkDone() const;
  // Whether the graph has the copies of words.
  bool alone() const { return alone_; }

  bool Busy() const;
  // The pinned twin of a program's words, as they came back from a part.
  CardRows Returned(const CardProgram& program, size_t part) const;
  // Copies from the card and waits.
  void Fetch(void* to, const std::byte* from, uint64_t bytes, const std::string& what) const;
  // CardPicks of the passes so far; 0 of other stages' banks.
  std::vector<uint32_t> FetchPicks() const;

 private:
  // Constants and states of programs lie one after another from *constants on.
  std::vector<Ready> Make(const std::vector<CardLoweredGraph>& lowered,
                          std::byte** constants) const;
  CardGraph Capture(const CardProgram& program) const;

  const plugin::Description& seat_;
  CardInfo card_;
  memory::LayerRange layers_;
  std::vector<uint32_t> banks_;
  std::vector<CardLoweredGraph> lowered_passes_;  // until programs are made
  std::vector<CardLoweredGraph> lowered_drafts_;
  CardStageSizes sizes_;
  // The description that the card's weights follow: banks have the frames of the placement.
  plugin::Description description_;
  CardStream stream_;
  CardEvent taken_;  // what earlier stages made
  CardEvent done_;
  bool alone_;
  uint64_t words_bytes_;
  kernels::cuda::Launch launch_;
  SplitHost* host_;
  std::unique_ptr<CardSplit> split_;  // null: banks lie whole on the card
  std::unique_ptr<CardWeights> weights_;
  std::unique_ptr<CardPlanes> planes_;
  CardBuffer arena_;
  CardBuffer logits_;
  CardBuffer small_;  // workspace, constants, the rows' words, counts of picks
  const std::byte* words_in_;
  PinnedBuffer words_out_;
  std::byte* picks_out_ = nullptr;
  std::function<uint64_t(size_t bank)> picks_at_;
  std::vector<Ready> passes_;
  std::vector<Ready> drafts_;
};

}  // namespace bloomery::exec
