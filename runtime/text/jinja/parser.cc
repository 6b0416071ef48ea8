#include "runtime/text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/builtins.h"

namespace bloomery::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

// A filter or test that does not exist. As in jinja2 it is an error of the template at once, except
// inside an if, where the template may have checked for it, and it fails only when evaluated.
struct UnknownName {
  Position at;
  std::string what;
  bool hard = false;
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  Body Run() {
    Body body = ParseBody({}, "");
    if (!unknown_.empty()) {
      FailParse(name_, unknown_.front().at, unknown_.front().what);
    }
    return body;
  }

 private:
  // One level of nesting, of blocks and expressions together.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > limits::kJinjaDepthMax) {
        parser_.FailHere("nested deeper than " + std::to_string(limits::kJinjaDepthMax) +
                         " levels");
      }
    }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    ~Nest() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  // ---- tokens

  const Token& Current() const { return tokens_[pos_]; }
  const Token& Ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& Take() {
    const Token& token = tokens_[pos_];
    pos_ += pos_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }
  bool IsKind(TokenKind kind) const { return Current().kind == kind; }
  bool IsOp(std::string_view op) const {
    return IsKind(TokenKind::kOperator) && Current().text == op;
  }
  bool IsWord(std::string_view word) const {
    return IsKind(TokenKind::kName) && Current().text == word;
  }
  bool IsAnyWord(Words words) const {
    return IsKind(TokenKind::kName) &&
           std::find(words.begin(), words.end(), Current().text) != words.end();
  }
  bool SkipOp(std::string_view op) {
    const bool found = IsOp(op);
    if (found) {
      Take();
    }
    return found;
  }
  bool SkipWord(std::string_view word) {
    const bool found = IsWord(word);
    if (found) {
      Take();
    }
    return found;
  }

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kData:
        return "template text";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return "'" + token.text + "'";
    }
  }

  [[noreturn]] void FailHere(const std::string& what) const {
    FailParse(name_, Current().at, what);
  }
  [[noreturn]] void FailExpected(std::string_view what) const {
    FailHere("expected " + std::string(what) + ", found " + Describe(Current()));
  }
  void ExpectOp(std::string_view op) {
    if (!SkipOp(op)) {
      FailExpected("'" + std::string(op) + "'");
    }
  }
  void ExpectWord(std::string_view word) {
    if (!SkipWord(word)) {
      FailExpected("'" + std::string(word) + "'");
    }
  }
  void Expect(TokenKind kind, std::string_view what) {
    if (!IsKind(kind)) {
      FailExpected(what);
    }
    Take();
  }
  std::string ExpectName(std::string_view what) {
    if (!IsKind(TokenKind::kName)) {
      FailExpected(what);
    }
    return Take().text;
  }

  // ---- statements

  // Up to a block that begins with one of `ends` (left as the current token), or to the end of the
  // template when there are none. `opener` is the statement whose body this is.
  Body ParseBody(Words ends, std::string_view opener) {
    Body body;
    const Position opened = Current().at;
    for (;;) {
      const Token& token = Current();
      switch (token.kind) {
        case TokenKind::kData:
          body.push_back(std::make_unique<DataStatement>(token.at, Take().text));
          break;
        case TokenKind::kVariableBegin: {
          Take();
          auto expr = ParseTuple(true);
          body.push_back(std::make_unique<OutputStatement>(token.at, std::move(expr)));
          Expect(TokenKind::kVariableEnd, "'}}'");
          break;
        }
        case TokenKind::kBlockBegin:
          Take();
          if (IsAnyWord(ends)) {
            return body;
          }
          body.push_back(ParseStatement());
          Expect(TokenKind::kBlockEnd, "'%}'");
          break;
        default:
          if (ends.size() != 0) {
            FailParse(name_, opened,
                      "the body of '" + std::string(opener) + "' that begins here has no '" +
                          std::string(*(ends.end() - 1)) + "'");
          }
          return body;
      }
    }
  }

  // The body of a block statement whose head has just been read; takes the end word when it is the
  // one given as the last of `ends`.
  Body ParseBlock(Words ends, std::string_view opener) {
    SkipOp(":");
    Expect(TokenKind::kBlockEnd, "'%}'");
    Body body = ParseBody(ends, opener);
    if (IsWord(*(ends.end() - 1))) {
      Take();
    }
    return body;
  }

  // A block whose frame jinja2 treats as new: unknown names inside are errors at once.
  Body ParseHardBlock(Words ends, std::string_view opener) {
    const size_t mark = unknown_.size();
    Body body = ParseBlock(ends, opener);
    for (size_t i = mark; i < unknown_.size(); ++i) {
      unknown_[i].hard = true;
    }
    return body;
  }

  void ForgiveUnknownSince(size_t mark) {
    unknown_.erase(
        std::remove_if(unknown_.begin() + static_cast<std::ptrdiff_t>(mark), unknown_.end(),
                       [](const UnknownName& unknown) { return !unknown.hard; }),
        unknown_.end());
  }

  std::unique_ptr<Statement> ParseStatement() {
    const Nest nest(*this);
    if (!IsKind(TokenKind::kName)) {
      FailExpected("the name of a statement");
    }
    struct Entry {
      std::string_view word;
      std::unique_ptr<Statement> (Parser::*parse)();
    };
    static constexpr std::array<Entry, 11> kStatements = {{{"if", &Parser::ParseIf},
                                                           {"for", &Parser::ParseFor},
                                                           {"set", &Parser::ParseSet},
                                                           {"with", &Parser::ParseWith},
                                                           {"macro", &Parser::ParseMacro},
                                                           {"call", &Parser::ParseCallBlock},
                                                           {"filter", &Parser::ParseFilterBlock},
                                                           {"generation", &Parser::ParseGeneration},
                                                           {"print", &Parser::ParsePrint},
                                                           {"break", &Parser::ParseJump},
                                                           {"continue", &Parser::ParseJump}}};
    const std::string& word = Current().text;
    for (const Entry& entry : kStatements) {
      if (entry.word == word) {
        return (this->*entry.parse)();
      }
    }
    if (IsAnyWord({"include", "import", "from", "extends", "block", "autoescape"})) {
      FailHere("the statement '" + word + "' is not supported in chat templates");
    }
    FailHere("unknown statement '" + word + "'");
  }

  std::unique_ptr<Statement> ParseIf() {
    auto node = std::make_unique<IfStatement>(Current().at);
    const size_t mark = unknown_.size();
    do {
      Take();
      ExprPtr condition = ParseTuple(false);
      Body body = ParseBlock({"elif", "else", "endif"}, "if");
      node->branches.emplace_back(std::move(condition), std::move(body));
    } while (IsWord("elif"));
    if (SkipWord("else")) {
      node->otherwise = ParseBlock({"endif"}, "else");
    }
    ForgiveUnknownSince(mark);
    return node;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto node = std::make_unique<ForStatement>(Take().at);
    ++fors_;
    node->target = ParseTarget(false, {"in"});
    ExpectWord("in");
    node->iterable = ParseTuple(false, {"recursive"});
    if (SkipWord("if")) {
      node->condition = ParseExpression();
    }
    node->recursive = SkipWord("recursive");
    ++loops_;
    node->body = ParseHardBlock({"else", "endfor"}, "for");
    --loops_;
    if (SkipWord("else")) {
      node->otherwise = ParseHardBlock({"endfor"}, "else");
    }
    --fors_;
    return node;
  }

  std::unique_ptr<Statement> ParseSet() {
    const Position at = Take().at;
    Target target = ParseTarget(true, {});
    if (SkipOp("=")) {
      auto node = std::make_unique<SetStatement>(at);
      node->target = std::move(target);
      node->expr = ParseTuple(true);
      return node;
    }
    auto node = std::make_unique<SetBlockStatement>(at);
    node->target = std::move(target);
    while (SkipOp("|")) {
      node->filters.push_back(ParseFilter());
    }
    node->body = ParseHardBlock({"endset"}, "set");
    return node;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto node = std::make_unique<WithStatement>(Take().at);
    while (!IsKind(TokenKind::kBlockEnd)) {
      if (!node->assignments.empty()) {
        ExpectOp(",");
      }
      Target target = ParseTarget(false, {});
      ExpectOp("=");
      node->assignments.emplace_back(std::move(target), ParseExpression());
    }
    node->body = ParseHardBlock({"endwith"}, "with");
    return node;
  }

  void ParseSignature(MacroSyntax& macro) {
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!macro.parameters.empty()) {
        ExpectOp(",");
      }
      MacroParameter parameter;
      parameter.name = ExpectName("a parameter's name");
      if (SkipOp("=")) {
        parameter.otherwise = ParseExpression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        FailHere("a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    Take();
  }

  void ParseMacroBody(MacroSyntax& macro, Words ends, std::string_view opener) {
    MacroSyntax* const outer = std::exchange(macro_, &macro);
    const int loops = std::exchange(loops_, 0);
    macro.body = ParseHardBlock(ends, opener);
    loops_ = loops;
    macro_ = outer;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto node = std::make_unique<MacroStatement>(Take().at);
    node->macro.name = ExpectName("the macro's name");
    ParseSignature(node->macro);
    ParseMacroBody(node->macro, {"endmacro"}, "macro");
    return node;
  }

  std::unique_ptr<Statement> ParseCallBlock() {
    auto node = std::make_unique<CallBlockStatement>(Take().at);
    node->caller.name = "caller";
    if (IsOp("(")) {
      ParseSignature(node->caller);
    }
    const Position at = Current().at;
    ExprPtr expr = ParseExpression();
    const bool suffixed = expr->kind == ExprKind::kSuffixed;
    if (!suffixed || static_cast<SuffixedExpr&>(*expr).suffixes.back().kind != SuffixKind::kCall) {
      FailParse(name_, at, "'call' needs a call");
    }
    node->call.reset(static_cast<SuffixedExpr*>(expr.release()));
    ParseMacroBody(node->caller, {"endcall"}, "call");
    return node;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto node = std::make_unique<FilterBlockStatement>(Take().at);
    do {
      node->filters.push_back(ParseFilter());
    } while (SkipOp("|"));
    node->body = ParseHardBlock({"endfilter"}, "filter");
    return node;
  }

  std::unique_ptr<Statement> ParseGeneration() {
    auto node = std::make_unique<ScopeStatement>(Take().at);
    node->body = ParseHardBlock({"endgeneration"}, "generation");
    return node;
  }

  std::unique_ptr<Statement> ParsePrint() {
    const Position at = Take().at;
    return std::make_unique<OutputStatement>(at, ParseTuple(true));
  }

  std::unique_ptr<Statement> ParseJump() {
    if (loops_ == 0) {
      FailHere("'" + Current().text + "' outside a loop");
    }
    const bool is_break = IsWord("break");
    return std::make_unique<JumpStatement>(
        is_break ? StatementKind::kBreak : StatementKind::kContinue, Take().at);
  }

  // ---- targets

  static bool IsConstantWord(std::string_view word) {
    return word == "true" || word == "false" || word == "none" || word == "True" ||
           word == "False" || word == "None";
  }

  Target ParseTarget(bool with_namespace, Words ends) {
    const Nest nest(*this);
    Target target;
    target.at = Current().at;
    bool tuple = false;
    while (!IsOp("=") && !IsOp(")") && !IsKind(TokenKind::kBlockEnd) && !IsAnyWord(ends)) {
      target.parts.push_back(ParseSingleTarget(with_namespace));
      if (!SkipOp(",")) {
        break;
      }
      tuple = true;
    }
    if (target.parts.empty()) {
      FailExpected("a name to assign to");
    }
    if (!tuple) {
      Target only = std::move(target.parts.front());
      return only;
    }
    target.tuple = true;
    return target;
  }

  Target ParseSingleTarget(bool with_namespace) {
    if (SkipOp("(")) {
      Target inner = ParseTarget(with_namespace, {});
      ExpectOp(")");
      return inner;
    }
    Target target;
    target.at = Current().at;
    target.name = ExpectName("a name to assign to");
    if (IsConstantWord(target.name)) {
      FailParse(name_, target.at, "can't assign to '" + target.name + "'");
    }
    if (with_namespace && SkipOp(".")) {
      target.attribute = ExpectName("an attribute's name");
    } else if (target.name == "loop" && fors_ > 0) {
      FailParse(name_, target.at, "can't assign to the special variable 'loop' inside a for");
    }
    return target;
  }

  // ---- expressions

  // Whether a tuple ends at the current token.
  bool AtTupleEnd(Words ends) const {
    return IsKind(TokenKind::kVariableEnd) || IsKind(TokenKind::kBlockEnd) || IsOp(")") ||
           IsAnyWord(ends);
  }

  // Expressions joined by commas, or one alone. In parentheses there may be none.
  ExprPtr ParseTuple(bool with_ternary, Words ends = {}, bool parenthesized = false) {
    const Position at = Current().at;
    auto tuple = std::make_unique<SequenceExpr>(at, true);
    bool is_tuple = false;
    for (;;) {
      if (!tuple->items.empty()) {
        if (!SkipOp(",")) {
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
        FailExpected("an expression");
      }
    }
    return tuple;
  }

  ExprPtr ParseNestedOr() {
    const Nest nest(*this);
    return ParseOr();
  }

  ExprPtr ParseExpression() {
    const Nest nest(*this);
    const size_t mark = unknown_.size();
    ExprPtr expr = ParseOr();
    for (int chained = depth_; IsWord("if"); ++chained) {
      if (chained > limits::kJinjaDepthMax) {
        FailHere("conditional expressions nested deeper than " +
                 std::to_string(limits::kJinjaDepthMax) + " levels");
      }
      auto ternary = std::make_unique<TernaryExpr>(Take().at);
      ternary->then = std::move(expr);
      ternary->condition = ParseOr();
      if (SkipWord("else")) {
        ternary->otherwise = ParseExpression();
      }
      ForgiveUnknownSince(mark);
      expr = std::move(ternary);
    }
    return expr;
  }

  ExprPtr ParseLogic(bool is_and) {
    const auto operand = [this, is_and] { return is_and ? ParseNot() : ParseLogic(true); };
    ExprPtr first = operand();
    const std::string_view word = is_and ? "and" : "or";
    if (!IsWord(word)) {
      return first;
    }
    auto node = std::make_unique<LogicExpr>(Current().at, is_and);
    node->operands.push_back(std::move(first));
    while (SkipWord(word)) {
      node->operands.push_back(operand());
    }
    return node;
  }

  ExprPtr ParseOr() { return ParseLogic(false); }

  ExprPtr ParseNot() {
    if (!IsWord("not")) {
      return ParseCompare();
    }
    const Nest nest(*this);
    const Position at = Take().at;
    return std::make_unique<UnaryExpr>(ExprKind::kNot, at, ParseNot());
  }

  std::optional<CompareOp> TakeCompareOp() {
    static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {
        {{"==", CompareOp::kEq},
         {"!=", CompareOp::kNe},
         {"<", CompareOp::kLt},
         {"<=", CompareOp::kLe},
         {">", CompareOp::kGt},
         {">=", CompareOp::kGe}}};
    for (const auto& [sign, op] : kOps) {
      if (SkipOp(sign)) {
        return op;
      }
    }
    if (SkipWord("in")) {
      return CompareOp::kIn;
    }
    if (IsWord("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      Take();
      Take();
      return CompareOp::kNotIn;
    }
    return std::nullopt;
  }

  ExprPtr ParseCompare() {
    ExprPtr first = ParseSum();
    std::unique_ptr<CompareExpr> node;
    for (;;) {
      const Position at = Current().at;
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

  using Level = ExprPtr (Parser::*)();

  ExprPtr ParseArithmetic(Level operand,
                          std::initializer_list<std::pair<std::string_view, BinaryOp>> ops) {
    ExprPtr first = (this->*operand)();
    std::unique_ptr<ArithmeticExpr> node;
    for (;;) {
      const auto* const found = std::find_if(
          ops.begin(), ops.end(), [this](const auto& entry) { return IsOp(entry.first); });
      if (found == ops.end()) {
        break;
      }
      const Position at = Take().at;
      if (node == nullptr) {
        node = std::make_unique<ArithmeticExpr>(at, std::move(first));
      }
      node->links.push_back({found->second, at, (this->*operand)()});
    }
    return node != nullptr ? ExprPtr(std::move(node)) : std::move(first);
  }

  ExprPtr ParseSum() {
    return ParseArithmetic(&Parser::ParseConcat, {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}});
  }

  ExprPtr ParseConcat() {
    ExprPtr first = ParseProduct();
    if (!IsOp("~")) {
      return first;
    }
    auto node = std::make_unique<ConcatExpr>(Current().at);
    node->operands.push_back(std::move(first));
    while (SkipOp("~")) {
      node->operands.push_back(ParseProduct());
    }
    return node;
  }

  ExprPtr ParseProduct() {
    return ParseArithmetic(&Parser::ParsePower, {{"*", BinaryOp::kMul},
                                                 {"/", BinaryOp::kDiv},
                                                 {"//", BinaryOp::kFloorDiv},
                                                 {"%", BinaryOp::kMod}});
  }

  ExprPtr ParsePower() {
    return ParseArithmetic(&Parser::ParseUnaryWithFilters, {{"**", BinaryOp::kPow}});
  }

  ExprPtr ParseUnaryWithFilters() { return ParseUnary(true); }

  // A sign binds tighter than filters: -x|abs is (-x)|abs.
  ExprPtr ParseUnary(bool with_filters) {
    ExprPtr expr;
    const Position at = Current().at;
    if (IsOp("-") || IsOp("+")) {
      const Nest nest(*this);
      const bool negative = Take().text == "-";
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

  ExprPtr ParsePrimary() {
    const Token& token = Current();
    switch (token.kind) {
      case TokenKind::kName:
        return ParseWord();
      case TokenKind::kString: {
        std::string text;
        while (IsKind(TokenKind::kString)) {
          text += Take().text;
        }
        return std::make_unique<LiteralExpr>(token.at, Value::Trusted(text));
      }
      case TokenKind::kInteger:
        return std::make_unique<LiteralExpr>(token.at, Value(Take().integer));
      case TokenKind::kFloat:
        return std::make_unique<LiteralExpr>(token.at, Value(Take().real));
      default:
        break;
    }
    if (SkipOp("(")) {
      ExprPtr expr = ParseTuple(true, {}, true);
      ExpectOp(")");
      return expr;
    }
    if (SkipOp("[")) {
      return ParseList(token.at);
    }
    if (SkipOp("{")) {
      return ParseDict(token.at);
    }
    FailExpected("an expression");
  }

  ExprPtr ParseWord() {
    const Token& token = Take();
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

  void NoteName(std::string_view word) {
    if (macro_ == nullptr) {
      return;
    }
    macro_->uses_caller |= word == "caller";
    macro_->uses_varargs |= word == "varargs";
    macro_->uses_kwargs |= word == "kwargs";
  }

  ExprPtr ParseList(Position at) {
    auto list = std::make_unique<SequenceExpr>(at, false);
    while (!IsOp("]")) {
      if (!list->items.empty()) {
        ExpectOp(",");
      }
      if (IsOp("]")) {
        break;
      }
      list->items.push_back(ParseExpression());
    }
    Take();
    return list;
  }

  ExprPtr ParseDict(Position at) {
    auto dict = std::make_unique<DictExpr>(at);
    while (!IsOp("}")) {
      if (!dict->entries.empty()) {
        ExpectOp(",");
      }
      if (IsOp("}")) {
        break;
      }
      ExprPtr key = ParseExpression();
      ExpectOp(":");
      dict->entries.emplace_back(std::move(key), ParseExpression());
    }
    Take();
    return dict;
  }

  void ParsePostfix(SuffixedExpr& node) {
    for (;;) {
      if (IsOp(".")) {
        node.suffixes.push_back(ParseAttribute());
      } else if (IsOp("[")) {
        node.suffixes.push_back(ParseSubscript());
      } else if (IsOp("(")) {
        node.suffixes.push_back(ParseCall());
      } else {
        return;
      }
    }
  }

  void ParseFilters(SuffixedExpr& node) {
    for (;;) {
      if (SkipOp("|")) {
        node.suffixes.push_back(ParseFilter());
      } else if (IsWord("is")) {
        node.suffixes.push_back(ParseTest());
      } else if (IsOp("(")) {
        node.suffixes.push_back(ParseCall());
      } else {
        return;
      }
    }
  }

  Suffix ParseAttribute() {
    Suffix suffix;
    suffix.at = Take().at;
    if (IsKind(TokenKind::kInteger)) {
      suffix.kind = SuffixKind::kItem;
      suffix.index = std::make_unique<LiteralExpr>(Current().at, Value(Current().integer));
      Take();
      return suffix;
    }
    suffix.kind = SuffixKind::kAttribute;
    suffix.name = ExpectName("a name or a number after '.'");
    return suffix;
  }

  Suffix ParseSubscript() {
    Suffix suffix;
    suffix.at = Take().at;
    suffix.kind = SuffixKind::kItem;
    if (!IsOp(":")) {
      suffix.index = ParseExpression();
    }
    if (SkipOp(":")) {
      suffix.kind = SuffixKind::kSlice;
      if (!IsOp(":") && !IsOp("]")) {
        suffix.stop = ParseExpression();
      }
      if (SkipOp(":") && !IsOp("]")) {
        suffix.step = ParseExpression();
      }
    }
    ExpectOp("]");
    return suffix;
  }

  Suffix ParseCall() {
    Suffix suffix;
    suffix.kind = SuffixKind::kCall;
    suffix.at = Current().at;
    suffix.call = ParseArguments();
    return suffix;
  }

  CallSyntax ParseArguments() {
    CallSyntax call;
    ExpectOp("(");
    bool first = true;
    while (!IsOp(")")) {
      if (!std::exchange(first, false)) {
        ExpectOp(",");
        if (IsOp(")")) {
          break;
        }
      }
      if (call.star_star != nullptr || (IsOp("*") && call.star != nullptr)) {
        FailHere("invalid order of call arguments");
      }
      if (SkipOp("*")) {
        call.star = ParseExpression();
      } else if (SkipOp("**")) {
        call.star_star = ParseExpression();
      } else if (IsKind(TokenKind::kName) && Ahead().kind == TokenKind::kOperator &&
                 Ahead().text == "=") {
        std::string name = Take().text;
        Take();
        call.named.emplace_back(std::move(name), ParseExpression());
      } else {
        if (!call.named.empty() || call.star != nullptr) {
          FailHere("a positional argument follows a named one");
        }
        call.positional.push_back(ParseExpression());
      }
    }
    Take();
    return call;
  }

  std::string ParseDottedName(std::string_view what) {
    std::string name = ExpectName(what);
    while (SkipOp(".")) {
      name += "." + ExpectName(what);
    }
    return name;
  }

  // A filter's name and arguments, behind its bar.
  Suffix ParseFilter() {
    Suffix suffix;
    suffix.kind = SuffixKind::kFilter;
    suffix.at = Current().at;
    suffix.name = ParseDottedName("a filter's name");
    suffix.filter = FindFilter(suffix.name);
    if (suffix.filter == nullptr) {
      unknown_.push_back({suffix.at, "no filter named '" + suffix.name + "'"});
    }
    if (IsOp("(")) {
      suffix.call = ParseArguments();
    }
    return suffix;
  }

  bool StartsTestArgument() const {
    switch (Current().kind) {
      case TokenKind::kName:
        return !IsAnyWord({"else", "or", "and"});
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return IsOp("[") || IsOp("{");
    }
  }

  Suffix ParseTest() {
    Suffix suffix;
    suffix.kind = SuffixKind::kTest;
    suffix.at = Take().at;
    suffix.negated = SkipWord("not");
    suffix.name = ParseDottedName("a test's name");
    suffix.test = FindTest(suffix.name);
    if (suffix.test == nullptr) {
      unknown_.push_back({suffix.at, "no test named '" + suffix.name + "'"});
    }
    if (IsOp("(")) {
      suffix.call = ParseArguments();
    } else if (StartsTestArgument()) {
      if (IsWord("is")) {
        FailHere("tests cannot be chained with 'is'");
      }
      auto argument = std::make_unique<SuffixedExpr>(Current().at, ParsePrimary());
      ParsePostfix(*argument);
      suffix.call.positional.push_back(argument->suffixes.empty() ? std::move(argument->base)
                                                                  : ExprPtr(std::move(argument)));
    }
    return suffix;
  }

  std::vector<Token> tokens_;
  std::string_view name_;
  size_t pos_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // a break would leave one of these
  int fors_ = 0;   // as loops_, but seen through macros
  MacroSyntax* macro_ = nullptr;
  std::vector<UnknownName> unknown_;
};

}  // namespace

Body ParseTemplate(std::string_view source, std::string_view name) {
  return Parser(Tokenize(source, name), name).Run();
}

}  // namespace bloomery::jinja
