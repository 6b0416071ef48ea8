// What a saved state belongs to: a list of named terms (model, planes, numerics, build), each of
// which must be equal for the state to be restored. Plain values, any thread. It reads no model:
// who loads one names the terms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bloomery::state {

struct IdentityTerm {
  std::string name;   // "model": letters only
  std::string value;  // one line
};
using Identity = std::vector<IdentityTerm>;

// "model=…\nplanes=…\n".
std::string IdentityText(const Identity& identity);

// Why a state that was saved under `found` is foreign to `own`, naming the first term that differs:
// "it was saved with another model"; empty where both are equal.
std::string IdentityDifference(const Identity& own, std::string_view found);

}  // namespace bloomery::state
