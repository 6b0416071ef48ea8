// A slot's lifetime as a typed state machine, and the tokens its planes hold. Asserts every
// transition, so a slot can neither be taken twice nor stay behind its request. Engine's thread
// only; calls no runner and sends no event (engine/loop.h does).
//
//            StartPrompt            StartGenerating
//   idle ───────────────▶ prompt ───────────────────▶ generating ──┐
//    ▲  └──AwaitPrompt──▶ awaiting ──StartGenerating──────▲        │ Release, from any state
//    └─────────────────────────────────────────────────────────────┘
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/choice.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/generation.h"
#include "runtime/engine/timings.h"

namespace bloomery::engine {

enum class SlotState {
  kIdle,
  kPrompt,      // evaluates its prompt
  kAwaiting,    // a further choice: waits for its sibling's prompt
  kGenerating,  // one row a pass
};

class Slot {
 public:
  Slot(int32_t id, int32_t context);

  int32_t id() const { return id_; }
  SlotState state() const { return state_; }
  bool idle() const { return state_ == SlotState::kIdle; }
  // What the planes hold, also while idle.
  std::span<const text::TokenId> tokens() const { return tokens_; }
  int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
  uint64_t last_used() const { return last_used_; }  // 0: never

  // While not idle.
  std::shared_ptr<Generation> generation() const { return generation_; }
  bool Serves(const Generation& generation) const { return generation_.get() == &generation; }
  const GenerateRequest& request() const { return *generation_->request(); }
  Choice& choice() { return *choice_; }
  const Choice& choice() const { return *choice_; }
  int32_t prompt_left() const;  // prompt tokens not evaluated yet
  PromptStats prompt_stats(Clock::TimePoint now) const;
  Clock::TimePoint started_at() const { return started_at_; }

  // `kept` leading tokens of the prompt are held already: the planes were cut to them.
  void StartPrompt(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
                   int32_t kept, Clock::TimePoint now);
  // A further choice. What the planes hold stays until StartGenerating.
  void AwaitPrompt(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
                   Clock::TimePoint now);
  // `rows` further prompt tokens were evaluated. Returns whether a batch of `batch_rows` since the
  // last return of true, or the prompt, is complete.
  bool AdvancePrompt(int32_t rows, int32_t batch_rows);
  // The planes hold the whole prompt; of an awaiting slot, by a copy.
  void StartGenerating(Clock::TimePoint now);
  // The choice's last token was evaluated.
  void AddGenerated();
  // The planes were cut to `length`.
  void CutTo(int32_t length);
  // While idle: the planes hold these tokens behind what they held.
  void Append(std::span<const text::TokenId> tokens);
  // Back to idle; the tokens stay. `use` orders releases.
  void Release(uint64_t use);

  // Writes this slot's row of /slots; allocates nothing.
  void Describe(SlotInfo& info) const;

 private:
  void Take(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
            Clock::TimePoint now);

  const int32_t id_;
  const int32_t context_;
  SlotState state_ = SlotState::kIdle;
  std::vector<text::TokenId> tokens_;  // reserved to the context
  uint64_t last_used_ = 0;

  std::shared_ptr<Generation> generation_;
  std::unique_ptr<Choice> choice_;
  Clock::TimePoint started_at_;
  int32_t reported_ = 0;  // prompt length at the last report of progress

  // Of the present task or, while idle, of the last.
  int64_t id_task_ = -1;
  std::shared_ptr<const GenerateRequest> last_request_;
  PromptStats prompt_;
  bool has_new_line_ = false;
};

// Length of the longest common prefix.
int32_t CommonPrefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b);

}  // namespace bloomery::engine
