// Float weights by N8 on lane types: tiles of a few weight rows and three activation rows, two of
// the vectors of the 32 lanes at a time so that the sums stay in registers. 24 activation rows at a
// time meet 32 weight rows, so that neither comes from memory more than it must. Internal.
#pragma once

#include <algorithm>

#include "kernels-common/cpu/dot32.h"
#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

template <class V>
inline constexpr std::size_t kFloatTileWeights = V::kLanes == 16 ? 4 : 2;  // half the registers
inline constexpr std::size_t kFloatTileRows = 3;
inline constexpr std::size_t kFloatChunkRows = 48;     // of 8 KiB each, in the second cache
inline constexpr std::size_t kFloatBlockWeights = 32;  // for them
// From this many activation rows on, two-byte weights are decoded once to scratch.
inline constexpr std::size_t kFloatDecodeRows = 4;

template <class V>
struct WeightF32 {
  static constexpr std::size_t kBytes = 4;
  static typename V::F Load(const std::byte* p) { return V::LoadBytes(p); }
};
template <class V>
struct WeightF16 {
  static constexpr std::size_t kBytes = 2;
  static typename V::F Load(const std::byte* p) { return V::LoadHalf(p); }
};
template <class V>
struct WeightBf16 {
  static constexpr std::size_t kBytes = 2;
  static typename V::F Load(const std::byte* p) { return V::LoadBf16(p); }
};

using DecodeRow = void (*)(const std::byte* source, float* values, std::size_t k);

// y[i][c] = w[i] . x[c] over k values.
template <class V, class W, std::size_t kWeights, std::size_t kRows>
void FloatTile(const std::byte* const* w, const float* const* x, std::size_t k, DecodeRow decode,
               float (*y)[kRows]) {
  const std::size_t whole = k / 32 * 32;
  const std::size_t tail = k - whole;
  float tail_weights[kWeights][32];
  for (std::size_t i = 0; i < kWeights && tail > 0; ++i) {
    decode(w[i] + whole * W::kBytes, tail_weights[i], tail);
  }
  constexpr std::size_t kVectors = 32 / V::kLanes;
  typename V::F lanes[kWeights][kRows][kVectors];
  for (std::size_t pair = 0; pair < kVectors; pair += 2) {
    typename V::F sums[kWeights][kRows][2];
    for (auto& of_weight : sums) {
      for (auto& of_row : of_weight) {
        of_row[0] = of_row[1] = V::Zero();
      }
    }
    for (std::size_t at = V::kLanes * pair; at < whole; at += 32) {
      for (std::size_t p = 0; p < 2; ++p) {
        typename V::F weights[kWeights];
        for (std::size_t i = 0; i < kWeights; ++i) {
          weights[i] = W::Load(w[i] + (at + V::kLanes * p) * W::kBytes);
        }
        for (std::size_t c = 0; c < kRows; ++c) {
          const auto value = V::Load(x[c] + at + V::kLanes * p);
          for (std::size_t i = 0; i < kWeights; ++i) {
            sums[i][c][p] = V::Fma(weights[i], value, sums[i][c][p]);
          }
        }
      }
    }
    for (std::size_t p = 0; p < 2; ++p) {
      const std::size_t first = V::kLanes * (pair + p);
      const std::size_t n = TailLanes<V>(tail, pair + p);
      for (std::size_t c = 0; c < kRows; ++c) {
        for (std::size_t i = 0; i < kWeights; ++i) {
          typename V::F sum = sums[i][c][p];
          if (n > 0) {
            const auto longer = V::Fma(V::LoadFirst(tail_weights[i] + first, n),
                                       V::LoadFirst(x[c] + whole + first, n), sum);
            sum = V::First(n, longer, sum);
          }
          lanes[i][c][pair + p] = sum;
        }
      }
    }
  }
  for (std::size_t i = 0; i < kWeights; ++i) {
    for (std::size_t c = 0; c < kRows; ++c) {
      y[i][c] = V::Reduce(Fold<V>(lanes[i][c]));
    }
  }
}

// A tile of weight rows, of which `weights` are there, over activation rows [r, r_end).
template <class V, class W>
void FloatRows(const LinearArgs& args, const std::byte* const* w, std::size_t n,
               std::size_t weights, std::size_t r, std::size_t r_end, DecodeRow decode) {
  constexpr std::size_t kWeights = kFloatTileWeights<V>;
  const auto source = [&](std::size_t row) {
    return args.x + SourceRow(args, row) * args.x_stride;
  };
  for (; r + kFloatTileRows <= r_end; r += kFloatTileRows) {
    const float* x[kFloatTileRows] = {source(r), source(r + 1), source(r + 2)};
    float y[kWeights][kFloatTileRows];
    FloatTile<V, W, kWeights, kFloatTileRows>(w, x, args.weight.k, decode, y);
    for (std::size_t i = 0; i < weights; ++i) {
      for (std::size_t c = 0; c < kFloatTileRows; ++c) {
        StoreOutput(args, r + c, n + i, y[i][c]);
      }
    }
  }
  for (; r < r_end; ++r) {
    const float* x = source(r);
    float y[kWeights][1];
    FloatTile<V, W, kWeights, 1>(w, &x, args.weight.k, decode, y);
    for (std::size_t i = 0; i < weights; ++i) {
      StoreOutput(args, r, n + i, y[i][0]);
    }
  }
}

// k two-byte weights to f32.
template <class V, class W>
void DecodeLanes(const std::byte* source, std::size_t k, DecodeRow decode, float* out) {
  std::size_t i = 0;
  for (; i + V::kLanes <= k; i += V::kLanes) {
    V::Store(out + i, W::Load(source + i * W::kBytes));
  }
  decode(source + i * W::kBytes, out + i, k - i);
}

// One tile of weight rows over activation rows [r, r_end); `decoded` holds the tile in f32.
template <class V>
void FloatTileRows(const LinearArgs& args, std::size_t n, std::size_t weights, std::size_t r,
                   std::size_t r_end, float* decoded) {
  constexpr std::size_t kWeights = kFloatTileWeights<V>;
  const FormatTraits& format = *args.weight.format;
  const DecodeRow decode_f32 = FindFormat(0)->decode_row;
  const std::byte* w[kWeights];
  for (std::size_t i = 0; i < kWeights; ++i) {  // past the end: the last row again
    w[i] = args.weight.data + (n + std::min(i, weights - 1)) * args.weight.row_bytes;
  }
  if (format.block_bytes == 4) {
    FloatRows<V, WeightF32<V>>(args, w, n, weights, r, r_end, decode_f32);
  } else if (r_end - r >= kFloatDecodeRows) {
    for (std::size_t i = 0; i < kWeights; ++i) {
      float* out = decoded + i * args.weight.k;
      if (format.ggml_type == 1) {
        DecodeLanes<V, WeightF16<V>>(w[i], args.weight.k, format.decode_row, out);
      } else {
        DecodeLanes<V, WeightBf16<V>>(w[i], args.weight.k, format.decode_row, out);
      }
      w[i] = reinterpret_cast<const std::byte*>(out);
    }
    FloatRows<V, WeightF32<V>>(args, w, n, weights, r, r_end, decode_f32);
  } else if (format.ggml_type == 1) {
    FloatRows<V, WeightF16<V>>(args, w, n, weights, r, r_end, format.decode_row);
  } else {
    FloatRows<V, WeightBf16<V>>(args, w, n, weights, r, r_end, format.decode_row);
  }
}

template <class V>
void FloatLinearRange(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                      std::byte* scratch) {
  for (std::size_t block = n_begin; block < n_end; block += kFloatBlockWeights) {
    const std::size_t block_end = std::min(block + kFloatBlockWeights, n_end);
    for (std::size_t r = 0; r < args.rows; r += kFloatChunkRows) {
      const std::size_t r_end = std::min(r + kFloatChunkRows, args.rows);
      for (std::size_t n = block; n < block_end; n += kFloatTileWeights<V>) {
        FloatTileRows<V>(args, n, std::min(kFloatTileWeights<V>, block_end - n), r, r_end,
                         reinterpret_cast<float*>(scratch));
      }
    }
  }
}

}  // namespace bloomery::kernels::cpu
