// The table of filters, and those over text, numbers and single values. Filters over sequences are
// in sequence_filters.cc.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/sequence_filters.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

template <CaseChange kChange>
Value Cased(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "filter", {});
  return ChangeCase(e.heap(), Str(e.heap(), value), kChange);
}

// jinja2's title: words begin after white space and opening marks only.
Value Title(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "title", {});
  const Text text = Str(e.heap(), value);
  TextBuilder builder(e.heap().budget());
  const auto begins_word = [](char32_t point) {
    return point == '-' || point == '(' || point == '{' || point == '[' || point == '<' ||
           IsSpace(point);
  };
  size_t begin = 0;
  const std::string& bytes = text.bytes();
  const auto flush = [&](size_t end) {
    if (begin == end) {
      return;
    }
    size_t first = begin;
    DecodePoint(bytes, first);
    builder.Append(ChangeCase(e.heap(), e.heap().Slice(text, begin, first), CaseChange::kUpper));
    builder.Append(ChangeCase(e.heap(), e.heap().Slice(text, first, end), CaseChange::kLower));
  };
  for (size_t pos = 0; pos < bytes.size();) {
    size_t next = pos;
    if (begins_word(DecodePoint(bytes, next))) {
      flush(pos);
      builder.Append(text, pos, next);
      begin = next;
    }
    pos = next;
  }
  flush(bytes.size());
  return builder.Finish();
}

Value Trim(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "trim", {"chars"});
  const Text* chars = bound[0] == nullptr || bound[0]->is_none()
                          ? nullptr
                          : &RequireText(*bound[0], "trim's argument");
  return Strip(e.heap(), Str(e.heap(), value), chars, true, true);
}

Value Replace(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "replace", {"old", "new", "count"}, 2);
  const bool all = bound[2] == nullptr || bound[2]->is_none();
  return ReplaceText(e.heap(), Str(e.heap(), value), Str(e.heap(), *bound[0]),
                     Str(e.heap(), *bound[1]), all ? -1 : bound.Int(2, -1));
}

Value Indent(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "indent", {"width", "first", "blank"});
  const Heap& heap = e.heap();
  Text indention;
  if (bound[0] != nullptr && bound[0]->is_text()) {
    indention = bound[0]->AsText();
  } else {
    TextBuilder spaces(heap.budget());
    spaces.AppendRepeated(Text(" "), bound.Int(0, 4));
    indention = spaces.Finish();
  }
  // The added line end makes an empty last line count.
  const Text text = Binary(heap, BinaryOp::kAdd, Str(heap, value), Text("\n")).AsText();
  const std::vector<Text> lines = SplitLines(heap, text, false);
  TextBuilder builder(heap.budget());
  for (size_t i = 0; i < lines.size(); ++i) {
    builder.Append(i == 0 ? "" : "\n", false);
    const bool wanted =
        i == 0 ? bound.Bool(1, false) : bound.Bool(2, false) || !lines[i].bytes().empty();
    if (wanted) {
      builder.Append(indention);
    }
    builder.Append(lines[i]);
  }
  return builder.Finish();
}

Value Truncate(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "truncate", {"length", "killwords", "end", "leeway"});
  constexpr int64_t kLeeway = 5;  // jinja2's policy
  const Text text = Str(e.heap(), value);
  const int64_t length = bound.Int(0, 255);
  const Text end = bound.TextOr(2, "...");
  const int64_t leeway =
      bound[3] == nullptr || bound[3]->is_none() ? kLeeway : bound.Int(3, kLeeway);
  const auto end_length = static_cast<int64_t>(end.length());
  if (length < end_length) {
    Fail("truncate: expected length >= " + std::to_string(end_length) + ", got " +
         std::to_string(length));
  }
  if (leeway < 0) {
    Fail("truncate: expected leeway >= 0, got " + std::to_string(leeway));
  }
  const auto have = static_cast<int64_t>(text.length());
  if (have <= length || have - length <= leeway) {
    return text;
  }
  Text kept =
      e.heap().Slice(text, 0, ByteOffset(e.heap(), text, static_cast<size_t>(length - end_length)));
  if (!bound.Bool(1, false)) {
    const size_t space = kept.bytes().rfind(' ');
    kept = e.heap().Slice(kept, 0, space == std::string::npos ? kept.bytes().size() : space);
  }
  return Binary(e.heap(), BinaryOp::kAdd, kept, end);
}

Value Center(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "center", {"width"});
  CallArgs width;
  width.positional.push_back(bound.Int(0, 80));
  const Text text = Str(e.heap(), value);
  return e.Call(FindMethod(e, text, "center"), width);
}

Value WordCount(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "wordcount", {});
  const Text text = Str(e.heap(), value);
  e.heap().WorkPoints(text.length());
  int64_t words = 0;
  bool inside = false;
  for (PointReader reader(text); !reader.done();) {
    const char32_t point = reader.Next();
    const bool word = point == '_' || IsAlpha(point) || IsNumeric(point);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

Value ToText(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "string", {});
  return Str(e.heap(), value);
}

Value Safe(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "safe", {});
  TextBuilder builder(e.heap().budget());
  builder.Append(Str(e.heap(), value));
  builder.set_markup(true);
  return builder.Finish();
}

Value EscapeFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "escape", {});
  return Escape(e.heap(), Str(e.heap(), value));
}

Value Format(Evaluator& e, const Value& value, const CallArgs& args) {
  const Text format = Str(e.heap(), value);
  if (args.named.empty()) {
    return PercentFormat(e.heap(), format, e.heap().NewList(args.positional, SequenceKind::kTuple));
  }
  if (!args.positional.empty()) {
    Fail("can't handle positional and keyword arguments at the same time");
  }
  std::vector<Value::DictEntry> entries;
  entries.reserve(args.named.size());
  for (const auto& [name, argument] : args.named) {
    entries.emplace_back(e.heap().NewText(name), argument);
  }
  return PercentFormat(e.heap(), format, e.heap().NewDict(std::move(entries)));
}

// `form`: as in a form's data, where a space is a plus and a slash is quoted.
void AppendQuoted(TextBuilder& out, const Text& text, bool form) {
  for (size_t pos = 0; pos < text.bytes().size(); ++pos) {
    const char c = text.bytes()[pos];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !form);
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out.Append(plain              ? std::string_view(&c, 1)
               : form && c == ' ' ? "+"
                                  : std::string_view(hex, 3),
               false);
  }
}

Value UrlEncode(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "urlencode", {});
  const Heap& heap = e.heap();
  TextBuilder out(heap.budget());
  if (!value.is_dict() && !value.is_list()) {
    AppendQuoted(out, Str(heap, value), false);
    return out.Finish();
  }
  std::vector<Value::DictEntry> pairs;
  if (value.is_dict()) {
    pairs = value.Entries();
  } else {
    for (const Value& pair : Iterate(heap, value)) {
      const std::vector<Value> parts = Iterate(heap, pair);
      if (parts.size() != 2) {
        Fail("urlencode: each item must be a pair");
      }
      pairs.emplace_back(parts[0], parts[1]);
    }
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    out.Append(i == 0 ? "" : "&", false);
    AppendQuoted(out, Str(heap, pairs[i].first), true);
    out.Append("=", false);
    AppendQuoted(out, Str(heap, pairs[i].second), true);
  }
  return out.Finish();
}

// ---- numbers

Value Abs(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "abs", {});
  const auto number = AsNumber(value);
  if (!number) {
    RequireDefined(value);
    Fail("bad operand type for abs(): '" + std::string(TypeName(value)) + "'");
  }
  return *number < 0 ? Negate(value) : Plus(value);
}

// Python's float(text), or nullopt.
std::optional<double> ParseFloat(const Heap& heap, const Text& text) {
  std::string digits = Strip(heap, text, nullptr, true, true).bytes();
  for (size_t i = 1; i + 1 < digits.size(); ++i) {
    const auto digit = [&](size_t at) { return digits[at] >= '0' && digits[at] <= '9'; };
    if (digits[i] == '_' && digit(i - 1) && digit(i + 1)) {
      digits.erase(i, 1);
    }
  }
  std::string lower = digits;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  const std::string_view body = lower.starts_with('-') || lower.starts_with('+')
                                    ? std::string_view(lower).substr(1)
                                    : std::string_view(lower);
  const bool word = body == "inf" || body == "infinity" || body == "nan";
  // Hexadecimal and other spellings strtod knows are not Python's.
  if (body.empty() ||
      (!word && body.find_first_not_of("0123456789.e+-") != std::string_view::npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double parsed = std::strtod(lower.c_str(), &end);
  return end == lower.c_str() + lower.size() ? std::optional<double>(parsed) : std::nullopt;
}

// Python's int(text, base), or nullopt.
std::optional<int64_t> ParseInt(const Heap& heap, const Text& text, int64_t base) {
  std::string digits = Strip(heap, text, nullptr, true, true).bytes();
  std::string sign;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    sign = digits.front() == '-' ? "-" : "";
    digits.erase(0, 1);
  }
  const char letter =
      digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int64_t prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefixed != 0 && (base == prefixed || base == 0)) {
    digits.erase(0, digits[2] == '_' ? 3 : 2);
    base = prefixed;
  }
  base = base == 0 ? 10 : base;
  if (base < 2 || base > 36) {
    return std::nullopt;
  }
  for (size_t i = 1; i + 1 < digits.size(); ++i) {
    if (digits[i] == '_' && digits[i - 1] != '_' && digits[i + 1] != '_') {
      digits.erase(i, 1);
    }
  }
  if (digits.empty() || digits.front() == '-') {
    return std::nullopt;
  }
  digits.insert(0, sign);
  int64_t value = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size()) {
    return std::nullopt;
  }
  if (result.ec == std::errc::result_out_of_range) {
    Fail("integer overflow: '" + digits + "' does not fit 64 bits");
  }
  return value;
}

// int(value) of a float; nullopt for NaN, and an error beyond 64 bits.
std::optional<int64_t> Truncated(double value) {
  if (std::isnan(value)) {
    return std::nullopt;
  }
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value < kLimit && value >= -kLimit)) {
    Fail("cannot convert float " + FloatRepr(value) + " to a 64-bit integer");
  }
  return static_cast<int64_t>(value);
}

Value ToInt(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "int", {"default", "base"});
  const Value otherwise = bound[0] == nullptr ? Value(0) : *bound[0];
  RequireDefined(value);
  if (value.is_text()) {
    if (const auto integer = ParseInt(e.heap(), value.AsText(), bound.Int(1, 10))) {
      return *integer;
    }
    const auto real = ParseFloat(e.heap(), value.AsText());
    const auto integer = real ? Truncated(*real) : std::nullopt;
    return integer ? Value(*integer) : otherwise;
  }
  if (const auto integer = AsIndex(value)) {
    return *integer;
  }
  const auto integer =
      value.kind() == ValueKind::kFloat ? Truncated(value.AsFloat()) : std::nullopt;
  return integer ? Value(*integer) : otherwise;
}

Value ToFloat(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "float", {"default"});
  RequireDefined(value);
  const auto number = value.is_text() ? ParseFloat(e.heap(), value.AsText()) : AsNumber(value);
  if (number) {
    return *number;
  }
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

// Correctly rounded to `precision` decimal places, ties to even, as Python's round.
double RoundDecimal(double value, int64_t precision) {
  constexpr int64_t kDigitsMax = 323;
  if (!std::isfinite(value) || precision > kDigitsMax) {
    return value;
  }
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(std::min(-precision, kDigitsMax)));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
  return std::strtod(buffer, nullptr);
}

Value Round(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "round", {"precision", "method"});
  const int64_t precision = bound.Int(0, 0);
  const std::string method = bound.TextOr(1, "common").bytes();
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("round: method must be common, ceil or floor, not '" + method + "'");
  }
  const auto number = AsNumber(value);
  if (!number) {
    RequireDefined(value);
    Fail("round needs a number, not '" + std::string(TypeName(value)) + "'");
  }
  if (method == "common") {
    const auto integer = AsIndex(value);
    if (integer && precision >= 0) {
      return *integer;
    }
    const double rounded = RoundDecimal(*number, precision);
    return integer ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

// ---- any value

Value Default(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "default", {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (bound.Bool(1, false) && !Truthy(value));
  if (!missing) {
    return value;
  }
  return bound[0] == nullptr ? Value(Text()) : *bound[0];
}

Value Length(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "length", {});
  return static_cast<int64_t>(LengthOf(value));
}

Value Attr(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "attr", {"name"}, 1);
  RequireDefined(value);
  return FindMethod(e, value, RequireText(*bound[0], "attr's name").bytes());
}

void ReadSeparators(const Value& value, JsonStyle& style) {
  const bool pair = value.is_list() && value.Items().size() == 2;
  if (!pair) {
    Fail("tojson: separators must be a pair of strings");
  }
  style.item_separator = RequireText(value.Items()[0], "tojson's item separator").bytes();
  style.key_separator = RequireText(value.Items()[1], "tojson's key separator").bytes();
}

Value ToJsonFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.Bool(0, false);
  style.sort_keys = bound.Bool(3, false);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    constexpr int64_t kIndentMax = 1024;
    if (bound[1]->is_text()) {
      style.indent = bound[1]->AsText().bytes();
    } else {
      const int64_t width = bound.Int(1, 0);
      if (width > kIndentMax) {
        Fail("tojson: indent beyond " + std::to_string(kIndentMax));
      }
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    ReadSeparators(*bound[2], style);
  }
  return JsonDumps(e.heap(), value, style);
}

Value FromJsonFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "from_json", {});
  const Text& text = RequireText(value, "from_json's value");
  // What is parsed is charged by its text: the values outlive this call outside the budget's sight,
  // but not the render.
  constexpr size_t kBytesPerByte = 32;
  Charge charge(e.heap().budget(), text.bytes().size() * kBytesPerByte);
  const Value parsed =
      TryParseJson(text.bytes(), text.input_spans().empty() ? Origin::kTrusted : Origin::kInput);
  if (parsed.is_undefined()) {
    Fail("from_json: not valid JSON");
  }
  e.heap().Work(text.bytes().size() * kBytesPerByte);
  return parsed;
}

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

constexpr NamedFilter kFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"batch", BatchFilter},
    {"capitalize", Cased<CaseChange::kCapitalize>},
    {"center", Center},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSortFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"first", FirstFilter},
    {"float", ToFloat},
    {"forceescape", EscapeFilter},
    {"format", Format},
    {"from_json", FromJsonFilter},
    {"groupby", GroupByFilter},
    {"indent", Indent},
    {"int", ToInt},
    {"items", ItemsFilter},
    {"join", JoinFilter},
    {"last", LastFilter},
    {"length", Length},
    {"list", ListFilter},
    {"lower", Cased<CaseChange::kLower>},
    {"map", MapFilter},
    {"max", MaxFilter},
    {"min", MinFilter},
    {"reject", RejectFilter},
    {"rejectattr", RejectAttrFilter},
    {"replace", Replace},
    {"reverse", ReverseFilter},
    {"round", Round},
    {"safe", Safe},
    {"select", SelectFilter},
    {"selectattr", SelectAttrFilter},
    {"slice", SliceFilter},
    {"sort", SortFilter},
    {"string", ToText},
    {"sum", SumFilter},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"unique", UniqueFilter},
    {"upper", Cased<CaseChange::kUpper>},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  const auto* const it = std::lower_bound(
      std::begin(kFilters), std::end(kFilters), name,
      [](const NamedFilter& filter, std::string_view key) { return filter.name < key; });
  return it == std::end(kFilters) || it->name != name ? nullptr : it->function;
}

}  // namespace bloomery::jinja
