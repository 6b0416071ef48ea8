// A grammar as a network of byte steps: one small automaton a rule, joined by calls. Immutable;
// what runs it is tables.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/text/grammar/gbnf_parser.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {

struct ProgramNode {
  enum class Kind : uint8_t {
    kBytes,   // one byte of [first, last], then `next`
    kToken,   // the token `other` (negated: any but it), then `next`
    kCall,    // the rule `other`, then `next`
    kSplit,   // `next` or `other`
    kAccept,  // the rule's end
  };
  Kind kind = Kind::kAccept;
  uint8_t first = 1;
  uint8_t last = 0;
  bool negated = false;
  uint32_t next = 0;
  uint32_t other = 0;
};

struct ProgramRule {
  uint32_t start = 0;  // a node
  uint32_t rank = 0;   // above that of every rule that may call this one before its first byte
  bool nullable = false;
};

struct GrammarProgram {
  std::vector<ProgramNode> nodes;
  std::vector<ProgramRule> rules;
  uint32_t start = 0;  // the node the whole output begins at

  // Bytes that no node tells apart have the same class.
  std::array<uint8_t, 256> classes{};
  uint32_t class_count = 0;
};

// Throws Error(kBadRequest) with line and column: left recursion (with the rules that make the
// cycle), tokens that do not exist, too large once repetitions are written out. With `blanks_first`
// a few characters of white space may come before the root.
GrammarProgram CompileProgram(const GbnfTree& tree, const Tokenizer& tokenizer, bool blanks_first);

}  // namespace bloomery::text
