// The tests of `is`.
#include <algorithm>
#include <array>

#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

// A test without arguments over the value alone.
template <bool (*kPredicate)(const Value&)>
bool Plain(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "test", {});
  return kPredicate(value);
}

template <CompareOp kOp>
bool Comparing(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "test", {"other"}, 1);
  return Compare(e.heap(), kOp, value, *bound[0]);
}

template <ValueKind kKind>
bool OfKind(const Value& value) {
  return value.kind() == kKind;
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsTrue(const Value& value) { return OfKind<ValueKind::kBool>(value) && value.AsBool(); }
bool IsFalse(const Value& value) { return OfKind<ValueKind::kBool>(value) && !value.AsBool(); }
bool IsNumber(const Value& value) { return AsNumber(value).has_value(); }
bool IsCallable(const Value& value) {
  // Python asks the class: Undefined has a __call__ that raises.
  return value.kind() == ValueKind::kCallable || value.is_undefined();
}
bool IsEscaped(const Value& value) { return value.is_text() && value.AsText().markup(); }

bool IsIterable(const Value& value) {
  return value.is_text() || value.is_list() || value.is_dict() || value.is_undefined();
}

bool IsSequence(const Value& value) {
  const bool view = value.is_list() && ValueAccess::List(value).kind > SequenceKind::kRange;
  return IsIterable(value) && !view;
}

double Modulo(const Heap& heap, const Value& value, const Value& divisor) {
  const auto number = AsNumber(Binary(heap, BinaryOp::kMod, value, divisor));
  if (!number) {
    Fail("the test needs numbers");
  }
  return *number;
}

bool IsOdd(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "odd", {});
  return Modulo(e.heap(), value, Value(2)) == 1.0;
}

bool IsEven(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "even", {});
  return Modulo(e.heap(), value, Value(2)) == 0.0;
}

bool IsDivisibleBy(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "divisibleby", {"num"}, 1);
  return Modulo(e.heap(), value, *bound[0]) == 0.0;
}

// Whether str(value) is in that case as a whole.
template <bool (*kOther)(char32_t)>
bool IsCase(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "test", {});
  return HasCaseWithout(e.heap(), Str(e.heap(), value), kOther);
}

bool IsIn(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "in", {"seq"}, 1);
  return Contains(e.heap(), *bound[0], value);
}

// Identity, as far as values have one: scalars of the same kind and value, the same container.
bool IsSameAs(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "sameas", {"other"}, 1);
  const Value& other = *bound[0];
  if (value.kind() != other.kind()) {
    return false;
  }
  if (value.is_list()) {
    return &ValueAccess::List(value) == &ValueAccess::List(other);
  }
  if (value.is_dict()) {
    return &ValueAccess::Dict(value) == &ValueAccess::Dict(other);
  }
  return Equal(e.heap(), value, other);
}

bool IsFilter(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "filter", {});
  return value.is_text() && FindFilter(value.AsText().bytes()) != nullptr;
}

bool IsTest(Evaluator& /*e*/, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "test", {});
  return value.is_text() && FindTest(value.AsText().bytes()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr NamedTest kTests[] = {
    {"defined", Plain<IsDefined>},
    {"undefined", Plain<OfKind<ValueKind::kUndefined>>},
    {"none", Plain<OfKind<ValueKind::kNone>>},
    {"boolean", Plain<OfKind<ValueKind::kBool>>},
    {"true", Plain<IsTrue>},
    {"false", Plain<IsFalse>},
    {"integer", Plain<OfKind<ValueKind::kInt>>},
    {"float", Plain<OfKind<ValueKind::kFloat>>},
    {"number", Plain<IsNumber>},
    {"string", Plain<OfKind<ValueKind::kText>>},
    {"mapping", Plain<OfKind<ValueKind::kDict>>},
    {"iterable", Plain<IsIterable>},
    {"sequence", Plain<IsSequence>},
    {"callable", Plain<IsCallable>},
    {"escaped", Plain<IsEscaped>},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisibleBy},
    {"lower", IsCase<IsUpper>},
    {"upper", IsCase<IsLower>},
    {"in", IsIn},
    {"sameas", IsSameAs},
    {"filter", IsFilter},
    {"test", IsTest},
    {"==", Comparing<CompareOp::kEq>},
    {"eq", Comparing<CompareOp::kEq>},
    {"equalto", Comparing<CompareOp::kEq>},
    {"!=", Comparing<CompareOp::kNe>},
    {"ne", Comparing<CompareOp::kNe>},
    {"<", Comparing<CompareOp::kLt>},
    {"lt", Comparing<CompareOp::kLt>},
    {"lessthan", Comparing<CompareOp::kLt>},
    {"<=", Comparing<CompareOp::kLe>},
    {"le", Comparing<CompareOp::kLe>},
    {">", Comparing<CompareOp::kGt>},
    {"gt", Comparing<CompareOp::kGt>},
    {"greaterthan", Comparing<CompareOp::kGt>},
    {">=", Comparing<CompareOp::kGe>},
    {"ge", Comparing<CompareOp::kGe>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* const it = std::find_if(std::begin(kTests), std::end(kTests),
                                      [name](const NamedTest& test) { return test.name == name; });
  return it == std::end(kTests) ? nullptr : it->function;
}

}  // namespace bloomery::jinja
