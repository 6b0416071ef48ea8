// Sets of Unicode code points as ranges, and the UTF-8 byte sequences of such a set. Pure values.
#pragma once

#include <cstdint>
#include <vector>

namespace bloomery::text {

inline constexpr char32_t kCodePointMax = 0x10FFFF;

// Inclusive.
struct CodeRange {
  char32_t first;
  char32_t last;
  bool operator==(const CodeRange&) const = default;
};
using CodeRanges = std::vector<CodeRange>;

// Ascending, disjoint, not adjacent, without surrogates and what lies above Unicode.
CodeRanges Normalised(CodeRanges ranges);

// Every character that is not in `ranges` (normalised), surrogates excepted.
CodeRanges Complement(const CodeRanges& ranges);

// One to four byte ranges: every choice of bytes from them is a character of the range.
struct Utf8Sequence {
  struct Bytes {
    uint8_t first;
    uint8_t last;
  };
  uint32_t length = 0;
  Bytes bytes[4] = {};
};

// The UTF-8 forms of exactly the characters of a normalised set.
std::vector<Utf8Sequence> Utf8Sequences(const CodeRanges& ranges);

}  // namespace bloomery::text
