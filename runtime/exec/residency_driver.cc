#include "runtime/exec/residency_driver.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace bloomery::exec {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

std::vector<memory::TraceBank> TraceBanks(std::span<const plugin::Bank> banks) {
  std::vector<memory::TraceBank> out;
  for (const plugin::Bank& bank : banks) {
    out.push_back({.layer = bank.layer, .experts = bank.experts, .used = bank.used});
  }
  return out;
}

// The frames that the mover has now, which must be the policy's seed.
std::vector<memory::BankFrames> SeedOf(std::span<const plugin::Bank> banks,
                                       const ExpertMover& mover) {
  std::vector<memory::BankFrames> out;
  for (size_t i = 0; i < banks.size(); ++i) {
    const std::span<const int32_t> frames = mover.FramesOf(i);
    const auto seated = std::ranges::count_if(frames, [](int32_t frame) { return frame >= 0; });
    for (size_t expert = 0; expert < frames.size(); ++expert) {
      if ((frames[expert] >= 0) == (expert < static_cast<size_t>(seated))) continue;
      throw Error(ErrorKind::kInternal, "bank " + std::to_string(i) + ": the seat starts with " +
                                            "other experts on the card than the first");
    }
    out.push_back({.experts = banks[i].experts,
                   .used = banks[i].used,
                   .frames = static_cast<uint32_t>(seated)});
  }
  return out;
}

}  // namespace

ResidencyDriver::ResidencyDriver(std::span<const plugin::Bank> banks, int32_t rows_max,
                                 ExpertMover& mover, const ResidencyRequest& request)
    : mover_(mover) {
  if (mover.CardFrames() >= 0) {
    const std::vector<memory::BankFrames> seed = SeedOf(banks, mover);
    const bool measure = !request.rates && request.kind != memory::ResidencyKind::kOff;
    const memory::ResidencyRates rates =
        measure ? mover.MeasureRates() : request.rates.value_or(memory::ResidencyRates{});
    const int32_t moves = request.moves_max > 0
                              ? request.moves_max
                              : memory::MovesBeside(memory::ExpertsUs(seed, rates), rates);
    policy_.emplace(
        seed, memory::ResidencyOptions{.kind = request.kind, .rates = rates, .moves_max = moves});
    begun_.reserve(memory::ResidencyOptions::kMovesMax);
    own_.policy = request.kind;
    own_.moves_max = moves;
    own_.rates = rates;
  }
  if (!request.trace.empty()) {
    trace_ = std::make_unique<memory::TraceWriter>(request.trace, TraceBanks(banks), rows_max,
                                                   limits::kRoutingTraceBytesMax);
    own_.trace = request.trace;
  }
  if (policy_ || trace_) ledger_.emplace(banks, rows_max);
  Publish();
}

ResidencyDriver::~ResidencyDriver() {
  try {
    Settle();
    if (trace_) trace_->Finish();
  } catch (const std::exception& error) {
    LOG(ERROR) << "the routing trace is lost: " << error.what();
  }
}

void ResidencyDriver::PassStarts(std::span<const PassRow> rows) {
  if (ledger_) Settle();
  if (policy_) {
    const auto start = steady_clock::now();
    for (const memory::ExpertMove& move : mover_.TakeSeated()) policy_->Moved(move);
    Land();
    if (reset_asked_.exchange(false)) Reset();
    Begin(policy_->Plan(static_cast<int32_t>(rows.size())));
    own_.times.link_seconds += duration<double>(steady_clock::now() - start).count();
  }
  started_ = steady_clock::now();
}

void ResidencyDriver::PassRan(std::span<const PassRow> rows, double host_seconds,
                              double sync_seconds) {
  own_.times.seconds += duration<double>(steady_clock::now() - started_).count();
  ++own_.times.passes;
  own_.times.rows += rows.size();
  own_.times.sync_seconds = sync_seconds;
  own_.times.host_seconds = host_seconds < 0 ? own_.times.seconds - sync_seconds : host_seconds;
  if (ledger_) ledger_->Ran(rows);
  Publish();
}

void ResidencyDriver::RowsCut(int32_t slot, int32_t length) {
  if (ledger_) ledger_->Cut(slot, length);
}

ResidencyStatus ResidencyDriver::Status() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

void ResidencyDriver::RequestReset() {
  if (!policy_) {
    throw Error(ErrorKind::kUnsupported,
                "there is no residency to reset: the whole model lies in one place");
  }
  reset_asked_.store(true);
}

void ResidencyDriver::Settle() {
  if (!ledger_ || !ledger_->holds()) return;
  const memory::PassPicks picks = ledger_->Picks();
  if (policy_) policy_->Count(picks);
  if (trace_) Trace(picks);
  ledger_->Clear();
}

void ResidencyDriver::Trace(const memory::PassPicks& picks) {
  if (own_.trace_full) return;
  try {
    own_.trace_full = !trace_->Append(ledger_->slots(), picks);
    own_.trace_passes = trace_->passes();
    if (own_.trace_full) LOG(WARNING) << "the routing trace is full; later passes are left out";
  } catch (const Error& error) {
    // The pass is good, only its record is not.
    own_.trace_full = true;
    trace_.reset();
    LOG(ERROR) << "the routing trace ends here: " << error.what();
  }
}

// Who landed and who did not shows in the mover's map.
void ResidencyDriver::Land() {
  if (begun_.empty()) return;
  std::string why = "its copy did not arrive";
  try {
    mover_.LandMoves(true);
  } catch (const Error& error) {
    why = error.what();
  }
  for (const memory::ExpertMove& move : begun_) {
    if (Seated(move.bank, move.in)) {
      policy_->Landed(move);
    } else {
      policy_->Failed(move);
      Stop("expert " + std::to_string(move.in) + " of bank " + std::to_string(move.bank) + ": " +
           why);
    }
  }
  begun_.clear();
}

void ResidencyDriver::Begin(std::span<const memory::ExpertMove> moves) {
  for (size_t i = 0; i < moves.size(); ++i) {
    try {
      mover_.BeginMove(moves[i]);
      begun_.push_back(moves[i]);
    } catch (const Error& error) {
      const bool out_stays =
          moves[i].out != memory::kNoExpert && Seated(moves[i].bank, moves[i].out);
      policy_->Failed(moves[i], out_stays);
      Stop("expert " + std::to_string(moves[i].in) + " of bank " + std::to_string(moves[i].bank) +
           ": " + error.what());
    }
  }
}

bool ResidencyDriver::Seated(size_t bank, int32_t expert) const {
  return mover_.FramesOf(bank)[static_cast<size_t>(expert)] >= 0;
}

// All of it before the next pass, as many copies at a time as may be under way.
void ResidencyDriver::Reset() {
  const std::span<const memory::ExpertMove> moves = policy_->Reset();
  own_.stopped.clear();
  constexpr size_t kAtOnce = memory::ResidencyOptions::kMovesMax;
  for (size_t at = 0; at < moves.size(); at += kAtOnce) {
    Begin(moves.subspan(at, std::min(kAtOnce, moves.size() - at)));
    Land();
  }
}

void ResidencyDriver::Stop(const std::string& why) {
  if (!own_.stopped.empty()) return;
  own_.stopped = why;
  LOG(ERROR) << "experts stay where they are from now on: " << why;
}

void ResidencyDriver::Publish() {
  if (policy_) own_.counters = policy_->counters();
  const std::lock_guard lock(mutex_);
  published_ = own_;
}

}  // namespace bloomery::exec
