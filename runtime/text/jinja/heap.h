// Internal: the data behind values, and the budget every render charges what it makes to. A Budget
// belongs to one render on one thread and outlives the values made there; data made outside a
// render (contexts, template literals) has none. Passing a limit throws Failure, which the render's
// top turns into an Error with its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

// What went wrong in a render, before its place is known.
struct Failure {
  ErrorKind kind = ErrorKind::kBadRequest;
  std::string message;
};
[[noreturn]] void Fail(std::string message);
[[noreturn]] void FailLimit(std::string message);

// What looking at one code point alone counts as work: about as long as copying this many bytes.
inline constexpr size_t kPointWork = 48;

class Budget {
 public:
  Budget(uint64_t steps_max, size_t bytes_max) : steps_left_(steps_max), bytes_max_(bytes_max) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void Step(uint64_t count = 1) {
    if (count > steps_left_) {
      FailSteps();
    }
    steps_left_ -= count;
  }
  // Work over `bytes` bytes: costs steps, so that repeated copies of long text end as loops do.
  void Work(size_t bytes);
  void Take(size_t bytes);
  void Give(size_t bytes) { live_bytes_ -= bytes; }

 private:
  [[noreturn]] static void FailSteps();
  uint64_t steps_left_;
  size_t bytes_max_;
  size_t live_bytes_ = 0;
  size_t work_bytes_ = 0;  // not yet turned into a step
};

// Bytes held from a budget (or from none).
class Charge {
 public:
  explicit Charge(Budget* budget) : budget_(budget) {}
  Charge(Budget* budget, size_t bytes) : budget_(budget) { Add(bytes); }
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&&) = delete;
  ~Charge() {
    if (budget_ != nullptr) {
      budget_->Give(bytes_);
    }
  }
  void Add(size_t bytes) {
    if (budget_ != nullptr) {
      budget_->Take(bytes);
      bytes_ += bytes;
    }
  }

 private:
  Budget* budget_;
  size_t bytes_ = 0;
};

struct TextData {
  explicit TextData(Charge charged) : charge(std::move(charged)) {}
  std::string bytes;
  std::vector<Span> input;
  size_t length = 0;  // code points
  bool ascii = true;
  bool markup = false;
  Charge charge;
};

struct ListData {
  ListData(SequenceKind sequence, std::vector<Value> values, int nesting, Charge charged)
      : kind(sequence), items(std::move(values)), depth(nesting), charge(std::move(charged)) {}
  SequenceKind kind;
  std::vector<Value> items;
  int64_t range[3] = {0, 0, 1};  // start, stop, step of a kRange, for printing
  std::string json;              // what tojson prints; "": its own form
  int depth;
  Charge charge;
};

struct DictData {
  explicit DictData(Charge charged) : charge(std::move(charged)) {}
  std::vector<Value::DictEntry> entries;
  std::unordered_map<std::string_view, size_t> index;  // of text keys, once there are many entries
  int depth = 1;
  std::string json;  // what tojson prints; "": its own form
  Charge charge;

  // Index of the entry whose key equals `key`, or entries.size().
  size_t Find(std::string_view key) const;
  size_t Find(const Value& key) const;
};

struct NamespaceData {
  explicit NamespaceData(Charge charged) : charge(std::move(charged)) {}
  std::vector<std::pair<std::string, Value>> attributes;
  Charge charge;
  Value* Find(std::string_view name);
};

// Grows a text with its provenance; what it holds is charged while it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Budget* budget)
      : budget_(budget), data_(std::make_shared<TextData>(Charge(budget))) {}

  void Append(std::string_view valid_utf8, bool input);
  void Append(const Text& text) { Append(text, 0, text.bytes().size()); }
  // Bytes [begin, end) of `text`, on code point borders.
  void Append(const Text& text, size_t begin, size_t end);
  // `text` `count` times (none when negative); refused before it is built when it cannot fit.
  void AppendRepeated(const Text& text, int64_t count);
  void AppendPoint(char32_t point, bool input);
  // Counts the work of one code point without appending any.
  void CountPoint() {
    if (budget_ != nullptr) {
      budget_->Work(kPointWork);
    }
  }
  void set_markup(bool markup) { data_->markup = markup; }
  size_t size() const { return data_->bytes.size(); }

  // The text built; the builder is empty of use afterwards.
  Text Finish();
  // The same without the wrapping, for the output of a render.
  std::pair<std::string, std::vector<Span>> Release();

 private:
  void Grow(size_t bytes);
  void MarkInput(size_t begin, size_t end);
  Budget* budget_;
  std::shared_ptr<TextData> data_;
  size_t charged_ = 0;
};

// Reads a text code point by code point, with each one's provenance.
class PointReader {
 public:
  explicit PointReader(const Text& text) : text_(text) {}
  bool done() const { return pos_ >= text_.bytes().size(); }
  size_t pos() const { return pos_; }
  char32_t Next();
  bool input() const { return input_; }  // of the point last read

 private:
  const Text& text_;
  size_t pos_ = 0;
  size_t span_ = 0;
  bool input_ = false;
};

// Makes the values of one render (or, with no budget, of none).
class Heap {
 public:
  explicit Heap(Budget* budget) : budget_(budget) {}
  Budget* budget() const { return budget_; }
  void Step(uint64_t count = 1) const {
    if (budget_ != nullptr) {
      budget_->Step(count);
    }
  }

  void Work(size_t bytes) const {
    if (budget_ != nullptr) {
      budget_->Work(bytes);
    }
  }

  void WorkPoints(size_t points) const { Work(points * kPointWork); }

  Value NewText(std::string_view valid_utf8, bool input = false) const;
  Value NewList(std::vector<Value> items, SequenceKind kind = SequenceKind::kList) const;
  Value NewRange(int64_t start, int64_t stop, int64_t step, std::vector<Value> items) const;
  Value NewDict(std::vector<Value::DictEntry> entries) const;
  Value NewNamespace(std::vector<std::pair<std::string, Value>> attributes);
  // Bytes [begin, end) of `text`.
  Text Slice(const Text& text, size_t begin, size_t end) const;

  // Breaks the cycles namespaces may form. Call when the render ends.
  void ClearNamespaces();

 private:
  Budget* budget_;
  std::vector<std::shared_ptr<NamespaceData>> namespaces_;
};

// Access to what Value keeps private.
struct ValueAccess {
  static Value Make(std::shared_ptr<const ListData> data) {
    return Value(Value::Data(std::move(data)));
  }
  static Value Make(std::shared_ptr<const DictData> data) {
    return Value(Value::Data(std::move(data)));
  }
  static Value Make(std::shared_ptr<NamespaceData> data) {
    return Value(Value::Data(std::move(data)));
  }
  static Value Make(std::shared_ptr<const Callable> data) {
    return Value(Value::Data(std::move(data)));
  }
  static const ListData& List(const Value& v) {
    return *std::get<std::shared_ptr<const ListData>>(v.data_);
  }
  static const DictData& Dict(const Value& v) {
    return *std::get<std::shared_ptr<const DictData>>(v.data_);
  }
  static NamespaceData& Namespace(const Value& v) {
    return *std::get<std::shared_ptr<NamespaceData>>(v.data_);
  }
  static const std::shared_ptr<const Callable>& Function(const Value& v) {
    return std::get<std::shared_ptr<const Callable>>(v.data_);
  }
  static const std::string* UndefinedName(const Value& v) {
    return std::get<Undefined>(v.data_).name;
  }
};

// Containers around a value: 0 for a scalar.
int NestingOf(const Value& value);

}  // namespace bloomery::jinja
