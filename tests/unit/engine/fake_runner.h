// A PassRunner without a model: the logits of a row are a pure function of the slot's tokens up to
// it, so every text can be predicted. It checks the contract of exec/pass.h on every call and
// throws std::logic_error (which ends the engine with its text) where the engine breaks it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/exec/pass.h"

namespace bloomery::engine {

using Tokens = std::vector<int32_t>;

inline uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15ull;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ull;
  return x ^ (x >> 32);
}

// Logits in [0, 8) that depend on every token of the history.
inline void FakeLogits(std::span<const int32_t> history, std::span<float> logits) {
  uint64_t state = 1;
  for (const int32_t token : history) state = Mix(state + static_cast<uint64_t>(token) + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(Mix(state + i) >> 40) / static_cast<float>(1u << 21);
  }
}

class FakeRunner final : public exec::PassRunner {
 public:
  explicit FakeRunner(exec::SeatLimits limits) : limits_(limits) {
    planes_.resize(static_cast<size_t>(limits.slots));
    standing_.resize(static_cast<size_t>(limits.slots));
  }

  // Set before the engine starts.
  std::function<void(std::span<const exec::PassRow>)> before_run;  // may throw, or wait
  std::function<std::optional<int32_t>(const Tokens&)> next;       // the token with the best logit
  std::function<void(const Tokens&, std::vector<float>&)> change_logits;
  std::function<int32_t(int32_t slot, int32_t length)> keepable;
  std::function<void()> before_copy;

  size_t best = 0;  // so many of a row's best logits are given; 0: none, as on a CPU

  // Read after the engine stopped, or inside the hooks.
  mutable int64_t whole_rows_read = 0;
  std::vector<std::vector<exec::PassRow>> passes;
  int64_t rows_run = 0;
  int32_t length(int32_t slot) const {
    return static_cast<int32_t>(planes_[static_cast<size_t>(slot)].size());
  }

  const exec::SeatLimits& limits() const override { return limits_; }

  void Run(std::span<const exec::PassRow> rows) override {
    CheckRows(rows);
    try {
      if (before_run) before_run(rows);
    } catch (...) {
      // A pass that fails has written some of its rows.
      for (const exec::PassRow& row : rows) PlaneOf(row.slot).push_back(row.token);
      throw;
    }
    passes.emplace_back(rows.begin(), rows.end());
    rows_run += static_cast<int64_t>(rows.size());
    logits_.clear();
    for (const exec::PassRow& row : rows) {
      Tokens& plane = planes_[static_cast<size_t>(row.slot)];
      plane.push_back(row.token);
      if (row.logits) logits_.push_back(LogitsOf(plane));
      // The state is there behind rows that may be cut back to, the last, and before the pass.
      std::vector<int32_t>& standing = standing_[static_cast<size_t>(row.slot)];
      const auto next_row = static_cast<size_t>(&row - rows.data()) + 1;
      const bool last = next_row == rows.size() || rows[next_row].slot != row.slot;
      const bool first = &row == rows.data() || (&row)[-1].slot != row.slot;
      if (first) std::erase_if(standing, [&](int32_t length) { return length != row.index; });
      if (last || row.keep) standing.push_back(row.index + 1);
    }
  }

  std::span<const float> Logits(int32_t i) const override {
    Require(i >= 0 && static_cast<size_t>(i) < logits_.size(), "a logits row nobody asked for");
    ++whole_rows_read;
    return logits_[static_cast<size_t>(i)];
  }

  std::span<const exec::BestLogit> BestLogits(int32_t i) const override {
    Require(i >= 0 && static_cast<size_t>(i) < logits_.size(), "a logits row nobody asked for");
    const std::vector<float>& row = logits_[static_cast<size_t>(i)];
    best_.clear();
    for (size_t token = 0; token < row.size(); ++token) {
      best_.push_back({static_cast<int32_t>(token), row[token]});
    }
    std::ranges::sort(best_, [](const exec::BestLogit& a, const exec::BestLogit& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
    });
    best_.resize(std::min(best, best_.size()));
    return best_;
  }

  // A draft head: what it guesses behind a history, and how sure it is by depth.
  std::function<int32_t(const Tokens&)> guess;
  std::function<float(int32_t depth)> sure;
  int64_t draft_steps = 0;

  std::span<const exec::Drafted> RunDraft(std::span<const exec::DraftRow> rows,
                                          bool probabilities) override {
    Require(limits_.drafts && !rows.empty(), "drafts of a runner that has none");
    ++draft_steps;
    drafted_.clear();
    for (const exec::DraftRow& row : rows) {
      Require(!with_state || StateThere(row.slot), "a draft without the state before it");
      Tokens& draft = drafts_[row.slot];
      if (row.depth == 0) draft.clear();
      Require(draft.size() == static_cast<size_t>(row.depth), "a draft that skips a step");
      draft.push_back(row.token);
      Tokens history = PlaneOf(row.slot);
      history.insert(history.end(), draft.begin(), draft.end());
      Require(history.size() < static_cast<size_t>(limits_.slot_context),
              "a draft beyond the slot");
      drafted_.push_back(
          {.token = guess(history), .probability = probabilities && sure ? sure(row.depth) : -1});
    }
    return drafted_;
  }

  void Cut(int32_t slot, int32_t length) override {
    Tokens& plane = PlaneOf(slot);
    Require(length >= 0 && static_cast<size_t>(length) <= plane.size(), "a cut beyond the slot");
    plane.resize(static_cast<size_t>(length));
    std::erase_if(standing_[static_cast<size_t>(slot)],
                  [&](int32_t standing) { return standing > length; });
  }

  int32_t Keepable(int32_t slot, int32_t length) const override {
    Require(slot >= 0 && slot < limits_.slots, "a slot that does not exist");
    Require(static_cast<size_t>(length) <= planes_[static_cast<size_t>(slot)].size(),
            "keepable beyond the slot");
    if (with_state) return Stands(slot, length) ? length : 0;
    return keepable ? keepable(slot, length) : length;
  }

  void CopySlot(int32_t from, int32_t to, int32_t length) override {
    if (before_copy) before_copy();
    const Tokens& source = PlaneOf(from);
    Require(PlaneOf(to).empty() && from != to, "a copy into a slot that is not empty");
    Require(static_cast<size_t>(length) <= source.size(), "a copy beyond the slot");
    Require(!with_state || Stands(from, length), "a state that is gone");
    PlaneOf(to).assign(source.begin(), source.begin() + length);
    standing_[static_cast<size_t>(to)] = {length};
  }

  // Set before the engine starts: rows alone are no state then. A state is a hash of the slot's
  // tokens, and rows run only where the state behind the last one is there.
  bool with_state = false;
  std::function<void(int32_t slot)> before_restore;  // may throw
  int64_t states_restored = 0;

  uint64_t CheckpointBytes() const override { return with_state ? sizeof(uint64_t) : 0; }
  void ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) override {
    Require(bytes.size() == sizeof(uint64_t), "a room of another size");
    Require(StateThere(slot), "a state that is not there");
    const uint64_t state = StateOf(PlaneOf(slot));
    std::memcpy(bytes.data(), &state, sizeof(state));
  }
  void RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) override {
    if (before_restore) before_restore(slot);
    Tokens& plane = PlaneOf(slot);
    Require(length >= 1 && static_cast<size_t>(length) <= plane.size(), "a state beyond the rows");
    plane.resize(static_cast<size_t>(length));
    uint64_t state = 0;
    Require(bytes.size() == sizeof(state), "a state of another size");
    std::memcpy(&state, bytes.data(), sizeof(state));
    Require(state == StateOf(plane), "a state of other rows");
    standing_[static_cast<size_t>(slot)] = {length};
    ++states_restored;
  }

  // A row's bytes are its token, after it `row_padding` bytes of the token's lowest.
  size_t row_padding = 0;
  std::function<void(int32_t slot)> before_read;  // may throw
  std::function<void(int32_t slot)> before_append;

  uint64_t StateRowBytes() const override { return sizeof(int32_t) + row_padding; }
  std::string StateFormat() const override { return "tokens:" + std::to_string(row_padding); }

  void ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) override {
    if (before_read) before_read(slot);
    const Tokens& plane = PlaneOf(slot);
    Require(first >= 0 && rows >= 1 && rows <= exec::RowChunk::kRowsMax, "rows that are no chunk");
    Require(static_cast<size_t>(first) + static_cast<size_t>(rows) <= plane.size(),
            "a read beyond the slot");
    Require(bytes.size() == static_cast<size_t>(rows) * StateRowBytes(), "a room of another size");
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t token = plane[static_cast<size_t>(first) + static_cast<size_t>(i)];
      std::byte* const at = bytes.data() + static_cast<size_t>(i) * StateRowBytes();
      std::memcpy(at, &token, sizeof(token));
      std::memset(at + sizeof(token), token & 0xFF, row_padding);
    }
  }

  void AppendRows(int32_t slot, const exec::RowChunk& chunk, int32_t skip, int32_t count) override {
    if (before_append) before_append(slot);
    Tokens& plane = PlaneOf(slot);
    Require(chunk.bytes.size() == static_cast<size_t>(chunk.rows) * StateRowBytes(),
            "a chunk of another size");
    Require(skip >= 0 && count >= 1 && skip + count <= chunk.rows, "rows beyond the chunk");
    Require(plane.size() + static_cast<size_t>(count) <= static_cast<size_t>(limits_.slot_context),
            "rows beyond the slot");
    for (int32_t i = skip; i < skip + count; ++i) {
      int32_t token = 0;
      std::memcpy(&token, chunk.bytes.data() + static_cast<size_t>(i) * StateRowBytes(),
                  sizeof(token));
      plane.push_back(token);
    }
  }

 private:
  static void Require(bool holds, const char* broken) {
    if (!holds) throw std::logic_error(std::string("broken contract: ") + broken);
  }

  static uint64_t StateOf(const Tokens& tokens) {
    uint64_t state = 7;
    for (const int32_t token : tokens) state = Mix(state + static_cast<uint64_t>(token));
    return state;
  }
  bool StateThere(int32_t slot) const {
    const auto at = static_cast<size_t>(slot);
    return Stands(slot, static_cast<int32_t>(planes_[at].size()));
  }
  bool Stands(int32_t slot, int32_t length) const {
    return length == 0 || std::ranges::find(standing_[static_cast<size_t>(slot)], length) !=
                              standing_[static_cast<size_t>(slot)].end();
  }

  Tokens& PlaneOf(int32_t slot) {
    Require(slot >= 0 && slot < limits_.slots, "a slot that does not exist");
    return planes_[static_cast<size_t>(slot)];
  }

  void CheckRows(std::span<const exec::PassRow> rows) {
    Require(!rows.empty() && static_cast<int32_t>(rows.size()) <= limits_.rows_max,
            "rows outside 1..rows_max");
    std::vector<bool> seen(planes_.size(), false);
    for (size_t i = 0; i < rows.size(); ++i) {
      const exec::PassRow& row = rows[i];
      const Tokens& plane = PlaneOf(row.slot);
      const bool continues = i > 0 && rows[i - 1].slot == row.slot;
      Require(row.token >= 0 && row.token < limits_.vocabulary, "a token outside the vocabulary");
      Require(row.index < limits_.slot_context, "a row beyond the slot's context");
      if (continues) {
        Require(row.index == rows[i - 1].index + 1, "rows of a slot that do not ascend by one");
      } else {
        Require(!seen[static_cast<size_t>(row.slot)], "rows of a slot that are not contiguous");
        Require(row.index == static_cast<int32_t>(plane.size()), "a first row not at the length");
        Require(!with_state || StateThere(row.slot), "rows without the state before them");
      }
      seen[static_cast<size_t>(row.slot)] = true;
    }
  }

  std::vector<float> LogitsOf(const Tokens& history) const {
    std::vector<float> logits(static_cast<size_t>(limits_.vocabulary));
    FakeLogits(history, logits);
    if (next) {
      if (const auto token = next(history)) logits[static_cast<size_t>(*token)] = 100.0f;
    }
    if (change_logits) change_logits(history, logits);
    return logits;
  }

  const exec::SeatLimits limits_;
  std::vector<Tokens> planes_;
  std::vector<std::vector<int32_t>> standing_;  // rows behind which the slot has its state
  std::vector<std::vector<float>> logits_;
  mutable std::vector<exec::BestLogit> best_;
  std::map<int32_t, Tokens> drafts_;
  std::vector<exec::Drafted> drafted_;
};

}  // namespace bloomery::engine
