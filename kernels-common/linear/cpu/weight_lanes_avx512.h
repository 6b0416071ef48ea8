// What the kernels whose lanes are weight rows share: sixteen rows taken apart and transposed, so
// that a vector holds four consecutive codes of each row, and N5's end on such lanes. Internal;
// include from files built for AVX-512 VNNI only (unnamed namespace: see unpack_avx2.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"

namespace bloomery::kernels::cpu {
namespace {

constexpr std::size_t kLanes = 16;  // weight rows of a vector

// 256 weights of sixteen rows, formats of 256. codes[i]: codes 4i..4i+3 of each row; scales[s]: of
// sub-block s of 16; side[p]: what goes with the sums of sub-blocks 2p and 2p+1.
struct alignas(64) KLanes {
  std::uint8_t codes[64][64];
  std::int32_t scales[16][kLanes];
  std::int16_t side[8][2 * kLanes];
  float d[kLanes];
  float m[kLanes];
};
__m512i Load512(const void* p) { return _mm512_load_si512(p); }

// Four codes, or two sums, in every lane.
__m512i Everywhere(const void* p) {
  std::int32_t word = 0;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

// out[i] = word i of rows 0..15, rows 64 bytes long.
void Transpose(const std::byte* rows, std::size_t stride, __m512i* out) {
  __m512i a[16];
  __m512i b[16];
  for (std::size_t i = 0; i < 16; ++i) {
    a[i] = Load512(rows + i * stride);
  }
  for (std::size_t i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  // a[4g + c]: in each 128 bits, word 4l + c of rows 4g..4g+3.
  for (std::size_t g = 0; g < 16; g += 4) {
    a[g] = _mm512_unpacklo_epi64(b[g], b[g + 2]);
    a[g + 1] = _mm512_unpackhi_epi64(b[g], b[g + 2]);
    a[g + 2] = _mm512_unpacklo_epi64(b[g + 1], b[g + 3]);
    a[g + 3] = _mm512_unpackhi_epi64(b[g + 1], b[g + 3]);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    const __m512i low_01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x44);
    const __m512i high_01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xEE);
    const __m512i low_23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x44);
    const __m512i high_23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xEE);
    out[c] = _mm512_shuffle_i32x4(low_01, low_23, 0x88);
    out[4 + c] = _mm512_shuffle_i32x4(low_01, low_23, 0xDD);
    out[8 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0x88);
    out[12 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0xDD);
  }
}

// Sixteen rows of 256 codes to their lanes.
void TransposeCodes(const std::byte* rows, std::uint8_t (*codes)[64]) {
  for (std::size_t part = 0; part < 4; ++part) {
    __m512i words[16];
    Transpose(rows + 64 * part, 256, words);
    for (std::size_t i = 0; i < 16; ++i) {
      _mm512_store_si512(codes[16 * part + i], words[i]);
    }
  }
}

template <class Format>
void PackK(const std::byte* const* w, std::size_t step, std::size_t /*count*/, void* tile) {
  auto* out = static_cast<KLanes*>(tile);
  alignas(64) std::byte codes[kLanes][256];
  alignas(64) std::int16_t factors[kLanes][32];  // scales in KStep's order, then side
  for (std::size_t row = 0; row < kLanes; ++row) {
    const std::byte* block = w[row] + step * Format::kBytes;
    KStep unpacked = Format::Unpack(block);
    if constexpr (Format::kSigned) {
      // KStep's order of scales back to that of the sub-blocks, times -128.
      const __m128i first = _mm256_castsi256_si128(unpacked.scales);
      const __m128i second = _mm256_extracti128_si256(unpacked.scales, 1);
      const __m256i ordered =
          _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
      unpacked.side = _mm256_slli_epi16(_mm256_sub_epi16(_mm256_setzero_si256(), ordered), 7);
    }
    for (std::size_t j = 0; j < 8; ++j) {
      const __m256i offset = _mm256_set1_epi8(Format::kSigned ? static_cast<char>(0x80) : 0);
      _mm256_store_si256(reinterpret_cast<__m256i*>(codes[row] + 32 * j),
                         _mm256_xor_si256(unpacked.codes[j], offset));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(factors[row]), unpacked.scales);
    _mm256_store_si256(reinterpret_cast<__m256i*>(factors[row] + 16), unpacked.side);
    out->d[row] = Format::D(block);
    out->m[row] = Format::M(block);
  }
  TransposeCodes(codes[0], out->codes);
  __m512i pairs[16];
  Transpose(reinterpret_cast<const std::byte*>(factors), 64, pairs);
  for (std::size_t i = 0; i < 8; ++i) {
    // Words 2i and 2i+1 of KStep::scales: word j < 8 is of sub-block 2j, word 8+j of 2j+1.
    const std::size_t sub = i < 4 ? 4 * i : 4 * (i - 4) + 1;
    _mm512_store_si512(out->scales[sub], _mm512_srai_epi32(_mm512_slli_epi32(pairs[i], 16), 16));
    _mm512_store_si512(out->scales[sub + 2], _mm512_srai_epi32(pairs[i], 16));
    _mm512_store_si512(out->side[i], pairs[8 + i]);
  }
}

// A hint, which may point past the end of the weights.
void PrefetchToL2(const std::byte* at, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T1);
  }
}

// N5's end for the first `live` lanes of one vector.
void StoreLanes(const LinearArgs& args, std::size_t r, std::size_t n, std::size_t live, __m512 y) {
  const auto mask = static_cast<__mmask16>((1U << live) - 1U);
  if (args.scale != nullptr) {
    y = _mm512_mul_ps(y, _mm512_set1_ps(*args.scale));
  }
  if (args.bias != nullptr) {
    y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, args.bias + n));
  }
  _mm512_mask_storeu_ps(args.y + r * args.y_stride + n, mask, y);
}

}  // namespace
}  // namespace bloomery::kernels::cpu
