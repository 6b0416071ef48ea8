// Text operations shared by filters and methods, with provenance kept point by point.
#include <algorithm>

#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// Letters that case rules look through (apostrophes, marks) are few in prompts: those of Python's
// final-sigma rule that matter are the apostrophe-like ones.
bool IsCaseIgnorable(char32_t point) {
  return point == '\'' || point == '.' || point == ':' || point == '^' || point == '`' ||
         point == 0xAD || point == 0xB7 || point == 0x2019 || (point >= 0x300 && point <= 0x36F);
}

// Whether the capital sigma at byte `pos` ends a word: a cased letter before it and none after.
bool IsFinalSigma(const std::string& bytes, size_t pos, size_t after) {
  bool cased_before = false;
  for (size_t at = pos; at > 0;) {
    at = PreviousPoint(bytes, at);
    size_t next = at;
    const char32_t point = DecodePoint(bytes, next);
    if (!IsCaseIgnorable(point)) {
      cased_before = IsCased(point);
      break;
    }
  }
  while (cased_before && after < bytes.size()) {
    const char32_t point = DecodePoint(bytes, after);
    if (!IsCaseIgnorable(point)) {
      return !IsCased(point);
    }
  }
  return cased_before;
}

CaseMapping Lowered(const std::string& bytes, char32_t point, size_t pos, size_t after) {
  if (point == kCapitalSigma && IsFinalSigma(bytes, pos, after)) {
    return {kFinalSigma, 0, 0};
  }
  return ToLower(point);
}

bool IsLineEnd(char32_t point) {
  return (point >= '\n' && point <= '\r') || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

bool InSet(const Text* chars, char32_t point) {
  if (chars == nullptr) {
    return IsSpace(point);
  }
  for (size_t pos = 0; pos < chars->bytes().size();) {
    if (DecodePoint(chars->bytes(), pos) == point) {
      return true;
    }
  }
  return false;
}

}  // namespace

Text ChangeCase(const Heap& heap, const Text& text, CaseChange change) {
  TextBuilder builder(heap.budget());
  builder.set_markup(text.markup());
  bool first = true;
  bool previous_cased = false;
  PointReader reader(text);
  for (size_t begin = 0; !reader.done(); begin = reader.pos()) {
    const char32_t point = reader.Next();
    const auto lower = [&] { return Lowered(text.bytes(), point, begin, reader.pos()); };
    CaseMapping mapped{};
    switch (change) {
      case CaseChange::kUpper:
        mapped = ToUpper(point);
        break;
      case CaseChange::kLower:
        mapped = lower();
        break;
      case CaseChange::kCapitalize:
        mapped = first ? ToTitle(point) : lower();
        break;
      case CaseChange::kTitle:
        mapped = previous_cased ? lower() : ToTitle(point);
        break;
      case CaseChange::kSwap:
        mapped = IsUpper(point)   ? lower()
                 : IsLower(point) ? ToUpper(point)
                                  : CaseMapping{point, 0, 0};
        break;
    }
    for (size_t i = 0; i < mapped.size() && (i == 0 || mapped[i] != 0); ++i) {
      builder.AppendPoint(mapped[i], reader.input());
    }
    previous_cased = IsCased(point);
    first = false;
  }
  return builder.Finish();
}

bool HasCaseWithout(const Heap& heap, const Text& text, bool (*other)(char32_t)) {
  heap.WorkPoints(text.length());
  bool any = false;
  for (PointReader reader(text); !reader.done();) {
    const char32_t point = reader.Next();
    if (IsCased(point)) {
      if (other(point) || !(IsUpper(point) || IsLower(point))) {
        return false;
      }
      any = true;
    }
  }
  return any;
}

Text Strip(const Heap& heap, const Text& text, const Text* chars, bool left, bool right) {
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  const size_t set_size = chars == nullptr ? 1 : chars->bytes().size();
  while (left && begin < end) {
    heap.WorkPoints(set_size);
    size_t next = begin;
    if (!InSet(chars, DecodePoint(bytes, next))) {
      break;
    }
    begin = next;
  }
  while (right && end > begin) {
    heap.WorkPoints(set_size);
    const size_t previous = PreviousPoint(bytes, end);
    size_t next = previous;
    if (!InSet(chars, DecodePoint(bytes, next))) {
      break;
    }
    end = previous;
  }
  return heap.Slice(text, begin, end);
}

Text ReplaceText(const Heap& heap, const Text& text, const Text& from, const Text& to,
                 int64_t count) {
  const std::string& bytes = text.bytes();
  TextBuilder builder(heap.budget());
  builder.set_markup(text.markup());
  size_t pos = 0;
  const auto may_replace = [&count] {
    if (count > 0) {
      --count;
      return true;
    }
    return count < 0;
  };
  if (from.bytes().empty()) {
    // Python inserts before every code point and at the end.
    while (may_replace()) {
      builder.Append(to);
      if (pos >= bytes.size()) {
        return builder.Finish();
      }
      size_t next = pos;
      DecodePoint(bytes, next);
      builder.Append(text, pos, next);
      pos = next;
    }
  } else {
    for (size_t found = 0;
         (found = FindBytes(heap, bytes, from.bytes(), pos)) != std::string_view::npos &&
         may_replace();) {
      builder.Append(text, pos, found);
      builder.Append(to);
      pos = found + from.bytes().size();
    }
  }
  builder.Append(text, pos, bytes.size());
  return builder.Finish();
}

std::vector<Text> SplitLines(const Heap& heap, const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  heap.WorkPoints(text.length());
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    size_t next = pos;
    const char32_t point = DecodePoint(bytes, next);
    if (IsLineEnd(point)) {
      if (point == '\r' && next < bytes.size() && bytes[next] == '\n') {
        ++next;
      }
      lines.push_back(heap.Slice(text, begin, keep_ends ? next : pos));
      heap.Work(sizeof(Value));
      begin = next;
    }
    pos = next;
  }
  if (begin < bytes.size()) {
    lines.push_back(heap.Slice(text, begin, bytes.size()));
  }
  return lines;
}

Text JoinTexts(const Heap& heap, const Text& separator, const std::vector<Value>& items,
               bool strict) {
  TextBuilder builder(heap.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      builder.Append(separator);
    }
    builder.Append(strict ? RequireText(items[i], "an item to join") : Str(heap, items[i]));
  }
  return builder.Finish();
}

}  // namespace bloomery::jinja
