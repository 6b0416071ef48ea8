// Residency without a model: a routing trace played to a policy, or to Belady's choice, which knows
// what comes. Pure and deterministic: the same trace and settings give the same numbers everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/memory/residency/policy.h"
#include "runtime/memory/residency/trace.h"

namespace bloomery::memory {

// What a pass costs beside its experts.
struct StepRates {
  double layer_us = 40;     // of a layer, on the card: attention, norms, router
  double hand_off_us = 10;  // of a layer with a pick of the host
  double head_us = 100;     // of a pass
};

struct SimulationOptions {
  uint32_t frames = 0;  // of a bank; more than it has experts: all of them
  ResidencyRates rates = {};
  StepRates step = {};
  int32_t moves_max = 0;  // at one boundary; 0: as a seat would have it, MovesBeside(ExpertsUs)
  // Experts that a prompt's pass picked stay as PromptSharing has it, with a policy that keeps
  // them: as a seat whose prompts bring all of them over the link.
  bool stay = false;
};

// Reads are distinct experts of a bank and pass: what host and card compute with one read of their
// weights. Decode passes are those of fewer than ResidencyOptions::kManyRows rows.
struct SimulationCounts {
  uint64_t passes = 0;
  uint64_t rows = 0;
  uint64_t reads = 0;
  uint64_t hits = 0;  // of reads, what was on the card

  double HitRate() const {
    return reads == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(reads);
  }
};

struct SimulationResult {
  std::string name;
  SimulationCounts decode = {};
  SimulationCounts prompt = {};
  uint64_t moves = 0;
  uint64_t stayed = 0;   // of these, what a prompt's pass had brought
  double decode_us = 0;  // of all decode passes, with the moves that began before them

  double DecodeRate() const {  // rows a second
    return decode_us > 0 ? static_cast<double>(decode.rows) * 1e6 / decode_us : 0;
  }
  // What another trace made of the same policy.
  void Add(const SimulationResult& more);
};

// A trace in memory, played as often as wanted.
class RoutingTrace {
 public:
  // Reads all of it; throws as the reader does, and Error(kBadModel) for one without passes.
  explicit RoutingTrace(TraceReader& reader);

  // The trace cut at its prompts, each with the decode passes behind it, at most `decode_max` of
  // them: texts to be played one by one, from the seed on. What stands before the first prompt is
  // left out. Passes of a prompt that follow each other are one.
  std::vector<RoutingTrace> Texts(uint64_t decode_max) const;

  const std::vector<TraceBank>& banks() const { return banks_; }
  std::span<const TracePass> passes() const { return passes_; }
  std::vector<BankFrames> Frames(uint32_t frames) const;
  // Distinct experts of a bank in a pass, ascending, into `out`.
  void Distinct(size_t pass, size_t bank, std::vector<uint16_t>* out) const;

 private:
  explicit RoutingTrace(std::vector<TraceBank> banks) : banks_(std::move(banks)) {}

  std::vector<TraceBank> banks_;
  std::vector<TracePass> passes_;
};

// What routing a trace has, of decode passes: what policies can live on.
struct TraceStatistics {
  uint64_t passes = 0;
  uint64_t rows = 0;
  // Share of a bank's picks that its busiest eighth of experts has; an eighth where all are alike.
  double busiest_eighth = 0;
  // Share of a row's picks that the slot's row before picked too; used / experts where rows know
  // nothing of each other.
  double repeated = 0;
};

TraceStatistics StatisticsOf(const RoutingTrace& trace);

// As a seat does it: moves begin before a pass and land before the next.
SimulationResult Simulate(RoutingTrace& trace, ResidencyKind kind,
                          const SimulationOptions& options);

// The most hits that any policy can have which loads experts only after they were missed: after
// each pass a bank keeps those of its seated and just read experts that are needed soonest. It may
// leave out what it read (bypass: the host computes it), moves at once, without a budget, and its
// moves cost no time: a bound.
SimulationResult SimulateBelady(const RoutingTrace& trace, const SimulationOptions& options);

}  // namespace bloomery::memory
