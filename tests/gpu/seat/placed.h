// Where the card's seat tests put a seat: on one card, or in stages on several (cards.h). What one
// card gives is what every placing must give, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <utility>
#include <vector>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/cards.h"

namespace bloomery::test {

// A parameter of tests.
struct Placing {
  const char* name = "";
  std::vector<double> shares = {};  // none: one card

  size_t stages() const { return shares.empty() ? 1 : shares.size(); }
};

inline const Placing kOneCard = {"one", {}};
inline const Placing kHalves = {"halves", {1, 1}};

inline void PrintTo(const Placing& placing, std::ostream* out) { *out << placing.name; }
inline std::string NameOfPlacing(const ::testing::TestParamInfo<Placing>& info) {
  return info.param.name;
}

class PlacedTest : public ::testing::TestWithParam<Placing> {
 protected:
  // Options of one card, placed as the parameter says.
  static exec::SeatOptions Placed(exec::SeatOptions options) {
    const Placing& placing = GetParam();
    return placing.shares.empty() ? options : WithShares(std::move(options), placing.shares);
  }
};

}  // namespace bloomery::test
