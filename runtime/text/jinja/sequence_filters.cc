#include "runtime/text/jinja/sequence_filters.h"

#include <algorithm>
#include <functional>

#include "runtime/text/jinja/builtins.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/stable_order.h"

namespace bloomery::jinja {
namespace {

using Getter = std::function<Value(const Value&)>;

// One step of an attribute path: a name, or an index when it is a number.
Value PathPart(const std::string& part) {
  const bool number =
      !part.empty() && part.size() < 10 &&
      std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number ? Value(static_cast<int64_t>(std::stol(part))) : Value::Trusted(part);
}

// item.a.b for the path "a.b" or an index; an undefined step gives `otherwise` when there is one.
Getter AttributeGetter(Evaluator& e, const Value& attribute, const Value* otherwise = nullptr) {
  std::vector<Value> path;
  if (attribute.is_text()) {
    const std::string& name = attribute.AsText().bytes();
    for (size_t begin = 0; begin <= name.size();) {
      const size_t dot = std::min(name.find('.', begin), name.size());
      path.push_back(PathPart(name.substr(begin, dot - begin)));
      begin = dot + 1;
    }
  } else {
    path.push_back(attribute);
  }
  return [&e, path = std::move(path), otherwise](const Value& item) {
    Value value = item;
    for (const Value& part : path) {
      value = ItemOf(e, value, part);
      if (value.is_undefined() && otherwise != nullptr) {
        value = *otherwise;
      }
    }
    return value;
  };
}

Value Identity(const Value& value) { return value; }

Getter OptionalGetter(Evaluator& e, const Value* attribute) {
  return attribute == nullptr || attribute->is_none() ? Getter(Identity)
                                                      : AttributeGetter(e, *attribute);
}

// Text compares without case unless asked otherwise.
Value SortKey(const Heap& heap, const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive
             ? Value(ChangeCase(heap, value.AsText(), CaseChange::kLower))
             : value;
}

// Indices 0..count in the order `less` gives, stable also when reversed.
template <typename Compare>
std::vector<size_t> SortedOrder(size_t count, bool reverse, Compare less) {
  return StableOrder(count, [&](size_t a, size_t b) { return reverse ? less(b, a) : less(a, b); });
}

template <bool kSelect, bool kAttribute>
Value SelectOrReject(Evaluator& e, const Value& value, const CallArgs& args) {
  const size_t used = kAttribute ? 1 : 0;
  if (args.positional.size() < used) {
    Fail("missing parameter for attribute name");
  }
  const Getter get = kAttribute ? AttributeGetter(e, args.positional[0]) : Getter(Identity);
  const bool has_test = args.positional.size() > used;
  const std::string test =
      has_test ? RequireText(args.positional[used], "the test's name").bytes() : std::string();
  CallArgs rest;
  if (has_test) {
    rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(used + 1),
                           args.positional.end());
    rest.named = args.named;
  }
  std::vector<Value> kept;
  for (const Value& item : Iterate(e.heap(), value)) {
    e.heap().Step();
    const Value subject = get(item);
    const bool passes = has_test ? e.ApplyTest(test, subject, rest) : Truthy(subject);
    if (passes == kSelect) {
      kept.push_back(item);
    }
  }
  return e.heap().NewList(std::move(kept), SequenceKind::kIterator);
}

template <bool kMax>
Value Extreme(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, kMax ? "max" : "min", {"case_sensitive", "attribute"});
  const Getter get = OptionalGetter(e, bound[1]);
  const std::vector<Value> items = Iterate(e.heap(), value);
  if (items.empty()) {
    return Value();
  }
  const bool case_sensitive = bound.Bool(0, false);
  size_t best = 0;
  Value best_key = SortKey(e.heap(), get(items[0]), case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = SortKey(e.heap(), get(items[i]), case_sensitive);
    if (kMax ? Less(e.heap(), best_key, key) : Less(e.heap(), key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

// The keys a sort compares: several for "a,b".
std::vector<Getter> SortGetters(Evaluator& e, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) {
    return {Getter(Identity)};
  }
  if (!attribute->is_text()) {
    return {AttributeGetter(e, *attribute)};
  }
  std::vector<Getter> getters;
  const std::string& names = attribute->AsText().bytes();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t comma = std::min(names.find(',', begin), names.size());
    getters.push_back(AttributeGetter(e, Value::Trusted(names.substr(begin, comma - begin))));
    begin = comma + 1;
  }
  return getters;
}

// Keys for every item; a list of keys when there are several getters.
std::vector<Value> SortKeys(Evaluator& e, const std::vector<Value>& items,
                            const std::vector<Getter>& getters, bool case_sensitive) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> parts;
    parts.reserve(getters.size());
    for (const Getter& get : getters) {
      parts.push_back(SortKey(e.heap(), get(item), case_sensitive));
    }
    keys.push_back(parts.size() == 1 ? parts[0] : e.heap().NewList(std::move(parts)));
  }
  return keys;
}

std::vector<Value> Arranged(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) {
    out.push_back(items[i]);
  }
  return out;
}

}  // namespace

Value SelectFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return SelectOrReject<true, false>(e, value, args);
}
Value RejectFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return SelectOrReject<false, false>(e, value, args);
}
Value SelectAttrFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return SelectOrReject<true, true>(e, value, args);
}
Value RejectAttrFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return SelectOrReject<false, true>(e, value, args);
}
Value MinFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return Extreme<false>(e, value, args);
}
Value MaxFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  return Extreme<true>(e, value, args);
}

Value MapFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  std::vector<Value> mapped;
  if (args.positional.empty()) {
    const BoundArgs bound(args, "map", {"attribute", "default"}, 1);
    const Getter get = AttributeGetter(e, *bound[0], bound[1]);
    for (const Value& item : Iterate(e.heap(), value)) {
      e.heap().Step();
      mapped.push_back(get(item));
    }
  } else {
    const std::string& filter = RequireText(args.positional[0], "map's filter").bytes();
    CallArgs rest;
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
    for (const Value& item : Iterate(e.heap(), value)) {
      mapped.push_back(e.ApplyFilter(filter, item, rest));
    }
  }
  return e.heap().NewList(std::move(mapped), SequenceKind::kIterator);
}

Value SortFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "sort", {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = Iterate(e.heap(), value);
  const std::vector<Value> keys =
      SortKeys(e, items, SortGetters(e, bound[2]), bound.Bool(1, false));
  const auto order = SortedOrder(items.size(), bound.Bool(0, false), [&](size_t a, size_t b) {
    return Less(e.heap(), keys[a], keys[b]);
  });
  return e.heap().NewList(Arranged(items, order));
}

Value DictSortFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!value.is_dict()) {
    RequireDefined(value);
    Fail("dictsort needs a dict, not '" + std::string(TypeName(value)) + "'");
  }
  const std::string by = bound.TextOr(1, "key").bytes();
  if (by != "key" && by != "value") {
    Fail("dictsort: you can only sort by either 'key' or 'value'");
  }
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, entry] : value.Entries()) {
    items.push_back(e.heap().NewList({key, entry}, SequenceKind::kTuple));
    keys.push_back(SortKey(e.heap(), by == "key" ? key : entry, bound.Bool(0, false)));
  }
  const auto order = SortedOrder(items.size(), bound.Bool(2, false), [&](size_t a, size_t b) {
    return Less(e.heap(), keys[a], keys[b]);
  });
  return e.heap().NewList(Arranged(items, order));
}

Value GroupByFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Getter get = AttributeGetter(e, *bound[0], bound[1]);
  const bool case_sensitive = bound.Bool(2, false);
  const std::vector<Value> items = Iterate(e.heap(), value);
  const std::vector<Value> keys = SortKeys(e, items, {get}, case_sensitive);
  const auto order = SortedOrder(
      items.size(), false, [&](size_t a, size_t b) { return Less(e.heap(), keys[a], keys[b]); });
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    std::vector<Value> members;
    while (end < order.size() && Equal(e.heap(), keys[order[begin]], keys[order[end]])) {
      members.push_back(items[order[end++]]);
    }
    const Value grouper = get(items[order[begin]]);
    groups.push_back(
        e.heap().NewList({grouper, e.heap().NewList(std::move(members))}, SequenceKind::kTuple));
    begin = end;
  }
  return e.heap().NewList(std::move(groups));
}

Value UniqueFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "unique", {"case_sensitive", "attribute"});
  const Getter get = OptionalGetter(e, bound[1]);
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (const Value& item : Iterate(e.heap(), value)) {
    const Value key = SortKey(e.heap(), get(item), bound.Bool(0, false));
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return Equal(e.heap(), key, other); });
    if (!known) {
      seen.push_back(key);
      kept.push_back(item);
    }
  }
  return e.heap().NewList(std::move(kept), SequenceKind::kIterator);
}

Value FirstFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "first", {});
  if (value.is_list()) {
    return value.Items().empty() ? Value() : value.Items().front();
  }
  if (value.is_text()) {
    return Item(e.heap(), value, Value(0));
  }
  const std::vector<Value> items = Iterate(e.heap(), value);
  return items.empty() ? Value() : items.front();
}

Value LastFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "last", {});
  if (value.is_list()) {
    if (ValueAccess::List(value).kind == SequenceKind::kIterator) {
      Fail("'generator' object is not reversible");
    }
    return value.Items().empty() ? Value() : value.Items().back();
  }
  if (value.is_text()) {
    return Item(e.heap(), value, Value(-1));
  }
  const std::vector<Value> items = Iterate(e.heap(), value);
  return items.empty() ? Value() : items.back();
}

Value ReverseFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "reverse", {});
  if (value.is_text()) {
    return SliceOf(e.heap(), value, None{}, None{}, Value(-1));
  }
  std::vector<Value> items = Iterate(e.heap(), value);
  std::reverse(items.begin(), items.end());
  const bool was_iterator =
      value.is_list() && ValueAccess::List(value).kind == SequenceKind::kIterator;
  return e.heap().NewList(std::move(items),
                          was_iterator ? SequenceKind::kList : SequenceKind::kIterator);
}

Value ListFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "list", {});
  return e.heap().NewList(Iterate(e.heap(), value));
}

Value ItemsFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "items", {});
  if (!value.is_dict() && !value.is_undefined()) {
    Fail("can only get item pairs from a mapping, not '" + std::string(TypeName(value)) + "'");
  }
  std::vector<Value> items;
  if (value.is_dict()) {
    e.heap().Work(value.Entries().size() * sizeof(Value::DictEntry));
    for (const auto& [key, entry] : value.Entries()) {
      items.push_back(e.heap().NewList({key, entry}, SequenceKind::kTuple));
    }
  }
  return e.heap().NewList(std::move(items), SequenceKind::kIterator);
}

Value JoinFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "join", {"d", "attribute"});
  const Getter get = OptionalGetter(e, bound[1]);
  std::vector<Value> items = Iterate(e.heap(), value);
  std::transform(items.begin(), items.end(), items.begin(), get);
  const Text separator = bound[0] == nullptr ? Text() : Str(e.heap(), *bound[0]);
  return JoinTexts(e.heap(), separator, items, false);
}

Value SumFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "sum", {"attribute", "start"});
  const Getter get = OptionalGetter(e, bound[0]);
  Value total = bound[1] == nullptr ? Value(0) : *bound[1];
  if (total.is_text()) {
    Fail("sum() can't sum strings");
  }
  for (const Value& item : Iterate(e.heap(), value)) {
    total = Binary(e.heap(), BinaryOp::kAdd, total, get(item));
  }
  return total;
}

Value BatchFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = bound.Int(0, 0);
  if (size <= 0) {
    Fail("batch: the line count must be positive");
  }
  const std::vector<Value> items = Iterate(e.heap(), value);
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto flush = [&] { batches.push_back(e.heap().NewList(std::exchange(batch, {}))); };
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      flush();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (bound[1] != nullptr && !bound[1]->is_none() &&
           static_cast<int64_t>(batch.size()) < size) {
      e.heap().Step();
      batch.push_back(*bound[1]);
    }
    flush();
  }
  return e.heap().NewList(std::move(batches), SequenceKind::kIterator);
}

Value SliceFilter(Evaluator& e, const Value& value, const CallArgs& args) {
  const BoundArgs bound(args, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = bound.Int(0, 0);
  if (slices <= 0) {
    Fail("slice: the number of slices must be positive");
  }
  const std::vector<Value> items = Iterate(e.heap(), value);
  const auto count = static_cast<size_t>(slices);
  const size_t longer = items.size() % count;
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    e.heap().Step();
    const size_t end = begin + items.size() / count + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound[1] != nullptr && !bound[1]->is_none() && i >= longer) {
      part.push_back(*bound[1]);
    }
    out.push_back(e.heap().NewList(std::move(part)));
    begin = end;
  }
  return e.heap().NewList(std::move(out), SequenceKind::kIterator);
}

}  // namespace bloomery::jinja
