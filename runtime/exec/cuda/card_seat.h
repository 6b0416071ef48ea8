// A seat whose model lies whole on one card. A pass is one graph: the rows' words are copied to the
// card, the program's launches run, and what the host needs comes back (what failed, the best
// logits of each row); whole rows of logits are fetched where they are asked for. After loading a
// pass allocates nothing, and nothing of it is enqueued but that graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/cuda/card.h"
#include "runtime/exec/cuda/card_planes.h"
#include "runtime/exec/cuda/card_program.h"
#include "runtime/exec/cuda/card_split.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/seat.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/plan.h"

namespace bloomery::exec {

class CardSeat : public Seat {
 public:
  // Plans, and refuses what does not fit, before it asks the driver for anything; CardMemoryError
  // where it is the card that has too little free.
  CardSeat(const model::ModelFile& model, const SeatSource& source, const SeatOptions& options,
           const CardInfo& card);
  ~CardSeat() override;

  void Run(std::span<const PassRow> rows) override;
  std::span<const float> Logits(int32_t i) const override;
  std::span<const BestLogit> BestLogits(int32_t i) const override;
  std::span<const Drafted> RunDraft(std::span<const DraftRow> rows, bool probabilities) override;
  void Cut(int32_t slot, int32_t length) override;
  void CopySlot(int32_t from, int32_t to, int32_t length) override;
  void ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) override;
  void AppendRows(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) override;
  void ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) override;
  void RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) override;

  int32_t Length(int32_t slot) const override { return planes_->Length(slot); }
  Observation Observe(std::string_view name) const override;
  // Asks the card for what passes of several rows picked: between passes.
  SeatCounters counters() const override;
  std::function<double()> MemoryReadMeter() override;
  // Asks the card for the picks, after the pass in progress. From any thread.
  Residency ReadResidency() const override;
  int32_t CardFrames() const override;
  std::span<const int32_t> FramesOf(size_t bank) const override;
  void BeginMove(const ExpertMove& move) override;
  int32_t LandMoves(bool wait) override;
  std::vector<ExpertMove> TakeSeated() override;
  memory::ResidencyRates MeasureRates() override;
  std::string LoadLine() const override;
  std::vector<VideoCard> Cards() const override;
  std::string_view kernels() const override { return name_; }
  int32_t threads() const override { return split_ == nullptr ? 1 : split_->host().threads(); }

 private:
  // A program with its captured graph; of one that the host works for between launches: without.
  struct Ready {
    CardProgram program;
    CardGraph graph;
  };

  // Bytes of what is allocated on the card beside weights and planes.
  struct Sizes {
    uint64_t arena = 0;
    uint64_t logits = 0;
    uint64_t workspace = 0;
    uint64_t constants = 0;
    uint64_t words = 0;
    uint64_t picks = 0;
    uint64_t Small() const { return workspace + constants + words + picks; }
  };

  const memory::Rings& rings() const override { return planes_->rings(); }
  cudaStream_t stream() const { return stream_->get(); }
  uint64_t ChunkBytes() const { return RowChunk::kRowsMax * StateRowBytes(); }
  // What these programs need beside what others do.
  void AddSizes(std::span<const CardLoweredGraph> lowered, Sizes* sizes) const;
  // What the planner is asked for; `whole` is the layout of a seat that has every expert.
  memory::SeatSizes SizesToPlan(const model::ModelFile& model, const SeatOptions& options,
                                const CardWeightLayout& whole, const Sizes& sizes,
                                memory::Place place) const;
  // One thread loads, another runs passes: each has its own present card.
  void Enter() const;
  uint64_t LogitRowBytes() const {
    return static_cast<uint64_t>(limits_.vocabulary) * sizeof(float);
  }
  // Rows of logits that slots may draw from after a pass of so many rows, drafts counted.
  int32_t TopRows(int32_t rows) const {
    const int32_t drawn = std::max(
        limits_.slots, limits_.window_rows == 1 ? limits_.slots
                                                : std::min(limits_.slots * limits_.window_rows,
                                                           limits_.draft_pass_rows));
    return std::min(rows, drawn);
  }
  // Rows of logits that the host has room for before the first pass.
  int32_t HostLogitRows() const { return TopRows(limits_.logit_rows_max); }
  int32_t LanesOfSlot() const { return memory::LanesOfWindow(limits_.window_rows); }
  std::vector<CardLoweredGraph> LowerAll(const SeatSource& source, const SeatOptions& options,
                                         const CardWeightLayout& layout, bool split) const;
  // The programs of the draft head's steps, a row a slot; none where it is not asked for.
  std::vector<CardLoweredGraph> LowerDrafts(const SeatSource& source,
                                            const CardWeightLayout& layout) const;
  // Once all memory is there: binds, captures and keeps a program for every row bucket. Constants
  // and states of programs lie one after another from *constants on.
  std::vector<Ready> MakePrograms(std::span<const CardLoweredGraph> lowered, const Sizes& sizes,
                                  std::byte** constants) const;
  CardGraph Capture(const CardProgram& program) const;
  void Enqueue(const CardProgram& program) const;
  void EnqueueIn(const CardProgram& program) const;
  void EnqueueOut(const CardProgram& program) const;
  // Whether somebody wants to know what rows pick: a trace, or a policy.
  static bool PicksAsked(const SeatOptions& options, bool split) {
    return split || !options.residency.trace.empty();
  }
  // Where a bank's picks come back, in pinned words; of all banks: how many.
  uint64_t PicksAt(size_t bank) const;
  void RecordPicks(size_t rows);
  static const Ready& ReadyFor(const std::vector<Ready>& programs, size_t rows);
  CardRows WriteInputs(const CardProgram& program, std::span<const PassRow> rows);
  // The stretches of slots, and the lanes that they read and write.
  void WriteStates(const CardRows& in, std::span<const PassRow> rows);
  // Of a step of drafts: each row reads its slot's state, or what the step before left.
  void WriteDraftStates(const CardRows& in, std::span<const DraftRow> rows);
  Drafted DraftedOfRow(size_t row) const;
  void Start(const Ready& ready, int32_t rows);
  // The program's launches one by one, and the host's parts that they need in between. `mark` is
  // called before each and after the last.
  void RunLaunches(const CardProgram& program, int32_t rows, const std::function<void()>& mark);
  void RunObserved(const CardProgram& program, int32_t rows);
  // Whether the stream still works; throws where the card has failed.
  bool Busy() const;
  // Waits for the end of a pass; of split banks no longer than the deadline, for what is left and
  // for each bank whose experts come to the card.
  void Finish(const CardProgram& program);
  // The pinned twin of a program's words, as they came back.
  CardRows Returned(const CardProgram& program) const;
  void Fetch(void* to, const std::byte* from, uint64_t bytes, const std::string& what) const;
  void CountPass(size_t rows);
  void CountExperts(const plugin::Bank& bank, uint64_t count, SeatCounters* to) const;
  // CardPicks since loading. The card's own counts wrap around: right where no expert was picked
  // 2^32 times since the last call.
  std::vector<uint64_t> FetchPicks() const;

  CardInfo card_;
  std::string name_;
  std::chrono::milliseconds deadline_;
  // The description that the card's weights follow: banks have the frames of the placement.
  plugin::Description of_frames_;
  std::optional<CardStream> stream_;  // there once the plan fits
  kernels::cuda::Launch launch_;
  std::unique_ptr<CardWeights> weights_;
  std::unique_ptr<CardPlanes> planes_;
  std::unique_ptr<CardSplit> split_;  // null: banks lie whole on the card
  CardBuffer arena_;
  CardBuffer logits_;
  CardBuffer small_;                      // workspace, constants, the rows' words, counts of picks
  const uint32_t* card_picks_ = nullptr;  // CardPicks, there
  PinnedBuffer words_in_;
  PinnedBuffer words_out_;
  PinnedBuffer picks_out_;    // where picks are asked for: bank after bank, of the largest pass
  PinnedBuffer state_rows_;   // a chunk of rows on its way to or from a slot
  std::vector<Ready> ready_;  // row buckets ascending
  std::vector<Ready> drafts_;
  bool may_seat_ = false;  // experts that come for the pass may stay
  const CardProgram* last_ = nullptr;
  int32_t last_logits_ = 0;           // logit rows of the last pass
  std::vector<bl_segment> segments_;  // of a pass, where there are lanes
  std::vector<PassRow> draft_rows_;
  std::vector<Drafted> drafted_;
  SeatCounters counters_;
  // Rows of logits and observed values, fetched when they are asked for. Rows beyond the slots
  // (measuring, not serving) get their room then.
  mutable std::vector<PinnedBuffer> host_logits_;
  mutable std::vector<bool> fetched_;
  mutable std::vector<std::vector<std::byte>> observed_;
  mutable std::vector<BestLogit> best_;
  mutable std::mutex picks_mutex_;            // of the two below
  mutable std::vector<uint32_t> last_picks_;  // as last fetched
  mutable std::vector<uint64_t> picks_;       // CardPicks, without wrapping
};

}  // namespace bloomery::exec
