#include "runtime/text/jinja/value.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/unicode.h"

namespace bloomery::jinja {
namespace {

// From here a dict has an index: below, a walk over the keys is as fast.
constexpr size_t kIndexedEntries = 12;

int DepthOver(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) {
    depth = std::max(depth, NestingOf(item));
  }
  return depth + 1;
}

void CheckDepth(int depth) {
  if (depth > limits::kJinjaValueDepthMax) {
    FailLimit("value nested deeper than " + std::to_string(limits::kJinjaValueDepthMax) +
              " levels");
  }
}

// Turns a Failure outside a render into the Error callers know.
template <typename Function>
Value Guarded(Function make) {
  try {
    return make();
  } catch (const Failure& failure) {
    throw Error(ErrorKind::kBadRequest, failure.message);
  }
}

}  // namespace

void Fail(std::string message) { throw Failure{ErrorKind::kBadRequest, std::move(message)}; }
void FailLimit(std::string message) { throw Failure{ErrorKind::kNoMemory, std::move(message)}; }

void Budget::FailSteps() {
  FailLimit("the template takes more steps than allowed (limit of evaluation steps reached)");
}

void Budget::Work(size_t bytes) {
  work_bytes_ += bytes;
  Step(work_bytes_ / limits::kJinjaWorkBytesPerStep);
  work_bytes_ %= limits::kJinjaWorkBytesPerStep;
}

void Budget::Take(size_t bytes) {
  if (bytes > bytes_max_ - live_bytes_) {
    FailLimit("the template's values take more memory than allowed (limit " +
              std::to_string(bytes_max_) + " bytes)");
  }
  live_bytes_ += bytes;
}

// ---- Text

Text::Text() {
  static const std::shared_ptr<const TextData> empty = std::make_shared<TextData>(Charge(nullptr));
  data_ = empty;
}

Text::Text(std::string_view utf8, Origin origin) {
  TextBuilder builder(nullptr);
  builder.Append(ValidUtf8(utf8), origin == Origin::kInput);
  data_ = builder.Finish().data_;
}

const std::string& Text::bytes() const { return data_->bytes; }
const std::vector<Span>& Text::input_spans() const { return data_->input; }
size_t Text::length() const { return data_->length; }
bool Text::ascii() const { return data_->ascii; }
bool Text::markup() const { return data_->markup; }

void TextBuilder::Grow(size_t bytes) {
  if (budget_ == nullptr) {
    return;
  }
  budget_->Work(bytes);
  const size_t needed = data_->bytes.size() + bytes;
  if (needed > charged_) {
    // The string's own growth rule: doubling.
    const size_t target = std::max(needed, std::min(charged_ * 2, charged_ + (size_t{1} << 20)));
    data_->charge.Add(target - charged_);
    charged_ = target;
  }
}

void TextBuilder::MarkInput(size_t begin, size_t end) {
  if (begin == end) {
    return;
  }
  std::vector<Span>& spans = data_->input;
  if (!spans.empty() && spans.back().end == begin) {
    spans.back().end = end;
    return;
  }
  if (budget_ != nullptr) {
    data_->charge.Add(sizeof(Span) * 2);
  }
  spans.push_back({begin, end});
}

void TextBuilder::Append(std::string_view valid_utf8, bool input) {
  Grow(valid_utf8.size());
  if (input) {
    MarkInput(data_->bytes.size(), data_->bytes.size() + valid_utf8.size());
  }
  data_->bytes.append(valid_utf8);
}

void TextBuilder::Append(const Text& text, size_t begin, size_t end) {
  Grow(end - begin);
  const size_t shift = data_->bytes.size();
  const std::vector<Span>& spans = text.input_spans();
  auto it = std::lower_bound(spans.begin(), spans.end(), begin,
                             [](const Span& span, size_t pos) { return span.end <= pos; });
  for (; it != spans.end() && it->begin < end; ++it) {
    MarkInput(std::max(it->begin, begin) - begin + shift, std::min(it->end, end) - begin + shift);
  }
  data_->bytes.append(text.bytes(), begin, end - begin);
}

void TextBuilder::AppendRepeated(const Text& text, int64_t count) {
  const size_t size = text.bytes().size();
  if (count <= 0 || size == 0) {
    return;
  }
  size_t total = 0;
  if (__builtin_mul_overflow(size, static_cast<size_t>(count), &total) ||
      total > limits::kJinjaValueBytesMax) {
    FailLimit("a text of " + std::to_string(size) + " bytes repeated " + std::to_string(count) +
              " times takes more memory than allowed (limit " +
              std::to_string(limits::kJinjaValueBytesMax) + " bytes)");
  }
  {
    const Charge would_it_fit(budget_, total);
  }
  for (int64_t i = 0; i < count; ++i) {
    Append(text);
  }
}

void TextBuilder::AppendPoint(char32_t point, bool input) {
  CountPoint();
  std::string bytes;
  jinja::AppendPoint(bytes, point);
  Append(bytes, input);
}

Text TextBuilder::Finish() {
  data_->ascii = IsAscii(data_->bytes);
  data_->length = data_->ascii ? data_->bytes.size() : CountPoints(data_->bytes);
  return Text(std::move(data_));
}

std::pair<std::string, std::vector<Span>> TextBuilder::Release() {
  return {std::move(data_->bytes), std::move(data_->input)};
}

char32_t PointReader::Next() {
  const std::vector<Span>& spans = text_.input_spans();
  while (span_ < spans.size() && spans[span_].end <= pos_) {
    ++span_;
  }
  input_ = span_ < spans.size() && spans[span_].begin <= pos_;
  return DecodePoint(text_.bytes(), pos_);
}

// ---- Value

Value Value::List(std::vector<Value> items) {
  return Guarded([&] { return Heap(nullptr).NewList(std::move(items)); });
}

Value Value::Dict(std::vector<DictEntry> entries) {
  return Guarded([&] { return Heap(nullptr).NewDict(std::move(entries)); });
}

const std::vector<Value>& Value::Items() const { return ValueAccess::List(*this).items; }
const std::vector<Value::DictEntry>& Value::Entries() const {
  return ValueAccess::Dict(*this).entries;
}

Value Value::Get(std::string_view key) const {
  if (!is_dict()) {
    return Value();
  }
  const DictData& dict = ValueAccess::Dict(*this);
  const size_t at = dict.Find(key);
  return at < dict.entries.size() ? dict.entries[at].second : Value();
}

Value Value::With(std::string_view key, Value value) const {
  std::vector<DictEntry> entries = Entries();
  entries.emplace_back(Trusted(key), std::move(value));
  return Dict(std::move(entries));
}

Value Value::WrittenAs(std::string_view json) const {
  if (is_dict()) {
    const DictData& own = ValueAccess::Dict(*this);
    auto copy = std::make_shared<DictData>(Charge(nullptr));
    copy->entries = own.entries;
    copy->index = own.index;  // its views are of texts that the entries share
    copy->depth = own.depth;
    copy->json = json;
    return ValueAccess::Make(std::shared_ptr<const DictData>(std::move(copy)));
  }
  const ListData& own = ValueAccess::List(*this);
  auto copy = std::make_shared<ListData>(own.kind, own.items, own.depth, Charge(nullptr));
  copy->json = json;
  return ValueAccess::Make(std::shared_ptr<const ListData>(std::move(copy)));
}

Value Value::Without(std::string_view key) const {
  std::vector<DictEntry> entries = Entries();
  std::erase_if(entries, [&](const DictEntry& entry) {
    return entry.first.is_text() && entry.first.AsText().bytes() == key;
  });
  return Dict(std::move(entries));
}

int NestingOf(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kList:
      return ValueAccess::List(value).depth;
    case ValueKind::kDict:
      return ValueAccess::Dict(value).depth;
    case ValueKind::kCallable:
      return ValueAccess::Function(value)->nesting();
    default:
      return 0;
  }
}

// ---- containers

size_t DictData::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(key);
    return it == index.end() ? entries.size() : it->second;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].first.is_text() && entries[i].first.AsText().bytes() == key) {
      return i;
    }
  }
  return entries.size();
}

size_t DictData::Find(const Value& key) const {
  if (key.is_text()) {
    return Find(key.AsText().bytes());
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].first.is_text() && EqualScalars(entries[i].first, key)) {
      return i;
    }
  }
  return entries.size();
}

Value* NamespaceData::Find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

Value Heap::NewText(std::string_view valid_utf8, bool input) const {
  TextBuilder builder(budget_);
  builder.Append(valid_utf8, input);
  return builder.Finish();
}

Text Heap::Slice(const Text& text, size_t begin, size_t end) const {
  if (begin == 0 && end == text.bytes().size()) {
    return text;
  }
  TextBuilder builder(budget_);
  builder.Append(text, begin, end);
  builder.set_markup(text.markup());
  return builder.Finish();
}

Value Heap::NewList(std::vector<Value> items, SequenceKind kind) const {
  const int depth = DepthOver(items);
  CheckDepth(depth);
  Charge charge(budget_, sizeof(ListData) + items.size() * sizeof(Value));
  return ValueAccess::Make(
      std::make_shared<const ListData>(kind, std::move(items), depth, std::move(charge)));
}

Value Heap::NewRange(int64_t start, int64_t stop, int64_t step, std::vector<Value> items) const {
  Charge charge(budget_, sizeof(ListData) + items.size() * sizeof(Value));
  auto data =
      std::make_shared<ListData>(SequenceKind::kRange, std::move(items), 1, std::move(charge));
  data->range[0] = start;
  data->range[1] = stop;
  data->range[2] = step;
  return ValueAccess::Make(std::shared_ptr<const ListData>(std::move(data)));
}

Value Heap::NewDict(std::vector<Value::DictEntry> entries) const {
  const bool indexed = entries.size() >= kIndexedEntries;
  auto data = std::make_shared<DictData>(
      Charge(budget_,
             sizeof(DictData) + entries.size() * (sizeof(Value::DictEntry) + (indexed ? 64 : 0))));
  data->entries.reserve(entries.size());
  std::unordered_map<std::string_view, size_t> index;
  for (auto& [key, value] : entries) {
    if (key.kind() > ValueKind::kText) {
      Fail("a dict's key must be a string, number, boolean or none, not '" +
           std::string(TypeName(key)) + "'");
    }
    data->depth = std::max(data->depth, NestingOf(value) + 1);
    size_t at = data->entries.size();
    if (indexed && key.is_text()) {
      // The view points into shared text data, which the entry keeps alive wherever it moves.
      at = index.try_emplace(key.AsText().bytes(), at).first->second;
    } else {
      Step(indexed ? data->entries.size() / 64 : 0);
      at = data->Find(key);
    }
    if (at < data->entries.size()) {
      data->entries[at].second = std::move(value);
    } else {
      data->entries.emplace_back(std::move(key), std::move(value));
    }
  }
  data->index = std::move(index);
  CheckDepth(data->depth);
  return ValueAccess::Make(std::shared_ptr<const DictData>(std::move(data)));
}

Value Heap::NewNamespace(std::vector<std::pair<std::string, Value>> attributes) {
  auto data = std::make_shared<NamespaceData>(
      Charge(budget_, sizeof(NamespaceData) + 64 + attributes.size() * (sizeof(Value) + 64)));
  data->attributes = std::move(attributes);
  namespaces_.push_back(data);
  return ValueAccess::Make(std::move(data));
}

void Heap::ClearNamespaces() {
  // Every namespace is still held here, so clearing one can not start a chain of destructions.
  for (const auto& data : namespaces_) {
    data->attributes.clear();
  }
  namespaces_.clear();
}

}  // namespace bloomery::jinja
