#include "runtime/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

// What one comparison counts as work beside the bytes it reads.
constexpr size_t kCompareWork = 128;

std::string_view OpSign(BinaryOp op) {
  static constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<size_t>(op)];
}

[[noreturn]] void FailOperands(std::string_view sign, const Value& a, const Value& b) {
  RequireDefined(a);
  RequireDefined(b);
  Fail("unsupported operand types for " + std::string(sign) + ": '" + std::string(TypeName(a)) +
       "' and '" + std::string(TypeName(b)) + "'");
}

[[noreturn]] void FailOverflow() { Fail("integer overflow: the result does not fit 64 bits"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    FailOverflow();
  }
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == -1) {
    return 0;
  }
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloorModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest != 0.0) {
    return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
  }
  return std::copysign(0.0, b);
}

double FloorDivide(double a, double b) {
  const double quotient = (a - FloorModulo(a, b)) / b;
  if (quotient == 0.0) {
    return std::copysign(0.0, a / b);
  }
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Value PowerInt(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) {
      Fail("0 cannot be raised to a negative power");
    }
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      FailOverflow();
    }
    exponent >>= 1;
    if (exponent == 0) {
      return result;
    }
    if (__builtin_mul_overflow(base, base, &base)) {
      FailOverflow();
    }
  }
}

Value IntBinary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kPow:
      return PowerInt(a, b);
    default:
      if (b == 0) {
        Fail("division by zero");
      }
      if (op == BinaryOp::kDiv) {
        return static_cast<double>(a) / static_cast<double>(b);
      }
      return op == BinaryOp::kMod ? FloorModulo(a, b) : FloorDivide(a, b);
  }
  if (overflow) {
    FailOverflow();
  }
  return result;
}

Value FloatBinary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kPow: {
      if (a == 0.0 && b < 0.0) {
        Fail("0.0 cannot be raised to a negative power");
      }
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
        Fail("complex numbers are not supported");
      }
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        Fail("numerical result out of range");
      }
      return power;
    }
    default:
      if (b == 0.0) {
        Fail("float division by zero");
      }
      if (op == BinaryOp::kDiv) {
        return a / b;
      }
      return op == BinaryOp::kMod ? FloorModulo(a, b) : FloorDivide(a, b);
  }
}

bool IsConcrete(const ListData& list) {
  return list.kind == SequenceKind::kList || list.kind == SequenceKind::kTuple;
}

Value RepeatText(const Heap& heap, const Text& text, int64_t count) {
  TextBuilder builder(heap.budget());
  builder.set_markup(text.markup());
  builder.AppendRepeated(text, count);
  return builder.Finish();
}

Value RepeatList(const Heap& heap, const ListData& list, int64_t count) {
  std::vector<Value> items;
  for (int64_t i = 0; i < count && !list.items.empty(); ++i) {
    heap.Step(list.items.size());
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return heap.NewList(std::move(items), list.kind);
}

Value Repeat(const Heap& heap, const Value& sequence, int64_t count) {
  if (sequence.is_text()) {
    return RepeatText(heap, sequence.AsText(), count);
  }
  return RepeatList(heap, ValueAccess::List(sequence), count);
}

bool IsRepeatable(const Value& value) {
  return value.is_text() || (value.is_list() && IsConcrete(ValueAccess::List(value)));
}

Value AddText(const Heap& heap, const Text& a, const Text& b) {
  const bool markup = a.markup() || b.markup();
  TextBuilder builder(heap.budget());
  builder.Append(markup && !a.markup() ? Escape(heap, a) : a);
  builder.Append(markup && !b.markup() ? Escape(heap, b) : b);
  builder.set_markup(markup);
  return builder.Finish();
}

bool EqualLists(const Heap& heap, const ListData& a, const ListData& b) {
  const bool views = a.kind == SequenceKind::kKeys || a.kind == SequenceKind::kItems;
  if (a.kind != b.kind || (!IsConcrete(a) && a.kind != SequenceKind::kRange && !views)) {
    return &a == &b;
  }
  return a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&heap](const Value& x, const Value& y) { return Equal(heap, x, y); });
}

bool EqualDicts(const Heap& heap, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) {
    return false;
  }
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const Value::DictEntry& entry) {
    const size_t at = b.Find(entry.first);
    return at < b.entries.size() && Equal(heap, entry.second, b.entries[at].second);
  });
}

// -1, 0 or 1; nullopt when one is NaN.
std::optional<int> OrderNumbers(const Value& a, const Value& b) {
  const auto ia = AsIndex(a);
  const auto ib = AsIndex(b);
  if (ia && ib) {
    return *ia < *ib ? -1 : static_cast<int>(*ia > *ib);
  }
  const double x = *AsNumber(a);
  const double y = *AsNumber(b);
  if (std::isnan(x) || std::isnan(y)) {
    return std::nullopt;
  }
  return x < y ? -1 : static_cast<int>(x > y);
}

// The order of `a` and `b` as -1, 0, 1, or nullopt when unordered (NaN); fails for unordered types.
std::optional<int> Order(const Heap& heap, const Value& a, const Value& b, std::string_view sign) {
  heap.Work(kCompareWork);
  if (AsNumber(a) && AsNumber(b)) {
    return OrderNumbers(a, b);
  }
  if (a.is_text() && b.is_text()) {
    heap.Work(std::min(a.AsText().bytes().size(), b.AsText().bytes().size()));
    const int order = a.AsText().bytes().compare(b.AsText().bytes());
    return order < 0 ? -1 : static_cast<int>(order > 0);
  }
  if (a.is_list() && b.is_list()) {
    const ListData& x = ValueAccess::List(a);
    const ListData& y = ValueAccess::List(b);
    if (x.kind == y.kind && IsConcrete(x)) {
      const size_t common = std::min(x.items.size(), y.items.size());
      for (size_t i = 0; i < common; ++i) {
        if (!Equal(heap, x.items[i], y.items[i])) {
          return Order(heap, x.items[i], y.items[i], sign);
        }
      }
      return x.items.size() < y.items.size() ? -1
                                             : static_cast<int>(x.items.size() > y.items.size());
    }
  }
  RequireDefined(a);
  RequireDefined(b);
  Fail("'" + std::string(sign) + "' not supported between '" + std::string(TypeName(a)) +
       "' and '" + std::string(TypeName(b)) + "'");
}

struct SliceRange {
  int64_t start;
  int64_t stop;
  int64_t step;
};

std::optional<int64_t> SlicePart(const Value& value) {
  if (value.is_none()) {
    return std::nullopt;
  }
  return RequireInt(value, "slice index");
}

SliceRange ResolveSlice(const Value& start, const Value& stop, const Value& step, size_t size) {
  const auto length = static_cast<int64_t>(size);
  SliceRange range{};
  range.step = SlicePart(step).value_or(1);
  if (range.step == 0) {
    Fail("slice step cannot be zero");
  }
  const bool back = range.step < 0;
  const auto clamp = [&](std::optional<int64_t> value, int64_t otherwise) {
    if (!value) {
      return otherwise;
    }
    const int64_t from_front = *value < 0 ? std::max(*value, -length - 1) + length : *value;
    return std::clamp(from_front, back ? int64_t{-1} : int64_t{0}, back ? length - 1 : length);
  };
  range.start = clamp(SlicePart(start), back ? length - 1 : 0);
  range.stop = clamp(SlicePart(stop), back ? -1 : length);
  return range;
}

// Calls `take` with each index of the slice.
template <typename Function>
void ForSlice(const SliceRange& range, Function take) {
  int64_t i = range.start;
  while (range.step > 0 ? i < range.stop : i > range.stop) {
    take(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, range.step, &i)) {
      return;
    }
  }
}

Value SliceText(const Heap& heap, const Text& text, const SliceRange& range) {
  if (range.step == 1) {
    const size_t begin = ByteOffset(heap, text, static_cast<size_t>(range.start));
    const size_t end =
        range.stop <= range.start ? begin : ByteOffset(heap, text, static_cast<size_t>(range.stop));
    return heap.Slice(text, begin, end);
  }
  std::vector<size_t> offsets;
  offsets.reserve(text.length() + 1);
  for (PointReader reader(text); !reader.done(); reader.Next()) {
    offsets.push_back(reader.pos());
  }
  offsets.push_back(text.bytes().size());
  Charge charge(heap.budget(), offsets.size() * sizeof(size_t));
  TextBuilder builder(heap.budget());
  builder.set_markup(text.markup());
  ForSlice(range, [&](size_t i) { builder.Append(text, offsets[i], offsets[i + 1]); });
  return builder.Finish();
}

bool ContainsText(const Heap& heap, const Text& haystack, const Value& needle) {
  if (!needle.is_text()) {
    RequireDefined(needle);
    Fail("'in <string>' needs a string on the left, not '" + std::string(TypeName(needle)) + "'");
  }
  return FindBytes(heap, haystack.bytes(), needle.AsText().bytes()) != std::string_view::npos;
}

}  // namespace

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "NoneType";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInt:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kText:
      return "str";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kNamespace:
      return "Namespace";
    case ValueKind::kCallable:
      return "function";
    case ValueKind::kList:
      break;
  }
  static constexpr std::string_view kNames[] = {
      "list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};
  return kNames[static_cast<size_t>(ValueAccess::List(value).kind)];
}

void RequireDefined(const Value& value) {
  if (!value.is_undefined()) {
    return;
  }
  const std::string* name = ValueAccess::UndefinedName(value);
  Fail(name == nullptr ? std::string("value is undefined") : "'" + *name + "' is undefined");
}

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
      return value.AsBool();
    case ValueKind::kInt:
      return value.AsInt() != 0;
    case ValueKind::kFloat:
      return value.AsFloat() != 0.0;
    case ValueKind::kText:
      return !value.AsText().bytes().empty();
    case ValueKind::kList: {
      const ListData& list = ValueAccess::List(value);
      return list.kind == SequenceKind::kIterator || !list.items.empty();
    }
    case ValueKind::kDict:
      return !value.Entries().empty();
    default:
      return true;
  }
}

std::optional<int64_t> AsIndex(const Value& value) {
  if (value.kind() == ValueKind::kInt) {
    return value.AsInt();
  }
  if (value.kind() == ValueKind::kBool) {
    return value.AsBool() ? 1 : 0;
  }
  return std::nullopt;
}

std::optional<double> AsNumber(const Value& value) {
  if (value.kind() == ValueKind::kFloat) {
    return value.AsFloat();
  }
  const auto index = AsIndex(value);
  return index ? std::optional<double>(static_cast<double>(*index)) : std::nullopt;
}

int64_t RequireInt(const Value& value, std::string_view what) {
  const auto index = AsIndex(value);
  if (!index) {
    RequireDefined(value);
    Fail(std::string(what) + " must be an integer, not '" + std::string(TypeName(value)) + "'");
  }
  return *index;
}

const Text& RequireText(const Value& value, std::string_view what) {
  if (!value.is_text()) {
    RequireDefined(value);
    Fail(std::string(what) + " must be a string, not '" + std::string(TypeName(value)) + "'");
  }
  return value.AsText();
}

bool EqualScalars(const Value& a, const Value& b) {
  if (AsNumber(a) && AsNumber(b)) {
    return OrderNumbers(a, b) == 0;
  }
  if (a.kind() != b.kind()) {
    return false;
  }
  return a.is_text() ? a.AsText().bytes() == b.AsText().bytes() : a.is_none() || a.is_undefined();
}

bool Equal(const Heap& heap, const Value& a, const Value& b) {
  heap.Work(kCompareWork);
  if (AsNumber(a) && AsNumber(b)) {
    return OrderNumbers(a, b) == 0;
  }
  if (a.kind() != b.kind()) {
    return false;
  }
  switch (a.kind()) {
    case ValueKind::kText:
      heap.Work(std::min(a.AsText().bytes().size(), b.AsText().bytes().size()));
      return a.AsText().bytes() == b.AsText().bytes();
    case ValueKind::kList:
      return EqualLists(heap, ValueAccess::List(a), ValueAccess::List(b));
    case ValueKind::kDict:
      return EqualDicts(heap, ValueAccess::Dict(a), ValueAccess::Dict(b));
    case ValueKind::kNamespace:
      return &ValueAccess::Namespace(a) == &ValueAccess::Namespace(b);
    case ValueKind::kCallable:
      return ValueAccess::Function(a) == ValueAccess::Function(b);
    default:
      return true;
  }
}

bool Less(const Heap& heap, const Value& a, const Value& b) { return Order(heap, a, b, "<") == -1; }

bool Compare(const Heap& heap, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return Equal(heap, a, b);
    case CompareOp::kNe:
      return !Equal(heap, a, b);
    case CompareOp::kLt:
      return Order(heap, a, b, "<") == -1;
    case CompareOp::kGt:
      return Order(heap, a, b, ">") == 1;
    case CompareOp::kLe: {
      const auto order = Order(heap, a, b, "<=");
      return order && *order <= 0;
    }
    case CompareOp::kGe: {
      const auto order = Order(heap, a, b, ">=");
      return order && *order >= 0;
    }
    case CompareOp::kIn:
      return Contains(heap, b, a);
    case CompareOp::kNotIn:
      return !Contains(heap, b, a);
  }
  return false;
}

bool Contains(const Heap& heap, const Value& haystack, const Value& needle) {
  switch (haystack.kind()) {
    case ValueKind::kUndefined:
      return false;
    case ValueKind::kText:
      return ContainsText(heap, haystack.AsText(), needle);
    case ValueKind::kList: {
      const auto& items = haystack.Items();
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& item) { return Equal(heap, item, needle); });
    }
    case ValueKind::kDict: {
      if (needle.is_dict() ||
          (needle.is_list() && ValueAccess::List(needle).kind == SequenceKind::kList)) {
        Fail("unhashable type: '" + std::string(TypeName(needle)) + "'");
      }
      const DictData& dict = ValueAccess::Dict(haystack);
      return dict.Find(needle) < dict.entries.size();
    }
    default:
      Fail("argument of type '" + std::string(TypeName(haystack)) + "' is not iterable");
  }
}

Value Binary(const Heap& heap, BinaryOp op, const Value& a, const Value& b) {
  const auto ia = AsIndex(a);
  const auto ib = AsIndex(b);
  if (ia && ib) {
    return IntBinary(op, *ia, *ib);
  }
  const auto na = AsNumber(a);
  const auto nb = AsNumber(b);
  if (na && nb) {
    return FloatBinary(op, *na, *nb);
  }
  if (op == BinaryOp::kAdd) {
    if (a.is_text() && b.is_text()) {
      return AddText(heap, a.AsText(), b.AsText());
    }
    if (a.is_list() && b.is_list() && ValueAccess::List(a).kind == ValueAccess::List(b).kind &&
        IsConcrete(ValueAccess::List(a))) {
      heap.Step(a.Items().size() + b.Items().size());
      std::vector<Value> items = a.Items();
      items.insert(items.end(), b.Items().begin(), b.Items().end());
      return heap.NewList(std::move(items), ValueAccess::List(a).kind);
    }
  }
  if (op == BinaryOp::kMul && IsRepeatable(a) && ib) {
    return Repeat(heap, a, *ib);
  }
  if (op == BinaryOp::kMul && IsRepeatable(b) && ia) {
    return Repeat(heap, b, *ia);
  }
  if (op == BinaryOp::kMod && a.is_text()) {
    return PercentFormat(heap, a.AsText(), b);
  }
  FailOperands(OpSign(op), a, b);
}

Value Negate(const Value& value) {
  if (const auto index = AsIndex(value)) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, *index, &result)) {
      FailOverflow();
    }
    return result;
  }
  if (value.kind() == ValueKind::kFloat) {
    return -value.AsFloat();
  }
  RequireDefined(value);
  Fail("bad operand type for unary -: '" + std::string(TypeName(value)) + "'");
}

Value Plus(const Value& value) {
  if (const auto index = AsIndex(value)) {
    return *index;
  }
  if (value.kind() == ValueKind::kFloat) {
    return value;
  }
  RequireDefined(value);
  Fail("bad operand type for unary +: '" + std::string(TypeName(value)) + "'");
}

size_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kText:
      return value.AsText().length();
    case ValueKind::kDict:
      return value.Entries().size();
    case ValueKind::kList:
      if (ValueAccess::List(value).kind != SequenceKind::kIterator) {
        return value.Items().size();
      }
      [[fallthrough]];
    default:
      Fail("object of type '" + std::string(TypeName(value)) + "' has no len()");
  }
}

std::vector<Value> Iterate(const Heap& heap, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return {};
    case ValueKind::kList:
      heap.Work(value.Items().size() * sizeof(Value));
      return value.Items();
    case ValueKind::kDict: {
      heap.Work(value.Entries().size() * sizeof(Value));
      std::vector<Value> keys;
      keys.reserve(value.Entries().size());
      for (const auto& [key, entry] : value.Entries()) {
        keys.push_back(key);
      }
      return keys;
    }
    case ValueKind::kText: {
      const Text& text = value.AsText();
      heap.Step(text.length());
      std::vector<Value> points;
      points.reserve(text.length());
      PointReader reader(text);
      for (size_t begin = 0; !reader.done(); begin = reader.pos()) {
        reader.Next();
        points.emplace_back(heap.Slice(text, begin, reader.pos()));
      }
      return points;
    }
    default:
      Fail("'" + std::string(TypeName(value)) + "' object is not iterable");
  }
}

size_t FindBytes(const Heap& heap, std::string_view haystack, std::string_view needle,
                 size_t from) {
  const std::string_view rest = haystack.substr(from);
  if (needle.empty()) {
    return from;
  }
  // glibc's memmem is linear, unlike string::find.
  const void* found = memmem(rest.data(), rest.size(), needle.data(), needle.size());
  const size_t at = found == nullptr
                        ? haystack.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - haystack.data());
  heap.Work((at - from) * 4);
  return found == nullptr ? std::string_view::npos : at;
}

size_t RFindBytes(const Heap& heap, std::string_view haystack, std::string_view needle,
                  size_t end) {
  if (needle.size() > end) {
    return std::string_view::npos;
  }
  for (size_t at = end - needle.size();; --at) {
    if (needle.empty()) {
      return at;
    }
    if (haystack[at] == needle.front()) {
      heap.Work(needle.size());
      if (haystack.substr(at, needle.size()) == needle) {
        return at;
      }
    }
    if (at == 0) {
      return std::string_view::npos;
    }
    heap.Work(4);
  }
}

size_t ByteOffset(const Heap& heap, const Text& text, size_t index) {
  if (text.ascii()) {
    return index;
  }
  heap.WorkPoints(index);
  size_t pos = 0;
  for (size_t i = 0; i < index; ++i) {
    DecodePoint(text.bytes(), pos);
  }
  return pos;
}

Value Item(const Heap& heap, const Value& value, const Value& index) {
  if (value.is_dict()) {
    const DictData& dict = ValueAccess::Dict(value);
    const size_t at = dict.Find(index);
    return at < dict.entries.size() ? dict.entries[at].second : Value();
  }
  const auto wanted = AsIndex(index);
  if (!wanted || !(value.is_text() || value.is_list())) {
    return Value();
  }
  if (value.is_list() && ValueAccess::List(value).kind > SequenceKind::kRange) {
    return Value();
  }
  const auto length = static_cast<int64_t>(LengthOf(value));
  const int64_t at = *wanted < 0 ? *wanted + length : *wanted;
  if (at < 0 || at >= length) {
    return Value();
  }
  if (value.is_list()) {
    return value.Items()[static_cast<size_t>(at)];
  }
  const Text& text = value.AsText();
  const size_t begin = ByteOffset(heap, text, static_cast<size_t>(at));
  size_t end = begin;
  DecodePoint(text.bytes(), end);
  return heap.Slice(text, begin, end);
}

Value SliceOf(const Heap& heap, const Value& value, const Value& start, const Value& stop,
              const Value& step) {
  const bool sliceable =
      value.is_text() || (value.is_list() && ValueAccess::List(value).kind <= SequenceKind::kRange);
  if (!sliceable) {
    RequireDefined(value);
    Fail("'" + std::string(TypeName(value)) + "' object cannot be sliced");
  }
  const SliceRange range = ResolveSlice(start, stop, step, LengthOf(value));
  if (value.is_text()) {
    return SliceText(heap, value.AsText(), range);
  }
  const ListData& list = ValueAccess::List(value);
  std::vector<Value> items;
  ForSlice(range, [&](size_t i) { items.push_back(list.items[i]); });
  heap.Step(items.size());
  if (list.kind == SequenceKind::kRange) {
    // Wraps where Python's integers would grow; such bounds are only ever printed.
    const auto at = [&list](int64_t index) {
      return static_cast<int64_t>(static_cast<uint64_t>(list.range[0]) +
                                  static_cast<uint64_t>(index) *
                                      static_cast<uint64_t>(list.range[2]));
    };
    const auto stride = static_cast<int64_t>(static_cast<uint64_t>(range.step) *
                                             static_cast<uint64_t>(list.range[2]));
    return heap.NewRange(at(range.start), at(range.stop), stride, std::move(items));
  }
  return heap.NewList(std::move(items), list.kind);
}

Text Escape(const Heap& heap, const Text& text) {
  if (text.markup()) {
    return text;
  }
  TextBuilder builder(heap.budget());
  builder.set_markup(true);
  for (PointReader reader(text); !reader.done();) {
    const char32_t point = reader.Next();
    switch (point) {
      case '&':
        builder.Append("&amp;", reader.input());
        break;
      case '<':
        builder.Append("&lt;", reader.input());
        break;
      case '>':
        builder.Append("&gt;", reader.input());
        break;
      case '"':
        builder.Append("&#34;", reader.input());
        break;
      case '\'':
        builder.Append("&#39;", reader.input());
        break;
      default:
        builder.AppendPoint(point, reader.input());
    }
  }
  return builder.Finish();
}

}  // namespace bloomery::jinja
