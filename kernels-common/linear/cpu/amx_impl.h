// AMX int8 kernels of Linear for formats of 256, over a type that stands for the tile registers:
// the real ones (amx.cc) or their twin in plain code, which the tests run on any machine with
// AVX-512. Internal; include from files built for AVX-512 VNNI only.
//
// A is sixteen (or fewer) activation rows as they lie, 64 codes at a time; B is sixteen weight rows
// as weight_lanes_avx512.h transposes them; C has an activation row a row and a weight row a lane,
// so that N4 and N5 run on sixteen weight rows and y is written without a transpose. The scale of a
// sub-block is multiplied into the weight's bytes: one or two planes of int8 whose products add up
// over all 256 values without a promotion, exactly (PlaneForm). F(S) of a format with mins is one
// product of bf16 tiles, exact as well (TokenMins).
//
// A step of 256 of 64 weight rows at a time, so that the activation rows' codes of the step are
// read from the first cache three times of four. A core whose other hyperthread is busy seems to
// keep two writes of tiles in flight, and what comes behind the next one waits (docs/measurements/
// cpu.md). Tile instructions are therefore spread one by one over the vector work: over the packing
// of the planes that come next and the float end of the products before.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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
// kWide: all others, w = (c-offset)*s, |w| <= 4096 (Q6_K: -32 * -128): w = 256*h + l with h = w >>
// 8
//   in -16..16, signed, and l = w & 255, unsigned; I = 256*H + L.
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
// The first plane; the second is unsigned.
constexpr bool SignedPlane(PlaneForm form) {
  return form == PlaneForm::kNegated || form == PlaneForm::kWide;
}

// What LanePacker adds to the codes of a wide format: Q6_K's own 32, or the 128 of signed codes.
template <class Format>
inline constexpr int kCodeOffset = Format::kSigned ? 128 : 32;

constexpr std::size_t kTokensMax = 16;   // activation rows of a tile
constexpr std::size_t kChunkRows = 256;  // activation rows that share the scratch
constexpr std::size_t kBlockGroups = 4;  // groups of sixteen weight rows that share a step

// One step of sixteen weight rows. planes[p][i]: codes 4i..4i+3 of each row times plane p's factor.
struct alignas(64) PlaneStep {
  std::uint8_t planes[2][64][64];
};

// What goes with it to the float end. mins[j]: the min of sub-block j of each row, twice, as bf16;
// zero beyond the sub-blocks.
struct alignas(64) PlaneHead {
  std::uint32_t mins[16][kLanes];
  float d[kLanes];
  float m[kLanes];
};

// Products of one or two tiles: [activation row][weight row], the second tile's rows after the
// first's.
struct alignas(64) TileProducts {
  std::int32_t of_plane[2][2 * kTokensMax][kLanes];
};
struct alignas(64) MinProducts {
  float of_row[2 * kTokensMax][kLanes];
};

// The sums of a step's sub-blocks of one activation row as pairs of bf16, zero beyond them. A sum
// is at most 32 * 127 = 4064: the multiple of 64 next to it and what is left of it, at most 32,
// have 8 bits each. All products with a min, at most 63, and their sums are integers below 2^24.
struct alignas(64) TokenMins {
  std::uint32_t pairs[16];
};

struct alignas(64) AmxScratch {
  PlaneStep planes[2];
  PlaneHead heads[3];
  TileProducts products;
  MinProducts min_products[2];
  TokenMins mins[kChunkRows];  // by tile and row of it, as y
  float scales[2][kChunkRows];
  float y[kBlockGroups][kChunkRows][kLanes];
};
static_assert(sizeof(AmxScratch) <= kAmxScratchBytes);

// ---- Packing.

constexpr __mmask64 kOddBytes = 0xAAAAAAAAAAAAAAAAU;

// Whether codes of odd sub-blocks come times sixteen (LanePacker::Nibbles).
template <class Format>
inline constexpr bool kHighNibbles = false;
template <>
inline constexpr bool kHighNibbles<FormatQ4K> = true;

// What the folder takes of Q6_K.
struct ByteScales {
  __m512i scales[4];
};

// Multiplies the scales of a step's sub-blocks into codes.
template <class Format>
class ScaleFolder {
 public:
  explicit ScaleFolder(const KHead& head) {
    static_assert(kForm != PlaneForm::kFactors);
    for (std::size_t sub = 0; sub < kSubs; ++sub) {
      const __m512i scale = Load512(head.scales[sub * (Format::kSub / kSumValues)]);
      const __m512i words = PairOf(scale, scale);
      if constexpr (kForm == PlaneForm::kWide) {
        StoreWide(sub, _mm512_slli_epi16(words, 8));
      } else {
        StoreWords(factors_[0][sub], words);
      }
    }
  }

  // Byte b of the lanes of scales[g] is of sub-block 4g + b.
  explicit ScaleFolder(const ByteScales& head) {
    static_assert(kForm == PlaneForm::kWide);
    for (std::size_t sub = 0; sub < kSubs; ++sub) {
      StoreWide(sub, _mm512_shuffle_epi8(head.scales[sub / 4], ByteToWords(sub % 4, true)));
    }
  }

  explicit ScaleFolder(const SixBitHead& head) {
    static_assert(kForm == PlaneForm::kFactors);
    for (std::size_t sub = 0; sub < kSubs; ++sub) {
      // s1 and s0 in bytes, shifted where the codes are.
      const bool high = kHighNibbles<Format> && sub % 2 == 1;
      const __m512i scales = head.scales[sub / 4];
      const __m512i s1 = high ? BitsOf<-1>(scales, 0x70) : BitsOf<3>(scales, 0x07);
      const __m512i s0 = high ? BitsOf<-4>(scales, 0x70) : BitsOf<0>(scales, 0x07);
      const __m512i words = ByteToWords(sub % 4, high);
      StoreWords(factors_[0][sub], _mm512_shuffle_epi8(s1, words));
      StoreWords(factors_[1][sub], _mm512_shuffle_epi8(s0, words));
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
      // The upper and the lower bytes of both, in the order of the codes.
      StoreWords(out->planes[0][i], _mm512_mask_shuffle_epi8(odd, ~kOddBytes, even, OtherByte()));
      StoreWords(out->planes[1][i], _mm512_mask_shuffle_epi8(even, kOddBytes, odd, OtherByte()));
    }
  }

  // The same of codes times sixteen, of a sub-block whose factors are times 2^12: a word of two
  // bytes 16c times 2^12 f has c * f of both in its upper half.
  void FoldHigh(std::size_t i, __m512i codes, PlaneStep* out) const {
    const std::size_t sub = i / (Format::kSub / 4);
    for (std::size_t plane = 0; plane < 2; ++plane) {
      StoreWords(out->planes[plane][i], _mm512_mulhi_epu16(codes, Load512(factors_[plane][sub])));
    }
  }

 private:
  static constexpr PlaneForm kForm = kPlaneForm<Format>;
  static constexpr std::size_t kSubs = kStepValues / Format::kSub;

  // From 2^8 times the scales of a sub-block, as words.
  void StoreWide(std::size_t sub, __m512i high) {
    constexpr unsigned kExcess = kCodeOffset<Format> == 32 ? 3 : 1;
    static_assert(256 >> kExcess == kCodeOffset<Format>);
    StoreWords(factors_[0][sub], _mm512_srli_epi16(high, 8));
    StoreWords(factors_[1][sub], high);
    StoreWords(factors_[2][sub], _mm512_srai_epi16(high, kExcess));
  }
  // Within words.
  static __m512i OtherByte() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  }
  // Moves byte b of every lane to the low, or high, bytes of both its words.
  static __m512i ByteToWords(std::size_t b, bool high) {
    const __m128i lanes = _mm_setr_epi8(0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12, -1);
    const __m512i low =
        _mm512_or_si512(_mm512_broadcast_i32x4(lanes), _mm512_set1_epi16(static_cast<short>(b)));
    return high ? _mm512_or_si512(_mm512_slli_epi16(low, 8), _mm512_set1_epi16(0xFF)) : low;
  }
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

// Integers below 256 as bf16, in both halves of their lanes.
__m512i TwiceBf16(__m512i integers) {
  const __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(integers));
  return _mm512_or_si512(bits, _mm512_srli_epi32(bits, 16));
}

// Takes step `step` of sixteen weight rows apart, a quarter after the other.
template <class Format>
class PlanePacker {
 public:
  PlanePacker(const std::byte* const* w, std::size_t step, PlaneStep* out, PlaneHead* head)
      : packer_(w, step), folder_(Head(packer_, head)), out_(out) {}

  // Between its fourths calls between(0) to between(3).
  template <class Between>
  [[gnu::always_inline]] void Quarter(std::size_t quarter, const Between& between) {
    const auto fold = [this](std::size_t i, __m512i codes) { folder_.Fold(i, codes, out_); };
    if constexpr (kHighNibbles<Format>) {
      const auto fold_high = [this](std::size_t i, __m512i codes) {
        folder_.FoldHigh(i, codes, out_);
      };
      packer_.Nibbles(quarter, fold, fold_high, between);
    } else {
      packer_.Codes(quarter, fold, between);
    }
  }

 private:
  static constexpr bool kSixBits = kPlaneForm<Format> == PlaneForm::kFactors;

  // Writes `out`; what the folder takes.
  static auto Head(const LanePacker<Format>& packer, PlaneHead* out) {
    if constexpr (kSixBits) {
      const SixBitHead head = packer.SixBits();
      for (std::size_t sub = 0; sub < 8; ++sub) {
        StoreWords(out->mins[sub], TwiceBf16(LaneBits(head.mins[sub / 4], 8 * (sub % 4), 0xFF)));
      }
      _mm512_store_ps(out->d, head.d);
      _mm512_store_ps(out->m, head.m);
      return head;
    } else if constexpr (std::is_same_v<Format, FormatQ6K>) {
      ByteScales head;
      packer.ScaleBytes(head.scales);
      _mm512_store_ps(out->d, packer.D());
      return head;
    } else {
      KHead head;
      packer.Head(&head);
      if constexpr (Format::kMins) {
        static_assert(Format::kSub == 16);
        for (std::size_t p = 0; p < 8; ++p) {
          const __m512i both = Load512(head.side[p]);
          StoreWords(out->mins[2 * p], TwiceBf16(LaneBits(both, 0, 0xFF)));
          StoreWords(out->mins[2 * p + 1], TwiceBf16(LaneBits(both, 16, 0xFF)));
        }
      }
      _mm512_store_ps(out->d, _mm512_load_ps(head.d));
      _mm512_store_ps(out->m, _mm512_load_ps(head.m));
      return head;
    }
  }

  LanePacker<Format> packer_;
  ScaleFolder<Format> folder_;
  PlaneStep* out_;
};

// ---- Activation rows.

// A chunk of activation rows in tiles of one height, so that the tiles' shape stays: the last tile
// repeats rows of the one before it where the rows do not divide.
struct TokenTiles {
  const LinearArgs* args;
  std::size_t first;
  std::size_t rows;
  std::size_t count;
  std::size_t height;

  TokenTiles(const LinearArgs& linear, std::size_t first_row)
      : args(&linear), first(first_row), rows(std::min(kChunkRows, linear.rows - first_row)) {
    count = (rows + kTokensMax - 1) / kTokensMax;
    height = (rows + count - 1) / count;
  }
  std::size_t row(std::size_t tile) const { return first + std::min(tile * height, rows - height); }
};

// Integers as pairs of bf16 (TokenMins).
__m512i SplitSums(__m512i sums) {
  const __m512i high =
      _mm512_and_si512(_mm512_add_epi32(sums, _mm512_set1_epi32(32)), _mm512_set1_epi32(-64));
  const __m512i first = _mm512_castps_si512(_mm512_cvtepi32_ps(high));
  const __m512i second = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_sub_epi32(sums, high)));
  return _mm512_or_si512(first, _mm512_srli_epi32(second, 16));
}

// The sums of step `step` of all rows; where sub-blocks are of 32, the upper half of `out` is left
// as it is.
template <class Format>
void ReadMins(const TokenTiles& tokens, std::size_t step, TokenMins* out) {
  const QuantisedRows& rows = tokens.args->quantised;
  for (std::size_t tile = 0; tile < tokens.count; ++tile) {
    const std::int16_t* sums = rows.sums(tokens.row(tile)) + kStepValues / kSumValues * step;
    const std::size_t stride = rows.row_bytes / 2;
    for (std::size_t i = 0; i < tokens.height; ++i, sums += stride, ++out) {
      if constexpr (Format::kSub == 16) {
        StoreWords(out->pairs, SplitSums(_mm512_cvtepi16_epi32(LoadInt(sums))));
      } else if (i + 1 < tokens.height) {  // two rows at once
        const __m512i both =
            _mm512_inserti64x4(_mm512_castsi256_si512(LoadInt(sums)), LoadInt(sums + stride), 1);
        const __m512i pairs = SplitSums(_mm512_madd_epi16(both, _mm512_set1_epi16(1)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out[0].pairs), _mm512_castsi512_si256(pairs));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out[1].pairs),
                           _mm512_extracti64x4_epi64(pairs, 1));
        ++i, sums += stride, ++out;
      } else {
        const __m256i of_32 = _mm256_madd_epi16(LoadInt(sums), _mm256_set1_epi16(1));
        StoreWords(out->pairs, SplitSums(_mm512_zextsi256_si512(of_32)));
      }
    }
  }
}

// ---- Products.

// One or two tiles' products with one step of sixteen weight rows, in sixteen steps of one product.
// Tile registers: sums 0-3 (plane * 2 + tile), activations 4 and 5, planes 6 and 7.
template <class Tiles, class Format, bool kPair>
class TilePass {
 public:
  TilePass(Tiles* tiles, const TokenTiles& tokens, std::size_t step, std::size_t tile,
           const PlaneStep& planes, TileProducts* out)
      : tiles_(tiles),
        planes_(planes),
        out_(out),
        height_(tokens.height),
        a_{tokens.args->quantised.codes(tokens.row(tile)) + kStepValues * step,
           tokens.args->quantised.codes(tokens.row(tile + (kPair ? 1 : 0))) + kStepValues * step},
        stride_(tokens.args->quantised.row_bytes) {}

  // The products with the mins, in sums 2 and 3.
  void StartMins(const PlaneHead& head, const TokenMins* mins, MinProducts* out) {
    if constexpr (Format::kMins) {
      mins_out_ = out;
      tiles_->template Load<6>(head.mins, 64);
      tiles_->template Load<4>(mins, 64);
      tiles_->template Zero<2>();
      tiles_->template MultiplyBf16<2, 4, 6>();
      if constexpr (kPair) {
        tiles_->template Load<5>(mins + height_, 64);
        tiles_->template Zero<3>();
        tiles_->template MultiplyBf16<3, 5, 6>();
      }
    }
  }

  // Step `j` < 4 of quarter `quarter` < 4, in this order: the first plane's products, then the
  // second's. The last quarter takes the second plane first, so that its sums are stored while the
  // first plane's are made.
  [[gnu::always_inline]] void Step(std::size_t quarter, std::size_t j) {
    const bool second = TwoPlanes(kForm) && (quarter == 3) != (j >= 2);
    if (j % 2 == 1 && !kPair) {
      return;
    }
    if (j == 0) {
      tiles_->template Load<4>(a_[0] + 64 * quarter, stride_);
    } else if (j == 1) {
      tiles_->template Load<5>(a_[1] + 64 * quarter, stride_);
    }
    if (quarter == 0) {
      Begin(j);
    }
    if (second) {
      if constexpr (TwoPlanes(kForm)) {
        if (j % 2 == 0) {
          tiles_->template Load<7>(planes_.planes[1][16 * quarter], 64);
          Multiply<false, 2, 4, 7>();
        } else {
          Multiply<false, 3, 5, 7>();
        }
      }
    } else if (j < 2 || TwoPlanes(kForm)) {
      if (j % 2 == 0) {
        tiles_->template Load<6>(planes_.planes[0][16 * quarter], 64);
        Multiply<SignedPlane(kForm), 0, 4, 6>();
      } else {
        Multiply<SignedPlane(kForm), 1, 5, 6>();
      }
    }
    if (TwoPlanes(kForm) && quarter == 3 && j == 2) {
      tiles_->template Store<2>(out_->of_plane[1]);
    } else if (TwoPlanes(kForm) && quarter == 3 && j == 3) {
      tiles_->template Store<3>(out_->of_plane[1][height_]);
    }
  }

  void End() {
    tiles_->template Store<0>(out_->of_plane[0]);
    if constexpr (kPair) {
      tiles_->template Store<1>(out_->of_plane[0][height_]);
    }
  }

 private:
  static constexpr PlaneForm kForm = kPlaneForm<Format>;

  // Takes the mins' products out of the sums of step j of the first quarter, which start at zero.
  [[gnu::always_inline]] void Begin(std::size_t j) {
    if (j == 0) {
      tiles_->template Zero<0>();
    } else if (j == 1) {
      tiles_->template Zero<1>();
    } else if (j == 2) {
      if constexpr (Format::kMins) {
        tiles_->template Store<2>(mins_out_->of_row);
      }
      tiles_->template Zero<2>();
    } else {
      if constexpr (Format::kMins) {
        tiles_->template Store<3>(mins_out_->of_row[height_]);
      }
      tiles_->template Zero<3>();
    }
  }

  template <bool kSigned, int kC, int kA, int kB>
  void Multiply() {
    if constexpr (kSigned) {
      tiles_->template MultiplySigned<kC, kA, kB>();
    } else {
      tiles_->template MultiplyUnsigned<kC, kA, kB>();
    }
  }

  Tiles* tiles_;
  const PlaneStep& planes_;
  TileProducts* out_;
  MinProducts* mins_out_ = nullptr;
  std::size_t height_;
  const std::int8_t* a_[2];
  std::size_t stride_;
};

template <PlaneForm kForm>
__m512i WholeProduct(const TileProducts& products, std::size_t i) {
  const __m512i first = Load512(products.of_plane[0][i]);
  if constexpr (kForm == PlaneForm::kOne) {
    return first;
  } else if constexpr (kForm == PlaneForm::kNegated) {
    return _mm512_sub_epi32(_mm512_setzero_si512(), first);
  } else {
    return _mm512_add_epi32(_mm512_slli_epi32(first, kForm == PlaneForm::kFactors ? 3 : 8),
                            Load512(products.of_plane[1][i]));
  }
}

// y += t of N5, at the first step y = +0 + t, a few rows at a time.
template <class Format>
class Finisher {
 public:
  Finisher() = default;
  // All `rows` of the products; scales and y by row.
  Finisher(const PlaneHead& head, const TileProducts& products, const MinProducts& mins,
           const float* scales, float (*y)[kLanes], std::size_t rows, bool first)
      : head_(&head),
        products_(&products),
        mins_(&mins),
        scales_(scales),
        y_(y),
        rows_(rows),
        kept_(first ? 0 : 0xFFFF) {}

  std::size_t rows() const { return rows_; }

  // The next `count` rows, as far as there are any.
  [[gnu::always_inline]] void Rows(std::size_t count) {
    // In registers: stores of vectors may be to members, as far as the compiler knows.
    const std::size_t begin = next_;
    const std::size_t end = std::min(begin + count, rows_);
    if (begin == end) {
      return;
    }
    const TileProducts& products = *products_;
    const MinProducts& mins = *mins_;
    const float* scales = scales_;
    float(*y)[kLanes] = y_;
    const __mmask16 kept = kept_;
    const __m512 d = _mm512_load_ps(head_->d);
    const __m512 m = Format::kMins ? _mm512_load_ps(head_->m) : _mm512_setzero_ps();
    next_ = end;
    for (std::size_t i = begin; i < end; ++i) {
      const __m512 product = _mm512_cvtepi32_ps(WholeProduct<kPlaneForm<Format>>(products, i));
      __m512 u;
      if constexpr (Format::kMins) {
        u = _mm512_fmadd_ps(d, product, _mm512_mul_ps(m, _mm512_load_ps(mins.of_row[i])));
      } else {
        u = _mm512_mul_ps(d, product);
      }
      const __m512 t = _mm512_fmadd_ps(_mm512_set1_ps(scales[i]), u, _mm512_setzero_ps());
      _mm512_store_ps(y[i], _mm512_add_ps(_mm512_maskz_load_ps(kept, y[i]), t));
    }
  }

 private:
  const PlaneHead* head_ = nullptr;
  const TileProducts* products_ = nullptr;
  const MinProducts* mins_ = nullptr;
  const float* scales_ = nullptr;
  float (*y_)[kLanes] = nullptr;
  std::size_t rows_ = 0;
  std::size_t next_ = 0;
  __mmask16 kept_ = 0;
};

// ---- The walk.

// Weight rows n .. n + live - 1, at most a block, over one chunk.
template <class Tiles, class Format>
class BlockWalk {
 public:
  BlockWalk(Tiles* tiles, const TokenTiles& tokens, std::size_t n, std::size_t live,
            AmxScratch* scratch)
      : tiles_(tiles),
        tokens_(tokens),
        n_(n),
        live_(live),
        groups_((live + kLanes - 1) / kLanes),
        all_(tokens.args->weight.k / kStepValues * groups_),
        scratch_(scratch) {
    const WeightRows& weight = tokens.args->weight;
    for (std::size_t i = 0; i < groups_ * kLanes; ++i) {  // past the end: the last row again
      w_[i] = weight.data + (n + std::min(i, live - 1)) * weight.row_bytes;
    }
    ahead_ = w_[0] + groups_ * kLanes * weight.row_bytes;
  }

  // The work: for each step, for each group, for each one or two tiles.
  void Run() {
    Packer first = PackerOf(0);
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      first.Quarter(quarter, [](std::size_t) {});
    }
    for (std::size_t planes = 0; planes < all_; ++planes) {
      if (planes % groups_ == 0) {
        ReadTokens(planes / groups_);
      }
      for (std::size_t tile = 0; tile < tokens_.count; tile += 2) {
        const bool pack = tile == 0 && planes + 1 < all_;
        if (tile + 1 < tokens_.count) {
          pack ? PackedProducts<true>(planes, tile) : Products<true>(planes, tile);
        } else {
          pack ? PackedProducts<false>(planes, tile) : Products<false>(planes, tile);
        }
      }
    }
    last_.Rows(last_.rows());
    Store();
  }

 private:
  using Packer = PlanePacker<Format>;
  template <bool kPair>
  using Pass = TilePass<Tiles, Format, kPair>;
  // The float end takes the first twelve steps of sixteen: then new products are stored.
  static constexpr std::size_t kFinishSteps = 12;

  template <bool kPair>
  Pass<kPair> PassOf(std::size_t planes, std::size_t tile) {
    return Pass<kPair>(tiles_, tokens_, planes / groups_, tile, scratch_->planes[planes % 2],
                       &scratch_->products);
  }

  // The products of one or two tiles with `planes`, beside the float end of those before.
  template <bool kPair>
  void Products(std::size_t planes, std::size_t tile) {
    Pass<kPair> pass = PassOf<kPair>(planes, tile);
    pass.StartMins(scratch_->heads[planes % 3], scratch_->mins + tile * tokens_.height,
                   &scratch_->min_products[works_ % 2]);
    Finisher<Format> last = last_;  // a local one, which stores cannot change
    const std::size_t some = (last.rows() + kFinishSteps - 1) / kFinishSteps;
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      for (std::size_t j = 0; j < 4; ++j) {
        pass.Step(quarter, j);
        last.Rows(some);
      }
    }
    pass.End();
    Made<kPair>(planes, tile);
  }

  // The same, and beside it the packing of the planes after these.
  template <bool kPair>
  void PackedProducts(std::size_t planes, std::size_t tile) {
    Pass<kPair> pass = PassOf<kPair>(planes, tile);
    pass.StartMins(scratch_->heads[planes % 3], scratch_->mins + tile * tokens_.height,
                   &scratch_->min_products[works_ % 2]);
    Packer next = PackerOf(planes + 1);
    Finisher<Format> last = last_;  // local ones, which stores cannot change
    const std::byte* ahead = ahead_;
    const std::size_t some = (last.rows() + kFinishSteps - 1) / kFinishSteps;
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      next.Quarter(quarter, [&](std::size_t j) __attribute__((always_inline)) {
        pass.Step(quarter, j);
        last.Rows(some);
        ahead = Ask(ahead);
      });
    }
    ahead_ = ahead;
    pass.End();
    Made<kPair>(planes, tile);
  }

  template <bool kPair>
  void Made(std::size_t planes, std::size_t tile) {
    const std::size_t row = tile * tokens_.height;
    last_ = Finisher<Format>(
        scratch_->heads[planes % 3], scratch_->products, scratch_->min_products[works_ % 2],
        scratch_->scales[planes / groups_ % 2] + row, scratch_->y[planes % groups_] + row,
        (kPair ? 2 : 1) * tokens_.height, planes < groups_);
    ++works_;
  }

  Packer PackerOf(std::size_t planes) {
    return Packer(w_ + planes % groups_ * kLanes, planes / groups_, &scratch_->planes[planes % 2],
                  &scratch_->heads[planes % 3]);
  }

  void ReadTokens(std::size_t step) {
    const QuantisedRows& rows = tokens_.args->quantised;
    float* out = scratch_->scales[step % 2];
    for (std::size_t tile = 0; tile < tokens_.count; ++tile) {
      const float* scale = rows.scales(tokens_.row(tile)) + step;
      for (std::size_t i = 0; i < tokens_.height; ++i, scale += rows.row_bytes / sizeof(float)) {
        *out++ = *scale;
      }
    }
    if constexpr (Format::kMins) {
      ReadMins<Format>(tokens_, step, scratch_->mins);
    }
  }

  // Asks for a sixteenth of a step's share of the block after this one: in the order of memory and
  // for one line of 2, so that the processor's own prefetch brings the others: a core has few
  // requests in flight. Returns what comes next.
  [[gnu::always_inline]] static const std::byte* Ask(const std::byte* ahead) {
    constexpr std::size_t kShare = kLanes * Format::kBytes / 16;
    constexpr std::size_t kApart = 64 * 2;
    const auto from = reinterpret_cast<std::uintptr_t>(ahead);
    const std::size_t first = (from + kApart - 1) / kApart * kApart - from;
    for (std::size_t at = first; at < kShare; at += kApart) {
      PrefetchToL2(ahead + at, 1);
    }
    return ahead + kShare;
  }

  void Store() const {
    const LinearArgs& args = *tokens_.args;
    for (std::size_t g = 0; g < groups_; ++g) {
      const LaneEnd end(args, n_ + g * kLanes, std::min(kLanes, live_ - g * kLanes));
      for (std::size_t tile = 0; tile < tokens_.count; ++tile) {
        const float(*y)[kLanes] = scratch_->y[g] + tile * tokens_.height;
        float* out = args.y + tokens_.row(tile) * args.y_stride + n_ + g * kLanes;
        for (std::size_t i = 0; i < tokens_.height; ++i, out += args.y_stride) {
          end.Store(out, _mm512_load_ps(y[i]));
        }
      }
    }
  }

  Tiles* tiles_;
  const TokenTiles& tokens_;
  std::size_t n_;
  std::size_t live_;
  std::size_t groups_;
  std::size_t all_;  // planes
  AmxScratch* scratch_;
  std::size_t works_ = 0;  // products made
  Finisher<Format> last_;  // of the newest
  const std::byte* ahead_ = nullptr;
  const std::byte* w_[kBlockGroups * kLanes];
};

// Activation rows must lie one after another: args.row_ids is null.
template <class Tiles, class Format>
void TileRows(const LinearArgs& args, std::size_t n_begin, std::size_t n_end, std::byte* scratch) {
  auto* memory = reinterpret_cast<AmxScratch*>(scratch);
  if constexpr (Format::kMins) {
    for (PlaneHead& head : memory->heads) {
      std::fill_n(head.mins[0], sizeof(head.mins) / 4, 0U);
    }
    std::memset(memory->mins, 0, std::min(args.rows + kTokensMax, kChunkRows) * sizeof(TokenMins));
  }
  Tiles tiles;
  for (std::size_t first = 0; first < args.rows; first += kChunkRows) {
    const TokenTiles tokens(args, first);
    tiles.Configure(tokens.height);
    for (std::size_t n = n_begin; n < n_end; n += kBlockGroups * kLanes) {
      const std::size_t live = std::min(kBlockGroups * kLanes, n_end - n);
      BlockWalk<Tiles, Format>(&tiles, tokens, n, live, memory).Run();
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
