#include "runtime/state/block.h"

#include <array>
#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bloomery::state {

Block::Block(int32_t rows, uint64_t row_bytes)
    : rows_(rows),
      size_(static_cast<size_t>(rows) * row_bytes),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(size_)) {}

uint64_t Checksum(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string Digest(std::span<const std::byte> text, std::span<const Token> tokens) {
  const uint64_t seed = Checksum(text, 0);
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(tokens.data(), tokens.size() * sizeof(Token), seed);
  std::array<char, 33> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits.data();
}

}  // namespace bloomery::state
