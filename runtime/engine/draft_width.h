// How many rows of drafts a pass should verify: as many as bring the most tokens a second, by what
// passes of late took and how often drafts of late were right. Costs are measured, never modelled:
// they move with depth, row counts and who else uses the machine. One thread; allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/limits.h"

namespace bloomery::engine {

// A row that a pass may have: `p`, that what it verifies is reached and right.
struct DraftCandidate {
  int32_t slot = 0;
  int32_t depth = 0;  // place in the slot's draft
  double p = 0;
};

class DraftWidth {
 public:
  // Drafts of different trust are counted apart: by the length of a lookup's match.
  static constexpr int32_t kClasses = 4;
  static constexpr int32_t kDepths = limits::kWindowRowsMax - 1;

  DraftWidth();

  // That a token is right where all before it were.
  double Acceptance(int32_t trust, int32_t depth) const { return At(trust, depth); }
  void LearnToken(int32_t trust, int32_t depth, bool right);
  // A pass of so many rows, none of a prompt, took so long.
  void LearnPass(int32_t rows, double seconds);
  // One step of making drafts took so long.
  void LearnStep(double seconds);

  // How many of `candidates`, best first and each slot's in order, a pass of `rows` further rows
  // should verify. Now and then another number than the best, so that costs stay known.
  int32_t Choose(int32_t rows, std::span<const DraftCandidate> candidates);

 private:
  static constexpr int32_t kRowsMax = 64;  // larger passes are taken to cost what this one does
  static constexpr size_t kSamples = 5;    // of which the median counts
  class Cost {
   public:
    void Add(double seconds);
    bool known() const { return count_ >= kKnown; }
    double median() const { return median_; }

   private:
    static constexpr size_t kKnown = 3;
    std::array<double, kSamples> samples_ = {};
    size_t count_ = 0;
    double median_ = 0;
  };

  int32_t Best(int32_t rows, std::span<const DraftCandidate> candidates) const;
  double PassSeconds(int32_t rows) const;
  double& At(int32_t trust, int32_t depth) {
    return acceptance_[static_cast<size_t>(trust)][static_cast<size_t>(depth)];
  }
  double At(int32_t trust, int32_t depth) const {
    return acceptance_[static_cast<size_t>(trust)][static_cast<size_t>(depth)];
  }

  std::array<std::array<double, kDepths>, kClasses> acceptance_;
  std::array<Cost, kRowsMax + 1> passes_;  // by rows
  Cost step_;
  uint64_t turn_ = 0;
};

}  // namespace bloomery::engine
