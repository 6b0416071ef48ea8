// The K types, and the ternary types, which have one scale a block.
#include "kernels-common/quant/blocks.h"

namespace bloomery::kernels {
namespace {

// Twelve bytes of eight 6-bit scales and mins. Entries 0-3 are the low six bits of bytes 0-3 and
// 4-7; entries 4-7 have their low four bits in bytes 8-11 and their high two on top of the others.
void SixBitScalesAndMins(const std::byte* packed, IntegerBlock* out) {
  for (std::size_t j = 0; j < 8; ++j) {
    int scale = 0;
    int min = 0;
    if (j < 4) {
      scale = ByteAt(packed, j) & 63;
      min = ByteAt(packed, j + 4) & 63;
    } else {
      scale = (ByteAt(packed, j + 4) & 15) | ((ByteAt(packed, j - 4) >> 6) << 4);
      min = (ByteAt(packed, j + 4) >> 4) | ((ByteAt(packed, j) >> 6) << 4);
    }
    out->scales[2 * j] = out->scales[2 * j + 1] = static_cast<std::int16_t>(scale);
    out->mins[2 * j] = out->mins[2 * j + 1] = static_cast<std::int16_t>(min);
  }
}

// The two bits of element i where each 128 elements own 32 bytes, shifts 0, 2, 4, 6.
int BitPair(const std::byte* bytes, std::size_t i) {
  return (ByteAt(bytes, i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32))) & 3;
}

}  // namespace

// 16 bytes of scale (low) and min (high nibble) for each 16 weights, 64 bytes of bit pairs, d,
// dmin.
void UnpackQ2K(const std::byte* block, IntegerBlock* out) {
  out->d = HalfAt(block + 80);
  out->m = -HalfAt(block + 82);
  for (std::size_t j = 0; j < 16; ++j) {
    out->scales[j] = ByteAt(block, j) & 15;
    out->mins[j] = ByteAt(block, j) >> 4;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    out->codes[i] = static_cast<std::int8_t>(BitPair(block + 16, i));
  }
}

// 32 bytes of high bits (bit b of byte l: element 32b + l; a clear one takes 4 off), 64 bytes of
// bit pairs, 12 bytes of sixteen 6-bit scales that lie 32 above their value, d.
void UnpackQ3K(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block + 108), out);
  const std::byte* packed = block + 96;
  for (std::size_t j = 0; j < 16; ++j) {
    const int low = j < 8 ? ByteAt(packed, j) & 15 : ByteAt(packed, j - 8) >> 4;
    const int high = (ByteAt(packed, 8 + j % 4) >> (2 * (j / 4))) & 3;
    out->scales[j] = static_cast<std::int16_t>((low | (high << 4)) - 32);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const int high = (ByteAt(block, i % 32) >> (i / 32)) & 1;
    out->codes[i] = static_cast<std::int8_t>(BitPair(block + 32, i) - (high != 0 ? 0 : 4));
  }
}

// d, dmin, 12 bytes of scales and mins, 128 bytes of nibbles: each 64 weights hold their first 32
// in the low nibbles and the next 32 in the high ones.
void UnpackQ4K(const std::byte* block, IntegerBlock* out) {
  out->d = HalfAt(block);
  out->m = -HalfAt(block + 2);
  SixBitScalesAndMins(block + 4, out);
  for (std::size_t i = 0; i < 256; ++i) {
    const int byte = ByteAt(block, 16 + i / 64 * 32 + i % 32);
    out->codes[i] = static_cast<std::int8_t>(i % 64 < 32 ? byte & 15 : byte >> 4);
  }
}

// As Q4_K, with 32 bytes of fifth bits before the nibbles: bit b of byte l is of element 32b + l.
void UnpackQ5K(const std::byte* block, IntegerBlock* out) {
  out->d = HalfAt(block);
  out->m = -HalfAt(block + 2);
  SixBitScalesAndMins(block + 4, out);
  for (std::size_t i = 0; i < 256; ++i) {
    const int byte = ByteAt(block, 48 + i / 64 * 32 + i % 32);
    const int high = (ByteAt(block, 16 + i % 32) >> (i / 32)) & 1;
    out->codes[i] = static_cast<std::int8_t>((i % 64 < 32 ? byte & 15 : byte >> 4) | (high << 4));
  }
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, d. Each 128 weights own 64
// low and 32 high bytes; their groups of 32 take low, low, high, high nibbles and bit pairs 0, 2,
// 4, 6.
void UnpackQ6K(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block + 208), out);
  for (std::size_t j = 0; j < 16; ++j) {
    const int byte = ByteAt(block, 192 + j);
    out->scales[j] = static_cast<std::int16_t>(byte < 128 ? byte : byte - 256);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t group = i % 128 / 32;
    const int low = ByteAt(block, i / 128 * 64 + 32 * (group % 2) + i % 32) >> (group < 2 ? 0 : 4);
    out->codes[i] = static_cast<std::int8_t>(((low & 15) | (BitPair(block + 128, i) << 4)) - 32);
  }
}

// 48 bytes of five ternary digits, 4 bytes of four, d. A byte holds its digits as a fraction: digit
// n is the whole part of 3 * frac(byte/256 * 3^n). Stretches of 32 and of 16 bytes each hold one
// digit place after another.
void UnpackTq1(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block + 52), out);
  for (std::int16_t& scale : out->scales) {
    scale = 1;
  }
  constexpr struct {
    std::size_t first;
    std::size_t bytes;
    std::size_t digits;
  } kStretches[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  std::int8_t* code = out->codes;
  for (const auto& stretch : kStretches) {
    unsigned power = 1;
    for (std::size_t digit = 0; digit < stretch.digits; ++digit, power *= 3) {
      for (std::size_t i = 0; i < stretch.bytes; ++i) {
        const unsigned fraction = (ByteAt(block, stretch.first + i) * power) & 255U;
        *code++ = static_cast<std::int8_t>(static_cast<int>((fraction * 3) >> 8U) - 1);
      }
    }
  }
}

// 64 bytes of bit pairs, d: value (pair - 1) * d.
void UnpackTq2(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block + 64), out);
  for (std::int16_t& scale : out->scales) {
    scale = 1;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    out->codes[i] = static_cast<std::int8_t>(BitPair(block, i) - 1);
  }
}

}  // namespace bloomery::kernels
