// AVX-512 VNNI kernels of Linear for integer formats.
//
// Lanes are weight rows: a vector holds four consecutive codes of each of sixteen rows, and one
// dpbusd multiplies them with four codes of an activation row that a load broadcasts. Sums stay in
// their lane: no reduction, and N4 and N5 run on sixteen rows at once. Codes are unsigned there;
// what an offset adds is taken out by the sums of 16 codes.
//
// 32 rows are unpacked and transposed once, then all activation rows pass over them, six at a time.
// (A tile of 256 weights that stays in the first cache, with y kept in memory between steps, was
// slower: rows of y lie a power of two apart and evict each other.) Few rows do not pay for the
// unpacking: they take few_rows_avx512.h, or where a format has nothing there, the AVX2 kernels.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels-common/cpu/lanes_avx512.h"
#include "kernels-common/linear/cpu/column.h"
#include "kernels-common/linear/cpu/few_rows_avx512.h"
#include "kernels-common/linear/cpu/float_impl.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/linear/cpu/weight_lanes_avx512.h"
#include "kernels-common/linear/cpu/weight_pack_avx512.h"

namespace bloomery::kernels::cpu::avx512vnni {
namespace {

constexpr std::size_t kGroups = 2;  // vectors of weight rows of a tile
// From this many activation rows on a tile is worth its unpacking, for every format (tests/bench).
constexpr std::size_t kTileFromRows = 2;

// 256 weights of sixteen rows, formats of 256. codes[i]: codes 4i..4i+3 of each row.
struct KLanes : KHead {
  std::uint8_t codes[64][64];
};
static_assert(kGroups * sizeof(KLanes) <= kLanesStepBytes);

// The same for formats of 32 and 64: d and m of each 32.
struct alignas(64) SmallLanes {
  std::uint8_t codes[64][64];
  float d[8][kLanes];
  float m[8][kLanes];
};
static_assert(kGroups * sizeof(SmallLanes) <= kLanesStepBytes);

// Four codes, or two sums, in every lane.
__m512i Everywhere(const void* p) {
  std::int32_t word = 0;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

// ---- Formats of 256.

template <class Format>
void PackK(const std::byte* const* w, std::size_t step, std::size_t /*count*/, void* tile) {
  auto* out = static_cast<KLanes*>(tile);
  const LanePacker<Format> packer(w, step);
  packer.Head(out);
  for (std::size_t quarter = 0; quarter < 4; ++quarter) {
    packer.Codes(
        quarter, [out](std::size_t i, __m512i codes) { StoreWords(out->codes[i], codes); },
        [](std::size_t) {});
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
  TransposeRows(codes, [out](std::size_t i, __m512i four) { StoreWords(out->codes[i], four); });
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
    const LaneEnd end(args, n + g * kLanes, std::min(kLanes, live - g * kLanes));
    for (std::size_t c = 0; c < kColumns; ++c) {
      end.Store(args.y + (r + c) * args.y_stride + n + g * kLanes, y[g * kColumns + c]);
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

template <class Format>
constexpr IntegerKernel KKernel() {
  return {Format::kType, PackK<Format>, Walk<KShape<Format::kMins, Format::kSub>>};
}
template <class Format>
constexpr IntegerKernel SmallKernel() {
  return {Format::kType, PackSmall<Format>, Walk<SmallShape<Format::kForm>>};
}

constexpr IntegerKernel kKernels[] = {
    KKernel<FormatQ2K>(),       KKernel<FormatQ3K>(),       KKernel<FormatQ4K>(),
    KKernel<FormatQ5K>(),       KKernel<FormatQ6K>(),       KKernel<FormatIq1S>(),
    KKernel<FormatIq1M>(),      KKernel<FormatIq2Xxs>(),    KKernel<FormatIq2Xs>(),
    KKernel<FormatIq2S>(),      KKernel<FormatIq3Xxs>(),    KKernel<FormatIq3S>(),
    KKernel<FormatIq4Xs>(),     KKernel<FormatTq1>(),       KKernel<FormatTq2>(),
    SmallKernel<FormatQ4_0>(),  SmallKernel<FormatQ4_1>(),  SmallKernel<FormatQ5_0>(),
    SmallKernel<FormatQ5_1>(),  SmallKernel<FormatQ8_0>(),  SmallKernel<FormatIq4Nl>(),
    SmallKernel<FormatMxfp4>(), SmallKernel<FormatNvfp4>(),
};

}  // namespace

void FloatLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                 std::byte* scratch) {
  FloatLinearRange<Avx512Lanes>(args, n_begin, n_end, scratch);
}

void IntegerLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::byte* scratch) {
  if (args.rows <= kFewRowsMax) {
    for (const FewRowsKernel& kernel : kFewRowsKernels) {
      if (kernel.ggml_type == args.weight.format->ggml_type) {
        kernel.of_rows[args.rows - 1](args, n_begin, n_end);
        return;
      }
    }
  }
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
