// Internal: one render. Walks the parsed form with scopes, a budget and an output that remembers
// provenance. Used by one thread once; everything a render makes ends with it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::jinja {

// Names bound in one frame of the template. Kept alive by shared_ptr only because a macro may
// outlive the loop body it was made in.
struct Scope : std::enable_shared_from_this<Scope> {
  explicit Scope(Scope* outer) : parent(outer) {}
  Scope* parent;
  std::vector<std::pair<std::string_view, Value>> names;  // the names lie in the parsed form
  bool kept = false;
  Value* Find(std::string_view name);
  void Set(std::string_view name, Value value);
};

class Evaluator {
 public:
  Evaluator(const TemplateBody& body, const Value& context, const RenderOptions& options);
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  RenderResult Run();

  // For filters, methods and functions.
  Heap& heap() { return heap_; }
  const RenderOptions& options() const { return options_; }
  Value Call(const Value& function, const CallArgs& args);
  Value CallMacro(const MacroSyntax& macro, Scope* closure, const CallArgs& args);
  // Runs the body of a recursive loop over other items.
  Value CallLoop(const ForStatement& loop, Scope* closure, const Value& items, int depth);
  // Whether a loop's `if` lets `item` through.
  bool LoopAccepts(const ForStatement& loop, Scope* closure, const Value& item);
  Value ApplyFilter(const std::string& name, const Value& value, const CallArgs& args);
  bool ApplyTest(const std::string& name, const Value& value, const CallArgs& args);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Nest;
  class ScopeGuard;

  Flow Exec(const Body& body);
  Flow ExecOne(const Statement& statement);
  Flow ExecIf(const IfStatement& statement);
  Flow ExecFor(const ForStatement& statement, Scope* closure, const Value& iterable, int depth);
  Flow ExecWith(const WithStatement& statement);
  Flow ExecSetBlock(const SetBlockStatement& statement);
  Flow ExecFilterBlock(const FilterBlockStatement& statement);
  void ExecCallBlock(const CallBlockStatement& statement);
  void Assign(const Target& target, const Value& value);
  void AssignParts(const Target& target, const Value& value);

  Value Eval(const Expr& expr);
  Value EvalName(const NameExpr& expr);
  Value EvalSequence(const SequenceExpr& expr);
  Value EvalDict(const DictExpr& expr);
  Value EvalArithmetic(const ArithmeticExpr& expr);
  Value EvalConcat(const ConcatExpr& expr);
  Value EvalLogic(const LogicExpr& expr);
  Value EvalCompare(const CompareExpr& expr);
  Value EvalTernary(const TernaryExpr& expr);
  Value EvalSuffixed(const SuffixedExpr& expr, const CallArgs* extra_of_last);
  Value ApplySuffix(const Suffix& suffix, const Value& value, const CallArgs* extra);
  Value ApplyFilters(const std::vector<Suffix>& filters, Value value);
  CallArgs EvalArguments(const CallSyntax& call);

  void Print(const Value& value);
  void CheckOutput();
  // Runs `body` into a text of its own.
  std::pair<Text, Flow> Capture(const Body& body);
  // The current scope must live as long as the render: something refers to it.
  Scope* KeepScope();

  const TemplateBody& template_;
  const Value& context_;
  const RenderOptions& options_;
  Budget budget_;
  Heap heap_;
  Position at_;  // what is being evaluated, for messages
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
  std::vector<Charge> kept_charges_;
  TextBuilder* out_ = nullptr;
  int captures_ = 0;
  int nodes_ = 0;
  int calls_ = 0;
};

}  // namespace bloomery::jinja
