// A loaded seat: weights, planes and programs on one device behind one PassRunner. Loading plans
// every byte first and refuses what does not fit; after it a pass allocates nothing.
//
//   plugin::Instance instance(selected, model, InstanceOptionsOf(options));
//   std::unique_ptr<Seat> seat = LoadSeat(model, instance, options);
//   seat->Run(rows);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/lower/seat_info.h"
#include "runtime/exec/nvml.h"
#include "runtime/exec/pass.h"
#include "runtime/exec/residency.h"
#include "runtime/exec/residency_driver.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/operator.h"
#include "runtime/memory/host_memory.h"
#include "runtime/memory/lanes.h"
#include "runtime/memory/placement.h"
#include "runtime/memory/plan.h"
#include "runtime/memory/planes.h"
#include "runtime/memory/residency/sharing.h"
#include "runtime/memory/rings.h"
#include "runtime/memory/weight_source.h"
#include "runtime/memory/wishes.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/instance.h"

namespace bloomery::exec {

// What goes wrong on purpose with split banks, in tests; nothing is called where it is empty.
struct SplitHooks {
  std::function<void(uint32_t bank)> host_task = {};  // by whatever thread, before a task of it
  std::function<bool()> copy_fails = {};              // asked before a move's copy is enqueued
  std::function<bool()> stream_fails = {};  // before copies of experts that come for a pass
};

struct SeatOptions {
  int32_t slots = 1;
  int32_t slot_context = 4096;  // rows of one slot
  int32_t rows_max = 512;       // rows that are computed at once (the ubatch)
  // Rows of one pass (the batch) where cards can work at parts of it at once: see
  // SeatLimits::rows_max.
  int32_t batch_rows = 0;  // 0, or fewer than rows_max: a pass is no larger than the ubatch
  // Rows of a slot in one pass that it may be cut back between (SeatLimits::window_rows): 1 without
  // drafts. Each takes a lane of fixed planes.
  int32_t window_rows = 1;
  bool drafts = false;       // the model's own draft head is loaded; refused where it has none
  int32_t threads = 0;       // 0: DefaultThreads()
  bool pin = true;           // workers keep to their core
  bl_dtype k_type = BL_F16;  // F32, F16 or Q8_0
  bl_dtype v_type = BL_F16;
  std::string kernels = "auto";  // ops::FindBackend
  // The delta rule of recurrent layers goes over prompts in chunks on the CPU: faster, and equal to
  // row by row within a band, so that a row's bits follow the batch it is in. Refused on a
  // card.
  bool delta_chunks = false;
  // "auto": the first card that can hold the whole model, else all cards together whole, else all
  // of them as a split, else the first that can hold one, else the CPU, each with a log line (a
  // warning for the CPU where there is a driver); "none" or "cpu"; or cards, whose order is that of
  // their layers: "CUDA0", "CUDA0,CUDA1". The same card twice has two stages of its own, each
  // planned as if it had the card to itself.
  std::string device = "none";
  // Which share of the layers each card of `device` gets (auto: of all cards, in their order), as
  // memory::CutByShares takes them; empty: by the cards' rooms.
  std::vector<double> shares = {};
  memory::PlacementRequest placing = {};  // which parts may lie on cards
  // A model that does not fit the cards whole is split between them and the host where nothing was
  // said of its place.
  bool auto_splits = true;
  uint64_t card_budget = 0;  // bytes of each card; 0: what it has free
  // Of what each card has free, left by sizes that are chosen to fit; of the first cards of
  // `device` (auto: of the machine) card_margins instead. MarginOf reads both.
  uint64_t card_margin = 0;
  std::vector<uint64_t> card_margins = {};
  // Frames of each bank on its card: so many of its experts lie there (0 to all of them). The
  // others are computed on the host inside the cards' passes, and the host then holds the weights
  // of every expert, as in the file. -1: all on cards, nothing of them on the host.
  int32_t card_frames = -1;
  // Longest that card and host wait for each other inside a pass of split banks.
  std::chrono::milliseconds hand_off_deadline{10000};
  SplitHooks split_hooks = {};
  // What host and link take for an expert of a prompt; none: as measured when loading.
  std::optional<memory::ShareRates> share_rates = {};
  ResidencyRequest residency = {};
  uint64_t host_budget = 0;  // bytes; 0: what `available` says
  // The host memory left, asked once before anything is allocated; nullopt: it cannot be told.
  std::function<std::optional<memory::HostLimit>()> available = [] {
    return memory::AvailableHostMemory();
  };
  memory::WeightSource weight_source = memory::WeightSource::kRead;
  std::vector<std::string> observe = {};  // exported values to keep, "layer.3.in"
  // Called with what is planned on a device, before it is checked and before anything is allocated;
  // what it throws ends the load. "auto" may come to several devices.
  std::function<void(const memory::Placement&)> planned = {};
  // Called while weights load with bytes done and in all.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

// What a plugin's instance must be created with for these options.
plugin::InstanceOptions InstanceOptionsOf(const SeatOptions& options);

// A checked description and its graph builder: an Instance, or a test's own.
struct SeatSource {
  std::string plugin;                                                        // its name
  const plugin::Description* description = nullptr;                          // outlives the seat
  std::function<void(const bl_builder&, const bl_build&)> build;             // the main entry
  std::function<void(const bl_builder&, const bl_build&)> build_draft = {};  // empty: none
};

// Of the passes since loading.
struct SeatCounters {
  uint64_t passes = 0;
  uint64_t dispatches = 0;         // steps run
  uint64_t weight_bytes_read = 0;  // as the kernels count them
  uint64_t experts_picked = 0;     // distinct ones, over all banks and passes
  uint64_t expert_bytes = 0;       // what reading each of those once takes
  double wait_seconds = 0;         // of the passes' thread, for others at the ends of steps
  // Of split banks: what the host computed of the above, and how often a pass handed work over.
  uint64_t host_experts = 0;
  uint64_t host_bytes = 0;
  uint64_t hand_offs = 0;
  double host_seconds = 0;  // the host computing, from a hand-off's ring to its answer
};

using ExpertMove = memory::ExpertMove;

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

// What the seats of all devices share. One thread runs passes; it never samples and never
// schedules.
class Seat : public PassRunner, public ExpertMover {
 public:
  ~Seat() override;

  const SeatLimits& limits() const override { return limits_; }
  // Append planes can be cut anywhere, fixed ones where a lane says, rings as far as they reach.
  int32_t Keepable(int32_t slot, int32_t length) const override;
  uint64_t StateRowBytes() const override;
  uint64_t CheckpointBytes() const override;
  std::string StateFormat() const override;

  // Rows the slot holds.
  virtual int32_t Length(int32_t slot) const = 0;
  // A value named in SeatOptions::observe, of the last pass; valid until the next.
  virtual Observation Observe(std::string_view name) const = 0;
  virtual SeatCounters counters() const = 0;
  // Measures how fast what runs the passes only reads its memory, in bytes a second: call it
  // between passes, as often as wanted. Holds memory of its own while it lives.
  virtual std::function<double()> MemoryReadMeter() = 0;
  // Memory by tier and class, and what each expert has had. Any thread, also beside a pass.
  virtual Residency ReadResidency() const = 0;
  // Moving experts of split banks (SeatOptions::card_frames), all of it between passes, on the
  // passes' thread. The most frames that a bank has on its card; -1: banks are not split and
  // nothing moves.
  int32_t CardFrames() const override { return -1; }
  // By expert of a bank: its frame on the card, or -1 where it is the host's. Valid until the next
  // BeginMove or LandMoves; empty where banks are not split.
  std::span<const int32_t> FramesOf(size_t /*bank*/) const override { return {}; }
  // From now on `out` is the host's, and the bytes of `in` are on their way into its frame: they
  // come beside the passes to follow. Throws Error(kInternal) for what cannot move (not split, `in`
  // has a frame, `out` has none, no free frame, limits::kExpertMovesMax under way), Error(kDevice).
  void BeginMove(const ExpertMove& move) override;
  // Gives experts whose bytes have arrived to the card, in the order they were begun (`wait`: all,
  // within a deadline). How many; throws Error(kDevice) where a copy failed: those experts stay on
  // the host, their frames are free, and passes go on.
  int32_t LandMoves(bool /*wait*/) override { return 0; }
  // What residency has done since loading, as of the last pass. Any thread.
  ResidencyStatus ReadResidencyStatus() const { return driver_->Status(); }
  // As ResidencyDriver's; any thread.
  void RequestResidencyReset() { driver_->RequestReset(); }
  // The plan that loading followed, every term named.
  const memory::Placement& placement() const { return placement_; }
  std::string PlanLine() const { return placement_.Line(); }
  // The part of it that concerns the host's memory.
  const memory::MemoryPlan& HostPlan() const { return placement_.host; }
  // How the weights were loaded, for the log.
  virtual std::string LoadLine() const = 0;
  // The cards that passes run on, as they were when they were opened, and who else holds their
  // memory now; asks the driver's management library. Any thread.
  virtual std::vector<VideoCard> Cards() const { return {}; }
  // What runs the kernels: an instruction set, or a card's name.
  virtual std::string_view kernels() const = 0;
  // Of the host, that passes run on.
  virtual int32_t threads() const = 0;

  // Bytes of the weights that every pass reads whatever its rows: all but routed experts and
  // tables, the head counted though a pass without logits leaves it out.
  uint64_t DenseBytes() const;
  // Steps are timed and told to `observer` from the next pass on; null (as at first): to nobody. It
  // must outlive the passes.
  void SetObserver(StepObserver* observer) { observer_ = observer; }
  // Operators of the programs whose kernels do not keep every promise of bits: "op/1 (band)".
  const std::set<std::string>& inexact_operators() const { return inexact_; }

 protected:
  // What a seat calls around its passes. It makes it with StartResidency once it can say where its
  // experts lie and before its programs are bound, which put picks into the ledger.
  ResidencyDriver& driver() { return *driver_; }
  void StartResidency(const SeatOptions& options);
  // Every bank, lying in `tier`; with the rows of its experts where they are counted.
  std::vector<BankPicks> Banks(const std::string& tier, const PickCounts* picks) const;
  // Throws Error(kUsage) for options out of range.
  Seat(const SeatSource& source, const SeatOptions& options);

  // Slots, rows and banks of what the planner is asked for: what a seat's device does not change.
  memory::SeatSizes SizesToPlan() const;

  // An entry's graph for `rows` rows and the logits of `logit_rows` of them on a device. Throws
  // what the plugin and the builder refuse.
  using BuildEntry = std::function<void(const bl_builder&, const bl_build&)>;
  graph::Graph BuildGraph(const BuildEntry& entry, int32_t rows, int32_t logit_rows,
                          bl_device_kind device) const;
  void CheckRows(std::span<const PassRow> rows) const;
  // Of the slots' ring planes.
  virtual const memory::Rings& rings() const = 0;
  // Before a pass of checked rows: throws for a slot whose rings do not hold what its next row
  // reads; notes what the pass takes of them.
  void PrepareRings(std::span<const PassRow> rows, memory::Rings* rings) const;
  // The rows of a step of drafts as rows of a pass, into `out`.
  void DraftRows(std::span<const DraftRow> rows, std::vector<PassRow>* out) const;
  // Throws for a pair of slots that CopySlot cannot take.
  void CheckCopy(int32_t from, int32_t to, int32_t length) const;
  // Throws for rows that ReadRows cannot read.
  void CheckRead(int32_t slot, int32_t first, int32_t rows, size_t bytes) const;
  // Throws for a chunk that AppendRows cannot take.
  void CheckAppend(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) const;
  // Throws for what RestoreCheckpoint cannot take.
  void CheckRestore(int32_t slot, int32_t length, size_t bytes) const;
  // The lane of the slot's present length, kNone where no plane is fixed; throws where the slot's
  // state is not there, or does not have so many bytes.
  int32_t CheckpointLane(int32_t slot, size_t bytes) const;
  // Throws for a slot or length that Cut cannot take.
  void CheckCut(int32_t slot, int32_t length) const;
  // Ends a pass whose step failed at `row` (-1: unknown).
  [[noreturn]] void FailPass(std::string_view op, int32_t layer, bl_status status, int64_t row,
                             std::span<const PassRow> rows) const;

  SeatLimits limits_;
  std::optional<memory::Lanes> lanes_;  // where there are fixed planes
  memory::Placement placement_;         // once planned
  const plugin::Description& description_;
  graph::SeatInfo info_;
  SeatOperators operators_;
  std::set<std::string> inexact_;
  StepObserver* observer_ = nullptr;

 private:
  std::unique_ptr<ResidencyDriver> driver_;
};

// `value`, which must lie in 1 … most: Error(kUsage) naming it otherwise.
int32_t CheckedOption(int32_t value, int32_t most, const char* what);
// The description's planes as stores want them.
std::vector<memory::PlaneSpec> PlanesOf(const plugin::Description& description);
// The tensors that a description's weights read, ascending.
std::vector<size_t> TensorsOf(const plugin::Description& description);
// A term of a plan for each class of `planes`; `bytes` gives those of one.
std::vector<memory::PlanTerm> PlaneTerms(
    std::span<const memory::PlaneSpec> planes,
    const std::function<uint64_t(const memory::PlaneSpec&)>& bytes);

// What the host's part of a plan is held against; asks for what is available where no budget is.
memory::HostRoom HostRoomOf(const SeatOptions& options);

// What sizes that are chosen to fit leave of the card with that index.
uint64_t MarginOf(const SeatOptions& options, uint32_t card);

// A seat of a plugin's instance, which must outlive it (as must the model while it loads).
std::unique_ptr<Seat> LoadSeat(const model::ModelFile& model, plugin::Instance& instance,
                               const SeatOptions& options);

// The row counts programs are built for: 1 to 8, then powers of two from 16, the last `rows_max`.
std::vector<int32_t> RowBuckets(int32_t rows_max);

}  // namespace bloomery::exec
