// Internal: what a template may call, and the arguments of a call.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

class Evaluator;

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The named argument, or null.
  const Value* Named(std::string_view name) const;
};

// Arguments matched to a function's parameter names, in order; a missing one is null. Throws
// Failure for too many, unknown or repeated ones, and when fewer than `required` are given.
class BoundArgs {
 public:
  BoundArgs(const CallArgs& args, std::string_view function,
            std::initializer_list<std::string_view> parameters, size_t required = 0);
  // It points into the arguments, so they must outlive it.
  BoundArgs(CallArgs&&, std::string_view, std::initializer_list<std::string_view>,
            size_t = 0) = delete;
  const Value* operator[](size_t index) const { return values_[index]; }
  // With a default for a missing argument.
  int64_t Int(size_t index, int64_t otherwise) const;
  bool Bool(size_t index, bool otherwise) const;
  Text TextOr(size_t index, std::string_view otherwise) const;

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

class Callable {
 public:
  Callable() = default;
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  virtual ~Callable() = default;
  virtual Value Call(Evaluator& evaluator, const CallArgs& args) const = 0;
  // Undefined when there is no such attribute.
  virtual Value Attribute(Evaluator& evaluator, std::string_view name) const;
  virtual std::string Repr() const = 0;
  // As NestingOf: containers held inside.
  virtual int nesting() const { return 1; }
};

}  // namespace bloomery::jinja
