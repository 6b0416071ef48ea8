// Checkpoints: copies of the state that rows overwrite, for models whose slots cannot be cut by
// position. One store for all slots and for the prompt cache's rows: a checkpoint belongs to the
// tokens before it, whichever slot they came from. Taken during a prompt at every kEvery-th
// position and kBack positions before its end (where the next turn of a conversation still agrees
// with it), and of a state that leaves its slot. Below the newest of a conversation they thin out:
// one between kEvery·2^i and kEvery·2^(i+1) positions back. The least recently used go when room is
// needed. The engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "runtime/exec/pass.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::engine {

struct Checkpoint {
  std::vector<text::TokenId> tokens;  // rows before it
  std::vector<std::byte> state;
  uint64_t bytes() const { return tokens.size() * sizeof(text::TokenId) + state.size(); }
  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
};
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

class Checkpoints {
 public:
  static constexpr int32_t kEvery = 512;
  static constexpr int32_t kBack = 16;

  // Holds at most `bytes_max` bytes of states and of the tokens before them; 0: none.
  Checkpoints(exec::PassRunner& runner, uint64_t bytes_max);

  // Whether the model has such a state.
  bool needed() const { return state_bytes_ > 0; }
  // Whether any checkpoint could be held.
  bool on() const { return needed() && bytes_max_ >= state_bytes_; }

  // Rows from `length` on that a pass over a prompt of `prompt` tokens may have, so that it ends
  // where a checkpoint is due; at least 1.
  int32_t RowsUntilDue(int32_t length, int32_t prompt) const;
  bool Due(int32_t length, int32_t prompt) const;

  // Copies the state of the slot, which holds `tokens`. Costs reuse where it fails, never a
  // request.
  void Take(int32_t slot, std::span<const text::TokenId> tokens);
  // The longest one whose tokens begin `tokens`, or null. It counts as used.
  CheckpointPtr Longest(std::span<const text::TokenId> tokens);
  // Its tokens; 0: there is none.
  int32_t LongestLength(std::span<const text::TokenId> tokens) const;
  // All whose tokens begin `tokens`, the shortest first.
  std::vector<CheckpointPtr> Of(std::span<const text::TokenId> tokens) const;
  // Holds one that was kept elsewhere, where there is room for it.
  void Put(CheckpointPtr checkpoint);
  // Forgets those that begin `tokens` and are longer than `shared`.
  void Forget(std::span<const text::TokenId> tokens, int32_t shared);

  uint64_t bytes() const { return bytes_; }
  size_t count() const { return held_.size(); }

 private:
  using Held = std::list<CheckpointPtr>;
  Held::const_iterator Find(std::span<const text::TokenId> tokens) const;
  // Whether one of exactly these tokens is held; it counts as used.
  bool Touch(std::span<const text::TokenId> tokens);
  bool MakeRoom(uint64_t bytes);
  void Thin(const Checkpoint& newest);
  void Drop(Held::const_iterator at);

  exec::PassRunner& runner_;
  const uint64_t state_bytes_;
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  Held held_;  // the most recently used first
};

}  // namespace bloomery::engine
