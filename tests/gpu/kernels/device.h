// What the tests of the card's kernels share: arrays in device memory (tests/gpu/device.h) and a
// comparison of bits that names the first difference.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/gpu/device.h"

namespace bloomery::kernels::testing {

// Equal bits (any NaN equals any other). Names the first difference and how many there are.
inline ::testing::AssertionResult SameBits(std::span<const float> got,
                                           std::span<const float> expected) {
  if (got.size() != expected.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << expected.size();
  }
  std::size_t first = got.size();
  std::size_t differences = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = got[i] != got[i] && expected[i] != expected[i];
    if (!both_nan &&
        std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      first = differences == 0 ? i : first;
      ++differences;
    }
  }
  if (differences == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << differences << " of " << got.size() << " differ, first at " << first << ": got "
         << got[first] << ", expected " << expected[first];
}

template <class T>
::testing::AssertionResult SameValues(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      return ::testing::AssertionFailure()
             << "at " << i << ": got " << +got[i] << ", expected " << +expected[i];
    }
  }
  return got.size() == expected.size() ? ::testing::AssertionSuccess()
                                       : ::testing::AssertionFailure()
                                             << got.size() << " values, expected "
                                             << expected.size();
}

}  // namespace bloomery::kernels::testing
