#include "runtime/text/grammar/code_ranges.h"

#include <algorithm>
#include <iterator>

namespace bloomery::text {
namespace {

constexpr char32_t kSurrogateFirst = 0xD800;
constexpr char32_t kSurrogateLast = 0xDFFF;

// The last characters with one, two and three bytes, four being the rest.
constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kCodePointMax};

uint32_t Encode(char32_t c, uint8_t* bytes) {
  uint32_t length = 1;
  while (c > kLastOfLength[length - 1]) ++length;
  if (length == 1) {
    bytes[0] = static_cast<uint8_t>(c);
    return 1;
  }
  for (uint32_t i = length - 1; i > 0; --i) {
    bytes[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
    c >>= 6;
  }
  bytes[0] = static_cast<uint8_t>((0xF0u << (4 - length)) | c);
  return length;
}

// Cuts a range where its byte ranges would not be independent: at a change of length, and where the
// lower bytes do not run from all zeros to all ones.
void Split(CodeRange range, std::vector<Utf8Sequence>& out) {
  // A list of what is left instead of recursion; at most a few entries.
  std::vector<CodeRange> left{range};
  while (!left.empty()) {
    CodeRange r = left.back();
    left.pop_back();
    bool cut = false;
    for (const char32_t last : kLastOfLength) {
      if (r.first <= last && last < r.last) {
        left.push_back({last + 1, r.last});
        left.push_back({r.first, last});
        cut = true;
        break;
      }
    }
    for (uint32_t shift = 6; !cut && shift < 24 && r.last > 0x7F; shift += 6) {
      const char32_t low = (char32_t{1} << shift) - 1;
      if ((r.first & ~low) == (r.last & ~low)) break;  // one block: the bytes above are equal
      if ((r.first & low) != 0) {
        left.push_back({(r.first | low) + 1, r.last});
        left.push_back({r.first, r.first | low});
        cut = true;
      } else if ((r.last & low) != low) {
        left.push_back({r.last & ~low, r.last});
        left.push_back({r.first, (r.last & ~low) - 1});
        cut = true;
      }
    }
    if (cut) continue;
    Utf8Sequence sequence;
    uint8_t first[4];
    uint8_t last[4];
    sequence.length = Encode(r.first, first);
    Encode(r.last, last);
    for (uint32_t i = 0; i < sequence.length; ++i) sequence.bytes[i] = {first[i], last[i]};
    out.push_back(sequence);
  }
}

}  // namespace

CodeRanges Normalised(CodeRanges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  CodeRanges joined;
  for (CodeRange range : ranges) {
    range.last = std::min(range.last, kCodePointMax);
    if (range.first > range.last) continue;
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  CodeRanges out;
  for (const CodeRange& range : joined) {
    if (range.last < kSurrogateFirst || range.first > kSurrogateLast) {
      out.push_back(range);
      continue;
    }
    if (range.first < kSurrogateFirst) out.push_back({range.first, kSurrogateFirst - 1});
    if (range.last > kSurrogateLast) out.push_back({kSurrogateLast + 1, range.last});
  }
  return out;
}

CodeRanges Complement(const CodeRanges& ranges) {
  CodeRanges gaps;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) gaps.push_back({next, kCodePointMax});
  return Normalised(std::move(gaps));
}

std::vector<Utf8Sequence> Utf8Sequences(const CodeRanges& ranges) {
  std::vector<Utf8Sequence> out;
  for (const CodeRange& range : ranges) Split(range, out);
  return out;
}

}  // namespace bloomery::text
