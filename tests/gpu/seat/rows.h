// Logits as the card's seat tests compare them: bit for bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"

namespace bloomery::test {

using Rows = std::vector<std::vector<float>>;

// The first value that differs, as text; empty where all are the same bits.
inline std::string FirstDifference(const Rows& got, const Rows& expected) {
  if (got.size() != expected.size()) return "other row counts";
  for (size_t row = 0; row < got.size(); ++row) {
    if (got[row].size() != expected[row].size()) return "other widths";
    for (size_t i = 0; i < got[row].size(); ++i) {
      if (std::bit_cast<uint32_t>(got[row][i]) != std::bit_cast<uint32_t>(expected[row][i])) {
        return "row " + std::to_string(row) + " value " + std::to_string(i) + ": got " +
               std::to_string(got[row][i]) + ", expected " + std::to_string(expected[row][i]);
      }
    }
  }
  return "";
}

// Of the first `count` logit rows of the last pass.
inline Rows LogitsOf(const exec::PassRunner& runner, size_t count) {
  Rows rows;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const float> logits = runner.Logits(static_cast<int32_t>(i));
    rows.emplace_back(logits.begin(), logits.end());
  }
  return rows;
}

// Ids without a pattern.
inline std::vector<int32_t> SomeIds(size_t count, int32_t vocabulary, uint32_t seed = 7) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((seed >> 8U) % static_cast<uint32_t>(vocabulary)));
  }
  return ids;
}

// All that a slot holds: its rows, and the state behind the last of them.
inline std::vector<std::byte> HeldBy(exec::Seat& seat, int32_t slot) {
  const int32_t length = seat.Length(slot);
  const size_t rows = static_cast<size_t>(length) * seat.StateRowBytes();
  std::vector<std::byte> held(rows + (length > 0 ? seat.CheckpointBytes() : 0));
  for (int32_t first = 0; first < length; first += exec::RowChunk::kRowsMax) {
    const int32_t count = std::min(exec::RowChunk::kRowsMax, length - first);
    seat.ReadRows(slot, first, count,
                  std::span(held).subspan(static_cast<size_t>(first) * seat.StateRowBytes(),
                                          static_cast<size_t>(count) * seat.StateRowBytes()));
  }
  if (held.size() > rows) seat.ReadCheckpoint(slot, std::span(held).subspan(rows));
  return held;
}

// Makes an empty slot hold what another seat's slot of `length` rows held.
inline void Restore(exec::Seat& seat, int32_t slot, int32_t length,
                    std::span<const std::byte> held) {
  for (int32_t first = 0; first < length; first += exec::RowChunk::kRowsMax) {
    const int32_t count = std::min(exec::RowChunk::kRowsMax, length - first);
    const auto bytes = held.subspan(static_cast<size_t>(first) * seat.StateRowBytes(),
                                    static_cast<size_t>(count) * seat.StateRowBytes());
    seat.AppendRows(slot, {.rows = count, .bytes = bytes}, 0, count);
  }
  if (seat.CheckpointBytes() == 0) return;
  seat.RestoreCheckpoint(slot, length, held.last(seat.CheckpointBytes()));
}

}  // namespace bloomery::test
