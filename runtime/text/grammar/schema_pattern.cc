#include "runtime/text/grammar/schema_pattern.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/grammar/code_ranges.h"
#include "runtime/text/grammar/gbnf_text.h"
#include "runtime/text/grammar/json_schema.h"

namespace bloomery::text {
namespace {

const CodeRanges kDigits = {{U'0', U'9'}};
const CodeRanges kWord = {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
const CodeRanges kBlank = {{U'\t', U'\r'}, {U' ', U' '}, {0xA0, 0xA0}};
const CodeRanges kLineEnds = {{U'\n', U'\n'}, {U'\r', U'\r'}};

// One character of `set` as it stands in a JSON string.
std::string JsonCharacter(const CodeRanges& set) {
  static constexpr std::pair<char32_t, const char*> kEscapes[] = {
      {U'"', R"("\\\"")"}, {U'\\', R"("\\\\")"}, {U'\b', R"("\\b")"}, {U'\t', R"("\\t")"},
      {U'\n', R"("\\n")"}, {U'\f', R"("\\f")"},  {U'\r', R"("\\r")"}};
  std::string out;
  const CodeRanges escaped = Normalised({{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}});
  // Those of the set that are not escaped: what is in neither the set's complement nor `escaped`.
  CodeRanges barred = Complement(set);
  barred.insert(barred.end(), escaped.begin(), escaped.end());
  const CodeRanges plain = Complement(Normalised(std::move(barred)));
  if (!plain.empty()) out = GbnfClass(plain);
  for (const auto& [c, text] : kEscapes) {
    const bool holds = std::ranges::any_of(set, [wanted = c](const CodeRange& range) {
      return range.first <= wanted && wanted <= range.last;
    });
    if (!holds) continue;
    if (!out.empty()) out += " | ";
    out += text;
  }
  return out.find(" | ") == std::string::npos ? out : "(" + out + ")";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::optional<std::string> Translate() {
    if (pattern_.size() > limits::kSchemaPatternBytesMax) {
      Fail("a pattern of more than " + std::to_string(limits::kSchemaPatternBytesMax) + " bytes");
    }
    std::string out = Alternatives(0);
    if (at_ < pattern_.size()) Fail("')' without '('");
    if (untranslated_) return std::nullopt;
    return out;
  }

 private:
  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Eat(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorKind::kBadRequest, "column " + std::to_string(at_ + 1) + ": " + why);
  }

  // What is not translated is read on to its end all the same, so that errors behind it show.
  void Untranslatable() { untranslated_ = true; }

  std::string Alternatives(int depth) {
    if (depth > limits::kSchemaPatternDepthMax) {
      Fail("groups are nested more than " + std::to_string(limits::kSchemaPatternDepthMax) +
           " deep");
    }
    std::string out = Sequence(depth);
    bool several = false;
    while (Eat("|")) {
      several = true;
      out += " | " + Sequence(depth);
    }
    return several ? "(" + out + ")" : out;
  }

  std::string Sequence(int depth) {
    std::string out;
    const bool top = depth == 0;
    if (top && !Eat("^")) Untranslatable();
    bool ended = false;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      if (Eat("$")) {
        ended = top && (AtEnd() || Peek() == '|');
        if (!ended) Untranslatable();
        continue;
      }
      if (Eat("^")) {
        Untranslatable();
        continue;
      }
      std::string item = Item(depth);
      item = Counted(std::move(item));
      if (!out.empty()) out += ' ';
      out += item;
    }
    if (top && !ended) Untranslatable();
    return out.empty() ? "\"\"" : out;
  }

  std::string Item(int depth) {
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') {
      Fail(std::string("nothing before '") + Peek() + "' to repeat");
    }
    if (Eat("(")) return Group(depth);
    if (Eat("[")) return Character(Class());
    if (Eat(".")) return Character(Complement(kLineEnds));
    if (Eat("\\")) return Character(Escape(false));
    return Character(One());
  }

  std::string Group(int depth) {
    if (Eat("?")) {
      if (Eat("<") && Peek() != '=' && Peek() != '!') {
        while (!AtEnd() && Peek() != '>') ++at_;
        if (!Eat(">")) Fail("the group's name has no '>'");
      } else if (!Eat(":")) {
        // Look-around.
        Untranslatable();
        ++at_;
      }
    }
    std::string group = Alternatives(depth + 1);
    if (!Eat(")")) Fail("expected ')'");
    return "(" + group + ")";
  }

  std::string Character(const CodeRanges& set) {
    if (set.empty() && untranslated_) return "\"\"";
    std::string out = JsonCharacter(set);
    if (out.empty()) Fail("no character of a JSON string fits here");
    return out;
  }

  // A literal character.
  CodeRanges One() {
    const Utf8Character c = DecodeUtf8(pattern_.substr(at_));
    if (!c.valid) Fail("the pattern is not valid UTF-8");
    at_ += c.length;
    return {{c.code_point, c.code_point}};
  }

  CodeRanges Class() {
    const bool negated = Eat("^");
    CodeRanges set;
    while (!Eat("]")) {
      if (AtEnd()) Fail("the class has no ']'");
      const size_t begin = at_;
      CodeRanges item = Eat("\\") ? Escape(true) : One();
      const bool single = item.size() == 1 && item[0].first == item[0].last;
      if (Peek() == '-' && Peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        const CodeRanges end = Eat("\\") ? Escape(true) : One();
        if (!single || end.size() != 1 || end[0].first != end[0].last ||
            end[0].first < item[0].first) {
          at_ = begin;
          Fail("the range is not one");
        }
        item[0].last = end[0].first;
      }
      set.insert(set.end(), item.begin(), item.end());
    }
    set = Normalised(std::move(set));
    return negated ? Complement(set) : set;
  }

  uint32_t Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = Peek();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        value = value * 16 + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      } else {
        Fail("expected " + std::to_string(digits) + " hexadecimal digits");
      }
    }
    return value;
  }

  CodeRanges Escape(bool in_class) {
    if (AtEnd()) Fail("'\\' at the end");
    const char c = Peek();
    const auto one = [](char32_t value) { return CodeRanges{{value, value}}; };
    switch (c) {
      case 'd':
        ++at_;
        return kDigits;
      case 'D':
        ++at_;
        return Complement(kDigits);
      case 'w':
        ++at_;
        return kWord;
      case 'W':
        ++at_;
        return Complement(kWord);
      case 's':
        ++at_;
        return kBlank;
      case 'S':
        ++at_;
        return Complement(kBlank);
      case 'n':
        ++at_;
        return one(U'\n');
      case 'r':
        ++at_;
        return one(U'\r');
      case 't':
        ++at_;
        return one(U'\t');
      case 'f':
        ++at_;
        return one(U'\f');
      case 'v':
        ++at_;
        return one(U'\v');
      case '0':
        ++at_;
        return one(0);
      case 'x':
        ++at_;
        return one(Hex(2));
      case 'u':
        ++at_;
        return one(Hex(4));
      case 'b':
        if (in_class) {
          ++at_;
          return one(U'\b');
        }
        [[fallthrough]];
      case 'A':
      case 'B':
      case 'G':
      case 'Z':
      case 'c':
      case 'k':
      case 'p':
      case 'P':
      case 'z':
        // Word boundaries, other anchors, named back references, Unicode properties.
        ++at_;
        Untranslatable();
        return {};
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      ++at_;
      Untranslatable();
      return {};
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      Fail(std::string("unknown escape '\\") + c + "'");
    }
    return One();
  }

  // The item with what repeats it, if anything does.
  std::string Counted(std::string item) {
    std::string count;
    if (Eat("*")) {
      count = "*";
    } else if (Eat("+")) {
      count = "+";
    } else if (Eat("?")) {
      count = "?";
    } else if (Peek() == '{' && Peek(1) >= '0' && Peek(1) <= '9') {
      count = Braces();
    } else {
      return item;
    }
    Eat("?");  // lazy: the same texts
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') Fail("a repetition of a repetition");
    return item + count;
  }

  std::string Braces() {
    const size_t begin = at_++;
    const uint32_t least = Number();
    std::string out = "{" + std::to_string(least);
    if (Eat(",")) {
      out += ",";
      if (Peek() != '}') {
        const uint32_t most = Number();
        out += std::to_string(most);
        if (most < least) {
          at_ = begin;
          Fail("the repetition ends below its begin");
        }
      }
    }
    if (!Eat("}")) Fail("expected '}'");
    return out + "}";
  }

  uint32_t Number() {
    uint32_t value = 0;
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + static_cast<uint32_t>(Peek() - '0');
      ++at_;
      if (value > limits::kGrammarRepeatMax) {
        Fail("more than " + std::to_string(limits::kGrammarRepeatMax) + " repetitions");
      }
    }
    if (at_ == begin) Fail("expected a number");
    return value;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool untranslated_ = false;
};

}  // namespace

std::optional<std::string> PatternToGbnf(std::string_view pattern) {
  return Translator(pattern).Translate();
}

}  // namespace bloomery::text
