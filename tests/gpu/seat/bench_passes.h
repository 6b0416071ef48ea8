// Passes as benches run them: of random tokens, so that routing has no locality. Two of one seed
// draw the same.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/exec/seat.h"

namespace bloomery::test {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class BenchPasses {
 public:
  explicit BenchPasses(exec::Seat& seat) : seat_(seat) {}

  exec::Seat& seat() { return seat_; }

  // Seconds of `passes` passes of one row of each of `slots` slots, behind what they hold.
  double Decode(int32_t slots, int32_t passes) {
    std::vector<exec::PassRow> rows(static_cast<size_t>(slots));
    const double begin = Now();
    for (int32_t pass = 0; pass < passes; ++pass) {
      for (int32_t slot = 0; slot < slots; ++slot) {
        rows[static_cast<size_t>(slot)] = {
            .slot = slot, .index = seat_.Length(slot), .token = Token(), .logits = true};
      }
      seat_.Run(rows);
    }
    return Now() - begin;
  }

  // Of `count` rows of the first slot, which is emptied, in passes as large as the seat takes.
  double Prompt(int32_t count) {
    seat_.Cut(0, 0);
    std::vector<exec::PassRow> rows;
    for (int32_t i = 0; i < count; ++i) {
      rows.push_back({.slot = 0, .index = i, .token = Token(), .logits = i + 1 == count});
    }
    const auto most = static_cast<size_t>(seat_.limits().rows_max);
    const double begin = Now();
    for (size_t at = 0; at < rows.size(); at += most) {
      seat_.Run(std::span(rows).subspan(at, std::min(most, rows.size() - at)));
    }
    return Now() - begin;
  }

 private:
  int32_t Token() {
    return static_cast<int32_t>(random_() % static_cast<uint32_t>(seat_.limits().vocabulary));
  }

  exec::Seat& seat_;
  std::mt19937 random_{11};
};

}  // namespace bloomery::test
