#include "runtime/text/jinja/loop.h"

#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/operators.h"

namespace bloomery::jinja {

const Value& LoopObject::Accepted(size_t index) const {
  return source_.Items()[statement_.condition == nullptr ? index : accepted_[index]];
}

bool LoopObject::Fill(Evaluator& evaluator, size_t count) const {
  const std::vector<Value>& items = source_.Items();
  if (statement_.condition == nullptr) {
    return items.size() >= count;
  }
  while (accepted_.size() < count && next_source_ < items.size() && !ended_) {
    const size_t at = next_source_++;
    if (evaluator.LoopAccepts(statement_, closure_, items[at])) {
      accepted_.push_back(at);
    }
  }
  return accepted_.size() >= count;
}

size_t LoopObject::Length(Evaluator& evaluator) const {
  Fill(evaluator, source_.Items().size());
  return statement_.condition == nullptr ? source_.Items().size() : accepted_.size();
}

bool LoopObject::Advance(Evaluator& evaluator) {
  const size_t next = started_ ? index_ + 1 : 0;
  if (!Fill(evaluator, next + 1)) {
    return false;
  }
  started_ = true;
  index_ = next;
  return true;
}

void LoopObject::End() {
  ended_ = true;
  last_changed_ = Value();
}

Value LoopObject::Call(Evaluator& evaluator, const CallArgs& args) const {
  if (!statement_.recursive || ended_) {
    Fail("the loop must have the 'recursive' marker to be called");
  }
  const BoundArgs bound(args, "loop", {"iterable"}, 1);
  return evaluator.CallLoop(statement_, closure_, *bound[0], depth_ + 1);
}

Value LoopObject::Attribute(Evaluator& evaluator, std::string_view name) const {
  const auto index = static_cast<int64_t>(index_);
  if (name == "index0") {
    return index;
  }
  if (name == "index") {
    return index + 1;
  }
  if (name == "first") {
    return index == 0;
  }
  if (name == "last") {
    return !Fill(evaluator, index_ + 2);
  }
  if (name == "length") {
    return static_cast<int64_t>(Length(evaluator));
  }
  if (name == "revindex") {
    return static_cast<int64_t>(Length(evaluator)) - index;
  }
  if (name == "revindex0") {
    return static_cast<int64_t>(Length(evaluator)) - index - 1;
  }
  if (name == "depth") {
    return depth_;
  }
  if (name == "depth0") {
    return depth_ - 1;
  }
  if (name == "previtem") {
    return index_ > 0 ? Accepted(index_ - 1) : Value();
  }
  if (name == "nextitem") {
    return Fill(evaluator, index_ + 2) ? Accepted(index_ + 1) : Value();
  }
  if (name == "cycle") {
    return MakeFunction("cycle", [index](Evaluator&, const CallArgs& args) {
      if (args.positional.empty()) {
        Fail("no items for cycling given");
      }
      return args.positional[static_cast<size_t>(index) % args.positional.size()];
    });
  }
  if (name == "changed") {
    return MakeFunction(
        "changed",
        [self = shared_from_this()](Evaluator& e, const CallArgs& args) {
          return self->Changed(e.heap(), args);
        },
        nesting());
  }
  return Callable::Attribute(evaluator, name);
}

Value LoopObject::Changed(const Heap& heap, const CallArgs& args) const {
  const Value now = heap.NewList(args.positional, SequenceKind::kTuple);
  const bool changed = !has_changed_ || !Equal(heap, last_changed_, now);
  if (changed && !ended_) {
    last_changed_ = now;
    has_changed_ = true;
  }
  return changed;
}

}  // namespace bloomery::jinja
