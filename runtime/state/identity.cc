#include "runtime/state/identity.h"

namespace bloomery::state {
namespace {

std::string Line(const IdentityTerm& term) { return term.name + "=" + term.value + "\n"; }

}  // namespace

std::string IdentityText(const Identity& identity) {
  std::string text;
  for (const IdentityTerm& term : identity) text += Line(term);
  return text;
}

std::string IdentityDifference(const Identity& own, std::string_view found) {
  if (IdentityText(own) == found) return {};
  for (const IdentityTerm& term : own) {
    const std::string line = Line(term);
    if (found.starts_with(line)) {
      found.remove_prefix(line.size());
      continue;
    }
    return "it was saved with another " + term.name;
  }
  return "it was saved by another version of the server";
}

}  // namespace bloomery::state
