// A seat whose model lies on cards: one stage a card (card_stage.h), most often one. A pass is a
// graph a stage, and a large one on several cards parts of that (PassPart), so that all cards are
// at work: the rows' words are copied to the card, the program's launches run, and what the host
// needs comes back (what failed, the best logits of each row); whole rows of logits are fetched
// where they are asked for. After loading a pass allocates nothing, and nothing of it is enqueued
// but those graphs and the rows that cross from card to card.
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
#include "runtime/exec/cuda/card_stage.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/seat.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/plan.h"

namespace bloomery::exec {

class CardSeat : public Seat {
 public:
  // On these cards, in this order. Plans, and refuses what does not fit, before it asks the driver
  // for anything; CardMemoryError where it is a card that has too little free.
  CardSeat(const model::ModelFile& model, const SeatSource& source, const SeatOptions& options,
           std::span<const CardInfo> cards);
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

  int32_t Length(int32_t slot) const override { return rows_->Length(slot); }
  Observation Observe(std::string_view name) const override;
  // Asks the cards for what passes of several rows picked: between passes.
  SeatCounters counters() const override;
  std::function<double()> MemoryReadMeter() override;
  // Asks the cards for the picks, after the pass in progress. From any thread.
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
  int32_t threads() const override { return host_ == nullptr ? 1 : host_->experts().threads(); }

 private:
  enum class Programs { kPasses, kDrafts };

  const memory::Rings& rings() const override { return rows_->rings(); }
  uint64_t ChunkBytes() const { return RowChunk::kRowsMax * StateRowBytes(); }
  // The stages as they would be: their graphs cut, lowered and sized.
  std::vector<CardStagePlan> PlanStages(const SeatSource& source, const SeatOptions& options,
                                        std::span<const CardInfo> cards,
                                        std::span<const memory::LayerRange> layers,
                                        const CardWeightLayout& whole, bool split) const;
  // The programs of the draft head's steps, a row a slot, to the last stage; none where it is not
  // asked for.
  void PlanDrafts(const SeatSource& source, const CardWeightLayout& whole,
                  CardStagePlan* last) const;
  // What the planner is asked for; `whole` is the layout of a seat that has every expert.
  memory::SeatSizes SizesToPlan(const model::ModelFile& model, const SeatOptions& options,
                                const CardWeightLayout& whole,
                                std::span<const CardStagePlan> stages, memory::Place place) const;
  memory::StageSizes StageToPlan(const model::ModelFile& model, const CardWeightLayout& whole,
                                 const CardStagePlan& stage, bool split) const;
  void MakeStages(const model::ModelFile& model, const SeatOptions& options,
                  std::vector<CardStagePlan> plans);
  // That a bank's experts lie with.
  const CardStage& StageOf(size_t bank) const { return *stages_[stage_of_[bank]]; }
  CardStage& last_stage() const { return *stages_.back(); }
  uint64_t LogitRowBytes() const {
    return static_cast<uint64_t>(limits_.vocabulary) * sizeof(float);
  }
  // Rows of a pass whose logits may be wanted: of every row up to so many.
  static int32_t LogitRowsOf(int32_t rows);
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
  int32_t LanesOfSlot() const {
    return memory::LanesOfWindow(limits_.window_rows, limits_.rows_max / part_rows_);
  }
  // Whether somebody wants to know what rows pick: a trace, or a policy.
  static bool PicksAsked(const SeatOptions& options, bool split) {
    return split || !options.residency.trace.empty();
  }
  // Where a bank's picks come back, in pinned words; of all banks: how many.
  uint64_t PicksAt(size_t bank) const;
  void RecordPicks(size_t rows);
  static size_t BucketOf(std::span<const int32_t> buckets, size_t rows);
  const CardStage::Ready& ReadyOf(const CardStage& stage, Programs programs, size_t bucket) const {
    return programs == Programs::kPasses ? stage.pass(bucket) : stage.draft(bucket);
  }
  // How many parts a pass may have, where the seat lies so.
  int32_t PartsOf(const SeatOptions& options, size_t stages) const;
  // Cuts a pass into parts, and writes the words of each.
  void WriteParts(std::span<const PassRow> rows);
  CardRows WriteInputs(const CardProgram& program, const PassPart& part,
                       std::span<const PassRow> rows);
  // The stretches of slots, and the lanes that they read and write.
  void WriteStates(const CardRows& in, std::span<const PassRow> rows);
  // Of a part whose words are written: what its lanes will hold. Of a pass that has failed: they do
  // not.
  void KeepStates(const CardRows& in, std::span<const PassRow> rows);
  void ForgetStates(std::span<const PassRow> rows);
  // Of a step of drafts: each row reads its slot's state, or what the step before left.
  void WriteDraftStates(const CardRows& in, std::span<const DraftRow> rows);
  Drafted DraftedOfRow(size_t row) const;
  // Starts the programs of every stage (drafts: of the last) for every part, and does the host's
  // work for them.
  void Start(Programs programs);
  void StartPart(Programs programs, const PassPart& part);
  // Of a part whose logits the next one's would overwrite.
  void KeepLogits(const PassPart& part);
  int32_t FailedRow() const;
  // The part that has the i-th logit row of the last pass.
  const PassPart& PartOfLogits(int32_t i) const;
  // Until the streams of all stages are done.
  void Await(const char* what) const;
  // Whether a card still works at a pass; throws where one has failed.
  bool Busy() const;
  // Waits for the end of a pass; of split banks no longer than the deadline, for what is left and
  // for each bank whose experts come to a card.
  void Finish(Programs programs);
  void CountPass();
  void CountExperts(const plugin::Bank& bank, uint64_t count, SeatCounters* to) const;
  // CardPicks since loading. A card's own counts wrap around: right where no expert was picked
  // 2^32 times since the last call.
  std::vector<uint64_t> FetchPicks() const;

  std::string name_;  // of the cards
  std::chrono::milliseconds deadline_;
  std::vector<std::string> observe_;
  int32_t part_rows_;                   // the ubatch
  std::vector<int32_t> buckets_;        // rows of the programs of passes
  std::vector<int32_t> draft_buckets_;  // the same of drafts; empty: there are none
  std::optional<SlotRows> rows_;
  uint64_t words_bytes_ = 0;  // of a part
  PinnedBuffer words_in_;
  PinnedBuffer picks_out_;   // where picks are asked for: bank after bank, of the largest pass
  PinnedBuffer state_rows_;  // a chunk of rows on its way to or from a slot
  std::unique_ptr<SplitHost> host_;  // null: banks lie whole on the cards
  std::vector<std::unique_ptr<CardStage>> stages_;
  std::vector<size_t> stage_of_;          // by bank
  bool may_seat_ = false;                 // experts that come for the pass may stay
  std::vector<const CardProgram*> made_;  // of the pass in progress, by stage
  std::vector<uint32_t> rings_;           // of it: banks that the host has yet to serve
  std::vector<PassPart> parts_;           // the same
  bool ran_ = false;                      // it was a pass, and has not failed
  int32_t last_logits_ = 0;               // logit rows of it
  std::vector<bl_segment> segments_;      // of a pass, where there are lanes
  std::vector<PassRow> draft_rows_;
  std::vector<Drafted> drafted_;
  SeatCounters counters_;
  // Rows of logits and observed values, fetched when they are asked for. Rows beyond the slots
  // (measuring, not serving) get their room then.
  mutable std::vector<PinnedBuffer> host_logits_;
  mutable std::vector<bool> fetched_;
  mutable std::vector<std::vector<std::byte>> observed_;
  mutable std::vector<BestLogit> best_;
  mutable std::mutex picks_mutex_;                         // of the two below
  mutable std::vector<std::vector<uint32_t>> last_picks_;  // by stage, as last fetched
  mutable std::vector<uint64_t> picks_;                    // CardPicks of all, without wrapping
};

}  // namespace bloomery::exec
