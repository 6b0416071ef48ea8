#include "runtime/text/jinja/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/stable_order.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

// From this decimal exponent on (and below -4) Python writes floats with an exponent.
constexpr int kReprExponentMax = 16;

void AppendHex(TextBuilder& out, char32_t value, int digits, bool input) {
  std::array<char, 16> buffer{};
  const int size =
      std::snprintf(buffer.data(), buffer.size(), "%0*x", digits, static_cast<unsigned>(value));
  out.Append(std::string_view(buffer.data(), static_cast<size_t>(size)), input);
}

void AppendReprPoint(TextBuilder& out, char32_t point, char quote, bool input) {
  if (point == static_cast<char32_t>(quote) || point == '\\') {
    out.Append("\\", input);
    out.AppendPoint(point, input);
  } else if (point == '\n') {
    out.Append("\\n", input);
  } else if (point == '\r') {
    out.Append("\\r", input);
  } else if (point == '\t') {
    out.Append("\\t", input);
  } else if (point == ' ' || IsPrintable(point)) {
    out.AppendPoint(point, input);
  } else {
    const int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
    out.Append(digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U", input);
    AppendHex(out, point, digits, input);
  }
}

void AppendTextRepr(TextBuilder& out, const Text& text) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  const std::string_view mark(&quote, 1);
  out.Append(text.markup() ? "Markup(" : "", false);
  out.Append(mark, false);
  for (PointReader reader(text); !reader.done();) {
    const char32_t point = reader.Next();
    AppendReprPoint(out, point, quote, reader.input());
  }
  out.Append(mark, false);
  out.Append(text.markup() ? ")" : "", false);
}

void AppendRepr(TextBuilder& out, const Value& value);

void AppendJoined(TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    out.Append(i == 0 ? "" : ", ", false);
    AppendRepr(out, items[i]);
  }
}

void AppendListRepr(TextBuilder& out, const ListData& list) {
  switch (list.kind) {
    case SequenceKind::kTuple:
      out.Append("(", false);
      AppendJoined(out, list.items);
      out.Append(list.items.size() == 1 ? ",)" : ")", false);
      return;
    case SequenceKind::kRange:
      out.Append("range(" + std::to_string(list.range[0]) + ", " + std::to_string(list.range[1]) +
                     (list.range[2] == 1 ? "" : ", " + std::to_string(list.range[2])) + ")",
                 false);
      return;
    case SequenceKind::kIterator:
      out.Append("<generator object>", false);
      return;
    case SequenceKind::kList:
      break;
    case SequenceKind::kKeys:
      out.Append("dict_keys(", false);
      break;
    case SequenceKind::kValues:
      out.Append("dict_values(", false);
      break;
    case SequenceKind::kItems:
      out.Append("dict_items(", false);
      break;
  }
  out.Append("[", false);
  AppendJoined(out, list.items);
  out.Append(list.kind == SequenceKind::kList ? "]" : "])", false);
}

void AppendRepr(TextBuilder& out, const Value& value) {
  out.CountPoint();
  switch (value.kind()) {
    case ValueKind::kUndefined:
      out.Append("Undefined", false);
      return;
    case ValueKind::kNone:
      out.Append("None", false);
      return;
    case ValueKind::kBool:
      out.Append(value.AsBool() ? "True" : "False", false);
      return;
    case ValueKind::kInt:
      out.Append(std::to_string(value.AsInt()), false);
      return;
    case ValueKind::kFloat:
      out.Append(FloatRepr(value.AsFloat()), false);
      return;
    case ValueKind::kText:
      AppendTextRepr(out, value.AsText());
      return;
    case ValueKind::kList:
      AppendListRepr(out, ValueAccess::List(value));
      return;
    case ValueKind::kDict: {
      std::string_view separator = "{";
      for (const auto& [key, entry] : value.Entries()) {
        out.Append(separator, false);
        AppendRepr(out, key);
        out.Append(": ", false);
        AppendRepr(out, entry);
        separator = ", ";
      }
      out.Append(value.Entries().empty() ? "{}" : "}", false);
      return;
    }
    case ValueKind::kNamespace:
      // The attributes are not shown: a namespace may hold itself.
      out.Append("<Namespace>", false);
      return;
    case ValueKind::kCallable:
      out.Append(ValueAccess::Function(value)->Repr(), false);
      return;
  }
}

// ---- JSON

class JsonWriter {
 public:
  JsonWriter(const Heap& heap, const JsonStyle& style)
      : heap_(heap), style_(style), out_(heap.budget()) {}

  void Write(const Value& value, size_t level) {
    switch (value.kind()) {
      case ValueKind::kNone:
        return out_.Append("null", false);
      case ValueKind::kBool:
        return out_.Append(value.AsBool() ? "true" : "false", false);
      case ValueKind::kInt:
        return out_.Append(std::to_string(value.AsInt()), false);
      case ValueKind::kFloat:
        return out_.Append(JsonFloat(value.AsFloat()), false);
      case ValueKind::kText:
        return WriteText(value.AsText());
      case ValueKind::kDict:
        if (WriteAsRead(ValueAccess::Dict(value).json)) {
          return;
        }
        return WriteDict(value, level);
      case ValueKind::kList: {
        if (WriteAsRead(ValueAccess::List(value).json)) {
          return;
        }
        const SequenceKind kind = ValueAccess::List(value).kind;
        if (kind == SequenceKind::kList || kind == SequenceKind::kTuple) {
          return WriteList(value.Items(), level);
        }
        [[fallthrough]];
      }
      default:
        Fail("Object of type " + std::string(TypeName(value)) + " is not JSON serializable");
    }
  }

  Text Finish() { return out_.Finish(); }

 private:
  static std::string JsonFloat(double value) {
    if (std::isnan(value)) {
      return "NaN";
    }
    if (std::isinf(value)) {
      return value < 0 ? "-Infinity" : "Infinity";
    }
    return FloatRepr(value);
  }

  // The text that the value was read from, where it is kept and no other form is asked for.
  bool WriteAsRead(const std::string& json) {
    const bool plain = !style_.ascii && !style_.sort_keys && !style_.indent &&
                       style_.item_separator == ", " && style_.key_separator == ": ";
    if (json.empty() || !plain) {
      return false;
    }
    heap_.Work(json.size());
    out_.Append(json, true);
    return true;
  }

  void NewLine(size_t level) {
    if (!style_.indent) {
      return;
    }
    out_.Append("\n", false);
    for (size_t i = 0; i < level; ++i) {
      out_.Append(*style_.indent, false);
    }
  }

  void WriteEscaped(char32_t point, bool input) {
    switch (point) {
      case '"':
        return out_.Append("\\\"", input);
      case '\\':
        return out_.Append("\\\\", input);
      case '\n':
        return out_.Append("\\n", input);
      case '\r':
        return out_.Append("\\r", input);
      case '\t':
        return out_.Append("\\t", input);
      case '\b':
        return out_.Append("\\b", input);
      case '\f':
        return out_.Append("\\f", input);
      default:
        break;
    }
    if (point >= 0x20 && !(style_.ascii && point >= 0x7F)) {
      return out_.AppendPoint(point, input);
    }
    if (point >= 0x10000) {
      out_.Append("\\u", input);
      AppendHex(out_, 0xD800 + ((point - 0x10000) >> 10), 4, input);
      point = 0xDC00 + ((point - 0x10000) & 0x3FF);
    }
    out_.Append("\\u", input);
    AppendHex(out_, point, 4, input);
  }

  void WriteText(const Text& text) {
    out_.Append("\"", false);
    for (PointReader reader(text); !reader.done();) {
      const char32_t point = reader.Next();
      WriteEscaped(point, reader.input());
    }
    out_.Append("\"", false);
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case ValueKind::kText:
        return WriteText(key.AsText());
      case ValueKind::kUndefined:
        Fail("keys must be str, int, float, bool or None, not Undefined");
      default:
        out_.Append("\"", false);
        Write(key, 0);
        out_.Append("\"", false);
    }
  }

  void WriteList(const std::vector<Value>& items, size_t level) {
    out_.Append("[", false);
    for (size_t i = 0; i < items.size(); ++i) {
      heap_.Work(sizeof(Value));
      out_.Append(i == 0 ? std::string_view() : style_.item_separator, false);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    if (!items.empty()) {
      NewLine(level);
    }
    out_.Append("]", false);
  }

  void WriteDict(const Value& value, size_t level) {
    const std::vector<Value::DictEntry>& entries = value.Entries();
    const bool sorted = style_.sort_keys;
    const std::vector<size_t> order = StableOrder(entries.size(), [&](size_t a, size_t b) {
      return sorted && Less(heap_, entries[a].first, entries[b].first);
    });
    out_.Append("{", false);
    for (size_t i = 0; i < order.size(); ++i) {
      heap_.Work(sizeof(Value::DictEntry));
      out_.Append(i == 0 ? std::string_view() : style_.item_separator, false);
      NewLine(level + 1);
      WriteKey(entries[order[i]].first);
      out_.Append(style_.key_separator, false);
      Write(entries[order[i]].second, level + 1);
    }
    if (!entries.empty()) {
      NewLine(level);
    }
    out_.Append("}", false);
  }

  const Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

// ---- % formatting

struct Conversion {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = 's';
};

// Beyond this no template means it; the text limits would catch larger ones only by steps.
constexpr int64_t kFormatWidthMax = 1 << 20;
constexpr int64_t kFormatPrecisionMax = 400;

class PercentFormatter {
 public:
  PercentFormatter(const Heap& heap, const Text& format, const Value& arguments)
      : heap_(heap), format_(format), arguments_(arguments), out_(heap.budget()) {
    out_.set_markup(format.markup());
  }

  Text Run() {
    const std::string& bytes = format_.bytes();
    while (pos_ < bytes.size()) {
      const size_t mark = std::min(bytes.find('%', pos_), bytes.size());
      out_.Append(format_, pos_, mark);
      pos_ = mark;
      if (pos_ < bytes.size()) {
        ++pos_;
        One();
      }
    }
    const bool tuple =
        arguments_.is_list() && ValueAccess::List(arguments_).kind == SequenceKind::kTuple;
    const size_t given = tuple                                          ? arguments_.Items().size()
                         : arguments_.is_dict() || arguments_.is_list() ? 0
                                                                        : 1;
    if (used_ < given) {
      Fail("not all arguments converted during string formatting");
    }
    return out_.Finish();
  }

 private:
  char Peek() const {
    if (pos_ >= format_.bytes().size()) {
      Fail("incomplete format");
    }
    return format_.bytes()[pos_];
  }

  const Value& NextArgument() {
    const bool tuple =
        arguments_.is_list() && ValueAccess::List(arguments_).kind == SequenceKind::kTuple;
    const size_t at = used_++;
    if (tuple ? at >= arguments_.Items().size() : at > 0) {
      Fail("not enough arguments for format string");
    }
    return tuple ? arguments_.Items()[at] : arguments_;
  }

  int64_t Number(int64_t max) {
    if (Peek() == '*') {
      ++pos_;
      const int64_t value = RequireInt(NextArgument(), "* of a format");
      if (value > max || value < -max) {
        Fail("format width or precision beyond " + std::to_string(max));
      }
      return value;
    }
    int64_t value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + (format_.bytes()[pos_++] - '0');
      if (value > max) {
        Fail("format width or precision beyond " + std::to_string(max));
      }
    }
    return value;
  }

  void Flags(Conversion& conversion) {
    for (;; ++pos_) {
      switch (Peek()) {
        case '-':
          conversion.left = true;
          break;
        case '0':
          conversion.zero = true;
          break;
        case '+':
          conversion.plus = true;
          break;
        case ' ':
          conversion.space = true;
          break;
        case '#':
          conversion.alternate = true;
          break;
        default:
          return;
      }
    }
  }

  void One() {
    const Value* named = nullptr;
    if (Peek() == '(') {
      named = &NamedArgument();
    }
    Conversion conversion;
    Flags(conversion);
    conversion.width = Number(kFormatWidthMax);
    if (conversion.width < 0) {
      conversion.left = true;
      conversion.width = -conversion.width;
    }
    if (Peek() == '.') {
      ++pos_;
      conversion.precision = std::max<int64_t>(Number(kFormatWidthMax), 0);
    }
    while (Peek() == 'l' || Peek() == 'h' || Peek() == 'L') {
      ++pos_;
    }
    conversion.type = Peek();
    ++pos_;
    if (conversion.type == '%') {
      out_.Append("%", false);
      return;
    }
    Convert(conversion, named != nullptr ? *named : NextArgument());
  }

  const Value& NamedArgument() {
    if (!arguments_.is_dict()) {
      Fail("format requires a mapping");
    }
    const size_t begin = ++pos_;
    const size_t end = format_.bytes().find(')', begin);
    if (end == std::string::npos) {
      Fail("incomplete format key");
    }
    pos_ = end + 1;
    const DictData& dict = ValueAccess::Dict(arguments_);
    const size_t at = dict.Find(std::string_view(format_.bytes()).substr(begin, end - begin));
    if (at >= dict.entries.size()) {
      Fail("format key '" + format_.bytes().substr(begin, end - begin) + "' is missing");
    }
    return dict.entries[at].second;
  }

  void Convert(const Conversion& conversion, const Value& value) {
    switch (conversion.type) {
      case 's':
      case 'r':
      case 'a': {
        Text text = conversion.type == 's' ? Str(heap_, value) : Repr(heap_, value);
        if (format_.markup()) {
          text = Escape(heap_, text);
        }
        if (conversion.precision && static_cast<size_t>(*conversion.precision) < text.length()) {
          text = heap_.Slice(text, 0,
                             ByteOffset(heap_, text, static_cast<size_t>(*conversion.precision)));
        }
        return Pad(conversion, text);
      }
      case 'c':
        return ConvertCharacter(conversion, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInt(conversion, value);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return ConvertFloat(conversion, value);
      default:
        Fail("unsupported format character '" + std::string(1, conversion.type) + "'");
    }
  }

  void ConvertCharacter(const Conversion& conversion, const Value& value) {
    if (value.is_text()) {
      if (value.AsText().length() != 1) {
        Fail("%c requires int or char");
      }
      return Pad(conversion, value.AsText());
    }
    const int64_t point = RequireInt(value, "%c's value");
    if (point < 0 || point > 0x10FFFF) {
      Fail("%c arg not in range(0x110000)");
    }
    std::string bytes;
    AppendPoint(bytes, static_cast<char32_t>(point));
    Pad(conversion, heap_.NewText(bytes).AsText());
  }

  std::string_view Sign(const Conversion& conversion, bool negative) const {
    return negative ? "-" : conversion.plus ? "+" : conversion.space ? " " : "";
  }

  void ConvertInt(const Conversion& conversion, const Value& value) {
    int64_t number = 0;
    const bool decimal = conversion.type == 'd' || conversion.type == 'i' || conversion.type == 'u';
    if (decimal && value.kind() == ValueKind::kFloat) {
      const double truncated = std::trunc(value.AsFloat());
      if (!(std::fabs(truncated) < 9.2e18)) {
        Fail("cannot convert this float to an integer");
      }
      number = static_cast<int64_t>(truncated);
    } else {
      number = RequireInt(value, "%" + std::string(1, conversion.type) + "'s value");
    }
    const uint64_t magnitude =
        number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
    std::array<char, 72> buffer{};
    const int base = decimal ? 10 : conversion.type == 'o' ? 8 : 16;
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr;
    std::string digits(buffer.data(), end);
    if (conversion.type == 'X') {
      std::transform(digits.begin(), digits.end(), digits.begin(), [](char c) {
        return c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c;
      });
    }
    const auto precision =
        static_cast<size_t>(std::min(conversion.precision.value_or(0), kFormatPrecisionMax));
    if (digits.size() < precision) {
      digits.insert(0, precision - digits.size(), '0');
    }
    std::string prefix(Sign(conversion, number < 0));
    if (conversion.alternate && !decimal) {
      prefix += '0';
      prefix += conversion.type;
    }
    PadNumber(conversion, prefix, digits);
  }

  void ConvertFloat(const Conversion& conversion, const Value& value) {
    const auto number = AsNumber(value);
    if (!number) {
      RequireDefined(value);
      Fail("must be real number, not " + std::string(TypeName(value)));
    }
    if (!std::isfinite(*number)) {
      const std::string_view word = std::isnan(*number) ? "nan" : "inf";
      Conversion plain = conversion;
      plain.zero = false;
      return PadNumber(plain,
                       std::string(Sign(conversion, std::signbit(*number) && !std::isnan(*number))),
                       std::string(word));
    }
    const std::string format =
        std::string("%") + (conversion.alternate ? "#" : "") + ".*" + conversion.type;
    std::array<char, 1024> buffer{};
    const auto precision =
        static_cast<int>(std::min(conversion.precision.value_or(6), kFormatPrecisionMax));
    const int size =
        FormatDouble(buffer.data(), buffer.size(), format, precision, std::fabs(*number));
    PadNumber(conversion, std::string(Sign(conversion, std::signbit(*number))),
              std::string(buffer.data(), static_cast<size_t>(size)));
  }

  // The format string is built from a checked type letter.
  static int FormatDouble(char* buffer, size_t size, const std::string& format, int precision,
                          double value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return std::snprintf(buffer, size, format.c_str(), precision, value);
#pragma GCC diagnostic pop
  }

  void PadNumber(const Conversion& conversion, const std::string& prefix,
                 const std::string& digits) {
    const auto width = static_cast<size_t>(conversion.width);
    const size_t size = prefix.size() + digits.size();
    const std::string zeros(conversion.zero && !conversion.left && size < width ? width - size : 0,
                            '0');
    Pad(conversion, heap_.NewText(prefix + zeros + digits).AsText());
  }

  void Pad(const Conversion& conversion, const Text& text) {
    const auto width = static_cast<size_t>(conversion.width);
    const std::string fill(text.length() < width ? width - text.length() : 0, ' ');
    out_.Append(conversion.left ? "" : std::string_view(fill), false);
    out_.Append(text);
    out_.Append(conversion.left ? std::string_view(fill) : "", false);
  }

  const Heap& heap_;
  const Text& format_;
  const Value& arguments_;
  TextBuilder out_;
  size_t pos_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  std::array<char, 64> buffer{};
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                  std::chars_format::scientific)
                        .ptr;
  std::string_view digits(buffer.data(), static_cast<size_t>(end - buffer.data()));
  std::string out;
  if (digits.front() == '-') {
    out = "-";
    digits.remove_prefix(1);
  }
  const size_t mark = digits.find('e');
  int exponent = 0;
  const std::string_view power = digits.substr(mark + (digits[mark + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string mantissa(digits.substr(0, mark));
  mantissa.erase(std::remove(mantissa.begin(), mantissa.end(), '.'), mantissa.end());
  const auto count = static_cast<int>(mantissa.size());
  if (exponent < -4 || exponent >= kReprExponentMax) {
    out += mantissa.substr(0, 1);
    out += count > 1 ? "." + mantissa.substr(1) : "";
    out += exponent < 0 ? "e-" : "e+";
    out += std::abs(exponent) < 10 ? "0" : "";
    return out + std::to_string(std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + mantissa;
  }
  if (count <= exponent + 1) {
    return out + mantissa + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  return out + mantissa.substr(0, whole) + "." + mantissa.substr(whole);
}

Text Str(const Heap& heap, const Value& value) {
  if (value.is_text()) {
    return value.AsText();
  }
  if (value.is_undefined()) {
    return Text();
  }
  return Repr(heap, value);
}

Text Repr(const Heap& heap, const Value& value) {
  TextBuilder builder(heap.budget());
  AppendRepr(builder, value);
  return builder.Finish();
}

Text JsonDumps(const Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.Write(value, 0);
  return writer.Finish();
}

Text PercentFormat(const Heap& heap, const Text& format, const Value& arguments) {
  return PercentFormatter(heap, format, arguments).Run();
}

}  // namespace bloomery::jinja
