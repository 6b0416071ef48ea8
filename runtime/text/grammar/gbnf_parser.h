// GBNF text as a tree: what is written, with the place of each part, and nothing yet about what it
// matches. Pure; recursion is bounded by limits::kGrammarDepthMax.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/grammar/code_ranges.h"

namespace bloomery::text {

// Line and column of a character, both from 1.
struct SourcePlace {
  uint32_t line = 1;
  uint32_t column = 1;
};

// "grammar: line L, column C: why".
Error GrammarError(SourcePlace place, const std::string& why);

// Where byte `offset` of a text is.
SourcePlace PlaceOf(std::string_view text, size_t offset);

inline constexpr uint32_t kNoUpperBound = UINT32_MAX;

struct GbnfNode {
  enum class Kind {
    kText,      // `text`, UTF-8, perhaps empty
    kClass,     // one character of `ranges`
    kRule,      // rule number `number`
    kToken,     // the token `number`, or the one that reads `text` where that is not empty;
                // negated: any other token
    kSequence,  // `parts` one after another
    kChoice,    // one of `parts`
    kRepeat,    // parts[0], from `least` to `most` times
  };
  Kind kind = Kind::kText;
  bool negated = false;
  uint32_t number = 0;
  uint32_t least = 0;
  uint32_t most = 0;
  uint32_t height = 0;  // 0 for a leaf
  SourcePlace place{};
  std::string text{};
  CodeRanges ranges{};
  std::vector<uint32_t> parts{};
};

struct GbnfRule {
  std::string name;
  SourcePlace place;  // where it is defined
  uint32_t body = 0;  // a node
};

struct GbnfTree {
  std::vector<GbnfNode> nodes;
  std::vector<GbnfRule> rules;
  uint32_t root = 0;  // a rule
};

// Throws Error(kBadRequest) with line and column: syntax, undefined rules, no root, too large. Of a
// rule that is defined twice the later body counts, as in llama-server.
GbnfTree ParseGbnf(std::string_view source);

}  // namespace bloomery::text
