// Between a seat's passes and its residency: hands the picks of kept rows to the policy and to the
// routing trace, carries out the moves that the policy asks for, and publishes what happened for
// readers of other threads. A seat owns one and calls it around each pass; passes allocate nothing
// for it. Times are measured for showing only: no move depends on a clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/pass.h"
#include "runtime/exec/pick_ledger.h"
#include "runtime/memory/residency/policy.h"
#include "runtime/memory/residency/trace.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// Who can move experts between host and card; all calls between passes, on the passes' thread.
class ExpertMover {
 public:
  virtual ~ExpertMover() = default;
  // As Seat's methods of the same names.
  virtual int32_t CardFrames() const { return -1; }
  virtual std::span<const int32_t> FramesOf(size_t bank) const = 0;
  virtual void BeginMove(const memory::ExpertMove& move) = 0;
  virtual int32_t LandMoves(bool wait) = 0;
  // Moves that the pass made by itself since the last call, of experts whose bytes had come for it;
  // only where the driver allows it (seats_in_passes). Throws Error(kDevice).
  virtual std::vector<memory::ExpertMove> TakeSeated() { return {}; }
  // What an expert costs on this machine.
  virtual memory::ResidencyRates MeasureRates() { return {}; }
};

using memory::ResidencyKind;
// "on" is payback.
inline constexpr std::string_view kResidencyChoices = "on|off|payback|lru|lfu";
// Of one of kResidencyChoices.
inline ResidencyKind ResidencyKindOf(std::string_view name) {
  return memory::ResidencyKindOf(name).value_or(ResidencyKind::kOff);
}

// What the user asks of residency.
struct ResidencyRequest {
  // Nothing moves where the seat's banks are not split. What is off, others may move.
  memory::ResidencyKind kind = memory::ResidencyKind::kOff;
  std::optional<memory::ResidencyRates> rates = {};  // none: as the mover measures them
  int32_t moves_max = 0;   // at one boundary; 0: what the link carries beside a pass
  std::string trace = {};  // a file for what rows pick; "": none
};

// Seconds of the passes' thread, by what it was about.
struct PassTimes {
  uint64_t passes = 0;
  uint64_t rows = 0;
  double seconds = 0;       // of passes, sum of the causes but the link
  double link_seconds = 0;  // between passes, with copies of experts
  // Of `seconds`; the rest is a card's.
  double host_seconds = 0;  // the host computing
  double sync_seconds = 0;  // the passes' thread waiting for the host's other threads

  double card_seconds() const { return std::max(0.0, seconds - host_seconds - sync_seconds); }
};

// What residency has done; one that cannot move anything has no policy.
struct ResidencyStatus {
  std::optional<memory::ResidencyKind> policy;
  int32_t moves_max = 0;
  memory::ResidencyRates rates = {};
  memory::ResidencyCounters counters = {};
  std::string stopped;  // why nothing moves any more; "": it does
  PassTimes times = {};
  std::string trace;  // the file's name; "": none
  uint64_t trace_passes = 0;
  bool trace_full = false;  // or it could not be written
};

class ResidencyDriver {
 public:
  // `mover` outlives it. Throws what PickLedger and TraceWriter refuse.
  ResidencyDriver(std::span<const plugin::Bank> banks, int32_t rows_max, ExpertMover& mover,
                  const ResidencyRequest& request);
  // Settles the last pass and finishes the trace; what fails is logged.
  ~ResidencyDriver();
  ResidencyDriver(const ResidencyDriver&) = delete;
  ResidencyDriver& operator=(const ResidencyDriver&) = delete;

  // Whether a pass may give experts that come for it the frames of others: the policy is ours, and
  // still moves something.
  bool seats_in_passes() const {
    return policy_ && policy_->options().kind == ResidencyKind::kPayback && own_.stopped.empty();
  }
  // Null where nobody wants to know what rows pick.
  PickLedger* ledger() { return ledger_ ? &*ledger_ : nullptr; }

  // The passes' thread. Starts throws nothing of a copy that failed: residency stops, passes go on.
  void PassStarts(std::span<const PassRow> rows);
  // `host_seconds` and `sync_seconds` since loading; negative: what the rest of it is.
  void PassRan(std::span<const PassRow> rows, double host_seconds = 0, double sync_seconds = 0);
  void RowsCut(int32_t slot, int32_t length);

  // Any thread. Counts are those of the pass before the last one.
  ResidencyStatus Status() const;
  // Before the next pass counts are forgotten and the seed placement is made again. Throws
  // Error(kUnsupported) where nothing can move.
  void RequestReset();

 private:
  void Settle();
  void Trace(const memory::PassPicks& picks);
  bool Seated(size_t bank, int32_t expert) const;
  void Land();
  void Begin(std::span<const memory::ExpertMove> moves);
  void Reset();
  void Stop(const std::string& why);
  void Publish();

  ExpertMover& mover_;
  std::optional<PickLedger> ledger_;
  std::optional<memory::ResidencyPolicy> policy_;
  std::unique_ptr<memory::TraceWriter> trace_;
  std::vector<memory::ExpertMove> begun_;
  std::chrono::steady_clock::time_point started_;
  ResidencyStatus own_;  // the passes' thread's
  std::atomic<bool> reset_asked_{false};

  mutable std::mutex mutex_;
  ResidencyStatus published_;
};

}  // namespace bloomery::exec
