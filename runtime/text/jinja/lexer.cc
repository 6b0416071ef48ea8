#include "runtime/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNamePoint(char32_t point) { return point == '_' || IsAlpha(point) || IsNumeric(point); }

int HexValue(char c) {
  if (IsAsciiDigit(c)) {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Line ends become \n; one at the very end is dropped.
std::string NormalizeSource(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view name) : source_(std::move(source)), name_(name) {}

  std::vector<Token> Run() {
    while (pos_ < source_.size()) {
      Root();
    }
    Push(TokenKind::kEnd, pos_);
    return std::move(tokens_);
  }

 private:
  struct Opening {
    char kind = 0;  // '{' variable, '%' block, '#' comment, 'r' raw; 0: none
    char sign = 0;  // '-', '+' or 0
    size_t begin = 0;
    size_t end = 0;  // behind the opening (for raw: behind the whole raw tag)
  };

  std::string_view Rest(size_t pos) const { return std::string_view(source_).substr(pos); }
  bool At(size_t pos, std::string_view text) const { return Rest(pos).starts_with(text); }
  char CharAt(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }

  Position PlaceOf(size_t pos) {
    // Tokens come in order, so the line count goes on from the last place asked for.
    if (pos < counted_pos_) {
      counted_pos_ = 0;
      place_ = {};
    }
    for (; counted_pos_ < pos; ++counted_pos_) {
      if (source_[counted_pos_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else {
        ++place_.column;
      }
    }
    return place_;
  }

  [[noreturn]] void FailAt(size_t pos, std::string_view what) {
    FailParse(name_, PlaceOf(pos), what);
  }

  Token& Push(TokenKind kind, size_t pos, std::string text = {}) {
    tokens_.push_back({kind, PlaceOf(pos), std::move(text), 0, 0.0});
    return tokens_.back();
  }

  size_t SkipSpace(size_t pos) const {
    while (pos < source_.size()) {
      size_t next = pos;
      if (!IsSpace(DecodePoint(source_, next))) {
        break;
      }
      pos = next;
    }
    return pos;
  }

  // The raw tag `{% raw %}` opening at `pos`, behind its sign; 0 when it is another block.
  size_t MatchRawTag(size_t pos, std::string_view word) const {
    pos = SkipSpace(pos);
    if (!At(pos, word)) {
      return 0;
    }
    pos = SkipSpace(pos + word.size());
    if (At(pos, "%}")) {
      return pos + 2;
    }
    return At(pos, "-%}") ? SkipSpace(pos + 3) : 0;
  }

  Opening FindOpening(size_t pos) const {
    Opening opening;
    for (; (pos = source_.find('{', pos)) != std::string::npos; ++pos) {
      const char kind = CharAt(pos + 1);
      if (kind != '{' && kind != '%' && kind != '#') {
        continue;
      }
      const char sign = CharAt(pos + 2);
      opening.kind = kind;
      opening.begin = pos;
      opening.sign = sign == '-' || sign == '+' ? sign : '\0';
      opening.end = pos + (opening.sign != 0 ? 3 : 2);
      if (kind == '%') {
        const size_t raw_end = MatchRawTag(opening.end, "raw");
        if (raw_end != 0) {
          opening.kind = 'r';
          opening.end = raw_end;
        }
      }
      break;
    }
    return opening;
  }

  // Data [begin, end) before a tag with `sign`.
  void PushData(size_t begin, size_t end, char sign, bool is_variable) {
    const std::string_view text = std::string_view(source_).substr(begin, end - begin);
    size_t keep = text.size();
    if (sign == '-') {
      while (keep > 0) {
        const size_t previous = PreviousPoint(text, keep);
        size_t next = previous;
        if (!IsSpace(DecodePoint(text, next))) {
          break;
        }
        keep = previous;
      }
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && SkipSpace(begin + line) >= end) {
        keep = line;
      }
    }
    if (keep > 0) {
      Push(TokenKind::kData, begin, std::string(text.substr(0, keep)));
    }
  }

  void Root() {
    const size_t begin = pos_;
    const Opening opening = FindOpening(pos_);
    if (opening.kind == 0) {
      Push(TokenKind::kData, begin, source_.substr(begin));
      pos_ = source_.size();
      return;
    }
    PushData(begin, opening.begin, opening.sign, opening.kind == '{');
    pos_ = opening.end;
    line_starting_ = source_[pos_ - 1] == '\n';
    switch (opening.kind) {
      case '#':
        return Comment(opening.begin);
      case 'r':
        return Raw(opening.begin);
      default:
        return Tag(opening.kind == '{', opening.begin);
    }
  }

  void Comment(size_t begin) {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) {
      FailAt(begin, "missing end of comment tag");
    }
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    FinishBlock(end + 2, sign);
  }

  void Raw(size_t begin) {
    for (size_t pos = pos_; (pos = source_.find("{%", pos)) != std::string::npos; ++pos) {
      const char sign = CharAt(pos + 2) == '-' || CharAt(pos + 2) == '+' ? CharAt(pos + 2) : '\0';
      size_t end = SkipSpace(pos + (sign != 0 ? 3 : 2));
      if (!At(end, "endraw")) {
        continue;
      }
      end = SkipSpace(end + 6);
      const char closing = CharAt(end);
      end += closing == '-' || closing == '+' ? 1 : 0;
      if (At(end, "%}")) {
        PushData(pos_, pos, sign, false);
        return FinishBlock(end + 2, closing);
      }
    }
    FailAt(begin, "missing end of raw directive");
  }

  // Moves behind a block's or comment's closing mark at `end`, whose sign is `closing`.
  void FinishBlock(size_t end, char closing) {
    if (closing == '-') {
      end = SkipSpace(end);
    } else if (closing != '+' && CharAt(end) == '\n') {
      ++end;
    }
    pos_ = end;
    line_starting_ = source_[pos_ - 1] == '\n';
  }

  // Whether the tag ends here; moves behind it.
  bool TagEnd(bool variable) {
    const size_t begin = pos_;
    const std::string_view mark = variable ? "}}" : "%}";
    const char sign = source_[pos_];
    const bool is_signed = (sign == '-' || (sign == '+' && !variable)) && At(pos_ + 1, mark);
    if (!is_signed && !At(pos_, mark)) {
      return false;
    }
    Push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, begin);
    const size_t end = pos_ + mark.size() + (is_signed ? 1 : 0);
    if (variable) {
      pos_ = is_signed ? SkipSpace(end) : end;
      line_starting_ = source_[pos_ - 1] == '\n';
    } else {
      FinishBlock(end, is_signed ? sign : '\0');
    }
    return true;
  }

  void Tag(bool variable, size_t begin) {
    Push(variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, begin);
    std::string open_braces;
    for (;;) {
      pos_ = SkipSpace(pos_);
      if (pos_ >= source_.size()) {
        FailAt(begin, variable ? "the print tag opened here is not closed"
                               : "the block tag opened here is not closed");
      }
      if (open_braces.empty() && TagEnd(variable)) {
        return;
      }
      Inside(open_braces);
    }
  }

  void Inside(std::string& open_braces) {
    const char c = source_[pos_];
    if (IsAsciiDigit(c)) {
      return Number();
    }
    if (c == '"' || c == '\'') {
      return String();
    }
    size_t next = pos_;
    if (IsNamePoint(DecodePoint(source_, next))) {
      return Name();
    }
    Operator(open_braces);
  }

  void Name() {
    const size_t begin = pos_;
    size_t pos = pos_;
    while (pos < source_.size()) {
      size_t next = pos;
      if (!IsNamePoint(DecodePoint(source_, next))) {
        break;
      }
      pos = next;
    }
    pos_ = pos;
    Push(TokenKind::kName, begin, source_.substr(begin, pos - begin));
  }

  void Operator(std::string& open_braces) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* const found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                           [this](std::string_view op) { return At(pos_, op); });
    if (found == std::end(kOperators)) {
      size_t next = pos_;
      const char32_t point = DecodePoint(source_, next);
      std::string shown;
      AppendPoint(shown, point);
      FailAt(pos_, "unexpected character '" + shown + "'");
    }
    const char c = found->front();
    if (found->size() == 1 && (c == '(' || c == '[' || c == '{')) {
      open_braces.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (found->size() == 1 && (c == ')' || c == ']' || c == '}')) {
      if (open_braces.empty()) {
        FailAt(pos_, std::string("unexpected '") + c + "'");
      }
      if (open_braces.back() != c) {
        FailAt(pos_, std::string("unexpected '") + c + "', expected '" + open_braces.back() + "'");
      }
      open_braces.pop_back();
    }
    Push(TokenKind::kOperator, pos_, std::string(*found));
    pos_ += found->size();
  }

  // Digits in groups joined by single underscores, from `pos`; `pos` itself when there are none.
  template <typename Predicate>
  size_t Digits(size_t pos, Predicate is_digit) const {
    if (!is_digit(CharAt(pos))) {
      return pos;
    }
    while (is_digit(CharAt(pos)) || (CharAt(pos) == '_' && is_digit(CharAt(pos + 1)))) {
      ++pos;
    }
    return pos;
  }

  std::optional<size_t> FloatEnd() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') {
      return std::nullopt;
    }
    size_t end = Digits(pos_, IsAsciiDigit);
    bool real = false;
    if (CharAt(end) == '.' && IsAsciiDigit(CharAt(end + 1))) {
      end = Digits(end + 1, IsAsciiDigit);
      real = true;
    }
    if ((CharAt(end) | 0x20) == 'e') {
      const size_t sign = CharAt(end + 1) == '+' || CharAt(end + 1) == '-' ? 1 : 0;
      if (IsAsciiDigit(CharAt(end + 1 + sign))) {
        end = Digits(end + 1 + sign, IsAsciiDigit);
        real = true;
      }
    }
    return real ? std::optional<size_t>(end) : std::nullopt;
  }

  std::string WithoutUnderscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    return digits;
  }

  void Number() {
    const size_t begin = pos_;
    if (const auto end = FloatEnd()) {
      const std::string digits = WithoutUnderscores(begin, *end);
      Token& token = Push(TokenKind::kFloat, begin);
      // Out of range reads as infinity or zero, as in Python.
      token.real = std::strtod(digits.c_str(), nullptr);
      pos_ = *end;
      return;
    }
    int base = 10;
    size_t end = 0;
    size_t first = begin;
    const char prefix = static_cast<char>(CharAt(begin + 1) | 0x20);
    if (source_[begin] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
      first = begin + (CharAt(begin + 2) == '_' ? 3 : 2);
      end = Digits(first, [base](char c) { return HexValue(c) >= 0 && HexValue(c) < base; });
    }
    if (end <= first) {
      base = 10;
      first = begin;
      const bool zero = source_[begin] == '0';
      end = Digits(begin, [zero](char c) { return zero ? c == '0' : IsAsciiDigit(c); });
    }
    const std::string digits = WithoutUnderscores(first, end);
    Token& token = Push(TokenKind::kInteger, begin);
    const auto result =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (result.ec != std::errc()) {
      FailAt(begin, "integer literal does not fit 64 bits");
    }
    pos_ = end;
  }

  void String() {
    const size_t begin = pos_;
    const char quote = source_[pos_++];
    std::string value;
    for (;; ++pos_) {
      if (pos_ >= source_.size()) {
        FailAt(begin, "string literal without an end");
      }
      const char c = source_[pos_];
      if (c == quote) {
        break;
      }
      if (c == '\\') {
        ++pos_;
        if (pos_ >= source_.size()) {
          FailAt(begin, "string literal without an end");
        }
        Escape(value);
      } else {
        value.push_back(c);
      }
    }
    ++pos_;
    Push(TokenKind::kString, begin, std::move(value));
  }

  // The escape whose letter is at pos_; leaves pos_ at its last byte.
  void Escape(std::string& value) {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[pos_];
    const size_t simple = kLetters.find(c);
    if (simple != std::string_view::npos) {
      value.push_back(kMeaning[simple]);
    } else if (c == '\n') {
      // A line joined to the next.
    } else if (c >= '0' && c <= '7') {
      char32_t point = 0;
      size_t count = 0;
      for (; count < 3 && CharAt(pos_ + count) >= '0' && CharAt(pos_ + count) <= '7'; ++count) {
        point = point * 8 + static_cast<char32_t>(CharAt(pos_ + count) - '0');
      }
      pos_ += count - 1;
      AppendPoint(value, point);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      HexEscape(value, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      FailAt(pos_, "\\N escapes are not supported: write \\u with the code point");
    } else {
      value.push_back('\\');
      value.push_back(c);
    }
  }

  char32_t HexDigits(size_t pos, size_t digits) {
    char32_t point = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = HexValue(CharAt(pos + i));
      if (digit < 0) {
        FailAt(pos, "truncated \\x, \\u or \\U escape");
      }
      point = point * 16 + static_cast<char32_t>(digit);
    }
    if (point > 0x10FFFF) {
      FailAt(pos, "illegal Unicode character in an escape");
    }
    return point;
  }

  void HexEscape(std::string& value, size_t digits) {
    char32_t point = HexDigits(pos_ + 1, digits);
    pos_ += digits;
    AppendPoint(value, point);
  }

  std::string source_;
  std::string_view name_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  size_t counted_pos_ = 0;
  Position place_;
  std::vector<Token> tokens_;
};

}  // namespace

void FailParse(std::string_view name, Position at, std::string_view what) {
  throw Error(ErrorKind::kBadModel, "template " + std::string(name) + ":" +
                                        std::to_string(at.line) + ":" + std::to_string(at.column) +
                                        ": " + std::string(what));
}

std::vector<Token> Tokenize(std::string_view source, std::string_view name) {
  if (source.size() > limits::kJinjaSourceBytesMax) {
    FailParse(name, {},
              "source longer than " + std::to_string(limits::kJinjaSourceBytesMax) + " bytes");
  }
  return Lexer(NormalizeSource(ValidUtf8(source)), name).Run();
}

}  // namespace bloomery::jinja
