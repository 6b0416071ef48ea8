// The drafts of the slots that generate: guesses of their next tokens, by looking up what followed
// before or by the model's own draft head, for the next pass to verify. Decides how many; knows
// nothing of how they are verified (engine/loop.h draws from row after row and cuts the rest), so
// no answer depends on it. The engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/draft_width.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/lookup.h"
#include "runtime/engine/slot.h"
#include "runtime/exec/pass.h"

namespace bloomery::engine {

class Drafts {
 public:
  // Throws Error(kUsage) for options out of range, and Error(kUnsupported) where the runner cannot
  // verify drafts, or has none of its own.
  Drafts(exec::PassRunner& runner, const DraftOptions& options, const Clock& clock);

  // Makes the drafts of the next pass: at most `rows_max` tokens over all generating slots. One
  // that fails costs speed, never a request.
  void Make(std::span<Slot> slots, int32_t rows_max);
  // What was made for the slot, to be verified; until the next Make.
  std::span<const text::TokenId> Of(int32_t slot) const;

  // The slot drew its `count`-th token (1 is the first) since Make.
  void Drew(int32_t slot, int32_t count, text::TokenId token);
  // A slot's draft was verified to its end.
  void Count(int32_t verified, int32_t accepted);
  // The pass had no rows of prompts.
  void PassTook(int32_t rows, Clock::Duration time);

  const DraftCounters& counters() const { return counters_; }

 private:
  struct Own {
    int64_t id_task = -1;
    Lookup lookup;
    std::vector<text::TokenId> guess;  // may be longer than what is verified
    int32_t verify = 0;                // tokens of it
    int32_t trust = 0;
  };

  // Tokens that a draft of the slot may have: no row beyond what can still be drawn.
  int32_t Room(const Slot& slot) const;
  void LookUp(Slot& slot);
  void Offer(const Slot& slot, int32_t count);
  void Choose(std::span<Slot> slots, int32_t decoding, int32_t rows_max);
  void RunSteps(std::span<Slot> slots);
  bool Step(std::span<Slot> slots, int32_t depth);
  Own& OwnOf(const Slot& slot) { return own_[static_cast<size_t>(slot.id())]; }

  exec::PassRunner& runner_;
  const DraftOptions options_;
  const Clock& clock_;
  const int32_t context_;
  std::vector<Own> own_;  // by slot
  DraftWidth width_;
  std::vector<DraftCandidate> candidates_;
  std::vector<exec::DraftRow> rows_;
  DraftCounters counters_;
};

}  // namespace bloomery::engine
