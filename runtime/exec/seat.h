// A loaded seat on the CPU: weights, planes, programs and the pool behind one PassRunner. Loading
// plans every byte first and refuses what does not fit; after it a pass allocates nothing. One
// thread runs passes; it never samples and never schedules.
//
//   plugin::Instance instance(selected, model, InstanceOptionsOf(options));
//   std::unique_ptr<Seat> seat = LoadSeat(model, instance, options);
//   seat->Run(rows);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/cpu/pool.h"
#include "runtime/exec/lower/program.h"
#include "runtime/exec/lower/seat_info.h"
#include "runtime/exec/pass.h"
#include "runtime/exec/pass_inputs.h"
#include "runtime/graph/operator.h"
#include "runtime/memory/plan.h"
#include "runtime/memory/planes.h"
#include "runtime/memory/weights.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/instance.h"

namespace bloomery::exec {

struct SeatOptions {
  int32_t slots = 1;
  int32_t slot_context = 4096;  // rows of one slot
  int32_t rows_max = 512;       // rows of one pass (the ubatch)
  int32_t threads = 0;          // 0: DefaultThreads()
  bool pin = true;              // workers keep to their core
  bl_dtype k_type = BL_F16;     // F32, F16 or Q8_0
  bl_dtype v_type = BL_F16;
  std::string kernels = "auto";  // ops::FindBackend
  uint64_t host_budget = 0;      // bytes; 0: what `available` says
  // The host memory left, asked once before anything is allocated; nullopt: it cannot be told.
  std::function<std::optional<memory::HostLimit>()> available = [] {
    return memory::AvailableHostMemory();
  };
  memory::WeightSource weight_source = memory::WeightSource::kRead;
  std::vector<std::string> observe = {};  // exported values to keep, "layer.3.in"
  // Called while weights load with bytes done and in all.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

// What a plugin's instance must be created with for these options.
plugin::InstanceOptions InstanceOptionsOf(const SeatOptions& options);

// A checked description and its graph builder: an Instance, or a test's own.
struct SeatSource {
  std::string plugin;                                             // its name
  const plugin::Description* description = nullptr;               // outlives the seat
  std::function<void(const bl_builder&, const bl_build&)> build;  // the main entry
};

// Of the passes since loading.
struct SeatCounters {
  uint64_t passes = 0;
  uint64_t dispatches = 0;         // steps run
  uint64_t weight_bytes_read = 0;  // as the kernels count them
  uint64_t experts_picked = 0;     // distinct ones, over all banks and passes
  uint64_t expert_bytes = 0;       // what reading each of those once takes
  double wait_seconds = 0;         // of the passes' thread, for others at the ends of steps
};

// One step of a pass that ran. `first` of its pass; waiting is the passes' thread's, for others.
struct StepTime {
  std::string_view op;
  int32_t layer = -1;  // -1: of no layer
  bool first = false;
  int32_t tasks = 0;
  double seconds = 0;
  double wait_seconds = 0;
};

// Told of each step after it ran, on the passes' thread: for measuring.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void StepDone(const StepTime& step) = 0;
};

// An observed value after a pass: live rows of `width` values.
struct Observation {
  bl_dtype dtype = BL_F32;
  int64_t width = 0;
  int32_t rows = 0;
  const std::byte* data = nullptr;

  std::span<const float> Floats() const {
    return {reinterpret_cast<const float*>(data), static_cast<size_t>(width * rows)};
  }
  std::span<const int32_t> Ints() const {
    return {reinterpret_cast<const int32_t*>(data), static_cast<size_t>(width * rows)};
  }
};

class Seat : public PassRunner {
 public:
  // Throws Error(kUsage) for options out of range, Error(kNoMemory) with the plan's line, the
  // errors of building, lowering and reading.
  Seat(const model::ModelFile& model, const SeatSource& source, const SeatOptions& options);
  ~Seat() override;

  const SeatLimits& limits() const override { return limits_; }
  void Run(std::span<const PassRow> rows) override;
  std::span<const float> Logits(int32_t i) const override;
  void Cut(int32_t slot, int32_t length) override;
  int32_t Keepable(int32_t slot, int32_t length) const override;
  void CopySlot(int32_t from, int32_t to, int32_t length) override;

  // Rows the slot holds.
  int32_t Length(int32_t slot) const { return planes_->Length(slot); }
  // A value named in SeatOptions::observe, of the last pass; valid until the next.
  Observation Observe(std::string_view name) const;
  SeatCounters counters() const;
  // Bytes of the weights that every pass reads whatever its rows: all but routed experts and
  // tables, the head counted though a pass without logits leaves it out.
  uint64_t DenseBytes() const;
  // The pool that passes run on, between passes: to measure with the threads that decode.
  Pool& pool() { return *pool_; }
  // Steps are timed and told to `observer` from the next pass on; null (as at first): to nobody. It
  // must outlive the passes.
  void SetObserver(StepObserver* observer) { observer_ = observer; }
  const memory::HostPlan& plan() const { return plan_; }
  // Operators of the programs whose kernels do not keep every promise of bits: "op/1 (band)".
  const std::set<std::string>& inexact_operators() const { return inexact_; }
  // kRead or kMap: what kAuto came to.
  memory::WeightSource weight_source() const { return weight_source_; }
  // How the weights were loaded, for the log.
  std::string LoadLine() const { return weights_->Line(); }
  std::string_view kernels() const { return backend_->name; }
  int32_t threads() const { return pool_->threads(); }

 private:
  std::vector<LoweredGraph> LowerAll(const SeatSource& source, const SeatOptions& options) const;
  // Adds the terms to `plan`.
  void Plan(uint64_t weight_bytes, memory::WeightSource source, int32_t threads,
            memory::HostPlan& plan) const;
  void CheckRows(std::span<const PassRow> rows) const;
  [[noreturn]] void Fail(const ProgramStep& step, const StepFailure& failure,
                         std::span<const PassRow> rows) const;
  const Program& ProgramFor(size_t rows) const;
  StepFailure RunObserved(const ProgramStep& step, bool first);

  SeatLimits limits_;
  const plugin::Description& description_;
  const ops::Backend* backend_;
  graph::SeatInfo info_;
  SeatOperators operators_;
  std::vector<size_t> tensors_;  // that weights read
  std::vector<memory::PlaneSpec> plane_specs_;
  std::set<std::string> inexact_;
  uint64_t arena_bytes_ = 0;
  uint64_t scratch_bytes_ = 0;  // of one worker
  memory::HostPlan plan_;
  memory::WeightSource weight_source_;
  std::unique_ptr<memory::WeightStore> weights_;
  std::unique_ptr<memory::PlaneStore> planes_;
  memory::HostBuffer arena_;
  memory::HostBuffer logits_;
  PassInputs inputs_;
  std::vector<Program> programs_;  // row buckets ascending
  std::unique_ptr<Pool> pool_;
  const Program* last_ = nullptr;  // of the last pass
  SeatCounters counters_;
  StepObserver* observer_ = nullptr;
};

// A seat of a plugin's instance, which must outlive it (as must the model while it loads).
std::unique_ptr<Seat> LoadSeat(const model::ModelFile& model, plugin::Instance& instance,
                               const SeatOptions& options);

// The row counts programs are built for: 1 to 8, then powers of two from 16, the last `rows_max`.
std::vector<int32_t> RowBuckets(int32_t rows_max);

}  // namespace bloomery::exec
