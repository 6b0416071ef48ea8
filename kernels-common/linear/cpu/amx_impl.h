// AMX int8 kernels of Linear for formats of 256, over a type that stands for the tile registers:
// the real ones (amx.cc) or their twin in plain code, which the tests run on any machine with
// AVX-512. Internal; include from files built for AVX-512 VNNI only.
//
// A is sixteen (or fewer) activation rows as they lie, 64 codes at a time; B is sixteen weight rows
// as weight_lanes_avx512.h transposes them; C has an activation row a row and a weight row a lane,
// so that N4 and N5 run on sixteen weight rows and y is written without a transpose. The scale of a
// sub-block is multiplied into the weight's bytes: one or two planes of int8 whose products add up
// over all 256 values without a promotion, exactly (PlaneForm).
//
// Sixteen weight rows are taken apart one step of 256 at a time; all activation rows pass over the
// planes while they lie in the first cache. The loop asks the tiles for the next products before it
// finishes the last ones, and packs the next step while they are made.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/linear/cpu/weight_lanes_avx512.h"

namespace bloomery::kernels::cpu {
namespace {

// How codes c and scale s of a weight become planes. With |q| <= 127 a plane of unsigned bytes sums
// to at most 256*255*127 < 2^24, and I is put together in int32, which holds it (N3).
// kOne: Q2_K, c*s <= 3*15 = 45, unsigned: I = P.
// kNegated: Q3_K, (4-c)*s with c in 0..7 and s in -32..31 is in -128..124: I = -P. (c-4)*s may be
//   +128.
// kFactors: Q4_K and Q5_K, s = 8*s1 + s0 <= 63: c*s1 and c*s0 <= 31*7 = 217, unsigned;
//   I = 8*P1 + P0.
// kWide: all others, w = (c-offset)*s, |w| <= 4096 (Q6_K: -32 * -128): w = 64*h + l with h = w >> 6
//   in -64..64 and l = w & 63, both signed bytes; I = 64*H + L.
enum class PlaneForm { kOne, kNegated, kFactors, kWide };

template <class Format>
inline constexpr PlaneForm kPlaneForm = PlaneForm::kWide;
template <>
inline constexpr PlaneForm kPlaneForm<FormatQ2K> = PlaneForm::kOne;
template <>
inline constexpr PlaneForm kPlaneForm<FormatQ3K> = PlaneForm::kNegated;
template <>
inline constexpr PlaneForm kPlaneForm<FormatQ4K> = PlaneForm::kFactors;
template <>
inline constexpr PlaneForm kPlaneForm<FormatQ5K> = PlaneForm::kFactors;

constexpr bool TwoPlanes(PlaneForm form) {
  return form == PlaneForm::kFactors || form == PlaneForm::kWide;
}
constexpr bool SignedPlanes(PlaneForm form) {
  return form == PlaneForm::kNegated || form == PlaneForm::kWide;
}

// What PackK adds to the codes of a wide format: Q6_K's own 32, or the 128 of signed codes.
template <class Format>
inline constexpr int kCodeOffset = Format::kSigned ? 128 : 32;

constexpr std::size_t kTokensMax = 16;   // activation rows of a tile
constexpr std::size_t kChunkRows = 256;  // activation rows that pass over a step of planes

// One step of sixteen weight rows. planes[p][i]: codes 4i..4i+3 of each row times plane p's factor.
struct alignas(64) PlaneStep {
  std::uint8_t planes[2][64][64];
  std::int16_t side[8][2 * kLanes];  // mins
  float d[kLanes];
  float m[kLanes];
};

// Sums of one tile by plane: [activation row][weight row].
struct alignas(64) TileProducts {
  std::int32_t of_plane[2][kTokensMax][kLanes];
};

struct alignas(64) AmxScratch {
  PlaneStep steps[2];
  TileProducts products[2][2];
  float y[kChunkRows][kLanes];  // by tile and row of it
};
static_assert(sizeof(AmxScratch) <= kAmxScratchBytes);

// ---- Packing.

// Bytes c times the word's factor, where every product fits an unsigned byte: no carry passes from
// the low byte to the high one.
__m512i TimesUnsigned(__m512i codes, __m512i factor) { return _mm512_mullo_epi16(codes, factor); }

// The same modulo 256, for signed bytes.
__m512i TimesSigned(__m512i codes, __m512i factor) {
  const __m512i high = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0xFF00)));
  return _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAU, _mm512_mullo_epi16(codes, factor),
                                _mm512_mullo_epi16(high, factor));
}

// The planes of four codes of each row; scale: the row's in both words of its lane.
template <class Format>
void FoldScale(__m512i codes, __m512i scale, std::uint8_t* first, std::uint8_t* second) {
  constexpr PlaneForm kForm = kPlaneForm<Format>;
  if constexpr (kForm == PlaneForm::kOne) {
    _mm512_store_si512(first, TimesUnsigned(codes, scale));
  } else if constexpr (kForm == PlaneForm::kNegated) {
    _mm512_store_si512(first, TimesSigned(_mm512_sub_epi8(_mm512_set1_epi8(4), codes), scale));
  } else if constexpr (kForm == PlaneForm::kFactors) {
    _mm512_store_si512(first, TimesUnsigned(codes, _mm512_srli_epi16(scale, 3)));
    _mm512_store_si512(second, TimesUnsigned(codes, _mm512_and_si512(scale, _mm512_set1_epi16(7))));
  } else {
    const __m512i excess = _mm512_mullo_epi16(scale, _mm512_set1_epi16(kCodeOffset<Format>));
    const __m512i even = _mm512_sub_epi16(
        _mm512_mullo_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(0xFF)), scale), excess);
    const __m512i odd =
        _mm512_sub_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), scale), excess);
    constexpr __mmask64 kOdd = 0xAAAAAAAAAAAAAAAAU;
    // Bits 6..13 of each product are its h as a byte.
    _mm512_store_si512(
        first, _mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(even, 6), _mm512_slli_epi16(odd, 2)));
    const __m512i low = _mm512_mask_blend_epi8(kOdd, even, _mm512_slli_epi16(odd, 8));
    _mm512_store_si512(second, _mm512_and_si512(low, _mm512_set1_epi8(63)));
  }
}

// Step `step` of sixteen weight rows; asks for the same of the sixteen after them.
template <class Format>
void PackPlanes(const std::byte* const* w, std::size_t step, std::size_t next_rows,
                PlaneStep* out) {
  for (std::size_t row = 0; row < kLanes; ++row) {
    PrefetchToL2(w[row] + step * Format::kBytes + next_rows, Format::kBytes);
  }
  KLanes lanes;
  PackK<Format>(w, step, 0, &lanes);
  constexpr std::size_t kVectors = Format::kSub / 4;  // of one scale
  for (std::size_t sub = 0; sub < kStepValues / Format::kSub; ++sub) {
    const __m512i words = Load512(lanes.scales[sub * (Format::kSub / kSumValues)]);
    const __m512i scale = _mm512_mask_blend_epi16(0xAAAAAAAAU, words, _mm512_slli_epi32(words, 16));
    for (std::size_t i = sub * kVectors; i < (sub + 1) * kVectors; ++i) {
      FoldScale<Format>(Load512(lanes.codes[i]), scale, out->planes[0][i], out->planes[1][i]);
    }
  }
  for (std::size_t p = 0; Format::kMins && p < 8; ++p) {
    _mm512_store_si512(out->side[p], Load512(lanes.side[p]));
  }
  _mm512_store_ps(out->d, _mm512_load_ps(lanes.d));
  _mm512_store_ps(out->m, _mm512_load_ps(lanes.m));
}

// ---- Activation rows.

// A chunk of activation rows in tiles of one height, so that the tiles' shape stays: the last tile
// repeats rows of the one before it where the rows do not divide. From two tiles on their number is
// even, for they are multiplied in pairs.
struct TokenTiles {
  const LinearArgs* args;
  std::size_t first;
  std::size_t rows;
  std::size_t count;
  std::size_t height;

  TokenTiles(const LinearArgs& linear, std::size_t first_row)
      : args(&linear), first(first_row), rows(std::min(kChunkRows, linear.rows - first_row)) {
    const std::size_t whole = (rows + kTokensMax - 1) / kTokensMax;
    count = whole == 1 ? 1 : (whole + 1) / 2 * 2;
    height = (rows + count - 1) / count;
  }
  std::size_t row(std::size_t tile) const { return first + std::min(tile * height, rows - height); }
};

// ---- Products.

template <class Tiles, bool kSigned, int kC, int kA, int kB>
void MultiplyTiles(Tiles* tiles) {
  if constexpr (kSigned) {
    tiles->template MultiplySigned<kC, kA, kB>();
  } else {
    tiles->template MultiplyUnsigned<kC, kA, kB>();
  }
}

// Tile registers: sums 0-3 (plane * 2 + tile), activations 4 and 5, planes 6 and 7.
template <class Tiles, PlaneForm kForm, bool kPair>
void Multiply(Tiles* tiles, const PlaneStep& planes, const TokenTiles& tokens, std::size_t step,
              std::size_t tile, TileProducts* out) {
  constexpr bool kSigned = SignedPlanes(kForm);
  const QuantisedRows& rows = tokens.args->quantised;
  const std::int8_t* a0 = rows.codes(tokens.row(tile)) + kStepValues * step;
  const std::int8_t* a1 = rows.codes(tokens.row(tile + (kPair ? 1 : 0))) + kStepValues * step;
  tiles->template Zero<0>();
  tiles->template Zero<1>();
  tiles->template Zero<2>();
  tiles->template Zero<3>();
  for (std::size_t at = 0; at < 4; ++at) {  // 64 codes
    tiles->template Load<4>(a0 + 64 * at, rows.row_bytes);
    tiles->template Load<6>(planes.planes[0][16 * at], 64);
    MultiplyTiles<Tiles, kSigned, 0, 4, 6>(tiles);
    if constexpr (kPair) {
      tiles->template Load<5>(a1 + 64 * at, rows.row_bytes);
      MultiplyTiles<Tiles, kSigned, 1, 5, 6>(tiles);
    }
    if constexpr (TwoPlanes(kForm)) {
      tiles->template Load<7>(planes.planes[1][16 * at], 64);
      MultiplyTiles<Tiles, kSigned, 2, 4, 7>(tiles);
      if constexpr (kPair) {
        MultiplyTiles<Tiles, kSigned, 3, 5, 7>(tiles);
      }
    }
  }
  tiles->template Store<0>(out[0].of_plane[0]);
  if constexpr (kPair) {
    tiles->template Store<1>(out[1].of_plane[0]);
  }
  if constexpr (TwoPlanes(kForm)) {
    tiles->template Store<2>(out[0].of_plane[1]);
    if constexpr (kPair) {
      tiles->template Store<3>(out[1].of_plane[1]);
    }
  }
}

template <PlaneForm kForm>
__m512i WholeProduct(const TileProducts& products, std::size_t i) {
  const __m512i first = Load512(products.of_plane[0][i]);
  if constexpr (kForm == PlaneForm::kOne) {
    return first;
  } else if constexpr (kForm == PlaneForm::kNegated) {
    return _mm512_sub_epi32(_mm512_setzero_si512(), first);
  } else {
    return _mm512_add_epi32(_mm512_slli_epi32(first, kForm == PlaneForm::kFactors ? 3 : 6),
                            Load512(products.of_plane[1][i]));
  }
}

// y += t of N5 for one tile; y by row of the tile.
template <class Format>
void Finish(const PlaneStep& planes, const TileProducts& products, const TokenTiles& tokens,
            std::size_t step, std::size_t tile, float (*y)[kLanes]) {
  const QuantisedRows& rows = tokens.args->quantised;
  const __m512 d = _mm512_load_ps(planes.d);
  const __m512 m = _mm512_load_ps(planes.m);
  __m512i side[8];
  for (std::size_t p = 0; Format::kMins && p < 8; ++p) {
    side[p] = Load512(planes.side[p]);
  }
  for (std::size_t i = 0; i < tokens.height; ++i) {
    const std::size_t row = tokens.row(tile) + i;
    const __m512 product = _mm512_cvtepi32_ps(WholeProduct<kPlaneForm<Format>>(products, i));
    __m512 u;
    if constexpr (Format::kMins) {
      const std::int16_t* sums = rows.sums(row) + kStepValues / kSumValues * step;
      __m512i mins[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (std::size_t p = 0; p < 8; ++p) {
        mins[p % 2] = _mm512_dpwssd_epi32(mins[p % 2], side[p], Everywhere(sums + 2 * p));
      }
      const __m512 min = _mm512_cvtepi32_ps(_mm512_add_epi32(mins[0], mins[1]));
      u = _mm512_fmadd_ps(d, product, _mm512_mul_ps(m, min));
    } else {
      u = _mm512_mul_ps(d, product);
    }
    const __m512 a = _mm512_set1_ps(rows.scales(row)[step]);
    const __m512 t = _mm512_fmadd_ps(a, u, _mm512_setzero_ps());
    _mm512_store_ps(y[i], _mm512_add_ps(_mm512_load_ps(y[i]), t));
  }
}

// ---- The walk.

// Weight rows n .. n + live - 1 over one chunk.
template <class Tiles, class Format, bool kPair>
void OverChunk(Tiles* tiles, const LinearArgs& args, const TokenTiles& tokens, std::size_t n,
               std::size_t live, AmxScratch* scratch) {
  constexpr std::size_t kTogether = kPair ? 2 : 1;
  const std::byte* w[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {  // past the end: the last row again
    w[i] = args.weight.data + (n + std::min(i, live - 1)) * args.weight.row_bytes;
  }
  const std::size_t next_rows = kLanes * args.weight.row_bytes;
  const std::size_t steps = args.weight.k / kStepValues;
  const std::size_t turns = tokens.count / kTogether;  // a step
  std::fill_n(scratch->y[0], tokens.count * tokens.height * kLanes, 0.0F);
  const auto finish = [&](std::size_t work) {
    const std::size_t step = work / turns;
    for (std::size_t i = 0; i < kTogether; ++i) {
      const std::size_t tile = work % turns * kTogether + i;
      Finish<Format>(scratch->steps[step % 2], scratch->products[work % 2][i], tokens, step, tile,
                     scratch->y + tile * tokens.height);
    }
  };
  PackPlanes<Format>(w, 0, next_rows, &scratch->steps[0]);
  for (std::size_t work = 0; work < steps * turns; ++work) {
    const std::size_t step = work / turns;
    Multiply<Tiles, kPlaneForm<Format>, kPair>(tiles, scratch->steps[step % 2], tokens, step,
                                               work % turns * kTogether,
                                               scratch->products[work % 2]);
    if (work > 0) {
      finish(work - 1);
    }
    if ((work + 1) % turns == 0 && step + 1 < steps) {  // nothing reads the older step any more
      PackPlanes<Format>(w, step + 1, next_rows, &scratch->steps[(step + 1) % 2]);
    }
  }
  finish(steps * turns - 1);
  for (std::size_t tile = 0; tile < tokens.count; ++tile) {
    for (std::size_t i = 0; i < tokens.height; ++i) {
      StoreLanes(args, tokens.row(tile) + i, n, live,
                 _mm512_load_ps(scratch->y[tile * tokens.height + i]));
    }
  }
}

// Activation rows must lie one after another: args.row_ids is null.
template <class Tiles, class Format>
void TileRows(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, std::byte* scratch) {
  auto* memory = reinterpret_cast<AmxScratch*>(scratch);
  Tiles tiles;
  for (std::size_t first = 0; first < args.rows; first += kChunkRows) {
    const TokenTiles tokens(args, first);
    tiles.Configure(tokens.height);
    for (std::size_t n = n_begin; n < n_end; n += kLanes) {
      const std::size_t live = std::min(kLanes, n_end - n);
      if (tokens.count == 1) {
        OverChunk<Tiles, Format, false>(&tiles, args, tokens, n, live, memory);
      } else {
        OverChunk<Tiles, Format, true>(&tiles, args, tokens, n, live, memory);
      }
    }
  }
}

struct TileKernel {
  int ggml_type;
  LinearFunction* run;
};

// Formats of 32 and 64 would give up their tile after half a row of it: they stay with VNNI, and so
// do the ternary ones.
template <class Tiles>
inline constexpr TileKernel kTileKernels[] = {
    {FormatQ2K::kType, TileRows<Tiles, FormatQ2K>},
    {FormatQ3K::kType, TileRows<Tiles, FormatQ3K>},
    {FormatQ4K::kType, TileRows<Tiles, FormatQ4K>},
    {FormatQ5K::kType, TileRows<Tiles, FormatQ5K>},
    {FormatQ6K::kType, TileRows<Tiles, FormatQ6K>},
    {FormatIq1S::kType, TileRows<Tiles, FormatIq1S>},
    {FormatIq1M::kType, TileRows<Tiles, FormatIq1M>},
    {FormatIq2Xxs::kType, TileRows<Tiles, FormatIq2Xxs>},
    {FormatIq2Xs::kType, TileRows<Tiles, FormatIq2Xs>},
    {FormatIq2S::kType, TileRows<Tiles, FormatIq2S>},
    {FormatIq3Xxs::kType, TileRows<Tiles, FormatIq3Xxs>},
    {FormatIq3S::kType, TileRows<Tiles, FormatIq3S>},
    {FormatIq4Xs::kType, TileRows<Tiles, FormatIq4Xs>},
};

// Null where the format has no tile kernel.
template <class Tiles>
LinearFunction* FindTileKernel(const FormatTraits& format) {
  for (const TileKernel& kernel : kTileKernels<Tiles>) {
    if (kernel.ggml_type == format.ggml_type) {
      return kernel.run;
    }
  }
  return nullptr;
}

}  // namespace
}  // namespace bloomery::kernels::cpu
