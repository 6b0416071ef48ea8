#include "runtime/text/jinja/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace bloomery::jinja {
namespace {

struct PointRange {
  char32_t first;
  char32_t last;
};
// Every `step`-th point of [first, last] maps to itself plus `delta`.
struct CaseRun {
  char32_t first;
  char32_t last;
  char32_t step;
  int32_t delta;
};
struct CaseSpecial {
  char32_t point;
  CaseMapping to;
};

#include "runtime/text/jinja/unicode_tables.inc"

template <size_t N>
bool InRanges(const PointRange (&ranges)[N], char32_t point) {
  const auto* it =
      std::upper_bound(std::begin(ranges), std::end(ranges), point,
                       [](char32_t value, const PointRange& range) { return value < range.first; });
  return it != std::begin(ranges) && point <= std::prev(it)->last;
}

template <size_t N, size_t M>
CaseMapping MapCase(const CaseRun (&runs)[N], const CaseSpecial (&special)[M], char32_t point) {
  const auto* exact = std::lower_bound(
      std::begin(special), std::end(special), point,
      [](const CaseSpecial& entry, char32_t value) { return entry.point < value; });
  if (exact != std::end(special) && exact->point == point) {
    return exact->to;
  }
  const auto* it =
      std::upper_bound(std::begin(runs), std::end(runs), point,
                       [](char32_t value, const CaseRun& run) { return value < run.first; });
  if (it != std::begin(runs)) {
    --it;
    if (point <= it->last && (point - it->first) % it->step == 0) {
      return {static_cast<char32_t>(static_cast<int32_t>(point) + it->delta), 0, 0};
    }
  }
  return {point, 0, 0};
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

char32_t DecodePoint(std::string_view text, size_t& pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) {
    ++pos;
    return lead;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > text.size() - pos) {
    ++pos;
    return kReplacement;
  }
  char32_t point = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[pos + i])) {
      ++pos;
      return kReplacement;
    }
    point = (point << 6) | (static_cast<unsigned char>(text[pos + i]) & 0x3Fu);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  if (overlong || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
    ++pos;
    return kReplacement;
  }
  pos += length;
  return point;
}

void AppendPoint(std::string& out, char32_t point) {
  if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
    point = kReplacement;
  }
  if (point < 0x80) {
    out.push_back(static_cast<char>(point));
    return;
  }
  const auto tail = [&out](char32_t bits) {
    out.push_back(static_cast<char>(0x80 | (bits & 0x3F)));
  };
  if (point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (point >> 6)));
  } else if (point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (point >> 12)));
    tail(point >> 6);
  } else {
    out.push_back(static_cast<char>(0xF0 | (point >> 18)));
    tail(point >> 12);
    tail(point >> 6);
  }
  tail(point);
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t CountPoints(std::string_view valid_utf8) {
  return static_cast<size_t>(std::count_if(valid_utf8.begin(), valid_utf8.end(),
                                           [](char c) { return !IsContinuation(c); }));
}

size_t PreviousPoint(std::string_view valid_utf8, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && IsContinuation(valid_utf8[pos]));
  return pos;
}

std::string ValidUtf8(std::string_view text) {
  if (IsAscii(text)) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    AppendPoint(out, DecodePoint(text, pos));
  }
  return out;
}

bool IsSpace(char32_t point) { return InRanges(kSpace, point); }
bool IsAlpha(char32_t point) { return InRanges(kAlpha, point); }
bool IsDigit(char32_t point) { return InRanges(kDigit, point); }
bool IsDecimal(char32_t point) { return InRanges(kDecimal, point); }
bool IsNumeric(char32_t point) { return InRanges(kNumeric, point); }
bool IsPrintable(char32_t point) { return InRanges(kPrintable, point); }
bool IsUpper(char32_t point) { return InRanges(kUpperCase, point); }
bool IsLower(char32_t point) { return InRanges(kLowerCase, point); }
bool IsCased(char32_t point) {
  return IsUpper(point) || IsLower(point) || InRanges(kTitleCase, point);
}

CaseMapping ToUpper(char32_t point) { return MapCase(kToUpperRuns, kToUpperSpecial, point); }
CaseMapping ToLower(char32_t point) { return MapCase(kToLowerRuns, kToLowerSpecial, point); }
CaseMapping ToTitle(char32_t point) { return MapCase(kToTitleRuns, kToTitleSpecial, point); }

}  // namespace bloomery::jinja
