// Internal: the parsed form of a template. Plain data, immutable after parsing. Chains (a + b + c,
// x.y[0]|f, elif) are lists and not trees, so depth follows the nesting an author wrote.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/lexer.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

class Evaluator;
struct CallArgs;
using FilterFunction = Value (*)(Evaluator&, const Value&, const CallArgs&);
using TestFunction = bool (*)(Evaluator&, const Value&, const CallArgs&);

enum class ExprKind {
  kLiteral,
  kName,
  kSequence,
  kDict,
  kNegate,
  kPlus,
  kNot,
  kArithmetic,
  kConcat,
  kLogic,
  kCompare,
  kTernary,
  kSuffixed,
};

struct Expr {
  Expr(ExprKind expr_kind, Position place) : kind(expr_kind), at(place) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;
  const ExprKind kind;
  const Position at;
};
using ExprPtr = std::unique_ptr<Expr>;

struct LiteralExpr : Expr {
  LiteralExpr(Position place, Value constant)
      : Expr(ExprKind::kLiteral, place), value(std::move(constant)) {}
  Value value;
};

struct NameExpr : Expr {
  NameExpr(Position place, std::string id) : Expr(ExprKind::kName, place), name(std::move(id)) {}
  std::string name;
};

struct SequenceExpr : Expr {
  SequenceExpr(Position place, bool is_tuple) : Expr(ExprKind::kSequence, place), tuple(is_tuple) {}
  bool tuple;
  std::vector<ExprPtr> items;
};

struct DictExpr : Expr {
  explicit DictExpr(Position place) : Expr(ExprKind::kDict, place) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

// kNegate, kPlus, kNot
struct UnaryExpr : Expr {
  UnaryExpr(ExprKind expr_kind, Position place, ExprPtr expr)
      : Expr(expr_kind, place), operand(std::move(expr)) {}
  ExprPtr operand;
};

// first op operand op operand …, from the left
template <typename Op, ExprKind Kind>
struct ChainExpr : Expr {
  ChainExpr(Position place, ExprPtr expr) : Expr(Kind, place), first(std::move(expr)) {}
  struct Link {
    Op op;
    Position at;
    ExprPtr operand;
  };
  ExprPtr first;
  std::vector<Link> links;
};
using ArithmeticExpr = ChainExpr<BinaryOp, ExprKind::kArithmetic>;
using CompareExpr = ChainExpr<CompareOp, ExprKind::kCompare>;

// a ~ b ~ …
struct ConcatExpr : Expr {
  explicit ConcatExpr(Position place) : Expr(ExprKind::kConcat, place) {}
  std::vector<ExprPtr> operands;
};

// a and b and …, or a or b or …
struct LogicExpr : Expr {
  LogicExpr(Position place, bool conjunction)
      : Expr(ExprKind::kLogic, place), is_and(conjunction) {}
  bool is_and;
  std::vector<ExprPtr> operands;
};

struct TernaryExpr : Expr {
  explicit TernaryExpr(Position place) : Expr(ExprKind::kTernary, place) {}
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};

struct CallSyntax {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;
  ExprPtr star_star;
};

enum class SuffixKind { kAttribute, kItem, kSlice, kCall, kFilter, kTest };

// One step of a chain on a value.
struct Suffix {
  SuffixKind kind = SuffixKind::kAttribute;
  Position at;
  std::string name;                 // attribute, filter, test
  ExprPtr index;                    // item; start of a slice (may be null)
  ExprPtr stop;                     // slice
  ExprPtr step;                     // slice
  CallSyntax call;                  // call, filter, test
  FilterFunction filter = nullptr;  // null: unknown, refused when evaluated
  TestFunction test = nullptr;      // likewise
  bool negated = false;             // is not
};

struct SuffixedExpr : Expr {
  SuffixedExpr(Position place, ExprPtr expr)
      : Expr(ExprKind::kSuffixed, place), base(std::move(expr)) {}
  ExprPtr base;
  std::vector<Suffix> suffixes;
};

// What an assignment writes: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  Position at;
  std::string name;
  std::optional<std::string> attribute;
  std::vector<Target> parts;  // not empty: a tuple
  bool tuple = false;
};

enum class StatementKind {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kScope,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind statement_kind, Position place) : kind(statement_kind), at(place) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;
  const StatementKind kind;
  const Position at;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct DataStatement : Statement {
  DataStatement(Position place, std::string data)
      : Statement(StatementKind::kData, place), text(std::move(data)) {}
  std::string text;
};

struct OutputStatement : Statement {
  OutputStatement(Position place, ExprPtr value)
      : Statement(StatementKind::kOutput, place), expr(std::move(value)) {}
  ExprPtr expr;
};

struct IfStatement : Statement {
  explicit IfStatement(Position place) : Statement(StatementKind::kIf, place) {}
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};

struct ForStatement : Statement {
  explicit ForStatement(Position place) : Statement(StatementKind::kFor, place) {}
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // may be null
  bool recursive = false;
  Body body;
  Body otherwise;
};

struct SetStatement : Statement {
  explicit SetStatement(Position place) : Statement(StatementKind::kSet, place) {}
  Target target;
  ExprPtr expr;
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(Position place) : Statement(StatementKind::kSetBlock, place) {}
  Target target;
  std::vector<Suffix> filters;
  Body body;
};

struct WithStatement : Statement {
  explicit WithStatement(Position place) : Statement(StatementKind::kWith, place) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};

struct MacroParameter {
  std::string name;
  ExprPtr otherwise;  // default, may be null
};

// The function part of a macro or of a call block.
struct MacroSyntax {
  std::string name;
  std::vector<MacroParameter> parameters;
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct MacroStatement : Statement {
  explicit MacroStatement(Position place) : Statement(StatementKind::kMacro, place) {}
  MacroSyntax macro;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(Position place) : Statement(StatementKind::kCallBlock, place) {}
  MacroSyntax caller;
  std::unique_ptr<SuffixedExpr> call;  // its last suffix is the call
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(Position place) : Statement(StatementKind::kFilterBlock, place) {}
  std::vector<Suffix> filters;
  Body body;
};

// A body with a scope of its own: {% generation %}.
struct ScopeStatement : Statement {
  explicit ScopeStatement(Position place) : Statement(StatementKind::kScope, place) {}
  Body body;
};

struct JumpStatement : Statement {
  using Statement::Statement;
};

struct TemplateBody {
  std::string name;
  std::string source;
  Body body;
};

}  // namespace bloomery::jinja
