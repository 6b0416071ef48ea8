// The key-value part of a model file: keys in file order, each with a typed value, and access that
// checks the type and says what is wrong by key. Filled once by a format's reader, read-only
// afterwards (then any thread may read). Owns all its bytes. Knows no key's meaning.
//
//   uint64_t layers = metadata.GetU64(prefix + ".block_count");
//   double base = metadata.FindF64(prefix + ".rope.freq_base").value_or(10000.0);
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bloomery::model {

// Numbers are the ones GGUF files store.
enum class ValueKind : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u8" … "f64", "bool", "string", "array".
std::string_view ValueKindName(ValueKind kind);

// Bytes of one value of a fixed-size kind; 0 for strings and arrays.
uint32_t ValueKindBytes(ValueKind kind);

// A number, exact in whichever of the three holds its kind: unsigned kinds, signed kinds, floats.
using Number = std::variant<uint64_t, int64_t, double>;

// One little-endian number of a fixed-size kind (bool gives 0 or 1) from its stored bytes.
Number DecodeNumber(ValueKind kind, const char* bytes);

// An array of one kind, kept as it is stored: bool and number arrays as little-endian bytes, string
// arrays as the text with 8 length bytes before each string. No arrays of arrays.
class MetadataArray {
 public:
  // `raw` holds whole elements of the fixed-size kind `element`.
  static MetadataArray OfNumbers(ValueKind element, std::string raw);
  // `starts[i]` is where string i begins in `raw`; it ends 8 bytes before the next, the last with
  // raw.
  static MetadataArray OfStrings(std::string raw, std::vector<uint64_t> starts);

  ValueKind element_kind() const { return element_; }
  uint64_t size() const;

  // Element i < size() of a string array; the view lives as long as this array.
  std::string_view String(uint64_t i) const;
  // Element i < size() of a bool or number array.
  Number At(uint64_t i) const;

  bool operator==(const MetadataArray&) const = default;

 private:
  MetadataArray(ValueKind element, std::string raw, std::vector<uint64_t> starts)
      : element_(element), raw_(std::move(raw)), starts_(std::move(starts)) {}

  ValueKind element_;
  std::string raw_;
  std::vector<uint64_t> starts_;  // strings only
};

struct MetadataValue {
  ValueKind kind;
  std::variant<uint64_t, int64_t, double, bool, std::string, MetadataArray> data;
  uint64_t offset;  // of the value's type in its file, for messages
};

class Metadata {
 public:
  // `source` names the file in messages.
  explicit Metadata(std::string source) : source_(std::move(source)) {}
  Metadata(Metadata&&) noexcept = default;
  Metadata& operator=(Metadata&&) noexcept = default;

  const std::string& source() const { return source_; }

  // False, with nothing changed, when the key is there already.
  bool Add(std::string key, MetadataValue value);

  // Adds to `other` what it does not have; this object is empty afterwards.
  void MoveInto(Metadata& other);

  // Keys and values in file order, i < size().
  size_t size() const { return entries_.size(); }
  std::string_view key(size_t i) const { return entries_[i].first; }
  const MetadataValue& value(size_t i) const { return entries_[i].second; }

  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // The value, or null when the key is absent.
  const MetadataValue* Find(std::string_view key) const;

  // Get…: the value; Error(kBadModel) naming the key when it is absent or of another kind (with the
  // expected and the actual one). Find…: the same, but absence gives nullopt.
  // U64 and I64 take every integer kind whose value fits; F64 takes f32, f64 and every integer kind
  // a double holds exactly. Views live as long as this object.
  uint64_t GetU64(std::string_view key) const;
  int64_t GetI64(std::string_view key) const;
  double GetF64(std::string_view key) const;
  bool GetBool(std::string_view key) const;
  std::string_view GetString(std::string_view key) const;
  const MetadataArray& GetArray(std::string_view key) const;
  std::optional<uint64_t> FindU64(std::string_view key) const;
  std::optional<int64_t> FindI64(std::string_view key) const;
  std::optional<double> FindF64(std::string_view key) const;
  std::optional<bool> FindBool(std::string_view key) const;
  std::optional<std::string_view> FindString(std::string_view key) const;

  // A whole array converted, each element as the scalar access above takes it; errors name the
  // index too. GetStringArray checks the kind only: read it by String(i).
  std::vector<uint64_t> GetU64Array(std::string_view key) const;
  std::vector<int64_t> GetI64Array(std::string_view key) const;
  std::vector<double> GetF64Array(std::string_view key) const;
  std::vector<bool> GetBoolArray(std::string_view key) const;
  const MetadataArray& GetStringArray(std::string_view key) const;

 private:
  const MetadataValue& Require(std::string_view key) const;
  // The value's or element's number as T; `index` is set for an element.
  template <typename T>
  T Convert(std::string_view key, const MetadataValue& value, const Number& number,
            std::optional<uint64_t> index) const;
  template <typename T>
  T GetNumber(std::string_view key) const;
  template <typename T>
  std::vector<T> GetNumberArray(std::string_view key) const;
  template <typename T>
  const T& GetAs(std::string_view key, std::string_view expected) const;
  [[noreturn]] void Refuse(std::string_view key, const MetadataValue& value,
                           const std::string& problem) const;

  std::string source_;
  std::deque<std::pair<std::string, MetadataValue>>
      entries_;  // elements never move: the index views them
  std::map<std::string_view, size_t> index_;
};

}  // namespace bloomery::model
