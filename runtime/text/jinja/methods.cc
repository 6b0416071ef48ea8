// Methods of strings, lists and dicts, as far as Python's sandboxed ones go: nothing here changes
// its object.
#include <algorithm>
#include <array>

#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

using Method = Value (*)(Evaluator&, const Value& self, const CallArgs&);
struct NamedMethod {
  std::string_view name;
  Method method;
};

std::vector<Value> ToValues(const std::vector<Text>& texts) { return {texts.begin(), texts.end()}; }

// A missing, none or text argument.
const Text* OptionalText(const Value* value, std::string_view what) {
  return value == nullptr || value->is_none() ? nullptr : &RequireText(*value, what);
}

// Code point offsets (as start and end of str.find) into byte offsets.
struct ByteRange {
  size_t begin;
  size_t end;
  bool valid;  // start is not beyond the end
};

ByteRange RangeOf(const Heap& heap, const Text& text, const Value* start, const Value* end) {
  const auto length = static_cast<int64_t>(text.length());
  const auto resolve = [length](const Value* value, int64_t otherwise) {
    if (value == nullptr || value->is_none()) {
      return otherwise;
    }
    const int64_t index = RequireInt(*value, "a position");
    return index < 0 ? std::max<int64_t>(std::max(index, -length) + length, 0) : index;
  };
  const int64_t first = resolve(start, 0);
  const int64_t last = std::min(resolve(end, length), length);
  if (first > last) {
    return {0, 0, false};
  }
  return {ByteOffset(heap, text, static_cast<size_t>(first)),
          ByteOffset(heap, text, static_cast<size_t>(last)), true};
}

// ---- strings

template <CaseChange kChange>
Value Cased(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "str method", {});
  return ChangeCase(e.heap(), self.AsText(), kChange);
}

template <bool kLeft, bool kRight>
Value Stripped(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "strip", {"chars"});
  return Strip(e.heap(), self.AsText(), OptionalText(bound[0], "strip's argument"), kLeft, kRight);
}

template <bool kStart>
Value Affixed(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, kStart ? "startswith" : "endswith", {"prefix", "start", "end"}, 1);
  const Text& text = self.AsText();
  const ByteRange range = RangeOf(e.heap(), text, bound[1], bound[2]);
  const std::string_view part =
      std::string_view(text.bytes()).substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& bytes =
        RequireText(affix, kStart ? "startswith's argument" : "endswith's argument").bytes();
    return range.valid && (kStart ? part.starts_with(bytes) : part.ends_with(bytes));
  };
  if (bound[0]->is_list() && ValueAccess::List(*bound[0]).kind == SequenceKind::kTuple) {
    const std::vector<Value>& affixes = bound[0]->Items();
    return std::any_of(affixes.begin(), affixes.end(), matches);
  }
  return matches(*bound[0]);
}

// str.split() without a separator: runs of white space.
std::vector<Value> SplitSpace(const Heap& heap, const Text& text, int64_t max, bool from_right) {
  const std::string& bytes = text.bytes();
  std::vector<Value> parts;
  size_t pos = from_right ? bytes.size() : 0;
  const auto peek = [&](size_t& next) {
    if (from_right) {
      next = PreviousPoint(bytes, pos);
      size_t after = next;
      return DecodePoint(bytes, after);
    }
    next = pos;
    return DecodePoint(bytes, next);
  };
  const auto skip = [&](bool space) {
    size_t next = 0;
    while ((from_right ? pos > 0 : pos < bytes.size()) && IsSpace(peek(next)) == space) {
      pos = next;
    }
  };
  heap.WorkPoints(text.length());
  for (;;) {
    skip(true);
    if (from_right ? pos == 0 : pos >= bytes.size()) {
      break;
    }
    const size_t edge = pos;
    if (max >= 0 && static_cast<int64_t>(parts.size()) >= max) {
      const Text rest =
          from_right ? heap.Slice(text, 0, edge) : heap.Slice(text, edge, bytes.size());
      parts.emplace_back(from_right ? Strip(heap, rest, nullptr, false, true) : rest);
      break;
    }
    skip(false);
    parts.emplace_back(from_right ? heap.Slice(text, pos, edge) : heap.Slice(text, edge, pos));
    heap.Work(sizeof(Value));
  }
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
  }
  return parts;
}

std::vector<Value> SplitBy(const Heap& heap, const Text& text, const Text& separator, int64_t max,
                           bool from_right) {
  const std::string& bytes = text.bytes();
  const std::string& mark = separator.bytes();
  if (mark.empty()) {
    Fail("empty separator");
  }
  std::vector<Value> parts;
  size_t begin = 0;
  size_t end = bytes.size();
  while (max < 0 || static_cast<int64_t>(parts.size()) < max) {
    heap.Work(sizeof(Value));
    const size_t found =
        from_right ? RFindBytes(heap, bytes, mark, end) : FindBytes(heap, bytes, mark, begin);
    if (found == std::string_view::npos) {
      break;
    }
    if (from_right) {
      parts.emplace_back(heap.Slice(text, found + mark.size(), end));
      end = found;
    } else {
      parts.emplace_back(heap.Slice(text, begin, found));
      begin = found + mark.size();
    }
  }
  parts.emplace_back(heap.Slice(text, begin, end));
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
  }
  return parts;
}

template <bool kRight>
Value Split(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, kRight ? "rsplit" : "split", {"sep", "maxsplit"});
  const Text* separator = OptionalText(bound[0], "split's separator");
  const int64_t max = bound.Int(1, -1);
  return e.heap().NewList(separator == nullptr
                              ? SplitSpace(e.heap(), self.AsText(), max, kRight)
                              : SplitBy(e.heap(), self.AsText(), *separator, max, kRight));
}

template <bool kRight>
Value Partition(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, kRight ? "rpartition" : "partition", {"sep"}, 1);
  const Text& text = self.AsText();
  const Text& mark = RequireText(*bound[0], "partition's separator");
  const std::string& bytes = text.bytes();
  if (mark.bytes().empty()) {
    Fail("empty separator");
  }
  const size_t found = kRight ? RFindBytes(e.heap(), bytes, mark.bytes(), bytes.size())
                              : FindBytes(e.heap(), bytes, mark.bytes());
  if (found == std::string_view::npos) {
    return e.heap().NewList(kRight ? std::vector<Value>{Text(), Text(), text}
                                   : std::vector<Value>{text, Text(), Text()},
                            SequenceKind::kTuple);
  }
  return e.heap().NewList({e.heap().Slice(text, 0, found), mark,
                           e.heap().Slice(text, found + mark.bytes().size(), bytes.size())},
                          SequenceKind::kTuple);
}

Value Splitlines(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "splitlines", {"keepends"});
  return e.heap().NewList(ToValues(SplitLines(e.heap(), self.AsText(), bound.Bool(0, false))));
}

Value Replace(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "replace", {"old", "new", "count"}, 2);
  const Text& from = RequireText(*bound[0], "replace's first argument");
  const Text& to = RequireText(*bound[1], "replace's second argument");
  const Text safe = self.AsText().markup() ? Escape(e.heap(), to) : to;
  return ReplaceText(e.heap(), self.AsText(), from, safe, bound.Int(2, -1));
}

template <bool kRight, bool kMustFind>
Value Find(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, kMustFind ? "index" : "find", {"sub", "start", "end"}, 1);
  const Text& text = self.AsText();
  const std::string& sub = RequireText(*bound[0], "find's argument").bytes();
  const ByteRange range = RangeOf(e.heap(), text, bound[1], bound[2]);
  size_t found = std::string_view::npos;
  if (range.valid) {
    const std::string_view part = std::string_view(text.bytes()).substr(0, range.end);
    found = kRight ? RFindBytes(e.heap(), part, sub, range.end)
                   : FindBytes(e.heap(), part, sub, range.begin);
    found = found != std::string_view::npos && found < range.begin ? std::string_view::npos : found;
  }
  if (found == std::string_view::npos) {
    if (kMustFind) {
      Fail("substring not found");
    }
    return -1;
  }
  return static_cast<int64_t>(CountPoints(std::string_view(text.bytes()).substr(0, found)));
}

Value CountText(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "count", {"sub", "start", "end"}, 1);
  const Text& text = self.AsText();
  const std::string& sub = RequireText(*bound[0], "count's argument").bytes();
  const ByteRange range = RangeOf(e.heap(), text, bound[1], bound[2]);
  if (!range.valid) {
    return 0;
  }
  const std::string_view part = std::string_view(text.bytes()).substr(0, range.end);
  if (sub.empty()) {
    return static_cast<int64_t>(CountPoints(part.substr(range.begin))) + 1;
  }
  int64_t count = 0;
  for (size_t pos = range.begin;
       (pos = FindBytes(e.heap(), part, sub, pos)) != std::string_view::npos; pos += sub.size()) {
    ++count;
  }
  return count;
}

Value JoinMethod(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "join", {"iterable"}, 1);
  return JoinTexts(e.heap(), self.AsText(), Iterate(e.heap(), *bound[0]), true);
}

template <bool (*kPredicate)(char32_t)>
Value AllOf(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "str method", {});
  e.heap().WorkPoints(self.AsText().length());
  bool all = !self.AsText().bytes().empty();
  for (PointReader reader(self.AsText()); all && !reader.done();) {
    all = kPredicate(reader.Next());
  }
  return all;
}

bool IsAlnumPoint(char32_t point) {
  return IsAlpha(point) || IsDecimal(point) || IsDigit(point) || IsNumeric(point);
}
bool IsAsciiPoint(char32_t point) { return point < 0x80; }

Value IsAsciiMethod(Evaluator& e, const Value& self, const CallArgs& args) {
  return self.AsText().bytes().empty() ? Value(true) : AllOf<IsAsciiPoint>(e, self, args);
}

template <bool (*kOther)(char32_t)>
Value AllCased(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "str method", {});
  return HasCaseWithout(e.heap(), self.AsText(), kOther);
}

enum class Side { kLeft, kRight, kCenter };

Text Justify(const Heap& heap, const Text& text, int64_t width, const Text& fill, Side side) {
  if (fill.length() != 1) {
    Fail("the fill character must be exactly one character long");
  }
  const auto length = static_cast<int64_t>(text.length());
  const int64_t pad = std::max<int64_t>(width - length, 0);
  // Python's str.center puts the odd one left when both pad and width are odd.
  const int64_t left = side == Side::kLeft    ? 0
                       : side == Side::kRight ? pad
                                              : pad / 2 + (pad & width & 1);
  TextBuilder builder(heap.budget());
  builder.set_markup(text.markup());
  builder.AppendRepeated(fill, left);
  builder.Append(text);
  builder.AppendRepeated(fill, pad - left);
  return builder.Finish();
}

template <Side kSide>
Value Justified(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "str method", {"width", "fillchar"}, 1);
  return Justify(e.heap(), self.AsText(), bound.Int(0, 0), bound.TextOr(1, " "), kSide);
}

Value Zfill(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "zfill", {"width"}, 1);
  const Text& text = self.AsText();
  const bool is_signed = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  const Text sign = e.heap().Slice(text, 0, is_signed ? 1 : 0);
  const Text digits = e.heap().Slice(text, is_signed ? 1 : 0, text.bytes().size());
  const int64_t width = bound.Int(0, 0) - (is_signed ? 1 : 0);
  TextBuilder builder(e.heap().budget());
  builder.Append(sign);
  builder.Append(Justify(e.heap(), digits, width, Text("0"), Side::kRight));
  return builder.Finish();
}

template <bool kPrefix>
Value RemoveAffix(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, kPrefix ? "removeprefix" : "removesuffix", {"affix"}, 1);
  const Text& text = self.AsText();
  const std::string& affix = RequireText(*bound[0], "the affix").bytes();
  const size_t size = text.bytes().size();
  if (kPrefix) {
    return e.heap().Slice(text, text.bytes().starts_with(affix) ? affix.size() : 0, size);
  }
  return e.heap().Slice(text, 0, text.bytes().ends_with(affix) ? size - affix.size() : size);
}

// str.format with {}, {0}, {name} and attribute or item paths; conversions and format specs are
// refused by name.
Value Format(Evaluator& e, const Value& self, const CallArgs& args) {
  const Text& text = self.AsText();
  const std::string& bytes = text.bytes();
  TextBuilder builder(e.heap().budget());
  builder.set_markup(text.markup());
  size_t next_argument = 0;
  size_t pos = 0;
  const auto field_value = [&](const std::string& name) -> Value {
    const bool number =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number) {
      const Value* named = args.Named(name);
      return named != nullptr ? *named : (Fail("format: no argument '" + name + "'"), Value());
    }
    const size_t index = name.empty()      ? next_argument++
                         : name.size() > 6 ? SIZE_MAX
                                           : std::stoul(name);
    return index < args.positional.size()
               ? args.positional[index]
               : (Fail("format: replacement index out of range"), Value());
  };
  while (pos < bytes.size()) {
    const size_t mark = std::min(bytes.find_first_of("{}", pos), bytes.size());
    builder.Append(text, pos, mark);
    if (mark >= bytes.size()) {
      break;
    }
    if (mark + 1 < bytes.size() && bytes[mark + 1] == bytes[mark]) {
      builder.Append(text, mark, mark + 1);
      pos = mark + 2;
      continue;
    }
    const size_t close = bytes[mark] == '{' ? bytes.find('}', mark) : std::string::npos;
    if (close == std::string::npos) {
      Fail("format: single '" + bytes.substr(mark, 1) + "' in the format string");
    }
    const std::string field = bytes.substr(mark + 1, close - mark - 1);
    if (field.find_first_of("{!:[.") != std::string::npos) {
      Fail("format: '{" + field + "}' is not supported: only {}, {0} and {name} are");
    }
    const Text shown = Str(e.heap(), field_value(field));
    builder.Append(text.markup() ? Escape(e.heap(), shown) : shown);
    pos = close + 1;
  }
  return builder.Finish();
}

// ---- dicts

Value DictGet(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "get", {"key", "default"}, 1);
  const DictData& dict = ValueAccess::Dict(self);
  e.heap().Work(bound[0]->is_text() ? 0 : dict.entries.size());
  const size_t at = dict.Find(*bound[0]);
  if (at < dict.entries.size()) {
    return dict.entries[at].second;
  }
  return bound[1] == nullptr ? Value(None{}) : *bound[1];
}

template <SequenceKind kKind>
Value DictView(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "dict method", {});
  std::vector<Value> items;
  e.heap().Work(self.Entries().size() * sizeof(Value::DictEntry));
  items.reserve(self.Entries().size());
  for (const auto& [key, value] : self.Entries()) {
    if (kKind == SequenceKind::kItems) {
      items.push_back(e.heap().NewList({key, value}, SequenceKind::kTuple));
    } else {
      items.push_back(kKind == SequenceKind::kKeys ? key : value);
    }
  }
  return e.heap().NewList(std::move(items), kKind);
}

Value Itself(Evaluator& /*e*/, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "copy", {});
  return self;
}

// ---- lists

Value ListIndex(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "index", {"value"}, 1);
  const std::vector<Value>& items = self.Items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(e.heap(), items[i], *bound[0])) {
      return static_cast<int64_t>(i);
    }
  }
  Fail("the value is not in the list");
}

Value ListCount(Evaluator& e, const Value& self, const CallArgs& args) {
  const BoundArgs bound(args, "count", {"value"}, 1);
  const std::vector<Value>& items = self.Items();
  return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return Equal(e.heap(), item, *bound[0]);
  }));
}

constexpr NamedMethod kTextMethods[] = {
    {"startswith", Affixed<true>},
    {"endswith", Affixed<false>},
    {"strip", Stripped<true, true>},
    {"lstrip", Stripped<true, false>},
    {"rstrip", Stripped<false, true>},
    {"split", Split<false>},
    {"rsplit", Split<true>},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"splitlines", Splitlines},
    {"replace", Replace},
    {"find", Find<false, false>},
    {"rfind", Find<true, false>},
    {"index", Find<false, true>},
    {"rindex", Find<true, true>},
    {"count", CountText},
    {"join", JoinMethod},
    {"upper", Cased<CaseChange::kUpper>},
    {"lower", Cased<CaseChange::kLower>},
    {"capitalize", Cased<CaseChange::kCapitalize>},
    {"title", Cased<CaseChange::kTitle>},
    {"swapcase", Cased<CaseChange::kSwap>},
    {"isalpha", AllOf<IsAlpha>},
    {"isdigit", AllOf<IsDigit>},
    {"isdecimal", AllOf<IsDecimal>},
    {"isnumeric", AllOf<IsNumeric>},
    {"isalnum", AllOf<IsAlnumPoint>},
    {"isspace", AllOf<IsSpace>},
    {"isascii", IsAsciiMethod},
    {"isupper", AllCased<IsLower>},
    {"islower", AllCased<IsUpper>},
    {"ljust", Justified<Side::kLeft>},
    {"rjust", Justified<Side::kRight>},
    {"center", Justified<Side::kCenter>},
    {"zfill", Zfill},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"format", Format},
};

constexpr NamedMethod kDictMethods[] = {
    {"get", DictGet},
    {"items", DictView<SequenceKind::kItems>},
    {"keys", DictView<SequenceKind::kKeys>},
    {"values", DictView<SequenceKind::kValues>},
    {"copy", Itself},
};

// Names that would change the dict: the sandbox answers undefined, even when the dict has such a
// key.
constexpr std::string_view kHiddenDictMethods[] = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};

constexpr NamedMethod kListMethods[] = {
    {"index", ListIndex}, {"count", ListCount}, {"copy", Itself}};

template <size_t N>
Value Bind(const NamedMethod (&methods)[N], const Value& object, std::string_view name) {
  for (const NamedMethod& entry : methods) {
    if (entry.name == name) {
      return MakeFunction(
          std::string(name),
          [method = entry.method, object](Evaluator& e, const CallArgs& args) {
            return method(e, object, args);
          },
          NestingOf(object) + 1);
    }
  }
  return Value();
}

}  // namespace

Value FindMethod(Evaluator& evaluator, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case ValueKind::kText:
      return Bind(kTextMethods, object, name);
    case ValueKind::kDict:
      return Bind(kDictMethods, object, name);
    case ValueKind::kList:
      return ValueAccess::List(object).kind <= SequenceKind::kTuple
                 ? Bind(kListMethods, object, name)
                 : Value();
    case ValueKind::kCallable:
      return ValueAccess::Function(object)->Attribute(evaluator, name);
    case ValueKind::kNamespace: {
      const Value* value = ValueAccess::Namespace(object).Find(name);
      return value == nullptr ? Value() : *value;
    }
    default:
      return Value();
  }
}

Value AttributeOf(Evaluator& evaluator, const Value& value, const std::string& name) {
  RequireDefined(value);
  Value found = FindMethod(evaluator, value, name);
  if (!found.is_undefined()) {
    return found;
  }
  const auto hidden = [&name](std::string_view method) { return method == name; };
  if (value.is_dict() &&
      std::none_of(std::begin(kHiddenDictMethods), std::end(kHiddenDictMethods), hidden)) {
    const DictData& dict = ValueAccess::Dict(value);
    const size_t at = dict.Find(std::string_view(name));
    if (at < dict.entries.size()) {
      return dict.entries[at].second;
    }
  }
  return Undefined{&name};
}

Value ItemOf(Evaluator& evaluator, const Value& value, const Value& key) {
  RequireDefined(value);
  evaluator.heap().Work(value.is_dict() && !key.is_text() ? value.Entries().size() : 0);
  if (value.is_dict()) {
    const DictData& dict = ValueAccess::Dict(value);
    const size_t at = dict.Find(key);
    if (at < dict.entries.size()) {
      return dict.entries[at].second;
    }
  } else {
    Value item = Item(evaluator.heap(), value, key);
    if (!item.is_undefined()) {
      return item;
    }
  }
  return key.is_text() ? FindMethod(evaluator, value, key.AsText().bytes()) : Value();
}

}  // namespace bloomery::jinja
