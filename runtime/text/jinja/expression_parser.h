// Internal: expressions, calls, filters and tests of templates, into their parsed form. Reads from
// a cursor that it borrows and the statements' parser shares. Remembers unknown filters and tests
// until the statements around them have decided whether they matter, and notes what the macro
// around uses.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/token_cursor.h"

namespace bloomery::jinja {

// true, none and their like, which are no names.
bool IsConstantWord(std::string_view word);

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& in) : in_(in) {}

  ExprPtr ParseExpression();
  // Expressions joined by commas, or one alone. In parentheses there may be none.
  ExprPtr ParseTuple(bool with_ternary, Words ends = {}, bool parenthesized = false);
  // A filter's name and arguments, behind its bar.
  Suffix ParseFilter();

  // The macro whose body is read from now on (null: none), for its uses of caller and the like; the
  // one before is given back.
  MacroSyntax* EnterMacro(MacroSyntax* macro) { return std::exchange(macro_, macro); }

  // A filter or test that does not exist. As in jinja2 it is an error of the template at once,
  // except inside an if, where the template may have checked for it, and it fails only when
  // evaluated. A mark is the count of unknown names before what an if or a hard block holds.
  size_t unknown_count() const { return unknown_.size(); }
  void ForgiveUnknownSince(size_t mark);  // but for the hardened
  void HardenUnknownSince(size_t mark);
  void FailIfUnknown() const;

 private:
  struct UnknownName {
    Position at;
    std::string what;
    bool hard = false;
  };
  using Level = ExprPtr (ExpressionParser::*)();

  bool AtTupleEnd(Words ends) const;
  ExprPtr ParseNestedOr();
  ExprPtr ParseOr();
  ExprPtr ParseLogic(bool is_and);
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  std::optional<CompareOp> TakeCompareOp();
  ExprPtr ParseArithmetic(Level operand,
                          std::initializer_list<std::pair<std::string_view, BinaryOp>> ops);
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnaryWithFilters();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseWord();
  void NoteName(std::string_view word);
  ExprPtr ParseList(Position at);
  ExprPtr ParseDict(Position at);

  void ParsePostfix(SuffixedExpr& node);
  void ParseFilters(SuffixedExpr& node);
  Suffix ParseAttribute();
  Suffix ParseSubscript();
  Suffix ParseCall();
  CallSyntax ParseArguments();
  std::string ParseDottedName(std::string_view what);
  Suffix ParseTest();
  bool StartsTestArgument() const;

  TokenCursor& in_;
  MacroSyntax* macro_ = nullptr;
  std::vector<UnknownName> unknown_;
};

}  // namespace bloomery::jinja
