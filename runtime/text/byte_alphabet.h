// The printable code point that byte-level vocabularies spell each byte with: bytes that print as
// themselves in Latin-1 keep their value, the others follow from U+0100 in ascending order. Pure
// functions, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace bloomery::text {

namespace internal {

constexpr bool SpelledAsItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::array<char32_t, 256> MakeByteAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    alphabet[byte] = SpelledAsItself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return alphabet;
}

inline constexpr std::array<char32_t, 256> kByteAlphabet = MakeByteAlphabet();

}  // namespace internal

constexpr char32_t SpellByte(uint8_t byte) { return internal::kByteAlphabet[byte]; }

// The byte that a code point spells, if it spells one.
inline std::optional<uint8_t> UnspellByte(char32_t code_point) {
  if (code_point < 0x100) {
    const auto byte = static_cast<uint8_t>(code_point);
    return internal::SpelledAsItself(byte) ? std::optional(byte) : std::nullopt;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (internal::kByteAlphabet[byte] == code_point) return static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

}  // namespace bloomery::text
