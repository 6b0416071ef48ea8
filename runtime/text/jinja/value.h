// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict,
// plus jinja2's undefined and namespace. A Value is a small handle to immutable shared data (a
// namespace, which lives only inside one render, is the exception), so copies are cheap and a
// context may be shared by renders on several threads. Text knows which of its bytes came from
// outside input, and every operation carries that along. Nothing here parses templates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/text_range.h"

namespace bloomery::jinja {

class Value;
class Callable;
class Heap;
struct TextData;
struct ListData;
struct DictData;
struct NamespaceData;

// Bytes [begin, end) of a text.
using Span = text::TextRange;

// Whether text is the host's own or came from outside (a request).
enum class Origin { kTrusted, kInput };

// Immutable UTF-8 text (invalid bytes become U+FFFD when made) with the spans that are input.
// Lengths and indices of template operations are in code points; bytes() and input_spans() in
// bytes.
class Text {
 public:
  Text();
  explicit Text(std::string_view utf8, Origin origin = Origin::kTrusted);
  explicit Text(std::shared_ptr<const TextData> data) : data_(std::move(data)) {}

  const std::string& bytes() const;
  const std::vector<Span>& input_spans() const;  // ascending, not touching, not empty
  size_t length() const;                         // code points
  bool ascii() const;
  bool markup() const;  // made by `safe` or `escape`
  const std::shared_ptr<const TextData>& data() const { return data_; }

 private:
  std::shared_ptr<const TextData> data_;
};

// jinja2's Undefined. `name` (owned by the template, or null) is used in messages only.
struct Undefined {
  const std::string* name = nullptr;
};
struct None {};

enum class ValueKind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,  // list, tuple, range, dict view, iterator: see SequenceKind
  kDict,
  kNamespace,
  kCallable,
};

// What Python type a kList value stands for; they differ in printing, indexing and tests.
enum class SequenceKind { kList, kTuple, kRange, kKeys, kValues, kItems, kIterator };

class Value {
 public:
  using DictEntry = std::pair<Value, Value>;

  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(undefined) {}  // NOLINT(google-explicit-constructor)
  Value(None none) : data_(none) {}                 // NOLINT(google-explicit-constructor)
  Value(bool value) : data_(value) {}               // NOLINT(google-explicit-constructor)
  Value(int64_t value) : data_(value) {}            // NOLINT(google-explicit-constructor)
  Value(int value) : data_(int64_t{value}) {}       // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}             // NOLINT(google-explicit-constructor)
  Value(Text value) : data_(std::move(value)) {}    // NOLINT(google-explicit-constructor)
  Value(const char*) = delete;  // say whose text it is: Value::Trusted or ::Input

  static Value Trusted(std::string_view utf8) { return Value(Text(utf8, Origin::kTrusted)); }
  static Value Input(std::string_view utf8) { return Value(Text(utf8, Origin::kInput)); }
  // Throw Error(kBadRequest) when nested deeper than limits::kJinjaValueDepthMax.
  static Value List(std::vector<Value> items);
  // Keys keep their order; a repeated key keeps its first place and takes the last value, as in
  // Python.
  static Value Dict(std::vector<DictEntry> entries);

  ValueKind kind() const { return static_cast<ValueKind>(data_.index()); }
  bool is_undefined() const { return kind() == ValueKind::kUndefined; }
  bool is_none() const { return kind() == ValueKind::kNone; }
  bool is_text() const { return kind() == ValueKind::kText; }
  bool is_list() const { return kind() == ValueKind::kList; }
  bool is_dict() const { return kind() == ValueKind::kDict; }

  // Each needs the matching kind.
  bool AsBool() const { return std::get<bool>(data_); }
  int64_t AsInt() const { return std::get<int64_t>(data_); }
  double AsFloat() const { return std::get<double>(data_); }
  const Text& AsText() const { return std::get<Text>(data_); }
  const std::vector<Value>& Items() const;
  const std::vector<DictEntry>& Entries() const;

  // The dict's value under a string key, or undefined; undefined when this is no dict.
  Value Get(std::string_view key) const;
  // A copy of this dict with `key` (trusted text) set; the key keeps its place when it was there.
  Value With(std::string_view key, Value value) const;
  // A copy of this dict or list that tojson, in its plain form, prints as `json`: values that were
  // read from that text keep its spacing and numbers.
  Value WrittenAs(std::string_view json) const;
  // A copy of this dict without `key`.
  Value Without(std::string_view key) const;

 private:
  friend class Heap;
  friend struct ValueAccess;
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text,
                            std::shared_ptr<const ListData>, std::shared_ptr<const DictData>,
                            std::shared_ptr<NamespaceData>, std::shared_ptr<const Callable>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

}  // namespace bloomery::jinja
