#include "runtime/text/jinja/functions.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/operators.h"

namespace bloomery::jinja {
namespace {

class FunctionObject : public Callable {
 public:
  FunctionObject(std::string name, FunctionBody body, int nesting)
      : name_(std::move(name)), body_(std::move(body)), nesting_(nesting) {
    if (nesting_ > limits::kJinjaValueDepthMax) {
      FailLimit("value nested deeper than " + std::to_string(limits::kJinjaValueDepthMax) +
                " levels");
    }
  }
  Value Call(Evaluator& evaluator, const CallArgs& args) const override {
    return body_(evaluator, args);
  }
  std::string Repr() const override { return "<function " + name_ + ">"; }
  int nesting() const override { return nesting_; }

 private:
  std::string name_;
  FunctionBody body_;
  int nesting_;
};

// joiner(sep): nothing the first time, then sep.
class JoinerObject : public Callable {
 public:
  explicit JoinerObject(Text separator) : separator_(std::move(separator)) {}
  Value Call(Evaluator& /*evaluator*/, const CallArgs& args) const override {
    const BoundArgs bound(args, "joiner", {});
    return std::exchange(used_, true) ? separator_ : Text();
  }
  std::string Repr() const override { return "<Joiner>"; }

 private:
  Text separator_;
  mutable bool used_ = false;
};

class CyclerObject : public Callable, public std::enable_shared_from_this<CyclerObject> {
 public:
  explicit CyclerObject(Value items) : items_(std::move(items)) {}
  Value Call(Evaluator& /*evaluator*/, const CallArgs& /*args*/) const override {
    Fail("'Cycler' object is not callable");
  }
  Value Attribute(Evaluator& evaluator, std::string_view name) const override {
    if (name == "current") {
      return items_.Items()[pos_];
    }
    if (name == "next") {
      return MakeFunction(
          "next",
          [self = shared_from_this()](Evaluator&, const CallArgs&) {
            const Value& item = self->items_.Items()[self->pos_];
            self->pos_ = (self->pos_ + 1) % self->items_.Items().size();
            return item;
          },
          nesting() + 1);
    }
    if (name == "reset") {
      return MakeFunction(
          "reset",
          [self = shared_from_this()](Evaluator&, const CallArgs&) {
            self->pos_ = 0;
            return Value(None{});
          },
          nesting() + 1);
    }
    return Callable::Attribute(evaluator, name);
  }
  std::string Repr() const override { return "<Cycler>"; }
  int nesting() const override { return NestingOf(items_) + 1; }

 private:
  Value items_;
  mutable size_t pos_ = 0;
};

Value Range(Evaluator& evaluator, const CallArgs& args) {
  const size_t count = args.positional.size();
  if (count == 0 || count > 3 || !args.named.empty()) {
    Fail("range expects one to three positional arguments");
  }
  const auto part = [&](size_t i) { return RequireInt(args.positional[i], "range's argument"); };
  const int64_t start = count == 1 ? 0 : part(0);
  const int64_t stop = count == 1 ? part(0) : part(1);
  const int64_t step = count == 3 ? part(2) : 1;
  if (step == 0) {
    Fail("range() arg 3 must not be zero");
  }
  // Unsigned distances cannot overflow.
  const bool forward = step > 0;
  const uint64_t distance =
      forward ? (stop > start ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) : 0)
              : (start > stop ? static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) : 0);
  const uint64_t stride = forward ? static_cast<uint64_t>(step) : ~static_cast<uint64_t>(step) + 1;
  const uint64_t length = distance / stride + (distance % stride != 0 ? 1 : 0);
  if (length > limits::kJinjaRangeMax) {
    FailLimit("range of " + std::to_string(length) + " items: at most " +
              std::to_string(limits::kJinjaRangeMax));
  }
  std::vector<Value> items;
  items.reserve(length);
  for (uint64_t i = 0; i < length; ++i) {
    items.emplace_back(
        static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
  }
  evaluator.heap().Work(length * sizeof(Value));
  return evaluator.heap().NewRange(start, stop, step, std::move(items));
}

// The entries dict(x) and namespace(x) take from their one positional argument.
std::vector<Value::DictEntry> EntriesOf(Evaluator& evaluator, const CallArgs& args,
                                        std::string_view function) {
  if (args.positional.size() > 1) {
    Fail(std::string(function) + " expected at most 1 argument, got " +
         std::to_string(args.positional.size()));
  }
  if (args.positional.empty()) {
    return {};
  }
  const Value& source = args.positional.front();
  if (source.is_dict()) {
    return source.Entries();
  }
  std::vector<Value::DictEntry> entries;
  for (const Value& pair : Iterate(evaluator.heap(), source)) {
    const std::vector<Value> parts = Iterate(evaluator.heap(), pair);
    if (parts.size() != 2) {
      Fail(std::string(function) + ": each item must be a pair");
    }
    entries.emplace_back(parts[0], parts[1]);
  }
  return entries;
}

Value MakeDict(Evaluator& evaluator, const CallArgs& args) {
  std::vector<Value::DictEntry> entries = EntriesOf(evaluator, args, "dict");
  for (const auto& [name, value] : args.named) {
    entries.emplace_back(evaluator.heap().NewText(name), value);
  }
  return evaluator.heap().NewDict(std::move(entries));
}

Value MakeNamespace(Evaluator& evaluator, const CallArgs& args) {
  const Value dict = MakeDict(evaluator, args);
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict.Entries()) {
    attributes.emplace_back(RequireText(key, "a namespace's attribute").bytes(), value);
  }
  return evaluator.heap().NewNamespace(std::move(attributes));
}

Value MakeJoiner(Evaluator& /*evaluator*/, const CallArgs& args) {
  const BoundArgs bound(args, "joiner", {"sep"});
  return ValueAccess::Make(std::make_shared<const JoinerObject>(bound.TextOr(0, ", ")));
}

Value MakeCycler(Evaluator& evaluator, const CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) {
    Fail("cycler needs at least one positional item");
  }
  return ValueAccess::Make(
      std::make_shared<const CyclerObject>(evaluator.heap().NewList(args.positional)));
}

[[noreturn]] Value RaiseException(Evaluator& evaluator, const CallArgs& args) {
  const BoundArgs bound(args, "raise_exception", {"message"}, 1);
  Fail(Str(evaluator.heap(), *bound[0]).bytes());
}

Value StrftimeNow(Evaluator& evaluator, const CallArgs& args) {
  const BoundArgs bound(args, "strftime_now", {"format"}, 1);
  // Every conversion expands to a few dozen bytes at most.
  constexpr size_t kFormatBytesMax = 256;
  const std::string& format = RequireText(*bound[0], "strftime_now's format").bytes();
  if (format.size() > kFormatBytesMax) {
    Fail("strftime_now: format longer than " + std::to_string(kFormatBytesMax) + " bytes");
  }
  const time_t now = static_cast<time_t>(evaluator.options().now_s);
  std::tm parts{};
  if (gmtime_r(&now, &parts) == nullptr) {
    Fail("strftime_now: the time is out of range");
  }
  std::array<char, kFormatBytesMax * 64> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
#pragma GCC diagnostic pop
  return evaluator.heap().NewText(std::string_view(buffer.data(), size));
}

}  // namespace

Value MakeFunction(std::string name, FunctionBody body, int nesting) {
  return ValueAccess::Make(
      std::make_shared<const FunctionObject>(std::move(name), std::move(body), nesting));
}

Value FindGlobal(std::string_view name) {
  struct Global {
    std::string_view name;
    Value (*function)(Evaluator&, const CallArgs&);
  };
  static constexpr std::array<Global, 7> kGlobals = {{{"range", Range},
                                                      {"dict", MakeDict},
                                                      {"namespace", MakeNamespace},
                                                      {"joiner", MakeJoiner},
                                                      {"cycler", MakeCycler},
                                                      {"raise_exception", RaiseException},
                                                      {"strftime_now", StrftimeNow}}};
  for (const Global& global : kGlobals) {
    if (global.name == name) {
      return MakeFunction(std::string(name), global.function);
    }
  }
  return Value();
}

// ---- arguments

Value Callable::Attribute(Evaluator& /*evaluator*/, std::string_view /*name*/) const {
  return Value();
}

const Value* CallArgs::Named(std::string_view name) const {
  const auto it = std::find_if(named.begin(), named.end(),
                               [&](const auto& entry) { return entry.first == name; });
  return it == named.end() ? nullptr : &it->second;
}

BoundArgs::BoundArgs(const CallArgs& args, std::string_view function,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), values_(parameters.size()) {
  if (args.positional.size() > parameters.size()) {
    Fail(std::string(function) + " takes at most " + std::to_string(parameters.size()) +
         " argument(s), " + std::to_string(args.positional.size()) + " given");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = &args.positional[i];
  }
  for (const auto& [name, value] : args.named) {
    const auto* const it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) {
      Fail(std::string(function) + " got an unexpected keyword argument '" + name + "'");
    }
    const auto index = static_cast<size_t>(it - parameters.begin());
    if (values_[index] != nullptr) {
      Fail(std::string(function) + " got multiple values for argument '" + name + "'");
    }
    values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      Fail(std::string(function) + " missing argument '" + std::string(parameters.begin()[i]) +
           "'");
    }
  }
}

int64_t BoundArgs::Int(size_t index, int64_t otherwise) const {
  return values_[index] == nullptr ? otherwise : RequireInt(*values_[index], function_);
}

bool BoundArgs::Bool(size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : Truthy(*values_[index]);
}

Text BoundArgs::TextOr(size_t index, std::string_view otherwise) const {
  return values_[index] == nullptr ? Text(otherwise) : RequireText(*values_[index], function_);
}

}  // namespace bloomery::jinja
