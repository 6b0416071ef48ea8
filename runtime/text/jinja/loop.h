// Internal: the `loop` variable of a for.
#pragma once

#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/heap.h"

namespace bloomery::jinja {

struct Scope;

// Items are pulled through the loop's `if` only as far as someone looks, as jinja2 does: a body may
// change what the condition reads.
class LoopObject : public Callable, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(const ForStatement& statement, Scope* closure, Value source, int depth)
      : statement_(statement), closure_(closure), source_(std::move(source)), depth_(depth) {}

  // Moves to the next item; false when there is none.
  bool Advance(Evaluator& evaluator);
  const Value& item() const { return Accepted(index_); }
  // The loop is over: the object may live on in a variable, but starts nothing any more.
  void End();

  Value Call(Evaluator& evaluator, const CallArgs& args) const override;
  Value Attribute(Evaluator& evaluator, std::string_view name) const override;
  std::string Repr() const override { return "<LoopContext>"; }
  int nesting() const override { return NestingOf(source_) + 1; }

 private:
  const Value& Accepted(size_t index) const;
  // Whether there are at least `count` accepted items.
  bool Fill(Evaluator& evaluator, size_t count) const;
  size_t Length(Evaluator& evaluator) const;
  Value Changed(const Heap& heap, const CallArgs& args) const;

  const ForStatement& statement_;
  Scope* closure_;
  Value source_;  // a list value
  int depth_;
  size_t index_ = 0;
  bool started_ = false;
  bool ended_ = false;
  mutable size_t next_source_ = 0;
  mutable std::vector<size_t> accepted_;  // places in the source, used when there is a condition
  mutable Value last_changed_;
  mutable bool has_changed_ = false;
};

}  // namespace bloomery::jinja
