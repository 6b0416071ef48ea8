// Writes small GGUF files for tests, in memory: exactly what it is told, sensible or not. Keeps to
// the layout of the format's description and shares no code with the reader under test.
//
//   std::string file = GgufWriter().Add("general.architecture", "toy").AddTensor("w", {4}, 0,
//   data).Bytes();
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace bloomery::test {

// Value type numbers of the format.
template <typename T>
constexpr uint32_t GgufKind() {
  if constexpr (std::is_same_v<T, uint8_t>) return 0;
  if constexpr (std::is_same_v<T, int8_t>) return 1;
  if constexpr (std::is_same_v<T, uint16_t>) return 2;
  if constexpr (std::is_same_v<T, int16_t>) return 3;
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
  if constexpr (std::is_same_v<T, uint64_t>) return 10;
  if constexpr (std::is_same_v<T, int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  template <typename T>
  GgufWriter& Add(std::string_view key, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      return AddRaw(key, 8, Encode(std::string(value)));
    } else {
      return AddRaw(key, GgufKind<T>(), Encode(value));
    }
  }

  template <typename T>
  GgufWriter& AddArray(std::string_view key, const std::vector<T>& values) {
    std::string raw = Encode(GgufKind<T>()) + Encode(uint64_t{values.size()});
    for (const T& value : values) raw += Encode(value);
    return AddRaw(key, 9, raw);
  }

  // Any type number and any bytes after it.
  GgufWriter& AddRaw(std::string_view key, uint32_t kind, const std::string& value) {
    entries_.push_back(Encode(std::string(key)) + Encode(kind) + value);
    return *this;
  }

  // `data` is placed at the next aligned offset.
  GgufWriter& AddTensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                        const std::string& data) {
    std::string entry = Encode(std::string(name)) + Encode(static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) entry += Encode(n);
    tensors_.push_back(entry + Encode(type) + Encode(uint64_t{data_.size()}));
    data_ += data;
    Pad(data_);
    return *this;
  }

  // Also writes the key. Call it before any tensor is added.
  GgufWriter& SetAlignment(uint32_t alignment) {
    alignment_ = alignment;
    return Add("general.alignment", alignment);
  }

  std::string Bytes() const {
    std::string out = "GGUF" + Encode(version_) + Encode(uint64_t{tensors_.size()}) +
                      Encode(uint64_t{entries_.size()});
    for (const std::string& entry : entries_) out += entry;
    for (const std::string& tensor : tensors_) out += tensor;
    Pad(out);
    return out + data_;
  }

  void WriteTo(const std::string& path) const {
    std::ofstream out(path, std::ios::binary);
    out << Bytes();
  }

  // Little-endian bytes of a number, or length and text of a string.
  template <typename T>
  static std::string Encode(const T& value) {
    static_assert(std::endian::native == std::endian::little);
    if constexpr (std::is_same_v<T, std::string>) {
      return Encode(uint64_t{value.size()}) + value;
    } else {
      std::string out(sizeof(T), '\0');
      std::memcpy(out.data(), &value, sizeof(T));
      return out;
    }
  }

 private:
  void Pad(std::string& bytes) const {
    while (bytes.size() % alignment_ != 0) bytes.push_back('\0');
  }

  uint32_t version_;
  uint32_t alignment_ = 32;
  std::vector<std::string> entries_;
  std::vector<std::string> tensors_;
  std::string data_;
};

}  // namespace bloomery::test
