// Saved rows of a slot: up to kBlockRows positions, beginning at a multiple of that, with the bytes
// of every plane. Blocks are shared and immutable once they are full of bytes, so that caches, file
// writers and slots hold the same one. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bloomery::state {

using Token = int32_t;

// Small enough that conversations share what they have in common, large enough that a block of a
// real model is megabytes and copies at full speed; the planes' own blocks have as many rows.
inline constexpr int32_t kBlockRows = 128;

class Block {
 public:
  // Room for `rows` rows of `row_bytes` bytes, not yet written. Throws std::bad_alloc.
  Block(int32_t rows, uint64_t row_bytes);

  int32_t rows() const { return rows_; }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  // For who fills it, before it is shared.
  std::span<std::byte> room() { return {bytes_.get(), size_}; }

 private:
  int32_t rows_;
  size_t size_;
  std::unique_ptr<std::byte[]> bytes_;
};
using BlockPtr = std::shared_ptr<const Block>;

// All of a slot: its rows from position 0, and behind the last one the state that rows overwrite
// (empty where the model has none).
struct SlotState {
  std::vector<BlockPtr> blocks;
  std::vector<std::byte> checkpoint;
};

// 64 bits that change with any damage (XXH3). Not a signature: who can write files can forge it.
uint64_t Checksum(std::span<const std::byte> bytes, uint64_t seed);
// 128 bits of `text` and `tokens` as 32 hexadecimal digits.
std::string Digest(std::span<const std::byte> text, std::span<const Token> tokens);

}  // namespace bloomery::state
