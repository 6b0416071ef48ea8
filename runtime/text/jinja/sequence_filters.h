// Internal: filters over sequences and dicts.
#pragma once

#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

Value BatchFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value DictSortFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value FirstFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value GroupByFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value ItemsFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value JoinFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value LastFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value ListFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value MapFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value MaxFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value MinFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value RejectFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value RejectAttrFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value ReverseFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value SelectFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value SelectAttrFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value SliceFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value SortFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value SumFilter(Evaluator& e, const Value& value, const CallArgs& args);
Value UniqueFilter(Evaluator& e, const Value& value, const CallArgs& args);

}  // namespace bloomery::jinja
