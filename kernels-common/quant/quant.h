// Weight formats, quantised activation rows and the row formats of KV planes.
//
// One table row (FormatTraits) a GGUF type: sizes, decode, and for integer formats the exact
// integer form of a block that N3 and N4 of the numeric rule speak of. A new type is a new row
// here, an unpack function, and, where speed asks for it, an entry of linear/cpu/avx2.cc. Plain
// data and pure functions: no allocation, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bloomery::kernels {

// Most values in one block of any format, and in one step of N5.
inline constexpr std::size_t kStepValues = 256;
// Codes that share one entry of QuantisedRows::sums.
inline constexpr std::size_t kSumValues = 16;

// How the value u of an activation group's codes follows from the integers of a block (N4).
// kScale: u = d*F(I). kScaleMin: u = fma(d, F(I), m*F(S)). kPairScales (NVFP4): for each 32 codes,
// with D0 and D1 the sums over its halves, u = fma(s1, F(D1), s0*F(D0)).
enum class BlockForm { kScale, kScaleMin, kPairScales };

// The exact integer form of one weight block (N3): value i is scales[i/16]*codes[i]*d, plus
// mins[i/16]*m where the format has mins. Formats with a sub-block of 32 repeat an entry twice.
// For the K types m is -dmin. With pair scales value i is pair_scales[i/16]*codes[i].
struct IntegerBlock {
  std::int8_t codes[kStepValues];
  std::int16_t scales[kStepValues / kSumValues];
  std::int16_t mins[kStepValues / kSumValues];
  float d;
  float m;
  float pair_scales[4];
};

// Encodes k values (a multiple of block_values) to one row of a format. `importance` weighs the
// squared error of each value (k of them, not negative), null: all alike. The same input gives the
// same bytes everywhere. Returns k, or the index of the first value that is not finite or too large
// for the format's scale; the bytes of `row` are then unspecified.
using QuantiseFunction = std::size_t(const float* values, const float* importance, std::byte* row,
                                     std::size_t k);

struct FormatTraits {
  const char* name;              // GGUF's name: "Q4_K"
  int ggml_type;                 // GGUF's type id
  std::size_t block_values;      // weights in a block
  std::size_t block_bytes;       // bytes of a block
  std::size_t activation_group;  // N2: values that share an activation scale; 0: float rule N8
  BlockForm form;                // N4; float formats: kScale
  // Decodes k values (a multiple of block_values) to f32; every value is correctly rounded.
  void (*decode_row)(const std::byte* source, float* values, std::size_t k);
  // The integer form of one block; null for float formats.
  void (*unpack_block)(const std::byte* block, IntegerBlock* out);
  // Null for formats we read but do not write.
  QuantiseFunction* quantise_row;
};

// The row of a GGUF type id; null where this build has no kernels for it.
const FormatTraits* FindFormat(int ggml_type);
// All rows, by type id.
std::span<const FormatTraits> Formats();
// Bytes of k weights; k must divide by block_values.
inline std::size_t RowBytes(const FormatTraits& format, std::size_t k) {
  return k / format.block_values * format.block_bytes;
}

// Activation rows by N2: int8 codes, one f32 scale a group, and the sum of every 16 codes (what
// mins and unsigned weight codes need). One row is one stretch of `row_bytes`: codes, scales, sums.
// Does not own its memory, which must be 64-byte aligned.
struct QuantisedRows {
  std::byte* data = nullptr;
  std::size_t k = 0;          // values a row
  std::size_t group = 0;      // 256 or 32
  std::size_t row_bytes = 0;  // QuantisedRowBytes(k, group), or more

  static constexpr std::size_t Align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t ScalesOffset() const { return Align64(k); }
  std::size_t SumsOffset() const { return ScalesOffset() + Align64((k + group - 1) / group * 4); }
  std::int8_t* codes(std::size_t row) const {
    return reinterpret_cast<std::int8_t*>(data + row * row_bytes);
  }
  float* scales(std::size_t row) const {
    return reinterpret_cast<float*>(data + row * row_bytes + ScalesOffset());
  }
  std::int16_t* sums(std::size_t row) const {
    return reinterpret_cast<std::int16_t*>(data + row * row_bytes + SumsOffset());
  }
};

// Bytes of one quantised row (a multiple of 64): what a buffer of R rows needs is R times this.
// k must divide by 16; a last group may be short.
inline std::size_t QuantisedRowBytes(std::size_t k, std::size_t group) {
  return QuantisedRows::Align64(k) + QuantisedRows::Align64((k + group - 1) / group * 4) +
         QuantisedRows::Align64(k / kSumValues * 2);
}

// The view of rows laid out tightly in `memory`.
inline QuantisedRows MakeQuantisedRows(std::byte* memory, std::size_t k, std::size_t group) {
  return {memory, k, group, QuantisedRowBytes(k, group)};
}

// Row formats of KV planes. kF16 rounds to nearest even (overflow becomes infinity). kQ8_0 holds
// 34-byte blocks of 32 values: f16 d = f16(M/127) with M = max|x| (at most the largest finite f16),
// then q = clamp(rint(x * (1/d)), -127, 127) with d as stored; d = 0 gives codes 0; a non-finite x
// gives d = NaN and codes 0. A q8_0 width must divide by 32.
enum class KvType { kF32, kF16, kQ8_0 };

inline std::size_t KvRowBytes(KvType type, std::size_t width) {
  return type == KvType::kF32 ? width * 4 : type == KvType::kF16 ? width * 2 : width / 32 * 34;
}

// IEEE binary16 <-> binary32: exact one way, round to nearest even the other. NaNs stay NaN
// (quiet).
float HalfToFloat(std::uint16_t half);
std::uint16_t FloatToHalf(float value);

}  // namespace bloomery::kernels
