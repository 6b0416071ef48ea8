#include "runtime/text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/builtins.h"

namespace bloomery::jinja {

bool IsConstantWord(std::string_view word) {
  return word == "true" || word == "false" || word == "none" || word == "True" || word == "False" ||
         word == "None";
}

void ExpressionParser::ForgiveUnknownSince(size_t mark) {
  unknown_.erase(
      std::remove_if(unknown_.begin() + static_cast<std::ptrdiff_t>(mark), unknown_.end(),
                     [](const UnknownName& unknown) { return !unknown.hard; }),
      unknown_.end());
}

void ExpressionParser::HardenUnknownSince(size_t mark) {
  for (size_t i = mark; i < unknown_.size(); ++i) {
    unknown_[i].hard = true;
  }
}

void ExpressionParser::FailIfUnknown() const {
  if (!unknown_.empty()) {
    in_.FailAt(unknown_.front().at, unknown_.front().what);
  }
}

// Whether a tuple ends at the current token.
bool ExpressionParser::AtTupleEnd(Words ends) const {
  return in_.IsKind(TokenKind::kVariableEnd) || in_.IsKind(TokenKind::kBlockEnd) || in_.IsOp(")") ||
         in_.IsAnyWord(ends);
}

// Expressions joined by commas, or one alone. In parentheses there may be none.
ExprPtr ExpressionParser::ParseTuple(bool with_ternary, Words ends, bool parenthesized) {
  const Position at = in_.Current().at;
  auto tuple = std::make_unique<SequenceExpr>(at, true);
  bool is_tuple = false;
  for (;;) {
    if (!tuple->items.empty()) {
      if (!in_.SkipOp(",")) {
        break;
      }
      is_tuple = true;
    }
    if (AtTupleEnd(ends)) {
      break;
    }
    tuple->items.push_back(with_ternary ? ParseExpression() : ParseNestedOr());
  }
  if (!is_tuple) {
    if (!tuple->items.empty()) {
      return std::move(tuple->items.front());
    }
    if (!parenthesized) {
      in_.FailExpected("an expression");
    }
  }
  return tuple;
}

ExprPtr ExpressionParser::ParseNestedOr() {
  const TokenCursor::Nest nest(in_);
  return ParseOr();
}

ExprPtr ExpressionParser::ParseExpression() {
  const TokenCursor::Nest nest(in_);
  const size_t mark = unknown_.size();
  ExprPtr expr = ParseOr();
  for (int chained = in_.depth(); in_.IsWord("if"); ++chained) {
    if (chained > limits::kJinjaDepthMax) {
      in_.FailHere("conditional expressions nested deeper than " +
                   std::to_string(limits::kJinjaDepthMax) + " levels");
    }
    auto ternary = std::make_unique<TernaryExpr>(in_.Take().at);
    ternary->then = std::move(expr);
    ternary->condition = ParseOr();
    if (in_.SkipWord("else")) {
      ternary->otherwise = ParseExpression();
    }
    ForgiveUnknownSince(mark);
    expr = std::move(ternary);
  }
  return expr;
}

ExprPtr ExpressionParser::ParseLogic(bool is_and) {
  const auto operand = [this, is_and] { return is_and ? ParseNot() : ParseLogic(true); };
  ExprPtr first = operand();
  const std::string_view word = is_and ? "and" : "or";
  if (!in_.IsWord(word)) {
    return first;
  }
  auto node = std::make_unique<LogicExpr>(in_.Current().at, is_and);
  node->operands.push_back(std::move(first));
  while (in_.SkipWord(word)) {
    node->operands.push_back(operand());
  }
  return node;
}

ExprPtr ExpressionParser::ParseOr() { return ParseLogic(false); }

ExprPtr ExpressionParser::ParseNot() {
  if (!in_.IsWord("not")) {
    return ParseCompare();
  }
  const TokenCursor::Nest nest(in_);
  const Position at = in_.Take().at;
  return std::make_unique<UnaryExpr>(ExprKind::kNot, at, ParseNot());
}

std::optional<CompareOp> ExpressionParser::TakeCompareOp() {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {
      {{"==", CompareOp::kEq},
       {"!=", CompareOp::kNe},
       {"<", CompareOp::kLt},
       {"<=", CompareOp::kLe},
       {">", CompareOp::kGt},
       {">=", CompareOp::kGe}}};
  for (const auto& [sign, op] : kOps) {
    if (in_.SkipOp(sign)) {
      return op;
    }
  }
  if (in_.SkipWord("in")) {
    return CompareOp::kIn;
  }
  if (in_.IsWord("not") && in_.Ahead().kind == TokenKind::kName && in_.Ahead().text == "in") {
    in_.Take();
    in_.Take();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::ParseCompare() {
  ExprPtr first = ParseSum();
  std::unique_ptr<CompareExpr> node;
  for (;;) {
    const Position at = in_.Current().at;
    const auto op = TakeCompareOp();
    if (!op) {
      break;
    }
    if (node == nullptr) {
      node = std::make_unique<CompareExpr>(at, std::move(first));
    }
    node->links.push_back({*op, at, ParseSum()});
  }
  return node != nullptr ? ExprPtr(std::move(node)) : std::move(first);
}

ExprPtr ExpressionParser::ParseArithmetic(
    Level operand, std::initializer_list<std::pair<std::string_view, BinaryOp>> ops) {
  ExprPtr first = (this->*operand)();
  std::unique_ptr<ArithmeticExpr> node;
  for (;;) {
    const auto* const found = std::find_if(
        ops.begin(), ops.end(), [this](const auto& entry) { return in_.IsOp(entry.first); });
    if (found == ops.end()) {
      break;
    }
    const Position at = in_.Take().at;
    if (node == nullptr) {
      node = std::make_unique<ArithmeticExpr>(at, std::move(first));
    }
    node->links.push_back({found->second, at, (this->*operand)()});
  }
  return node != nullptr ? ExprPtr(std::move(node)) : std::move(first);
}

ExprPtr ExpressionParser::ParseSum() {
  return ParseArithmetic(&ExpressionParser::ParseConcat,
                         {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}});
}

ExprPtr ExpressionParser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!in_.IsOp("~")) {
    return first;
  }
  auto node = std::make_unique<ConcatExpr>(in_.Current().at);
  node->operands.push_back(std::move(first));
  while (in_.SkipOp("~")) {
    node->operands.push_back(ParseProduct());
  }
  return node;
}

ExprPtr ExpressionParser::ParseProduct() {
  return ParseArithmetic(&ExpressionParser::ParsePower, {{"*", BinaryOp::kMul},
                                                         {"/", BinaryOp::kDiv},
                                                         {"//", BinaryOp::kFloorDiv},
                                                         {"%", BinaryOp::kMod}});
}

ExprPtr ExpressionParser::ParsePower() {
  return ParseArithmetic(&ExpressionParser::ParseUnaryWithFilters, {{"**", BinaryOp::kPow}});
}

ExprPtr ExpressionParser::ParseUnaryWithFilters() { return ParseUnary(true); }

// A sign binds tighter than filters: -x|abs is (-x)|abs.
ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  ExprPtr expr;
  const Position at = in_.Current().at;
  if (in_.IsOp("-") || in_.IsOp("+")) {
    const TokenCursor::Nest nest(in_);
    const bool negative = in_.Take().text == "-";
    expr = std::make_unique<UnaryExpr>(negative ? ExprKind::kNegate : ExprKind::kPlus, at,
                                       ParseUnary(false));
  } else {
    expr = ParsePrimary();
  }
  auto node = std::make_unique<SuffixedExpr>(at, std::move(expr));
  ParsePostfix(*node);
  if (with_filters) {
    ParseFilters(*node);
  }
  return node->suffixes.empty() ? std::move(node->base) : ExprPtr(std::move(node));
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = in_.Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseWord();
    case TokenKind::kString: {
      std::string text;
      while (in_.IsKind(TokenKind::kString)) {
        text += in_.Take().text;
      }
      return std::make_unique<LiteralExpr>(token.at, Value::Trusted(text));
    }
    case TokenKind::kInteger:
      return std::make_unique<LiteralExpr>(token.at, Value(in_.Take().integer));
    case TokenKind::kFloat:
      return std::make_unique<LiteralExpr>(token.at, Value(in_.Take().real));
    default:
      break;
  }
  if (in_.SkipOp("(")) {
    ExprPtr expr = ParseTuple(true, {}, true);
    in_.ExpectOp(")");
    return expr;
  }
  if (in_.SkipOp("[")) {
    return ParseList(token.at);
  }
  if (in_.SkipOp("{")) {
    return ParseDict(token.at);
  }
  in_.FailExpected("an expression");
}

ExprPtr ExpressionParser::ParseWord() {
  const Token& token = in_.Take();
  const std::string& word = token.text;
  if (!IsConstantWord(word)) {
    NoteName(word);
    return std::make_unique<NameExpr>(token.at, word);
  }
  if (word == "none" || word == "None") {
    return std::make_unique<LiteralExpr>(token.at, Value(None{}));
  }
  return std::make_unique<LiteralExpr>(token.at, Value(word == "true" || word == "True"));
}

void ExpressionParser::NoteName(std::string_view word) {
  if (macro_ == nullptr) {
    return;
  }
  macro_->uses_caller |= word == "caller";
  macro_->uses_varargs |= word == "varargs";
  macro_->uses_kwargs |= word == "kwargs";
}

ExprPtr ExpressionParser::ParseList(Position at) {
  auto list = std::make_unique<SequenceExpr>(at, false);
  while (!in_.IsOp("]")) {
    if (!list->items.empty()) {
      in_.ExpectOp(",");
    }
    if (in_.IsOp("]")) {
      break;
    }
    list->items.push_back(ParseExpression());
  }
  in_.Take();
  return list;
}

ExprPtr ExpressionParser::ParseDict(Position at) {
  auto dict = std::make_unique<DictExpr>(at);
  while (!in_.IsOp("}")) {
    if (!dict->entries.empty()) {
      in_.ExpectOp(",");
    }
    if (in_.IsOp("}")) {
      break;
    }
    ExprPtr key = ParseExpression();
    in_.ExpectOp(":");
    dict->entries.emplace_back(std::move(key), ParseExpression());
  }
  in_.Take();
  return dict;
}

void ExpressionParser::ParsePostfix(SuffixedExpr& node) {
  for (;;) {
    if (in_.IsOp(".")) {
      node.suffixes.push_back(ParseAttribute());
    } else if (in_.IsOp("[")) {
      node.suffixes.push_back(ParseSubscript());
    } else if (in_.IsOp("(")) {
      node.suffixes.push_back(ParseCall());
    } else {
      return;
    }
  }
}

void ExpressionParser::ParseFilters(SuffixedExpr& node) {
  for (;;) {
    if (in_.SkipOp("|")) {
      node.suffixes.push_back(ParseFilter());
    } else if (in_.IsWord("is")) {
      node.suffixes.push_back(ParseTest());
    } else if (in_.IsOp("(")) {
      node.suffixes.push_back(ParseCall());
    } else {
      return;
    }
  }
}

Suffix ExpressionParser::ParseAttribute() {
  Suffix suffix;
  suffix.at = in_.Take().at;
  if (in_.IsKind(TokenKind::kInteger)) {
    suffix.kind = SuffixKind::kItem;
    suffix.index = std::make_unique<LiteralExpr>(in_.Current().at, Value(in_.Current().integer));
    in_.Take();
    return suffix;
  }
  suffix.kind = SuffixKind::kAttribute;
  suffix.name = in_.ExpectName("a name or a number after '.'");
  return suffix;
}

Suffix ExpressionParser::ParseSubscript() {
  Suffix suffix;
  suffix.at = in_.Take().at;
  suffix.kind = SuffixKind::kItem;
  if (!in_.IsOp(":")) {
    suffix.index = ParseExpression();
  }
  if (in_.SkipOp(":")) {
    suffix.kind = SuffixKind::kSlice;
    if (!in_.IsOp(":") && !in_.IsOp("]")) {
      suffix.stop = ParseExpression();
    }
    if (in_.SkipOp(":") && !in_.IsOp("]")) {
      suffix.step = ParseExpression();
    }
  }
  in_.ExpectOp("]");
  return suffix;
}

Suffix ExpressionParser::ParseCall() {
  Suffix suffix;
  suffix.kind = SuffixKind::kCall;
  suffix.at = in_.Current().at;
  suffix.call = ParseArguments();
  return suffix;
}

CallSyntax ExpressionParser::ParseArguments() {
  CallSyntax call;
  in_.ExpectOp("(");
  bool first = true;
  while (!in_.IsOp(")")) {
    if (!std::exchange(first, false)) {
      in_.ExpectOp(",");
      if (in_.IsOp(")")) {
        break;
      }
    }
    if (call.star_star != nullptr || (in_.IsOp("*") && call.star != nullptr)) {
      in_.FailHere("invalid order of call arguments");
    }
    if (in_.SkipOp("*")) {
      call.star = ParseExpression();
    } else if (in_.SkipOp("**")) {
      call.star_star = ParseExpression();
    } else if (in_.IsKind(TokenKind::kName) && in_.Ahead().kind == TokenKind::kOperator &&
               in_.Ahead().text == "=") {
      std::string name = in_.Take().text;
      in_.Take();
      call.named.emplace_back(std::move(name), ParseExpression());
    } else {
      if (!call.named.empty() || call.star != nullptr) {
        in_.FailHere("a positional argument follows a named one");
      }
      call.positional.push_back(ParseExpression());
    }
  }
  in_.Take();
  return call;
}

std::string ExpressionParser::ParseDottedName(std::string_view what) {
  std::string name = in_.ExpectName(what);
  while (in_.SkipOp(".")) {
    name += "." + in_.ExpectName(what);
  }
  return name;
}

// A filter's name and arguments, behind its bar.
Suffix ExpressionParser::ParseFilter() {
  Suffix suffix;
  suffix.kind = SuffixKind::kFilter;
  suffix.at = in_.Current().at;
  suffix.name = ParseDottedName("a filter's name");
  suffix.filter = FindFilter(suffix.name);
  if (suffix.filter == nullptr) {
    unknown_.push_back({suffix.at, "no filter named '" + suffix.name + "'"});
  }
  if (in_.IsOp("(")) {
    suffix.call = ParseArguments();
  }
  return suffix;
}

bool ExpressionParser::StartsTestArgument() const {
  switch (in_.Current().kind) {
    case TokenKind::kName:
      return !in_.IsAnyWord({"else", "or", "and"});
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return in_.IsOp("[") || in_.IsOp("{");
  }
}

Suffix ExpressionParser::ParseTest() {
  Suffix suffix;
  suffix.kind = SuffixKind::kTest;
  suffix.at = in_.Take().at;
  suffix.negated = in_.SkipWord("not");
  suffix.name = ParseDottedName("a test's name");
  suffix.test = FindTest(suffix.name);
  if (suffix.test == nullptr) {
    unknown_.push_back({suffix.at, "no test named '" + suffix.name + "'"});
  }
  if (in_.IsOp("(")) {
    suffix.call = ParseArguments();
  } else if (StartsTestArgument()) {
    if (in_.IsWord("is")) {
      in_.FailHere("tests cannot be chained with 'is'");
    }
    auto argument = std::make_unique<SuffixedExpr>(in_.Current().at, ParsePrimary());
    ParsePostfix(*argument);
    suffix.call.positional.push_back(argument->suffixes.empty() ? std::move(argument->base)
                                                                : ExprPtr(std::move(argument)));
  }
  return suffix;
}

}  // namespace bloomery::jinja
