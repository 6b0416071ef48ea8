// Blocks of 32 (NVFP4: 64) weights: one scale, perhaps a min, no sub-block scales. Nibble bytes
// hold element j in the low half and j + 16 in the high one.
#include <bit>
#include <cstring>

#include "kernels-common/quant/blocks.h"
#include "kernels-common/quant/iq_tables.h"

namespace bloomery::kernels {
namespace {

void OneScale(float d, IntegerBlock* out) {
  out->d = d;
  out->m = 0.0F;
  out->scales[0] = out->scales[1] = 1;
  out->mins[0] = out->mins[1] = 0;
}

void ScaleAndMin(const std::byte* block, IntegerBlock* out) {
  OneScale(HalfAt(block), out);
  out->m = HalfAt(block + 2);
  out->mins[0] = out->mins[1] = 1;
}

int Nibble(const std::byte* nibbles, std::size_t i) {
  const int byte = ByteAt(nibbles, i % 16);
  return i < 16 ? byte & 15 : byte >> 4;
}

void Nibbles(const std::byte* nibbles, int offset, IntegerBlock* out) {
  for (std::size_t i = 0; i < 32; ++i) {
    out->codes[i] = static_cast<std::int8_t>(Nibble(nibbles, i) - offset);
  }
}

// Four bytes of fifth bits, bit i for element i, then the nibbles.
void FiveBits(const std::byte* bits, int offset, IntegerBlock* out) {
  std::uint32_t high = 0;
  std::memcpy(&high, bits, 4);
  for (std::size_t i = 0; i < 32; ++i) {
    const int bit = static_cast<int>((high >> i) & 1U);
    out->codes[i] = static_cast<std::int8_t>((Nibble(bits + 4, i) | (bit << 4)) - offset);
  }
}

void TableNibbles(const std::byte* nibbles, const std::array<std::int8_t, 16>& table,
                  IntegerBlock* out) {
  for (std::size_t i = 0; i < 32; ++i) {
    out->codes[i] = table[static_cast<std::size_t>(Nibble(nibbles, i))];
  }
}

}  // namespace

void UnpackQ4_0(const std::byte* block, IntegerBlock* out) {
  OneScale(HalfAt(block), out);
  Nibbles(block + 2, 8, out);
}

void UnpackQ4_1(const std::byte* block, IntegerBlock* out) {
  ScaleAndMin(block, out);
  Nibbles(block + 4, 0, out);
}

void UnpackQ5_0(const std::byte* block, IntegerBlock* out) {
  OneScale(HalfAt(block), out);
  FiveBits(block + 2, 16, out);
}

void UnpackQ5_1(const std::byte* block, IntegerBlock* out) {
  ScaleAndMin(block, out);
  FiveBits(block + 4, 0, out);
}

// d, 32 int8: value = q*d.
void UnpackQ8_0(const std::byte* block, IntegerBlock* out) {
  OneScale(HalfAt(block), out);
  std::memcpy(out->codes, block + 2, 32);
}

void UnpackIq4Nl(const std::byte* block, IntegerBlock* out) {
  OneScale(HalfAt(block), out);
  TableNibbles(block + 2, kIq4Values, out);
}

// An exponent byte e (d = 2^(e-128); e below 2 gives the denormals 2^-128 and 2^-127), nibbles of
// doubled E2M1 values.
void UnpackMxfp4(const std::byte* block, IntegerBlock* out) {
  const std::uint32_t e = ByteAt(block, 0);
  OneScale(std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1U) << 23U), out);
  TableNibbles(block + 1, kFp4Values, out);
}

// Four UE4M3 scales, then 8 bytes of nibbles for each 16 weights: element j low, j + 8 high.
void UnpackNvfp4(const std::byte* block, IntegerBlock* out) {
  out->d = out->m = 0.0F;
  for (std::size_t part = 0; part < 4; ++part) {
    out->pair_scales[part] = kNvScales[ByteAt(block, part)];
    out->scales[part] = 1;
    out->mins[part] = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      const unsigned byte = ByteAt(block, 4 + 8 * part + i % 8);
      out->codes[16 * part + i] = kFp4Values[i < 8 ? byte & 15U : byte >> 4U];
    }
  }
}

}  // namespace bloomery::kernels
