// AVX2 kernels of Linear.
//
// Integer formats: a product of 32 codes is one maddubs (unsigned weight code, or magnitude, times
// signed activation code, pairs to int16) and one madd with the sub-block scale (to int32), exact
// throughout. Eight (weight row, activation row) pairs are reduced together by one integer
// transpose, so N4 and N5 run on eight lanes. Few activation rows: eight weight rows times one,
// straight from the file's bytes. More: eight weight rows are unpacked once to scratch and meet all
// rows in tiles of 2 x 4.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/linear/cpu/column.h"
#include "kernels-common/linear/cpu/float_impl.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"

namespace bloomery::kernels::cpu::avx2 {
namespace {

constexpr std::size_t kTile = kTileRows;
constexpr std::size_t kTileColumns = 4;  // activation rows of a register tile
// Below this many rows unpacking again from cache is cheaper than a padded register tile. Code
// books take longer to unpack.
constexpr std::size_t kUnpackRows = 4;
constexpr std::size_t kUnpackRowsOfBooks = 2;

void StoreInt(void* p, __m256i a) { _mm256_store_si256(static_cast<__m256i*>(p), a); }

// Lane i of *first = the sum of words 0-3 of v[i], of *second that of words 4-7.
void ReduceHalves(const __m256i* v, __m256i* first, __m256i* second) {
  const __m256i s0123 =
      _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i s4567 =
      _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  *first = _mm256_permute2x128_si256(s0123, s4567, 0x20);
  *second = _mm256_permute2x128_si256(s0123, s4567, 0x31);
}

// Lane i = the sum of the eight words of v[i].
__m256i ReduceWords(const __m256i* v) {
  __m256i first;
  __m256i second;
  ReduceHalves(v, &first, &second);
  return _mm256_add_epi32(first, second);
}

__m256 ToFloats(__m256i words) { return _mm256_cvtepi32_ps(words); }

// [a, a, a, a, b, b, b, b]
__m256 TwoByFour(float a, float b) { return _mm256_set_m128(_mm_set1_ps(b), _mm_set1_ps(a)); }

// The four columns' activation scales of one group, for both weight rows of a tile.
__m256 GroupScales(const Column* columns, std::size_t group) {
  const __m128 four = _mm_setr_ps(columns[0].scales[group], columns[1].scales[group],
                                  columns[2].scales[group], columns[3].scales[group]);
  return _mm256_set_m128(four, four);
}

// ---- Formats of 256: 16-bit sub-block factors.

struct alignas(64) KStored {
  std::uint8_t codes[256];
  std::int16_t scales[16];
  std::int16_t side[16];
  float d;
  float m;
};
static_assert(sizeof(KStored) <= kTileStepBytes);

// Shuffles that put word j of each half everywhere in that half.
__m256i WordMask(int j) {
  return _mm256_set1_epi16(static_cast<std::int16_t>((2 * j + 1) << 8 | (2 * j)));
}

// Products of 32 codes in pairs of int16. Unsigned codes reach 63; signed ones go in by magnitude,
// and q takes their sign: 128*127*2 fits int16.
template <bool kSigned>
__m256i Pairs(__m256i codes, __m256i magnitude, __m256i q) {
  if constexpr (kSigned) {
    return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, codes));
  } else {
    return _mm256_maddubs_epi16(codes, q);
  }
}

template <bool kSigned>
__m256i Magnitude(__m256i codes) {
  return kSigned ? _mm256_abs_epi8(codes) : codes;
}

// N4 on eight lanes.
template <class Format>
__m256 BlockValues(__m256 d, __m256 m, __m256i products, __m256i sums) {
  if constexpr (Format::kMins) {
    return _mm256_fmadd_ps(d, ToFloats(products), _mm256_mul_ps(m, ToFloats(sums)));
  } else {
    return _mm256_mul_ps(d, ToFloats(products));
  }
}

// Asks early for `bytes` of the weights of the next tile. Eight short rows at a time are more
// streams than the hardware follows: without this, decoding reads a third of what memory gives
// (docs/measurements/cpu.md). Past the matrix's end it is a hint that nothing comes of.
void Prefetch(const std::byte* at, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T0);
  }
}

// Eight weight rows times one column; lane i belongs to w[i].
template <class Format>
__m256 KDot8(const std::byte* const* w, std::size_t next_tile, const Column& column,
             std::size_t steps) {
  __m256 y = _mm256_setzero_ps();
  for (std::size_t step = 0; step < steps; ++step) {
    __m256i products[8];
    __m256i sides[8];
    alignas(32) float d[8];
    alignas(32) float m[8];
    const std::int8_t* q = column.codes + 256 * step;
    const __m256i sums = LoadInt(column.sums + 16 * step);
    for (std::size_t i = 0; i < 8; ++i) {
      const std::byte* block = w[i] + step * Format::kBytes;
      Prefetch(block + next_tile, Format::kBytes);
      const KStep unpacked = Format::Unpack(block);
      sides[i] = _mm256_madd_epi16(unpacked.side, sums);
      __m256i product = Format::kMins ? _mm256_setzero_si256() : sides[i];
      for (int j = 0; j < 8; ++j) {
        const __m256i scale = _mm256_shuffle_epi8(unpacked.scales, WordMask(j));
        const __m256i pairs = Pairs<Format::kSigned>(
            unpacked.codes[j], Magnitude<Format::kSigned>(unpacked.codes[j]), LoadInt(q + 32 * j));
        product = _mm256_add_epi32(product, _mm256_madd_epi16(pairs, scale));
      }
      products[i] = product;
      d[i] = Format::D(block);
      m[i] = Format::M(block);
    }
    const __m256i mins = Format::kMins ? ReduceWords(sides) : _mm256_setzero_si256();
    const __m256 u =
        BlockValues<Format>(_mm256_load_ps(d), _mm256_load_ps(m), ReduceWords(products), mins);
    const __m256 a = _mm256_set1_ps(column.scales[step]);
    y = _mm256_add_ps(y, _mm256_fmadd_ps(a, u, _mm256_setzero_ps()));
  }
  return y;
}

// Two unpacked weight rows times four columns; lanes 0-3 are the columns of w0, 4-7 those of w1.
template <class Format>
__m256 KTile(const KStored* w0, const KStored* w1, const Column* columns, std::size_t steps) {
  __m256 y = _mm256_setzero_ps();
  for (std::size_t step = 0; step < steps; ++step, ++w0, ++w1) {
    __m256i sides[8];
    __m256i products[8];
    const __m256i side0 = LoadInt(w0->side);
    const __m256i side1 = LoadInt(w1->side);
    for (std::size_t c = 0; c < kTileColumns; ++c) {
      const __m256i sums = LoadInt(columns[c].sums + 16 * step);
      sides[c] = _mm256_madd_epi16(side0, sums);
      sides[4 + c] = _mm256_madd_epi16(side1, sums);
    }
    for (std::size_t i = 0; i < 8; ++i) {
      products[i] = Format::kMins ? _mm256_setzero_si256() : sides[i];
    }
    const __m256i scales0 = LoadInt(w0->scales);
    const __m256i scales1 = LoadInt(w1->scales);
    const std::size_t at = 256 * step;
    __m256i mask = WordMask(0);
    const __m256i next = _mm256_set1_epi8(2);
    for (std::size_t j = 0; j < 8; ++j, mask = _mm256_add_epi8(mask, next)) {
      const __m256i codes0 = LoadInt(w0->codes + 32 * j);
      const __m256i codes1 = LoadInt(w1->codes + 32 * j);
      const __m256i magnitude0 = Magnitude<Format::kSigned>(codes0);
      const __m256i magnitude1 = Magnitude<Format::kSigned>(codes1);
      const __m256i scale0 = _mm256_shuffle_epi8(scales0, mask);
      const __m256i scale1 = _mm256_shuffle_epi8(scales1, mask);
      for (std::size_t c = 0; c < kTileColumns; ++c) {
        const __m256i q = LoadInt(columns[c].codes + at + 32 * j);
        const __m256i pairs0 = Pairs<Format::kSigned>(codes0, magnitude0, q);
        const __m256i pairs1 = Pairs<Format::kSigned>(codes1, magnitude1, q);
        products[c] = _mm256_add_epi32(products[c], _mm256_madd_epi16(pairs0, scale0));
        products[4 + c] = _mm256_add_epi32(products[4 + c], _mm256_madd_epi16(pairs1, scale1));
      }
    }
    const __m256i mins = Format::kMins ? ReduceWords(sides) : _mm256_setzero_si256();
    const __m256 u = BlockValues<Format>(TwoByFour(w0->d, w1->d), TwoByFour(w0->m, w1->m),
                                         ReduceWords(products), mins);
    y = _mm256_add_ps(y, _mm256_fmadd_ps(GroupScales(columns, step), u, _mm256_setzero_ps()));
  }
  return y;
}

template <class Format>
struct KKernels {
  using Stored = KStored;
  static constexpr std::size_t kTileFromRows =
      std::is_base_of_v<FormatIq, Format> ? kUnpackRowsOfBooks : kUnpackRows;
  // w: eight rows; the eight after them lie next_tile bytes on.
  static __m256 Dot8(const std::byte* const* w, std::size_t next_tile, const Column& column,
                     std::size_t k) {
    return KDot8<Format>(w, next_tile, column, k / 256);
  }
  static __m256 Tile(const Stored* w0, const Stored* w1, const Column* columns, std::size_t k) {
    return KTile<Format>(w0, w1, columns, k / 256);
  }
  static void Unpack(const std::byte* row, std::size_t k, Stored* out) {
    for (std::size_t step = 0; step < k / 256; ++step, row += Format::kBytes) {
      const KStep unpacked = Format::Unpack(row);
      for (std::size_t j = 0; j < 8; ++j) {
        StoreInt(out[step].codes + 32 * j, unpacked.codes[j]);
      }
      StoreInt(out[step].scales, unpacked.scales);
      StoreInt(out[step].side, unpacked.side);
      out[step].d = Format::D(row);
      out[step].m = Format::M(row);
    }
  }
};

// ---- Formats of 32 and 64: signed codes, promoted per 32.

struct alignas(64) SmallStored {
  std::int8_t codes[256];
  float d[8];
  float m[8];
};
static_assert(sizeof(SmallStored) <= kTileStepBytes);

// Sums of the 32 codes of span b, as the format's u needs them.
float SpanSum(const Column& column, std::size_t b) {
  return static_cast<float>(column.sums[2 * b] + column.sums[2 * b + 1]);
}

// Products of 32 codes as eight words, those of the first 16 codes in the low half.
__m256i SmallProduct(__m256i codes, __m256i magnitude, __m256i q) {
  return _mm256_madd_epi16(Pairs<true>(codes, magnitude, q), _mm256_set1_epi16(1));
}

// N4 on eight lanes; `sums` is looked at where there are mins.
template <BlockForm kForm>
__m256 SmallValues(const __m256i* products, __m256 d, __m256 m, __m256 sums) {
  if constexpr (kForm == BlockForm::kPairScales) {
    __m256i first;
    __m256i second;
    ReduceHalves(products, &first, &second);
    return _mm256_fmadd_ps(m, ToFloats(second), _mm256_mul_ps(d, ToFloats(first)));
  } else {
    const __m256 product = ToFloats(ReduceWords(products));
    return kForm == BlockForm::kScale ? _mm256_mul_ps(d, product)
                                      : _mm256_fmadd_ps(d, product, _mm256_mul_ps(m, sums));
  }
}

template <class Format>
struct SmallKernels {
  using Stored = SmallStored;
  static constexpr std::size_t kTileFromRows = kUnpackRows;

  static __m256 Dot8(const std::byte* const* w, std::size_t next_tile, const Column& column,
                     std::size_t k) {
    constexpr std::size_t kBlockSpans = Format::kForm == BlockForm::kPairScales ? 2 : 1;
    __m256 y = _mm256_setzero_ps();
    __m256 t = _mm256_setzero_ps();
    const std::size_t spans = k / 32;
    for (std::size_t b = 0; b < spans; ++b) {
      __m256i products[8];
      alignas(32) float d[8];
      alignas(32) float m[8];
      const __m256i q = LoadInt(column.codes + 32 * b);
      for (std::size_t i = 0; i < 8; ++i) {
        Prefetch(w[i] + next_tile + b / kBlockSpans * Format::kBytes, Format::kBytes);
        const SmallSpan span = Format::Unpack(w[i], b);
        products[i] = SmallProduct(span.codes, _mm256_abs_epi8(span.codes), q);
        d[i] = span.d;
        m[i] = span.m;
      }
      const __m256 u = SmallValues<Format::kForm>(products, _mm256_load_ps(d), _mm256_load_ps(m),
                                                  _mm256_set1_ps(SpanSum(column, b)));
      t = _mm256_fmadd_ps(_mm256_set1_ps(column.scales[b]), u, t);
      if (b % 8 == 7 || b + 1 == spans) {
        y = _mm256_add_ps(y, t);
        t = _mm256_setzero_ps();
      }
    }
    return y;
  }

  static __m256 Tile(const Stored* w0, const Stored* w1, const Column* columns, std::size_t k) {
    __m256 y = _mm256_setzero_ps();
    const std::size_t spans = k / 32;
    for (std::size_t first = 0; first < spans; first += 8, ++w0, ++w1) {
      __m256 t = _mm256_setzero_ps();
      const std::size_t count = std::min<std::size_t>(8, spans - first);
      for (std::size_t b = 0; b < count; ++b) {
        const __m256i codes0 = LoadInt(w0->codes + 32 * b);
        const __m256i codes1 = LoadInt(w1->codes + 32 * b);
        const __m256i magnitude0 = _mm256_abs_epi8(codes0);
        const __m256i magnitude1 = _mm256_abs_epi8(codes1);
        __m256i products[8];
        for (std::size_t c = 0; c < kTileColumns; ++c) {
          const __m256i q = LoadInt(columns[c].codes + 32 * (first + b));
          products[c] = SmallProduct(codes0, magnitude0, q);
          products[4 + c] = SmallProduct(codes1, magnitude1, q);
        }
        __m256 sums = _mm256_setzero_ps();
        if constexpr (Format::kForm == BlockForm::kScaleMin) {
          const __m128 four =
              _mm_setr_ps(SpanSum(columns[0], first + b), SpanSum(columns[1], first + b),
                          SpanSum(columns[2], first + b), SpanSum(columns[3], first + b));
          sums = _mm256_set_m128(four, four);
        }
        const __m256 u = SmallValues<Format::kForm>(products, TwoByFour(w0->d[b], w1->d[b]),
                                                    TwoByFour(w0->m[b], w1->m[b]), sums);
        t = _mm256_fmadd_ps(GroupScales(columns, first + b), u, t);
      }
      y = _mm256_add_ps(y, t);
    }
    return y;
  }

  static void Unpack(const std::byte* row, std::size_t k, Stored* out) {
    for (std::size_t b = 0; b < k / 32; ++b) {
      const SmallSpan span = Format::Unpack(row, b);
      StoreInt(out[b / 8].codes + 32 * (b % 8), span.codes);
      out[b / 8].d[b % 8] = span.d;
      out[b / 8].m[b % 8] = span.m;
    }
  }
};

// ---- Walks over weight rows and columns.

// Weight row pointers of a tile; places past the range repeat its last row.
void TilePointers(const LinearArgs& args, std::size_t n, std::size_t n_end, const std::byte** w) {
  for (std::size_t i = 0; i < kTile; ++i) {
    w[i] = args.weight.data + std::min(n + i, n_end - 1) * args.weight.row_bytes;
  }
}

template <class Kernels>
void FewRows(const LinearArgs& args, std::size_t n_begin, std::size_t n_end) {
  alignas(32) float y[kTile];
  const std::byte* w[kTile];
  for (std::size_t n = n_begin; n < n_end; n += kTile) {
    TilePointers(args, n, n_end, w);
    for (std::size_t r = 0; r < args.rows; ++r) {
      _mm256_store_ps(
          y, Kernels::Dot8(w, kTile * args.weight.row_bytes, ColumnOf(args, r), args.weight.k));
      for (std::size_t i = 0; i < std::min(kTile, n_end - n); ++i) {
        StoreOutput(args, r, n + i, y[i]);
      }
    }
  }
}

// Four columns over the unpacked rows of one tile.
template <class Kernels>
void ColumnsOverTile(const LinearArgs& args, const typename Kernels::Stored* tile,
                     std::size_t steps, std::size_t n, std::size_t weights, std::size_t r) {
  alignas(32) float y[2 * kTileColumns];
  Column columns[kTileColumns];
  for (std::size_t c = 0; c < kTileColumns; ++c) {
    columns[c] = ColumnOf(args, r + c);
  }
  const std::size_t live = std::min(kTileColumns, args.rows - r);
  for (std::size_t i = 0; i < weights; i += 2) {
    const std::size_t second = std::min(i + 1, weights - 1);
    _mm256_store_ps(y,
                    Kernels::Tile(tile + i * steps, tile + second * steps, columns, args.weight.k));
    for (std::size_t c = 0; c < live; ++c) {
      StoreOutput(args, r + c, n + i, y[c]);
      StoreOutput(args, r + c, n + second, y[kTileColumns * (second - i) + c]);
    }
  }
}

template <class Kernels>
void ManyRows(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, std::byte* scratch) {
  auto* tile = reinterpret_cast<typename Kernels::Stored*>(scratch);
  const std::size_t steps = (args.weight.k + kStepValues - 1) / kStepValues;
  for (std::size_t n = n_begin; n < n_end; n += kTile) {
    const std::size_t weights = std::min(kTile, n_end - n);
    for (std::size_t i = 0; i < weights; ++i) {
      Kernels::Unpack(args.weight.data + (n + i) * args.weight.row_bytes, args.weight.k,
                      tile + i * steps);
    }
    for (std::size_t r = 0; r < args.rows; r += kTileColumns) {
      ColumnsOverTile<Kernels>(args, tile, steps, n, weights, r);
    }
  }
}

template <class Kernels>
void Walk(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, std::byte* scratch) {
  if (args.rows < Kernels::kTileFromRows) {
    FewRows<Kernels>(args, n_begin, n_end);
  } else {
    ManyRows<Kernels>(args, n_begin, n_end, scratch);
  }
}

struct IntegerKernel {
  int ggml_type;
  LinearFunction* run;
};

template <class... Formats>
constexpr std::array<IntegerKernel, sizeof...(Formats)> KernelsOf256() {
  return {{{Formats::kType, Walk<KKernels<Formats>>}...}};
}
template <class... Formats>
constexpr std::array<IntegerKernel, sizeof...(Formats)> KernelsOf32() {
  return {{{Formats::kType, Walk<SmallKernels<Formats>>}...}};
}

constexpr auto kKernelsOf256 =
    KernelsOf256<FormatQ2K, FormatQ3K, FormatQ4K, FormatQ5K, FormatQ6K, FormatIq1S, FormatIq1M,
                 FormatIq2Xxs, FormatIq2Xs, FormatIq2S, FormatIq3Xxs, FormatIq3S, FormatIq4Xs,
                 FormatTq1, FormatTq2>();
constexpr auto kKernelsOf32 = KernelsOf32<FormatQ4_0, FormatQ4_1, FormatQ5_0, FormatQ5_1,
                                          FormatQ8_0, FormatIq4Nl, FormatMxfp4, FormatNvfp4>();

}  // namespace

void FloatLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                 std::byte* scratch) {
  FloatLinearRange<Avx2Lanes>(args, n_begin, n_end, scratch);
}

void IntegerLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::byte* scratch) {
  const std::span<const IntegerKernel> kernels = args.weight.format->block_values == kStepValues
                                                     ? std::span<const IntegerKernel>(kKernelsOf256)
                                                     : std::span<const IntegerKernel>(kKernelsOf32);
  for (const IntegerKernel& kernel : kernels) {
    if (kernel.ggml_type == args.weight.format->ggml_type) {
      kernel.run(args, n_begin, n_end, scratch);
      return;
    }
  }
  scalar::IntegerLinear(args, n_begin, n_end, scratch);  // a format without a vector form yet
}

}  // namespace bloomery::kernels::cpu::avx2
