// A seat on the CPU: weights, planes, programs and the pool. Loading plans every byte first and
// refuses what does not fit; after it a pass allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/cpu/pool.h"
#include "runtime/exec/lower/program.h"
#include "runtime/exec/pass_inputs.h"
#include "runtime/exec/seat.h"
#include "runtime/memory/lanes.h"
#include "runtime/memory/plan.h"
#include "runtime/memory/planes.h"
#include "runtime/memory/weights.h"

namespace bloomery::exec {

class CpuSeat : public Seat {
 public:
  // Throws Error(kUsage) for options out of range, Error(kNoMemory) with the plan's line, the
  // errors of building, lowering and reading.
  CpuSeat(const model::ModelFile& model, const SeatSource& source, const SeatOptions& options);
  ~CpuSeat() override;

  void Run(std::span<const PassRow> rows) override;
  std::span<const float> Logits(int32_t i) const override;
  std::span<const Drafted> RunDraft(std::span<const DraftRow> rows, bool probabilities) override;
  void Cut(int32_t slot, int32_t length) override;
  void CopySlot(int32_t from, int32_t to, int32_t length) override;
  void ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) override;
  void AppendRows(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) override;
  void ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) override;
  void RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) override;

  int32_t Length(int32_t slot) const override { return planes_->Length(slot); }
  Observation Observe(std::string_view name) const override;
  SeatCounters counters() const override;
  std::function<double()> MemoryReadMeter() override;
  Residency ReadResidency() const override;
  // kRead or kMap: what kAuto came to.
  memory::WeightSource weight_source() const { return placement_.host_weights; }
  std::string LoadLine() const override { return weights_->Line(); }
  std::string_view kernels() const override { return backend_->name; }
  int32_t threads() const override { return pool_->threads(); }
  // The pool that passes run on, between passes.
  Pool& pool() { return *pool_; }

 private:
  // Of the main entry or of drafts, each up to `rows_max` rows.
  // `check` is called with each graph before it is lowered.
  std::vector<LoweredGraph> LowerAll(const BuildEntry& entry, int32_t rows_max,
                                     const std::vector<std::string>& observe,
                                     const SeatOptions& options,
                                     const std::function<void(const graph::Graph&)>& check) const;
  // The slots' states that the first steps of drafts start from.
  void SetDraftInputs(std::span<const DraftRow> rows);
  // What the pass takes of the host beside weights.
  memory::SeatSizes Sizes(int32_t threads) const;
  static const Program& ProgramFor(const std::vector<Program>& programs, size_t rows);
  void RunSteps(const Program& program, std::span<const PassRow> rows);
  const memory::Rings& rings() const override { return planes_->rings(); }
  StepFailure RunObserved(const ProgramStep& step, bool first);

  const ops::Backend* backend_;
  std::vector<size_t> tensors_;  // that weights read
  std::vector<memory::PlaneSpec> plane_specs_;
  uint64_t arena_bytes_ = 0;
  uint64_t scratch_bytes_ = 0;  // of one worker
  std::unique_ptr<memory::WeightStore> weights_;
  std::unique_ptr<memory::PlaneStore> planes_;
  memory::HostBuffer arena_;
  memory::HostBuffer logits_;
  PassInputs inputs_;
  std::vector<Program> programs_;  // row buckets ascending
  // Of drafts, where there are any: a row a slot at most.
  std::optional<PassInputs> draft_inputs_;
  std::vector<Program> draft_programs_;
  std::vector<PassRow> draft_rows_;
  std::vector<int32_t> draft_lanes_;
  std::vector<Drafted> drafted_;
  std::unique_ptr<Pool> pool_;
  const Program* last_ = nullptr;  // of the last pass
  SeatCounters counters_;
  PickCounts picks_;
};

}  // namespace bloomery::exec
