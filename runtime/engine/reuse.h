// What slots take over from earlier requests: the longest prefix of a prompt that anything holds —
// the slot itself, another slot, the prompt cache in memory or its folder — and what becomes of a
// state that makes room. Owns the prompt cache, its folder and the I/O worker. The engine's thread
// only; it neither runs passes nor knows the queue. A failure here costs reuse, never a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/checkpoint_files.h"
#include "runtime/engine/checkpoints.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/slot.h"
#include "runtime/exec/pass.h"
#include "runtime/state/disk_tier.h"
#include "runtime/state/io_worker.h"
#include "runtime/state/prompt_cache.h"

namespace bloomery::engine {

// Where the front of a prompt came from, in tokens.
struct Reused {
  int32_t own = 0;
  int32_t other = 0;  // from another slot
  int32_t memory = 0;
  int32_t disk = 0;
  std::string why;  // it is not more
  int32_t total() const { return own + other + memory + disk; }
};

class Reuse {
 public:
  // Throws what DiskTier throws. `wake` is called on the worker's thread when RunCompletions has
  // something to do.
  Reuse(exec::PassRunner& runner, std::vector<Slot>& slots, const CacheOptions& options,
        std::function<void()> wake);

  // Whether the request should wait: parts of its prompt, or of another's, are being read from the
  // folder. `asked` is the request's own, false at first.
  bool Reading(const GenerateRequest& request, bool* asked);
  bool reading() const {
    return (cache_ != nullptr && cache_->loading()) || (files_ != nullptr && files_->loading());
  }

  // Makes the idle slot hold the longest prefix of the prompt that there is, without the last token
  // (its logits are wanted). What the slot loses is saved before.
  Reused Prepare(Slot& slot, const GenerateRequest& request);
  // Saves what the slot holds, where it holds more than its first `keep` tokens.
  void Save(const Slot& slot, int32_t keep);

  // Rows of the slot's prompt that its next pass may have, so that it ends where a checkpoint is
  // due.
  int32_t PromptRows(const Slot& slot) const;
  // A pass took the slot's prompt further.
  void PromptAdvanced(const Slot& slot);

  // Empties the idle slot; its state is saved before.
  void Empty(Slot& slot);
  // Empties the idle slot and forgets its state in every tier that no other state shares it with.
  void Erase(Slot& slot);
  // The rows of the slot, for a file. Throws Error, std::bad_alloc.
  state::SlotState Snapshot(const Slot& slot) const;
  // Makes the empty slot hold this state. Throws Error; the slot is then empty.
  void Fill(Slot& slot, std::span<const text::TokenId> tokens, const state::SlotState& state);

  // For the folder at the end: saves every slot and writes, at most for `time`.
  void Close(std::chrono::milliseconds time);

  const state::Identity& identity() const { return identity_; }
  uint64_t row_bytes() const { return row_bytes_; }
  state::IoWorker& worker() { return *worker_; }
  const state::IoWorker& worker() const { return *worker_; }
  // Adds the cache's numbers to `metrics`.
  void Count(Metrics& metrics) const;

 private:
  // The other slot that holds most of `wanted`, and how much.
  const Slot* Other(const Slot& slot, std::span<const text::TokenId> wanted, int32_t* rows) const;
  // Rows that could be taken up without the folder, and with it.
  struct Reach {
    int32_t held = 0;
    int32_t with_folder = 0;
  };
  Reach ReachOf(const state::PromptCache::Match& match, std::span<const text::TokenId> wanted);
  // The front of the prompt that one source can give a slot: its rows, and where the model has
  // checkpoints the one behind them.
  struct Front {
    int32_t rows = 0;
    CheckpointPtr checkpoint;  // null: the runner itself can stand there
  };
  Front OwnFront(const Slot& slot, std::span<const text::TokenId> common);
  Front CachedFront(const state::PromptCache::Match& match, std::span<const text::TokenId> wanted);
  // Behind the rows that the slot keeps of its own, up to those of `front`.
  void TakeFromCache(Slot& slot, const state::PromptCache::Match& match,
                     std::span<const text::TokenId> front, Reused& reused);
  // The slot, which holds at least the rows of `front`, holds just those and can go on from there.
  void StandAt(Slot& slot, const Front& front);
  void CutTo(Slot& slot, int32_t length);
  // Into the empty slot; returns how many came.
  int32_t CopyRows(const Slot& from, Slot& to, int32_t rows);
  std::string WhyNotMore(const GenerateRequest& request, const Reused& reused,
                         int32_t common) const;

  exec::PassRunner& runner_;
  std::vector<Slot>& slots_;
  const uint64_t row_bytes_;
  Checkpoints checkpoints_;
  state::Identity identity_;
  std::unique_ptr<state::DiskTier> disk_;
  std::unique_ptr<state::IoWorker> worker_;
  std::unique_ptr<state::PromptCache> cache_;  // null: off
  std::unique_ptr<CheckpointFiles> files_;     // null: none are kept, or there is no folder
  ReuseCounters counters_;
};

}  // namespace bloomery::engine
