// Bytes that tell where they are from: byte i is i mod 251, so that places which differ by a page,
// or by a read of a power of two, look different.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bloomery::test {

inline std::vector<std::byte> PatternBytes(uint64_t bytes) {
  std::vector<std::byte> content(bytes);
  for (uint64_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i % 251);
  return content;
}

// Whether `data` is what lies at `offset`.
inline bool HoldsPattern(std::span<const std::byte> data, uint64_t offset) {
  for (uint64_t i = 0; i < data.size(); ++i) {
    if (data[i] != static_cast<std::byte>((offset + i) % 251)) return false;
  }
  return true;
}

}  // namespace bloomery::test
