// AVX-512 VNNI kernels of Linear for integer formats.
//
// Lanes are weight rows: a vector holds four consecutive codes of each of sixteen rows, and one
// dpbusd multiplies them with four codes of an activation row that a load broadcasts. Sums stay in
// their lane: no reduction, and N4 and N5 run on sixteen rows at once. Codes are unsigned there;
// what an offset adds is taken out by the sums of 16 codes.
//
// 32 rows are unpacked and transposed once, then all activation rows pass over them, six at a time.
// (A tile of 256 weights that stays in the first cache, with y kept in memory between steps, was
// slower: rows of y lie a power of two apart and evict each other.) One row alone does not pay for
// the unpacking: it takes the AVX2 kernels.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels-common/linear/cpu/column.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"

namespace bloomery::kernels::cpu::avx512vnni {
namespace {

constexpr std::size_t kLanes = 16;  // weight rows of a vector
constexpr std::size_t kGroups = 2;  // vectors of weight rows of a tile
// From this many activation rows on a tile is worth its unpacking, for every format (tests/bench).
constexpr std::size_t kTileFromRows = 2;

// 256 weights of sixteen rows, formats of 256. codes[i]: codes 4i..4i+3 of each row; scales[s]: of
// sub-block s of 16; side[p]: what goes with the sums of sub-blocks 2p and 2p+1.
struct alignas(64) KLanes {
  std::uint8_t codes[64][64];
  std::int32_t scales[16][kLanes];
  std::int16_t side[8][2 * kLanes];
  float d[kLanes];
  float m[kLanes];
};
static_assert(kGroups * sizeof(KLanes) <= kLanesStepBytes);

// The same for formats of 32 and 64: d and m of each 32.
struct alignas(64) SmallLanes {
  std::uint8_t codes[64][64];
  float d[8][kLanes];
  float m[8][kLanes];
};
static_assert(kGroups * sizeof(SmallLanes) <= kLanesStepBytes);

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

// ---- Formats of 256.

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

// How a tile meets activation rows. Step<groups, columns> gives t of N5 for step `step`, of which
// `spans` groups of 32 are there: t[g * columns + c] of part g of the tile and column c.
//
// kSub: weights that share a scale, 16 or 32.
template <bool kMins, std::size_t kSub>
struct KShape {
  using Tile = KLanes;
  static constexpr std::size_t kColumnsMax = 6;

  template <std::size_t kRowGroups, std::size_t kColumns>
  static void Step(const Tile* tile, const Column* columns, std::size_t step, std::size_t /*spans*/,
                   __m512* t) {
    constexpr std::size_t kAll = kRowGroups * kColumns;
    __m512i sums[kAll];
    __m512i side[kAll];
    for (std::size_t i = 0; i < kAll; ++i) {
      side[i] = _mm512_setzero_si512();
    }
    for (std::size_t p = 0; p < 8; ++p) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        const __m512i pair = Everywhere(columns[c].sums + 16 * step + 2 * p);
        for (std::size_t g = 0; g < kRowGroups; ++g) {
          side[g * kColumns + c] =
              _mm512_dpwssd_epi32(side[g * kColumns + c], Load512(tile[g].side[p]), pair);
        }
      }
    }
    for (std::size_t i = 0; i < kAll; ++i) {
      sums[i] = kMins ? _mm512_setzero_si512() : side[i];
    }
    for (std::size_t sub = 0; sub < kStepValues / kSub; ++sub) {
      __m512i dots[kAll];
      for (std::size_t i = 0; i < kAll; ++i) {
        dots[i] = _mm512_setzero_si512();
      }
      for (std::size_t i = 0; i < kSub / 4; ++i) {
        const std::size_t at = sub * (kSub / 4) + i;
        __m512i codes[kRowGroups];
        for (std::size_t g = 0; g < kRowGroups; ++g) {
          codes[g] = Load512(tile[g].codes[at]);
        }
        for (std::size_t c = 0; c < kColumns; ++c) {
          const __m512i q = Everywhere(columns[c].codes + kStepValues * step + 4 * at);
          for (std::size_t g = 0; g < kRowGroups; ++g) {
            dots[g * kColumns + c] = _mm512_dpbusd_epi32(dots[g * kColumns + c], codes[g], q);
          }
        }
      }
      for (std::size_t g = 0; g < kRowGroups; ++g) {
        const __m512i scale = Load512(tile[g].scales[sub * (kSub / kSumValues)]);
        for (std::size_t c = 0; c < kColumns; ++c) {
          const std::size_t i = g * kColumns + c;
          sums[i] = _mm512_add_epi32(sums[i], _mm512_mullo_epi32(dots[i], scale));
        }
      }
    }
    for (std::size_t g = 0; g < kRowGroups; ++g) {
      const __m512 d = _mm512_load_ps(tile[g].d);
      const __m512 m = _mm512_load_ps(tile[g].m);
      for (std::size_t c = 0; c < kColumns; ++c) {
        const std::size_t i = g * kColumns + c;
        const __m512 product = _mm512_cvtepi32_ps(sums[i]);
        const __m512 u =
            kMins ? _mm512_fmadd_ps(d, product, _mm512_mul_ps(m, _mm512_cvtepi32_ps(side[i])))
                  : _mm512_mul_ps(d, product);
        t[i] = _mm512_fmadd_ps(_mm512_set1_ps(columns[c].scales[step]), u, _mm512_setzero_ps());
      }
    }
  }
};

// ---- Formats of 32 and 64. Codes lie 128 above their value.

template <class Format>
void PackSmall(const std::byte* const* w, std::size_t step, std::size_t count, void* tile) {
  auto* out = static_cast<SmallLanes*>(tile);
  alignas(64) std::byte codes[kLanes][256] = {};
  for (std::size_t row = 0; row < kLanes; ++row) {
    for (std::size_t b = 0; b < count; ++b) {
      const SmallSpan span = Format::Unpack(w[row], 8 * step + b);
      _mm256_store_si256(reinterpret_cast<__m256i*>(codes[row] + 32 * b),
                         _mm256_xor_si256(span.codes, _mm256_set1_epi8(static_cast<char>(0x80))));
      out->d[b][row] = span.d;
      out->m[b][row] = span.m;
    }
  }
  TransposeCodes(codes[0], out->codes);
}

// Takes the offset of unsigned codes out of the sums over the first, second or both sets of 16.
__m512i WithoutOffset(const Column& column, std::size_t span, bool first, bool second) {
  const std::uint32_t factors = (first ? 0xFF80U : 0U) | (second ? 0xFF800000U : 0U);
  return _mm512_dpwssd_epi32(_mm512_setzero_si512(),
                             _mm512_set1_epi32(static_cast<std::int32_t>(factors)),
                             Everywhere(column.sums + 2 * span));
}

template <BlockForm kForm>
struct SmallShape {
  using Tile = SmallLanes;
  static constexpr bool kPairs = kForm == BlockForm::kPairScales;
  static constexpr std::size_t kColumnsMax = kPairs ? 4 : 6;

  template <std::size_t kRowGroups, std::size_t kColumns>
  static void Step(const Tile* tile, const Column* columns, std::size_t step, std::size_t spans,
                   __m512* t) {
    for (std::size_t i = 0; i < kRowGroups * kColumns; ++i) {
      t[i] = _mm512_setzero_ps();
    }
    for (std::size_t b = 0; b < spans; ++b) {
      Span<kRowGroups, kColumns>(tile, b, columns, 8 * step + b, t);
    }
  }

 private:
  // dots += products of codes 4*begin .. 4*end-1 of span b.
  template <std::size_t kRowGroups, std::size_t kColumns>
  static void Dots(const Tile* tile, std::size_t b, std::size_t begin, std::size_t end,
                   const Column* columns, std::size_t span, __m512i* dots) {
    for (std::size_t i = begin; i < end; ++i) {
      __m512i codes[kRowGroups];
      for (std::size_t g = 0; g < kRowGroups; ++g) {
        codes[g] = Load512(tile[g].codes[8 * b + i]);
      }
      for (std::size_t c = 0; c < kColumns; ++c) {
        const __m512i q = Everywhere(columns[c].codes + 32 * span + 4 * i);
        for (std::size_t g = 0; g < kRowGroups; ++g) {
          dots[g * kColumns + c] = _mm512_dpbusd_epi32(dots[g * kColumns + c], codes[g], q);
        }
      }
    }
  }

  template <std::size_t kRowGroups, std::size_t kColumns>
  static void Span(const Tile* tile, std::size_t b, const Column* columns, std::size_t span,
                   __m512* t) {
    __m512i dots[kRowGroups * kColumns];
    __m512 part[kRowGroups * kColumns];  // what u has before d*F(I): the min, or the first half
    for (std::size_t c = 0; c < kColumns; ++c) {
      for (std::size_t g = 0; g < kRowGroups; ++g) {
        dots[g * kColumns + c] = WithoutOffset(columns[c], span, true, !kPairs);
      }
    }
    if constexpr (kPairs) {
      Dots<kRowGroups, kColumns>(tile, b, 0, 4, columns, span, dots);
      for (std::size_t c = 0; c < kColumns; ++c) {
        for (std::size_t g = 0; g < kRowGroups; ++g) {
          const std::size_t i = g * kColumns + c;
          part[i] = _mm512_mul_ps(_mm512_load_ps(tile[g].d[b]), _mm512_cvtepi32_ps(dots[i]));
          dots[i] = WithoutOffset(columns[c], span, false, true);
        }
      }
    }
    Dots<kRowGroups, kColumns>(tile, b, kPairs ? 4 : 0, 8, columns, span, dots);
    for (std::size_t g = 0; g < kRowGroups; ++g) {
      const __m512 d = _mm512_load_ps(tile[g].d[b]);
      const __m512 m = _mm512_load_ps(tile[g].m[b]);
      for (std::size_t c = 0; c < kColumns; ++c) {
        const std::size_t i = g * kColumns + c;
        const __m512 product = _mm512_cvtepi32_ps(dots[i]);
        __m512 u;
        if constexpr (kPairs) {
          u = _mm512_fmadd_ps(m, product, part[i]);
        } else if constexpr (kForm == BlockForm::kScaleMin) {
          const auto sum =
              static_cast<float>(columns[c].sums[2 * span] + columns[c].sums[2 * span + 1]);
          u = _mm512_fmadd_ps(d, product, _mm512_mul_ps(m, _mm512_set1_ps(sum)));
        } else {
          u = _mm512_mul_ps(d, product);
        }
        t[i] = _mm512_fmadd_ps(_mm512_set1_ps(columns[c].scales[span]), u, t[i]);
      }
    }
  }
};

// ---- Walking rows, steps and columns.

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

template <class Shape, std::size_t kRowGroups, std::size_t kColumns>
void Columns(const LinearArgs& args, const typename Shape::Tile* tile, std::size_t n,
             std::size_t live, std::size_t r) {
  Column columns[kColumns];
  __m512 y[kRowGroups * kColumns];
  __m512 t[kRowGroups * kColumns];
  for (std::size_t c = 0; c < kColumns; ++c) {
    columns[c] = ColumnOf(args, r + c);
  }
  for (std::size_t i = 0; i < kRowGroups * kColumns; ++i) {
    y[i] = _mm512_setzero_ps();
  }
  for (std::size_t at = 0; at < args.weight.k; at += kStepValues, tile += kRowGroups) {
    const std::size_t spans = std::min<std::size_t>(8, (args.weight.k - at) / 32);
    Shape::template Step<kRowGroups, kColumns>(tile, columns, at / kStepValues, spans, t);
    for (std::size_t i = 0; i < kRowGroups * kColumns; ++i) {
      y[i] = _mm512_add_ps(y[i], t[i]);
    }
  }
  for (std::size_t g = 0; g < kRowGroups; ++g) {
    const std::size_t lanes = std::min(kLanes, live - g * kLanes);
    for (std::size_t c = 0; c < kColumns; ++c) {
      StoreLanes(args, r + c, n + g * kLanes, lanes, y[g * kColumns + c]);
    }
  }
}

// The last rows, fewer than Shape::kColumnsMax.
template <class Shape, std::size_t kRowGroups, std::size_t kColumns>
void LastColumns(const LinearArgs& args, const typename Shape::Tile* tile, std::size_t n,
                 std::size_t live, std::size_t r) {
  if (args.rows - r == kColumns) {
    Columns<Shape, kRowGroups, kColumns>(args, tile, n, live, r);
  } else if constexpr (kColumns > 1) {
    LastColumns<Shape, kRowGroups, kColumns - 1>(args, tile, n, live, r);
  }
}

using PackFunction = void(const std::byte* const* w, std::size_t step, std::size_t count,
                          void* tile);

void PrefetchToL2(const std::byte* at, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T1);
  }
}

// Weight rows n .. n + live - 1 over all activation rows. `tile` holds kRowGroups parts a step.
template <class Shape, std::size_t kRowGroups>
void OverTile(const LinearArgs& args, std::size_t n, std::size_t live, PackFunction* pack,
              typename Shape::Tile* tile) {
  const std::byte* w[kRowGroups * kLanes];
  for (std::size_t i = 0; i < kRowGroups * kLanes; ++i) {  // past the end: the last row again
    w[i] = args.weight.data + (n + std::min(i, live - 1)) * args.weight.row_bytes;
  }
  for (std::size_t at = 0; at < args.weight.k; at += kStepValues) {
    const std::size_t step = at / kStepValues;
    for (std::size_t g = 0; g < kRowGroups; ++g) {
      pack(w + g * kLanes, step, std::min<std::size_t>(8, (args.weight.k - at) / 32),
           tile + step * kRowGroups + g);
    }
  }
  // The next tile's weights come from memory while this one is computed: packing alone would wait
  // for them, 32 short rows being more streams than the hardware follows.
  const std::size_t tile_bytes = kRowGroups * kLanes * args.weight.row_bytes;
  const std::size_t share = tile_bytes / (args.rows / Shape::kColumnsMax + 1) + 1;
  const std::byte* next = w[0] + tile_bytes;
  std::size_t r = 0;
  for (; r + Shape::kColumnsMax <= args.rows; r += Shape::kColumnsMax, next += share) {
    PrefetchToL2(next, share);
    Columns<Shape, kRowGroups, Shape::kColumnsMax>(args, tile, n, live, r);
  }
  PrefetchToL2(next, share);
  LastColumns<Shape, kRowGroups, Shape::kColumnsMax - 1>(args, tile, n, live, r);
}

template <class Shape>
void Walk(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, PackFunction* pack,
          std::byte* scratch) {
  auto* tile = reinterpret_cast<typename Shape::Tile*>(scratch);
  for (std::size_t n = n_begin; n < n_end; n += kGroups * kLanes) {
    const std::size_t live = std::min(kGroups * kLanes, n_end - n);
    if (live <= kLanes) {
      OverTile<Shape, 1>(args, n, live, pack, tile);
    } else {
      OverTile<Shape, kGroups>(args, n, live, pack, tile);
    }
  }
}

struct IntegerKernel {
  int ggml_type;
  PackFunction* pack;
  void (*walk)(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, PackFunction* pack,
               std::byte* scratch);
};

template <class Format, std::size_t kSub>
constexpr IntegerKernel KKernel() {
  return {Format::kType, PackK<Format>, Walk<KShape<Format::kMins, kSub>>};
}
template <class Format>
constexpr IntegerKernel SmallKernel() {
  return {Format::kType, PackSmall<Format>, Walk<SmallShape<Format::kForm>>};
}

constexpr IntegerKernel kKernels[] = {
    KKernel<FormatQ2K, 16>(),   KKernel<FormatQ3K, 16>(),    KKernel<FormatQ4K, 32>(),
    KKernel<FormatQ5K, 32>(),   KKernel<FormatQ6K, 16>(),    KKernel<FormatIq1S, 32>(),
    KKernel<FormatIq1M, 16>(),  KKernel<FormatIq2Xxs, 32>(), KKernel<FormatIq2Xs, 16>(),
    KKernel<FormatIq2S, 16>(),  KKernel<FormatIq3Xxs, 32>(), KKernel<FormatIq3S, 32>(),
    KKernel<FormatIq4Xs, 32>(), KKernel<FormatTq1, 32>(),    KKernel<FormatTq2, 32>(),
    SmallKernel<FormatQ4_0>(),  SmallKernel<FormatQ4_1>(),   SmallKernel<FormatQ5_0>(),
    SmallKernel<FormatQ5_1>(),  SmallKernel<FormatQ8_0>(),   SmallKernel<FormatIq4Nl>(),
    SmallKernel<FormatMxfp4>(), SmallKernel<FormatNvfp4>(),
};

}  // namespace

void IntegerLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::byte* scratch) {
  if (args.rows >= kTileFromRows) {
    for (const IntegerKernel& kernel : kKernels) {
      if (kernel.ggml_type == args.weight.format->ggml_type) {
        kernel.walk(args, n_begin, n_end, kernel.pack, scratch);
        return;
      }
    }
  }
  avx2::IntegerLinear(args, n_begin, n_end, scratch);
}

}  // namespace bloomery::kernels::cpu::avx512vnni
