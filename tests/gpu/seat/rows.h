// Logits as the card's seat tests compare them: bit for bit.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace bloomery::test {

using Rows = std::vector<std::vector<float>>;

// The first value that differs, as text; empty where all are the same bits.
inline std::string FirstDifference(const Rows& got, const Rows& expected) {
  if (got.size() != expected.size()) return "other row counts";
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < got[row].size(); ++i) {
      if (std::bit_cast<uint32_t>(got[row][i]) != std::bit_cast<uint32_t>(expected[row][i])) {
        return "row " + std::to_string(row) + " value " + std::to_string(i) + ": got " +
               std::to_string(got[row][i]) + ", expected " + std::to_string(expected[row][i]);
      }
    }
  }
  return "";
}

}  // namespace bloomery::test
