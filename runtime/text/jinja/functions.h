// Internal: callables made from C++ functions.
#pragma once

#include <functional>
#include <string>

#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/heap.h"

namespace bloomery::jinja {

using FunctionBody = std::function<Value(Evaluator&, const CallArgs&)>;

// `nesting`: containers held by what `body` captured, plus one.
Value MakeFunction(std::string name, FunctionBody body, int nesting = 1);

}  // namespace bloomery::jinja
