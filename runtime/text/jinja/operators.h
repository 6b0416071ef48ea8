// Internal: Python's operators over values. All throw Failure with the message a user would search
// for when operands do not fit.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

// Python's name of the value's type ("str", "dict").
std::string_view TypeName(const Value& value);
// Fails with "'x' is undefined" when `value` is.
void RequireDefined(const Value& value);

bool Truthy(const Value& value);
// Comparing charges the heap's budget for every item and byte looked at.
bool Equal(const Heap& heap, const Value& a, const Value& b);
// Equality of what may be a dict's key: none, bools, numbers, text.
bool EqualScalars(const Value& a, const Value& b);
// `a < b`; fails for types without an order.
bool Less(const Heap& heap, const Value& a, const Value& b);
bool Compare(const Heap& heap, CompareOp op, const Value& a, const Value& b);
// `needle in haystack`
bool Contains(const Heap& heap, const Value& haystack, const Value& needle);
Value Binary(const Heap& heap, BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Plus(const Value& value);

// Bool, int or float as such; nullopt for other kinds.
std::optional<double> AsNumber(const Value& value);
// Bool or int.
std::optional<int64_t> AsIndex(const Value& value);
// The integer `value` is, or Failure naming `what`.
int64_t RequireInt(const Value& value, std::string_view what);
const Text& RequireText(const Value& value, std::string_view what);

// len(value)
size_t LengthOf(const Value& value);
// What iterating over `value` yields.
std::vector<Value> Iterate(const Heap& heap, const Value& value);
// value[index], undefined when there is no such item; never fails for kinds without items.
Value Item(const Heap& heap, const Value& value, const Value& index);
// value[start:stop:step]; none parts are absent. Fails for kinds without slices.
Value SliceOf(const Heap& heap, const Value& value, const Value& start, const Value& stop,
              const Value& step);

// Where `needle` starts in `haystack` at or after `from` (FindBytes) or ending at or before `end`
// (RFindBytes), or npos. Linear in the haystack, or charged for what it compares.
size_t FindBytes(const Heap& heap, std::string_view haystack, std::string_view needle,
                 size_t from = 0);
size_t RFindBytes(const Heap& heap, std::string_view haystack, std::string_view needle, size_t end);

// Byte offset of code point `index` of `text`; text.bytes().size() for index == length.
size_t ByteOffset(const Heap& heap, const Text& text, size_t index);

// HTML-escaped markup.
Text Escape(const Heap& heap, const Text& text);

}  // namespace bloomery::jinja
