// Which experts get the frames of a card: counts of what kept rows picked, and the moves that pay.
// Pure and deterministic: the same picks give the same moves on every machine, ties go to the lower
// bank and then the lower expert, and no clock is read. It moves no bytes; who does so asks between
// passes, on the passes' thread:
//
//   ResidencyPolicy policy(banks, options);
//   for each pass:
//     seat.LandMoves(true);                                // bytes of the last boundary's moves
//     for (move : begun) policy.Landed(move);              // or Failed(move)
//     begun = policy.Plan(rows.size());                    // at most options.moves_max
//     for (move : begun) seat.BeginMove(move);             // `out` is the host's from here on
//     seat.Run(rows);
//     policy.Count({rows, kept, ids by bank});             // rejected rows leave no trace
//
// Every move flips at one fixed boundary, the one after it began: how fast the copy was changes
// nothing but time. See docs/residency.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/memory/residency/frame_map.h"

namespace bloomery::memory {

// kOff: the seed stays (static). kPayback: ours. kLru, kLfu: for comparison.
enum class ResidencyKind { kOff, kPayback, kLru, kLfu };

// "off", "on" (payback), "payback", "lru", "lfu"; nullopt for another word.
std::optional<ResidencyKind> ResidencyKindOf(std::string_view name);
std::string_view NameOf(ResidencyKind kind);

// What an expert costs, measured on this machine, of one row.
struct ResidencyRates {
  double host_us = 50;  // the host computing one, its part of a grouped dispatch
  double card_us = 4;   // the card computing one
  double copy_us = 60;  // its bytes over the link
  // The part of copy_us by which a copy beside a pass makes that pass longer: the host and the copy
  // engine read the same memory.
  double copy_weight = 0.6;
  double begin_us = 0;  // the passes' thread telling the driver of a move's copies

  double Saving() const { return host_us - card_us; }
  double MoveCost() const { return copy_us * copy_weight + begin_us; }
};

struct ResidencyOptions {
  ResidencyKind kind = ResidencyKind::kPayback;
  ResidencyRates rates = {};
  // Moves that begin at one boundary, before a pass of few rows and before one of
  // kManyRows or more: what the link carries beside it. 0: none ever.
  int32_t moves_max = 24;
  int32_t moves_max_many = kMovesMax;

  static constexpr int32_t kMovesMax = 64;  // under way: as many as whoever copies has room for
  static constexpr int32_t kManyRows = 16;
};

// Moves that the link can carry beside passes of `pass_us`, from 1 to kMovesMax: the measured
// budget of a pass.
int32_t MovesBeside(double pass_us, const ResidencyRates& rates);
// What the experts of a pass of one row take, with picks that are spread evenly.
double ExpertsUs(std::span<const BankFrames> banks, const ResidencyRates& rates);

// What the rows of one pass picked.
struct PassPicks {
  int32_t rows = 0;
  // By row, whether it was kept; empty: all were.
  std::span<const uint8_t> kept = {};
  // By bank: `used` experts a row, row after row.
  std::span<const std::span<const uint16_t>> experts = {};

  bool Kept(int32_t row) const { return kept.empty() || kept[static_cast<size_t>(row)] != 0; }
};

struct BankResidency {
  uint64_t picks = 0;  // of kept rows
  uint64_t hits = 0;   // of these, what was on the card when the pass ran
  uint64_t moves = 0;  // landed
};

// Since it was made: a reset does not take them back.
struct ResidencyCounters {
  uint64_t rows = 0;  // kept ones
  uint64_t picks = 0;
  uint64_t hits = 0;
  uint64_t moves = 0;
  uint64_t moves_failed = 0;
  uint64_t resets = 0;
  bool stopped = false;  // a copy failed: nothing moves until a reset
  std::vector<BankResidency> banks;
};

class MoveChooser;

class ResidencyPolicy {
 public:
  // Experts 0 … frames-1 of each bank are the seed. Throws Error(kInternal) as FrameMap.
  ResidencyPolicy(std::span<const BankFrames> banks, const ResidencyOptions& options);
  ~ResidencyPolicy();
  ResidencyPolicy(ResidencyPolicy&&) noexcept;
  ResidencyPolicy& operator=(ResidencyPolicy&&) noexcept;

  const ResidencyOptions& options() const { return options_; }
  // As the next pass will find it: an expert under way is on neither the card nor in a frame.
  const FrameMap& map() const { return map_; }
  const ResidencyCounters& counters() const { return counters_; }

  // The picks of the pass that ran. Throws Error(kInternal) for picks of another shape than the
  // banks'. Allocates nothing.
  void Count(const PassPicks& picks);

  // The moves to begin now, before a pass of `rows` rows, each `out` unseated already; none while
  // moves are under way. Valid until the next call. Allocates nothing.
  std::span<const ExpertMove> Plan(int32_t rows);
  // A move that was made without being planned: `in` has the frame of `out`, both as of now.
  void Moved(const ExpertMove& move);
  // The bytes are there: the expert has its frame from the next pass on.
  void Landed(const ExpertMove& move);
  // The copy failed: the expert stays the host's, its frame is free (or, where the move did not
  // even begin, `out_stays` in it), and nothing moves any more until a reset (the reason is the
  // caller's to tell).
  void Failed(const ExpertMove& move, bool out_stays = false);
  size_t under_way() const { return under_way_.size(); }

  // Forgets all counts, and returns the moves that make the seed again: the caller carries them out
  // and tells of each as of any other. Call it with nothing under way. Valid until the next call.
  std::span<const ExpertMove> Reset();

 private:
  struct UnderWay {
    ExpertMove move;
    int32_t frame = 0;
  };
  void Begin(const ExpertMove& move);
  UnderWay Ended(const ExpertMove& move);
  void CountRow(const PassPicks& picks, int32_t row);

  ResidencyOptions options_;
  FrameMap map_;
  std::unique_ptr<MoveChooser> chooser_;  // null: kOff
  std::vector<ExpertMove> moves_;         // as Plan and Reset give them
  std::vector<UnderWay> under_way_;
  ResidencyCounters counters_;
};

}  // namespace bloomery::memory
