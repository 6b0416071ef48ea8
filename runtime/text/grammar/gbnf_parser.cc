#include "runtime/text/grammar/gbnf_parser.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::text {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::optional<uint32_t> HexDigit(char c) {
  if (IsDigit(c)) return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  GbnfTree Parse() {
    if (source_.size() > limits::kGrammarSourceBytesMax) {
      throw GrammarError({}, std::to_string(source_.size()) + " bytes; at most " +
                                 std::to_string(limits::kGrammarSourceBytesMax) + " are taken");
    }
    SkipBlanks(true);
    while (!AtEnd()) ParseRule();
    CheckDefined();
    return std::move(tree_);
  }

 private:
  using Kind = GbnfNode::Kind;

  bool AtEnd() const { return at_ >= source_.size(); }
  // The next byte, 0 at the end. A NUL in the source is no valid syntax anywhere it is looked for.
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool Eat(char c) {
    if (AtEnd() || source_[at_] != c) return false;
    ++at_;
    return true;
  }
  SourcePlace Place() const { return PlaceAt(at_); }
  [[noreturn]] void Fail(const std::string& why) const { throw GrammarError(Place(), why); }
  [[noreturn]] void FailAt(size_t offset, const std::string& why) const {
    throw GrammarError(PlaceAt(offset), why);
  }

  // Offsets are asked for in ascending order but for errors, so lines are counted once.
  SourcePlace PlaceAt(size_t offset) const {
    if (offset < counted_to_) return PlaceOf(source_, offset);
    for (; counted_to_ < offset && counted_to_ < source_.size(); ++counted_to_) {
      const auto byte = static_cast<unsigned char>(source_[counted_to_]);
      if (byte == '\n') {
        ++counted_.line;
        counted_.column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++counted_.column;
      }
    }
    return counted_;
  }

  void SkipBlanks(bool newlines) {
    while (!AtEnd()) {
      const char c = source_[at_];
      if (c == '#') {
        while (!AtEnd() && source_[at_] != '\n' && source_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view ParseName() {
    const size_t begin = at_;
    while (!AtEnd() && IsNameByte(source_[at_])) ++at_;
    if (at_ == begin) Fail("expected the name of a rule" + Found());
    return source_.substr(begin, at_ - begin);
  }

  // ", found '…'" for a message.
  std::string Found() const {
    if (AtEnd()) return ", found the end";
    const Utf8Character c = DecodeUtf8(source_.substr(at_));
    return ", found '" + Printable(source_.substr(at_, c.length)) + "'";
  }

  uint32_t RuleNumber(std::string_view name, SourcePlace place) {
    const auto [entry, added] =
        numbers_.emplace(std::string(name), static_cast<uint32_t>(tree_.rules.size()));
    if (added) tree_.rules.push_back({std::string(name), place, kUndefined});
    return entry->second;
  }

  void ParseRule() {
    const SourcePlace place = Place();
    const std::string_view name = ParseName();
    SkipBlanks(false);
    if (source_.substr(at_, 3) != "::=") Fail("expected ::= after the name of a rule" + Found());
    at_ += 3;
    SkipBlanks(true);
    const uint32_t body = ParseChoice(0);
    // A name that was used before its definition has its first use's place until now.
    GbnfRule& rule = tree_.rules[RuleNumber(name, place)];
    rule.place = place;
    rule.body = body;
    if (!AtEnd() && Peek() != '\n' && Peek() != '\r') Fail("expected a part of a rule" + Found());
    SkipBlanks(true);
  }

  uint32_t Add(GbnfNode node) {
    if (tree_.nodes.size() >= limits::kGrammarNodesMax) {
      throw GrammarError(node.place, "the grammar is too large: more than " +
                                         std::to_string(limits::kGrammarNodesMax) + " parts");
    }
    // What is compiled later goes down the tree: "a****" is as deep as groups in each other.
    for (const uint32_t part : node.parts) {
      node.height = std::max(node.height, tree_.nodes[part].height + 1);
    }
    if (node.height > kHeightMax) throw GrammarError(node.place, "nested too deeply");
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }

  // At the end of a line of a rule: whether the next line goes on with '|'.
  bool NextLineContinues() {
    const size_t before = at_;
    SkipBlanks(true);
    if (Peek() == '|') return true;
    at_ = before;
    return false;
  }

  uint32_t ParseChoice(int depth) {
    if (depth > limits::kGrammarDepthMax) {
      Fail("groups are nested more than " + std::to_string(limits::kGrammarDepthMax) + " deep");
    }
    GbnfNode choice{.kind = Kind::kChoice, .place = Place()};
    choice.parts.push_back(ParseSequence(depth));
    while (Peek() == '|' || (depth == 0 && NextLineContinues())) {
      ++at_;
      SkipBlanks(true);
      choice.parts.push_back(ParseSequence(depth));
    }
    if (choice.parts.size() == 1) return choice.parts.front();
    return Add(std::move(choice));
  }

  uint32_t ParseSequence(int depth) {
    GbnfNode sequence{.kind = Kind::kSequence, .place = Place()};
    const bool nested = depth > 0;
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (sequence.parts.empty()) Fail(std::string("nothing before '") + c + "' to repeat");
        sequence.parts.back() = ParseRepeat(sequence.parts.back());
      } else if (const auto item = ParseItem(depth)) {
        sequence.parts.push_back(*item);
      } else {
        break;
      }
      SkipBlanks(nested);
    }
    if (sequence.parts.size() == 1) return sequence.parts.front();
    return Add(std::move(sequence));
  }

  std::optional<uint32_t> ParseItem(int depth) {
    const char c = Peek();
    if (c == '"') return ParseText();
    if (c == '[') return ParseClass();
    if (c == '<' || c == '!') return ParseToken();
    if (c == '.') {
      GbnfNode any{.kind = Kind::kClass, .place = Place(), .ranges = Complement({})};
      ++at_;
      return Add(std::move(any));
    }
    if (c == '(') {
      ++at_;
      SkipBlanks(true);
      const uint32_t group = ParseChoice(depth + 1);
      if (!Eat(')')) Fail("expected ')'" + Found());
      return group;
    }
    if (!IsNameByte(c)) return std::nullopt;
    const SourcePlace place = Place();
    const std::string_view name = ParseName();
    const uint32_t number = RuleNumber(name, place);
    return Add({.kind = Kind::kRule, .number = number, .place = place});
  }

  uint32_t ParseHex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const auto digit = HexDigit(Peek());
      if (!digit) Fail("expected " + std::to_string(digits) + " hexadecimal digits" + Found());
      value = value << 4 | *digit;
      ++at_;
    }
    return value;
  }

  // One character of a literal or class, escapes resolved.
  char32_t ParseCharacter(std::string_view inside) {
    if (AtEnd()) Fail("the " + std::string(inside) + " has no end");
    const size_t begin = at_;
    if (!Eat('\\')) {
      const Utf8Character c = DecodeUtf8(source_.substr(at_));
      if (!c.valid) Fail("the grammar is not valid UTF-8");
      at_ += c.length;
      return c.code_point;
    }
    const char kind = Peek();
    ++at_;
    char32_t value = 0;
    switch (kind) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<char32_t>(kind);
      case 'x':
        value = ParseHex(2);
        break;
      case 'u':
        value = ParseHex(4);
        break;
      case 'U':
        value = ParseHex(8);
        break;
      default:
        FailAt(begin, "unknown escape: \\n \\r \\t \\\\ \\\" \\[ \\] \\x \\u \\U are known");
    }
    if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
      FailAt(begin, "the escape names no character of Unicode");
    }
    return value;
  }

  uint32_t ParseText() {
    GbnfNode node{.kind = Kind::kText, .place = Place()};
    ++at_;
    while (!Eat('"')) AppendUtf8(ParseCharacter("literal"), node.text);
    return Add(std::move(node));
  }

  uint32_t ParseClass() {
    GbnfNode node{.kind = Kind::kClass, .place = Place()};
    const size_t begin = at_;
    ++at_;
    const bool negated = Eat('^');
    CodeRanges ranges;
    while (!Eat(']')) {
      const size_t range_begin = at_;
      const char32_t first = ParseCharacter("class");
      char32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        last = ParseCharacter("class");
        if (last < first) FailAt(range_begin, "the range's end is before its begin");
      }
      ranges.push_back({first, last});
    }
    if (ranges.empty()) FailAt(begin, "the class is empty");
    node.ranges = Normalised(std::move(ranges));
    if (negated) node.ranges = Complement(node.ranges);
    return Add(std::move(node));
  }

  uint32_t ParseToken() {
    GbnfNode node{.kind = Kind::kToken, .place = Place()};
    node.negated = Eat('!');
    const size_t begin = at_;
    if (!Eat('<')) Fail("expected '<' after '!'" + Found());
    if (Eat('[')) {
      node.number = ParseNumber();
      if (!Eat(']') || !Eat('>')) Fail("expected ]> after the number of a token" + Found());
      return Add(std::move(node));
    }
    while (!AtEnd() && Peek() != '>' && Peek() != '\n') ++at_;
    if (!Eat('>')) FailAt(begin, "the token has no '>'");
    node.text = std::string(source_.substr(begin, at_ - begin));
    return Add(std::move(node));
  }

  uint32_t ParseNumber() {
    const size_t begin = at_;
    uint64_t value = 0;
    while (IsDigit(Peek()) && value <= UINT32_MAX) {
      value = value * 10 + static_cast<uint64_t>(Peek() - '0');
      ++at_;
    }
    if (at_ == begin) Fail("expected a number" + Found());
    if (value >= UINT32_MAX) FailAt(begin, "the number is too large");
    return static_cast<uint32_t>(value);
  }

  uint32_t ParseRepeat(uint32_t part) {
    GbnfNode node{.kind = Kind::kRepeat, .place = Place(), .parts = {part}};
    const size_t begin = at_;
    const char c = Peek();
    ++at_;
    if (c == '*' || c == '+' || c == '?') {
      node.least = c == '+' ? 1 : 0;
      node.most = c == '?' ? 1 : kNoUpperBound;
      return Add(std::move(node));
    }
    SkipBlanks(true);
    node.least = node.most = ParseNumber();
    SkipBlanks(true);
    if (Eat(',')) {
      SkipBlanks(true);
      node.most = Peek() == '}' ? kNoUpperBound : ParseNumber();
      SkipBlanks(true);
    }
    if (!Eat('}')) Fail("expected '}'" + Found());
    if (node.most < node.least) FailAt(begin, "the repetition ends below its begin");
    const uint32_t largest = node.most == kNoUpperBound ? node.least : node.most;
    if (largest > limits::kGrammarRepeatMax) {
      FailAt(begin, "more than " + std::to_string(limits::kGrammarRepeatMax) + " repetitions");
    }
    return Add(std::move(node));
  }

  void CheckDefined() {
    for (const GbnfRule& rule : tree_.rules) {
      if (rule.body != kUndefined) continue;
      throw GrammarError(rule.place, "the rule '" + Printable(rule.name) + "' is not defined");
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) Fail("the grammar has no rule 'root'");
    tree_.root = root->second;
  }

  static constexpr uint32_t kUndefined = UINT32_MAX;
  // A group is a choice of sequences of repetitions.
  static constexpr uint32_t kHeightMax = 4 * limits::kGrammarDepthMax;

  std::string_view source_;
  size_t at_ = 0;
  mutable size_t counted_to_ = 0;
  mutable SourcePlace counted_;
  GbnfTree tree_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

}  // namespace

Error GrammarError(SourcePlace place, const std::string& why) {
  return Error(ErrorKind::kBadRequest, "grammar: line " + std::to_string(place.line) + ", column " +
                                           std::to_string(place.column) + ": " + why);
}

SourcePlace PlaceOf(std::string_view text, size_t offset) {
  SourcePlace place;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') {
      ++place.line;
      place.column = 1;
    } else if ((byte & 0xC0) != 0x80) {
      ++place.column;
    }
  }
  return place;
}

GbnfTree ParseGbnf(std::string_view source) { return Parser(source).Parse(); }

}  // namespace bloomery::text
