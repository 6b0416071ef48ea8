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
// A step of 256 of 64 weight rows at a time, so that the activation rows' codes of the step are
// read from the first cache three times of four. Sixteen rows are taken apart straight to planes,
// which meet all activation rows. The loop asks the tiles for the next products before it finishes
// the last ones, and packs the next planes while they are made.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/scratch.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/linear/cpu/weight_lanes_avx512.h"
#include "kernels-common/linear/cpu/weight_pack_avx512.h"

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

// What LanePacker adds to the codes of a wide format: Q6_K's own 32, or the 128 of signed codes.
template <class Format>
inline constexpr int kCodeOffset = Format::kSigned ? 128 : 32;

constexpr std::size_t kTokensMax = 16;   // activation rows of a tile
constexpr std::size_t kChunkRows = 256;  // activation rows that share the scratch
constexpr std::size_t kBlockGroups = 4;  // groups of sixteen weight rows that share a step

// Words of two 16-bit mins, and of sums, that a step has: sub-blocks of 32 take one sum each.
template <class Format>
inline constexpr std::size_t kMinPairs = !Format::kMins       ? 0
                                         : Format::kSub == 32 ? 4
                                                              : 8;

// One step of sixteen weight rows. planes[p][i]: codes 4i..4i+3 of each row times plane p's factor.
struct alignas(64) PlaneStep {
  std::uint8_t planes[2][64][64];
  std::int16_t mins[8][2 * kLanes];
  float d[kLanes];
  float m[kLanes];
};

// Sums of one tile by plane: [activation row][weight row].
struct alignas(64) TileProducts {
  std::int32_t of_plane[2][kTokensMax][kLanes];
};

// What one step of an activation row brings to the end of its products.
struct alignas(16) TokenStep {
  std::int16_t sums[16];
  float a;
};

struct alignas(64) AmxScratch {
  PlaneStep planes[2];
  TileProducts products[2][2];
  TokenStep tokens[kChunkRows];  // by tile and row of it, as y
  float y[kBlockGroups][kChunkRows][kLanes];
};
static_assert(sizeof(AmxScratch) <= kAmxScratchBytes);

// ---- Packing.

constexpr __mmask64 kOddBytes = 0xAAAAAAAAAAAAAAAAU;

// Multiplies the scales of a step's sub-blocks into codes.
template <class Format>
class ScaleFolder {
 public:
  explicit ScaleFolder(const KHead& head) {
    for (std::size_t sub = 0; sub < kSubs; ++sub) {
      const __m512i scale = Load512(head.scales[sub * (Format::kSub / kSumValues)]);
      const __m512i words = PairOf(scale, scale);
      if constexpr (kForm == PlaneForm::kFactors) {
        StoreWords(factors_[0][sub], _mm512_srli_epi16(words, 3));
        StoreWords(factors_[1][sub], _mm512_and_si512(words, _mm512_set1_epi16(7)));
      } else if constexpr (kForm == PlaneForm::kWide) {
        StoreWords(factors_[0][sub], _mm512_and_si512(words, _mm512_set1_epi16(0xFF)));
        StoreWords(factors_[1][sub], _mm512_slli_epi16(words, 8));
        StoreWords(factors_[2][sub],
                   _mm512_mullo_epi16(words, _mm512_set1_epi16(kCodeOffset<Format>)));
      } else {
        StoreWords(factors_[0][sub], words);
      }
    }
  }

  // The planes of vector i of four codes of each row.
  void Fold(std::size_t i, __m512i codes, PlaneStep* out) const {
    const std::size_t sub = i / (Format::kSub / 4);
    const __m512i first = Load512(factors_[0][sub]);
    if constexpr (kForm == PlaneForm::kOne) {
      StoreWords(out->planes[0][i], TimesUnsigned(codes, first));
    } else if constexpr (kForm == PlaneForm::kNegated) {
      StoreWords(out->planes[0][i],
                 TimesSigned(_mm512_sub_epi8(_mm512_set1_epi8(4), codes), first));
    } else if constexpr (kForm == PlaneForm::kFactors) {
      StoreWords(out->planes[0][i], TimesUnsigned(codes, first));
      StoreWords(out->planes[1][i], TimesUnsigned(codes, Load512(factors_[1][sub])));
    } else {
      // A byte of one place times the scale, plus the byte of the other times 0.
      const __m512i excess = Load512(factors_[2][sub]);
      const __m512i even = _mm512_sub_epi16(_mm512_maddubs_epi16(codes, first), excess);
      const __m512i odd =
          _mm512_sub_epi16(_mm512_maddubs_epi16(codes, Load512(factors_[1][sub])), excess);
      // Bits 6..13 of each product are its h as a byte.
      StoreWords(out->planes[0][i], _mm512_mask_blend_epi8(kOddBytes, _mm512_srli_epi16(even, 6),
                                                           _mm512_slli_epi16(odd, 2)));
      const __m512i low = _mm512_mask_blend_epi8(kOddBytes, even, _mm512_slli_epi16(odd, 8));
      StoreWords(out->planes[1][i], _mm512_and_si512(low, _mm512_set1_epi8(63)));
    }
  }

 private:
  static constexpr PlaneForm kForm = kPlaneForm<Format>;
  static constexpr std::size_t kSubs = kStepValues / Format::kSub;

  // Bytes times the word's factor where every product fits an unsigned byte: no carry passes from
  // the low byte to the high one.
  static __m512i TimesUnsigned(__m512i codes, __m512i factor) {
    return _mm512_mullo_epi16(codes, factor);
  }
  // The same modulo 256, for signed bytes.
  static __m512i TimesSigned(__m512i codes, __m512i factor) {
    const __m512i high = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0xFF00)));
    return _mm512_mask_blend_epi8(kOddBytes, _mm512_mullo_epi16(codes, factor),
                                  _mm512_mullo_epi16(high, factor));
  }

  alignas(64) std::uint8_t factors_[kForm == PlaneForm::kWide      ? 3
                                    : kForm == PlaneForm::kFactors ? 2
                                                                   : 1][kSubs][64];
};

// Step `step` of sixteen weight rows; asks for the same of the rows `ahead` bytes on.
template <class Format>
void PackPlanes(const std::byte* const* w, std::size_t step, std::size_t ahead, PlaneStep* out) {
  for (std::size_t row = 0; row < kLanes; ++row) {
    PrefetchToL2(w[row] + step * Format::kBytes + ahead, Format::kBytes);
  }
  const LanePacker<Format> packer(w, step);
  KHead head;
  packer.Head(&head);
  const ScaleFolder<Format> folder(head);
  packer.Codes([&folder, out](std::size_t i, __m512i codes) { folder.Fold(i, codes, out); });
  for (std::size_t p = 0; p < kMinPairs<Format>; ++p) {
    if constexpr (Format::kSub == 32) {  // a pair of side has one min twice
      StoreWords(out->mins[p], _mm512_mask_blend_epi16(0xAAAAAAAAU, Load512(head.side[2 * p]),
                                                       Load512(head.side[2 * p + 1])));
    } else {
      StoreWords(out->mins[p], Load512(head.side[p]));
    }
  }
  _mm512_store_ps(out->d, _mm512_load_ps(head.d));
  _mm512_store_ps(out->m, _mm512_load_ps(head.m));
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

// Step `step` of all rows.
template <class Format>
void ReadTokens(const TokenTiles& tokens, std::size_t step, TokenStep* out) {
  const QuantisedRows& rows = tokens.args->quantised;
  for (std::size_t tile = 0; tile < tokens.count; ++tile) {
    for (std::size_t i = 0; i < tokens.height; ++i, ++out) {
      const std::size_t row = tokens.row(tile) + i;
      out->a = rows.scales(row)[step];
      const __m256i sums = LoadInt(rows.sums(row) + kStepValues / kSumValues * step);
      if constexpr (kMinPairs<Format> == 4) {  // |sum of 32| <= 32 * 127
        const __m256i of_32 = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        _mm_store_si128(reinterpret_cast<__m128i*>(out->sums), _mm256_cvtepi32_epi16(of_32));
      } else if constexpr (kMinPairs<Format> == 8) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->sums), sums);
      }
    }
  }
}

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

// y += t of N5 for one tile of `height` rows; tokens and y by row of the tile.
template <class Format>
void Finish(const PlaneStep& planes, const TileProducts& products, const TokenStep* tokens,
            std::size_t height, float (*y)[kLanes]) {
  constexpr std::size_t kPairs = kMinPairs<Format>;
  const __m512 d = _mm512_load_ps(planes.d);
  const __m512 m = _mm512_load_ps(planes.m);
  __m512i mins[kPairs + 1];
  for (std::size_t p = 0; p < kPairs; ++p) {
    mins[p] = Load512(planes.mins[p]);
  }
  for (std::size_t i = 0; i < height; ++i) {
    const __m512 product = _mm512_cvtepi32_ps(WholeProduct<kPlaneForm<Format>>(products, i));
    __m512 u;
    if constexpr (Format::kMins) {
      __m512i sum = _mm512_setzero_si512();
      for (std::size_t p = 0; p < kPairs; ++p) {
        sum = _mm512_dpwssd_epi32(sum, mins[p], Everywhere(tokens[i].sums + 2 * p));
      }
      u = _mm512_fmadd_ps(d, product, _mm512_mul_ps(m, _mm512_cvtepi32_ps(sum)));
    } else {
      u = _mm512_mul_ps(d, product);
    }
    const __m512 t = _mm512_fmadd_ps(_mm512_set1_ps(tokens[i].a), u, _mm512_setzero_ps());
    _mm512_store_ps(y[i], _mm512_add_ps(_mm512_load_ps(y[i]), t));
  }
}

// ---- The walk.

// Weight rows n .. n + live - 1, at most a block, over one chunk.
template <class Tiles, class Format, bool kPair>
class BlockWalk {
 public:
  BlockWalk(Tiles* tiles, const TokenTiles& tokens, std::size_t n, std::size_t live,
            AmxScratch* scratch)
      : tiles_(tiles),
        tokens_(tokens),
        n_(n),
        live_(live),
        groups_((live + kLanes - 1) / kLanes),
        turns_(tokens.count / kTogether),
        scratch_(scratch) {
    const WeightRows& weight = tokens.args->weight;
    for (std::size_t i = 0; i < groups_ * kLanes; ++i) {  // past the end: the last row again
      w_[i] = weight.data + (n + std::min(i, live - 1)) * weight.row_bytes;
    }
    ahead_ = groups_ * kLanes * weight.row_bytes;
  }

  // The work: for each step, for each group, for each one or two tiles.
  void Run() {
    const std::size_t a_step = groups_ * turns_;
    const std::size_t all = tokens_.args->weight.k / kStepValues * a_step;
    for (std::size_t g = 0; g < groups_; ++g) {
      std::fill_n(scratch_->y[g][0], tokens_.count * tokens_.height * kLanes, 0.0F);
    }
    Pack(0);
    for (std::size_t work = 0; work < all; ++work) {
      const std::size_t planes = work / turns_;
      Multiply<Tiles, kPlaneForm<Format>, kPair>(tiles_, scratch_->planes[planes % 2], tokens_,
                                                 planes / groups_, work % turns_ * kTogether,
                                                 scratch_->products[work % 2]);
      if (work > 0) {
        FinishWork(work - 1);
      }
      if (work % a_step == 0) {  // the last step is finished
        ReadTokens<Format>(tokens_, planes / groups_, scratch_->tokens);
      }
      if ((work + 1) % turns_ == 0 && work + 1 < all) {  // the planes before these are finished
        Pack(planes + 1);
      }
    }
    FinishWork(all - 1);
    Store();
  }

 private:
  static constexpr std::size_t kTogether = kPair ? 2 : 1;

  void Pack(std::size_t planes) {
    PackPlanes<Format>(w_ + planes % groups_ * kLanes, planes / groups_, ahead_,
                       &scratch_->planes[planes % 2]);
  }

  void FinishWork(std::size_t work) {
    const std::size_t planes = work / turns_;
    for (std::size_t i = 0; i < kTogether; ++i) {
      const std::size_t first = (work % turns_ * kTogether + i) * tokens_.height;
      Finish<Format>(scratch_->planes[planes % 2], scratch_->products[work % 2][i],
                     scratch_->tokens + first, tokens_.height,
                     scratch_->y[planes % groups_] + first);
    }
  }

  void Store() const {
    for (std::size_t tile = 0; tile < tokens_.count; ++tile) {
      for (std::size_t i = 0; i < tokens_.height; ++i) {
        for (std::size_t g = 0; g < groups_; ++g) {
          StoreLanes(*tokens_.args, tokens_.row(tile) + i, n_ + g * kLanes,
                     std::min(kLanes, live_ - g * kLanes),
                     _mm512_load_ps(scratch_->y[g][tile * tokens_.height + i]));
        }
      }
    }
  }

  Tiles* tiles_;
  const TokenTiles& tokens_;
  std::size_t n_;
  std::size_t live_;
  std::size_t groups_;
  std::size_t turns_;
  AmxScratch* scratch_;
  std::size_t ahead_ = 0;
  const std::byte* w_[kBlockGroups * kLanes];
};

// Activation rows must lie one after another: args.row_ids is null.
template <class Tiles, class Format>
void TileRows(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, std::byte* scratch) {
  auto* memory = reinterpret_cast<AmxScratch*>(scratch);
  Tiles tiles;
  for (std::size_t first = 0; first < args.rows; first += kChunkRows) {
    const TokenTiles tokens(args, first);
    tiles.Configure(tokens.height);
    for (std::size_t n = n_begin; n < n_end; n += kBlockGroups * kLanes) {
      const std::size_t live = std::min(kBlockGroups * kLanes, n_end - n);
      if (tokens.count == 1) {
        BlockWalk<Tiles, Format, false>(&tiles, tokens, n, live, memory).Run();
      } else {
        BlockWalk<Tiles, Format, true>(&tiles, tokens, n, live, memory).Run();
      }
    }
  }
}

struct TileKernel {
  int ggml_type;
  std::size_t from_rows;  // activation rows from which on it beats the kernels of AVX-512 VNNI
  LinearFunction* run;
};

// Wide planes take twice the packing (docs/kernels.md has the measurements).
template <class Tiles, class Format>
constexpr TileKernel TileKernelOf() {
  return {Format::kType, kPlaneForm<Format> == PlaneForm::kWide ? 12U : 5U,
          TileRows<Tiles, Format>};
}

// Formats of 32 and 64 would give up their tile after half a row of it: they stay with VNNI, and so
// do the ternary ones.
template <class Tiles>
inline constexpr TileKernel kTileKernels[] = {
    TileKernelOf<Tiles, FormatQ2K>(),    TileKernelOf<Tiles, FormatQ3K>(),
    TileKernelOf<Tiles, FormatQ4K>(),    TileKernelOf<Tiles, FormatQ5K>(),
    TileKernelOf<Tiles, FormatQ6K>(),    TileKernelOf<Tiles, FormatIq1S>(),
    TileKernelOf<Tiles, FormatIq1M>(),   TileKernelOf<Tiles, FormatIq2Xxs>(),
    TileKernelOf<Tiles, FormatIq2Xs>(),  TileKernelOf<Tiles, FormatIq2S>(),
    TileKernelOf<Tiles, FormatIq3Xxs>(), TileKernelOf<Tiles, FormatIq3S>(),
    TileKernelOf<Tiles, FormatIq4Xs>(),
};

// Null where the format has no tile kernel.
template <class Tiles>
const TileKernel* FindTileKernel(const FormatTraits& format) {
  for (const TileKernel& kernel : kTileKernels<Tiles>) {
    if (kernel.ggml_type == format.ggml_type) {
      return &kernel;
    }
  }
  return nullptr;
}

}  // namespace
}  // namespace bloomery::kernels::cpu
