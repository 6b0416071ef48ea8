#include "runtime/text/jinja/evaluator.h"

#include <algorithm>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/loop.h"
#include "runtime/text/jinja/operators.h"

namespace bloomery::jinja {
namespace {

// What evaluating one expression node counts as work: sixteen to a step.
constexpr size_t kNodeWork = limits::kJinjaWorkBytesPerStep / 16;

class MacroObject : public Callable {
 public:
  MacroObject(const MacroSyntax& macro, Scope* closure) : macro_(macro), closure_(closure) {}
  Value Call(Evaluator& evaluator, const CallArgs& args) const override {
    return evaluator.CallMacro(macro_, closure_, args);
  }
  Value Attribute(Evaluator& evaluator, std::string_view name) const override {
    if (name == "name") {
      return evaluator.heap().NewText(macro_.name);
    }
    if (name == "caller") {
      return macro_.uses_caller;
    }
    return Callable::Attribute(evaluator, name);
  }
  std::string Repr() const override { return "<Macro '" + macro_.name + "'>"; }

 private:
  const MacroSyntax& macro_;
  Scope* closure_;
};

}  // namespace

Value* Scope::Find(std::string_view name) {
  for (auto& [key, value] : names) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  if (Value* known = Find(name)) {
    *known = std::move(value);
  } else {
    names.emplace_back(name, std::move(value));
  }
}

// One level of evaluation on the C++ stack.
class Evaluator::Nest {
 public:
  Nest(int& count, int max, const char* what) : count_(count) {
    if (count_ >= max) {
      FailLimit("the template's " + std::string(what) + " nest deeper than " + std::to_string(max) +
                " levels");
    }
    ++count_;
  }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  ~Nest() { --count_; }

 private:
  int& count_;
};

// A new innermost scope over `parent` until destruction.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), saved_(evaluator.scope_) {
    evaluator_.scope_ = std::make_shared<Scope>(parent);
  }
  explicit ScopeGuard(Evaluator& evaluator) : ScopeGuard(evaluator, evaluator.scope_.get()) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() { evaluator_.scope_ = std::move(saved_); }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> saved_;
};

Evaluator::Evaluator(const TemplateBody& body, const Value& context, const RenderOptions& options)
    : template_(body),
      context_(context),
      options_(options),
      budget_(options.steps_max, options.value_bytes_max),
      heap_(&budget_),
      scope_(std::make_shared<Scope>(nullptr)) {}

Evaluator::~Evaluator() {
  for (const auto& scope : kept_scopes_) {
    scope->names.clear();
  }
  scope_->names.clear();
  heap_.ClearNamespaces();
}

RenderResult Evaluator::Run() {
  try {
    TextBuilder output(&budget_);
    out_ = &output;
    Exec(template_.body);
    auto [text, spans] = output.Release();
    return {std::move(text), std::move(spans)};
  } catch (const Failure& failure) {
    throw Error(failure.kind, "template " + template_.name + ":" + std::to_string(at_.line) + ":" +
                                  std::to_string(at_.column) + ": " + failure.message);
  }
}

// ---- statements

Evaluator::Flow Evaluator::Exec(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = ExecOne(*statement);
    if (flow != Flow::kNormal) {
      return flow;
    }
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::ExecOne(const Statement& statement) {
  at_ = statement.at;
  budget_.Step();
  const Nest nest(nodes_, limits::kJinjaEvalDepthMax, "statements and expressions");
  switch (statement.kind) {
    case StatementKind::kData: {
      const std::string& text = static_cast<const DataStatement&>(statement).text;
      out_->Append(text, false);
      CheckOutput();
      return Flow::kNormal;
    }
    case StatementKind::kOutput: {
      const Value value = Eval(*static_cast<const OutputStatement&>(statement).expr);
      at_ = statement.at;
      Print(value);
      return Flow::kNormal;
    }
    case StatementKind::kIf:
      return ExecIf(static_cast<const IfStatement&>(statement));
    case StatementKind::kFor: {
      const auto& loop = static_cast<const ForStatement&>(statement);
      const Value iterable = Eval(*loop.iterable);
      at_ = loop.iterable->at;
      return ExecFor(loop, loop.recursive ? KeepScope() : scope_.get(), iterable, 1);
    }
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      const Value value = Eval(*set.expr);
      Assign(set.target, value);
      return Flow::kNormal;
    }
    case StatementKind::kSetBlock:
      return ExecSetBlock(static_cast<const SetBlockStatement&>(statement));
    case StatementKind::kWith:
      return ExecWith(static_cast<const WithStatement&>(statement));
    case StatementKind::kMacro: {
      const MacroSyntax& macro = static_cast<const MacroStatement&>(statement).macro;
      scope_->Set(macro.name,
                  ValueAccess::Make(std::make_shared<const MacroObject>(macro, KeepScope())));
      return Flow::kNormal;
    }
    case StatementKind::kCallBlock:
      ExecCallBlock(static_cast<const CallBlockStatement&>(statement));
      return Flow::kNormal;
    case StatementKind::kFilterBlock:
      return ExecFilterBlock(static_cast<const FilterBlockStatement&>(statement));
    case StatementKind::kScope: {
      const ScopeGuard scope(*this);
      return Exec(static_cast<const ScopeStatement&>(statement).body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::ExecIf(const IfStatement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (Truthy(Eval(*condition))) {
      return Exec(body);
    }
  }
  return Exec(statement.otherwise);
}

Evaluator::Flow Evaluator::ExecFor(const ForStatement& statement, Scope* closure,
                                   const Value& iterable, int depth) {
  const auto loop = std::make_shared<LoopObject>(statement, closure,
                                                 heap_.NewList(Iterate(heap_, iterable)), depth);
  struct EndGuard {
    LoopObject& loop;
    ~EndGuard() { loop.End(); }
  } const end{*loop};
  const Value loop_value = ValueAccess::Make(std::shared_ptr<const Callable>(loop));
  // As in jinja2, else runs unless some iteration reached its end: break and continue do not count.
  bool completed = false;
  while (loop->Advance(*this)) {
    budget_.Step();
    const ScopeGuard scope(*this, closure);
    scope_->Set("loop", loop_value);
    Assign(statement.target, loop->item());
    const Flow flow = Exec(statement.body);
    completed |= flow == Flow::kNormal;
    if (flow == Flow::kBreak) {
      break;
    }
  }
  if (completed) {
    return Flow::kNormal;
  }
  const ScopeGuard scope(*this, closure);
  return Exec(statement.otherwise);
}

bool Evaluator::LoopAccepts(const ForStatement& loop, Scope* closure, const Value& item) {
  if (loop.condition == nullptr) {
    return true;
  }
  budget_.Step();
  const ScopeGuard scope(*this, closure);
  Assign(loop.target, item);
  return Truthy(Eval(*loop.condition));
}

Evaluator::Flow Evaluator::ExecWith(const WithStatement& statement) {
  // Every value is read in the outer scope.
  std::vector<Value> values;
  values.reserve(statement.assignments.size());
  for (const auto& assignment : statement.assignments) {
    values.push_back(Eval(*assignment.second));
  }
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    Assign(statement.assignments[i].first, values[i]);
  }
  return Exec(statement.body);
}

std::pair<Text, Evaluator::Flow> Evaluator::Capture(const Body& body) {
  TextBuilder builder(&budget_);
  TextBuilder* const outer = std::exchange(out_, &builder);
  ++captures_;
  const Flow flow = Exec(body);
  --captures_;
  out_ = outer;
  return {builder.Finish(), flow};
}

Evaluator::Flow Evaluator::ExecSetBlock(const SetBlockStatement& statement) {
  Value value;
  {
    const ScopeGuard scope(*this);
    auto [text, flow] = Capture(statement.body);
    if (flow != Flow::kNormal) {
      return flow;
    }
    value = ApplyFilters(statement.filters, text);
  }
  Assign(statement.target, value);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::ExecFilterBlock(const FilterBlockStatement& statement) {
  const ScopeGuard scope(*this);
  auto [text, flow] = Capture(statement.body);
  if (flow == Flow::kNormal) {
    Print(ApplyFilters(statement.filters, text));
  }
  return flow;
}

void Evaluator::ExecCallBlock(const CallBlockStatement& statement) {
  CallArgs extra;
  extra.named.emplace_back("caller", ValueAccess::Make(std::make_shared<const MacroObject>(
                                         statement.caller, KeepScope())));
  Print(EvalSuffixed(*statement.call, &extra));
}

void Evaluator::Assign(const Target& target, const Value& value) {
  if (target.tuple) {
    AssignParts(target, value);
    return;
  }
  if (!target.attribute) {
    scope_->Set(target.name, value);
    return;
  }
  at_ = target.at;
  const NameExpr name(target.at, target.name);
  const Value holder = EvalName(name);
  if (holder.kind() != ValueKind::kNamespace) {
    Fail("cannot assign attribute '" + *target.attribute + "': '" + target.name +
         "' is no namespace");
  }
  NamespaceData& data = ValueAccess::Namespace(holder);
  if (Value* known = data.Find(*target.attribute)) {
    *known = value;
  } else {
    data.charge.Add(sizeof(Value) + 64);
    data.attributes.emplace_back(*target.attribute, value);
  }
}

void Evaluator::AssignParts(const Target& target, const Value& value) {
  at_ = target.at;
  const std::vector<Value> items = Iterate(heap_, value);
  if (items.size() != target.parts.size()) {
    Fail("cannot unpack " + std::to_string(items.size()) + " values into " +
         std::to_string(target.parts.size()) + " names");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    Assign(target.parts[i], items[i]);
  }
}

Scope* Evaluator::KeepScope() {
  for (Scope* scope = scope_.get(); scope != nullptr && !scope->kept; scope = scope->parent) {
    scope->kept = true;
    kept_charges_.emplace_back(&budget_, sizeof(Scope) + 128);
    kept_scopes_.push_back(scope->shared_from_this());
  }
  return scope_.get();
}

void Evaluator::Print(const Value& value) {
  if (value.is_text()) {
    out_->Append(value.AsText());
  } else {
    out_->Append(Str(heap_, value));
  }
  CheckOutput();
}

void Evaluator::CheckOutput() {
  if (captures_ == 0 && out_->size() > options_.output_bytes_max) {
    FailLimit("the output is longer than " + std::to_string(options_.output_bytes_max) + " bytes");
  }
}

// ---- calls

Value Evaluator::Call(const Value& function, const CallArgs& args) {
  budget_.Step();
  if (function.kind() != ValueKind::kCallable) {
    RequireDefined(function);
    Fail("'" + std::string(TypeName(function)) + "' object is not callable");
  }
  // Held here: the call may overwrite the variable the function came from.
  const std::shared_ptr<const Callable> callable = ValueAccess::Function(function);
  return callable->Call(*this, args);
}

Value Evaluator::CallMacro(const MacroSyntax& macro, Scope* closure, const CallArgs& args) {
  const Nest nest(calls_, limits::kJinjaDepthMax, "macro calls");
  const ScopeGuard guard(*this, closure);
  Scope& scope = *scope_;
  const size_t count = macro.parameters.size();
  std::vector<std::pair<std::string, Value>> rest = args.named;
  const auto take = [&rest](std::string_view name, Value& value) {
    const auto it = std::find_if(rest.begin(), rest.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == rest.end()) {
      return false;
    }
    value = it->second;
    rest.erase(it);
    return true;
  };
  for (size_t i = 0; i < count; ++i) {
    const MacroParameter& parameter = macro.parameters[i];
    Value value = Undefined{&parameter.name};
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (!take(parameter.name, value) && parameter.otherwise != nullptr) {
      value = Eval(*parameter.otherwise);
    }
    scope.Set(parameter.name, std::move(value));
  }
  if (macro.uses_caller && scope.Find("caller") == nullptr) {
    static const std::string kCaller = "caller";
    Value caller = Undefined{&kCaller};
    take("caller", caller);
    scope.Set("caller", std::move(caller));
  }
  if (macro.uses_kwargs) {
    std::vector<Value::DictEntry> entries;
    entries.reserve(rest.size());
    for (auto& [name, value] : rest) {
      entries.emplace_back(heap_.NewText(name), std::move(value));
    }
    scope.Set("kwargs", heap_.NewDict(std::move(entries)));
  } else if (!rest.empty()) {
    Fail("macro '" + macro.name + "' takes no keyword argument '" + rest.front().first + "'");
  }
  if (macro.uses_varargs) {
    const auto first = static_cast<std::ptrdiff_t>(std::min(count, args.positional.size()));
    scope.Set("varargs", heap_.NewList({args.positional.begin() + first, args.positional.end()},
                                       SequenceKind::kTuple));
  } else if (args.positional.size() > count) {
    Fail("macro '" + macro.name + "' takes not more than " + std::to_string(count) +
         " argument(s)");
  }
  return Capture(macro.body).first;
}

Value Evaluator::CallLoop(const ForStatement& loop, Scope* closure, const Value& items, int depth) {
  const Nest nest(calls_, limits::kJinjaDepthMax, "recursive loops");
  TextBuilder builder(&budget_);
  TextBuilder* const outer = std::exchange(out_, &builder);
  ++captures_;
  ExecFor(loop, closure, items, depth);
  --captures_;
  out_ = outer;
  return builder.Finish();
}

Value Evaluator::ApplyFilter(const std::string& name, const Value& value, const CallArgs& args) {
  budget_.Step();
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) {
    Fail("no filter named '" + name + "'");
  }
  return filter(*this, value, args);
}

bool Evaluator::ApplyTest(const std::string& name, const Value& value, const CallArgs& args) {
  budget_.Step();
  const TestFunction test = FindTest(name);
  if (test == nullptr) {
    Fail("no test named '" + name + "'");
  }
  return test(*this, value, args);
}

// ---- expressions

Value Evaluator::Eval(const Expr& expr) {
  budget_.Work(kNodeWork);
  const Nest nest(nodes_, limits::kJinjaEvalDepthMax, "statements and expressions");
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return static_cast<const LiteralExpr&>(expr).value;
    case ExprKind::kName:
      return EvalName(static_cast<const NameExpr&>(expr));
    case ExprKind::kSequence:
      return EvalSequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kDict:
      return EvalDict(static_cast<const DictExpr&>(expr));
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      const Value value = Eval(*static_cast<const UnaryExpr&>(expr).operand);
      at_ = expr.at;
      return expr.kind == ExprKind::kNegate ? Negate(value) : Plus(value);
    }
    case ExprKind::kNot:
      return !Truthy(Eval(*static_cast<const UnaryExpr&>(expr).operand));
    case ExprKind::kArithmetic:
      return EvalArithmetic(static_cast<const ArithmeticExpr&>(expr));
    case ExprKind::kConcat:
      return EvalConcat(static_cast<const ConcatExpr&>(expr));
    case ExprKind::kLogic:
      return EvalLogic(static_cast<const LogicExpr&>(expr));
    case ExprKind::kCompare:
      return EvalCompare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kTernary:
      return EvalTernary(static_cast<const TernaryExpr&>(expr));
    case ExprKind::kSuffixed:
      return EvalSuffixed(static_cast<const SuffixedExpr&>(expr), nullptr);
  }
  return Value();
}

Value Evaluator::EvalName(const NameExpr& expr) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent) {
    if (const Value* value = scope->Find(expr.name)) {
      return *value;
    }
  }
  if (context_.is_dict()) {
    const DictData& dict = ValueAccess::Dict(context_);
    const size_t at = dict.Find(std::string_view(expr.name));
    if (at < dict.entries.size()) {
      return dict.entries[at].second;
    }
  }
  Value global = FindGlobal(expr.name);
  return global.is_undefined() ? Value(Undefined{&expr.name}) : global;
}

Value Evaluator::EvalSequence(const SequenceExpr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    items.push_back(Eval(*item));
  }
  at_ = expr.at;
  return heap_.NewList(std::move(items), expr.tuple ? SequenceKind::kTuple : SequenceKind::kList);
}

Value Evaluator::EvalDict(const DictExpr& expr) {
  std::vector<Value::DictEntry> entries;
  entries.reserve(expr.entries.size());
  for (const auto& [key, value] : expr.entries) {
    Value evaluated_key = Eval(*key);
    entries.emplace_back(std::move(evaluated_key), Eval(*value));
  }
  at_ = expr.at;
  return heap_.NewDict(std::move(entries));
}

Value Evaluator::EvalArithmetic(const ArithmeticExpr& expr) {
  Value value = Eval(*expr.first);
  for (const auto& link : expr.links) {
    const Value operand = Eval(*link.operand);
    at_ = link.at;
    value = Binary(heap_, link.op, value, operand);
  }
  return value;
}

Value Evaluator::EvalConcat(const ConcatExpr& expr) {
  TextBuilder builder(&budget_);
  for (const ExprPtr& operand : expr.operands) {
    const Value value = Eval(*operand);
    at_ = operand->at;
    builder.Append(Str(heap_, value));
  }
  return builder.Finish();
}

Value Evaluator::EvalLogic(const LogicExpr& expr) {
  Value value;
  for (const ExprPtr& operand : expr.operands) {
    value = Eval(*operand);
    if (Truthy(value) != expr.is_and) {
      break;
    }
  }
  return value;
}

Value Evaluator::EvalCompare(const CompareExpr& expr) {
  Value left = Eval(*expr.first);
  for (const auto& link : expr.links) {
    Value right = Eval(*link.operand);
    at_ = link.at;
    if (!Compare(heap_, link.op, left, right)) {
      return false;
    }
    left = std::move(right);
  }
  return true;
}

Value Evaluator::EvalTernary(const TernaryExpr& expr) {
  if (Truthy(Eval(*expr.condition))) {
    return Eval(*expr.then);
  }
  return expr.otherwise != nullptr ? Eval(*expr.otherwise) : Value();
}

Value Evaluator::EvalSuffixed(const SuffixedExpr& expr, const CallArgs* extra_of_last) {
  Value value = Eval(*expr.base);
  for (const Suffix& suffix : expr.suffixes) {
    value = ApplySuffix(suffix, value, &suffix == &expr.suffixes.back() ? extra_of_last : nullptr);
  }
  return value;
}

Value Evaluator::ApplyFilters(const std::vector<Suffix>& filters, Value value) {
  for (const Suffix& filter : filters) {
    value = ApplySuffix(filter, value, nullptr);
  }
  return value;
}

Value Evaluator::ApplySuffix(const Suffix& suffix, const Value& value, const CallArgs* extra) {
  budget_.Work(kNodeWork);
  switch (suffix.kind) {
    case SuffixKind::kAttribute:
      at_ = suffix.at;
      return AttributeOf(*this, value, suffix.name);
    case SuffixKind::kItem: {
      const Value index = Eval(*suffix.index);
      at_ = suffix.at;
      Value item = ItemOf(*this, value, index);
      if (item.is_undefined() && suffix.index->kind == ExprKind::kLiteral && index.is_text()) {
        // The literal's text lives in the parsed form, so the message can name it.
        return Undefined{&static_cast<const LiteralExpr&>(*suffix.index).value.AsText().bytes()};
      }
      return item;
    }
    case SuffixKind::kSlice: {
      const auto part = [this](const ExprPtr& expr) {
        return expr != nullptr ? Eval(*expr) : Value(None{});
      };
      const Value start = part(suffix.index);
      const Value stop = part(suffix.stop);
      const Value step = part(suffix.step);
      at_ = suffix.at;
      return SliceOf(heap_, value, start, stop, step);
    }
    case SuffixKind::kCall: {
      CallArgs args = EvalArguments(suffix.call);
      if (extra != nullptr) {
        args.named.insert(args.named.end(), extra->named.begin(), extra->named.end());
      }
      at_ = suffix.at;
      return Call(value, args);
    }
    case SuffixKind::kFilter: {
      const CallArgs args = EvalArguments(suffix.call);
      at_ = suffix.at;
      if (suffix.filter == nullptr) {
        Fail("no filter named '" + suffix.name + "'");
      }
      budget_.Step();
      return suffix.filter(*this, value, args);
    }
    case SuffixKind::kTest: {
      const CallArgs args = EvalArguments(suffix.call);
      at_ = suffix.at;
      if (suffix.test == nullptr) {
        Fail("no test named '" + suffix.name + "'");
      }
      budget_.Step();
      return suffix.test(*this, value, args) != suffix.negated;
    }
  }
  return Value();
}

CallArgs Evaluator::EvalArguments(const CallSyntax& call) {
  CallArgs args;
  for (const ExprPtr& expr : call.positional) {
    args.positional.push_back(Eval(*expr));
  }
  for (const auto& [name, expr] : call.named) {
    if (args.Named(name) != nullptr) {
      Fail("keyword argument '" + name + "' repeated");
    }
    args.named.emplace_back(name, Eval(*expr));
  }
  if (call.star != nullptr) {
    const std::vector<Value> items = Iterate(heap_, Eval(*call.star));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (call.star_star != nullptr) {
    const Value kwargs = Eval(*call.star_star);
    if (!kwargs.is_dict()) {
      Fail("the argument after ** must be a dict, not '" + std::string(TypeName(kwargs)) + "'");
    }
    for (const auto& [key, value] : kwargs.Entries()) {
      const std::string& name = RequireText(key, "a keyword").bytes();
      // Looking for repeats walks what is there, so a long dict pays for it.
      budget_.Work(args.named.size() * sizeof(Value));
      if (args.Named(name) != nullptr) {
        Fail("keyword argument '" + name + "' repeated");
      }
      args.named.emplace_back(name, value);
    }
  }
  return args;
}

}  // namespace bloomery::jinja
