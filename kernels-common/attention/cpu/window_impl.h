// The kernels of a window of attention on lane types of any width, in the order of attention.h.
// V::kScoreQueries and V::kValueQueries are the queries of a register tile. Everything here is a
// template over the lane type: an instruction set's code is shared with no other file. Internal.
#pragma once

#include <cstring>

#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/exact_math/lanes.h"

namespace bloomery::kernels::cpu {

// Vectors of a strip's 32 lanes.
template <class V>
inline constexpr std::size_t kStripVectors = kAttentionStrip / V::kLanes;

// Values [at, at + n) of a plane row, n <= V::kLanes; zero above.
template <class V>
typename V::F LoadPlane(KvType type, const std::byte* row, std::size_t at, std::size_t n) {
  if (type == KvType::kQ8_0) {  // whole blocks of 32: never a tail
    const std::byte* block = row + at / 32 * 34;
    return V::Mul(V::LoadInt8(block + 2 + at % 32), V::SetHalf(block));
  }
  alignas(64) std::byte tail[64];
  const std::size_t width = type == KvType::kF32 ? 4 : 2;
  const std::byte* source = row + width * at;
  if (n < V::kLanes) {
    std::memset(tail, 0, sizeof(tail));
    std::memcpy(tail, source, width * n);
    source = tail;
  }
  return type == KvType::kF32 ? V::LoadBytes(source) : V::LoadHalf(source);
}

template <class V>
void PackKeys(KvType type, const std::byte* rows, std::size_t stride, std::size_t dim,
              float* strip) {
  for (std::size_t d = 0; d < dim; d += V::kLanes) {
    const std::size_t n = dim - d < V::kLanes ? dim - d : V::kLanes;
    for (std::size_t j = 0; j < kAttentionStrip; j += V::kLanes) {
      typename V::F square[V::kLanes];
      for (std::size_t i = 0; i < V::kLanes; ++i) {
        square[i] = LoadPlane<V>(type, rows + (j + i) * stride, d, n);
      }
      V::Transpose(square);
      for (std::size_t i = 0; i < n; ++i) {
        V::Store(strip + (d + i) * kAttentionStrip + j, square[i]);
      }
    }
  }
}

template <class V>
void PackValues(KvType type, const std::byte* const* rows, std::size_t count, std::size_t dim,
                std::size_t ask, float* strips) {
  for (std::size_t j = 0; j < count; ++j) {
    for (std::size_t at = 0; at < ask; at += 64) {
      __builtin_prefetch(rows[j + kAttentionAhead] + at);
    }
    for (std::size_t d = 0; d < dim; d += kAttentionStrip) {
      float* strip = strips + d * kAttentionWindow + j * kAttentionStrip;
      for (std::size_t i = 0; i < kAttentionStrip; i += V::kLanes) {
        const std::size_t left = dim > d + i ? dim - d - i : 0;
        const std::size_t n = left < V::kLanes ? left : V::kLanes;
        V::Store(strip + i, n == 0 ? V::Zero() : LoadPlane<V>(type, rows[j], d + i, n));
      }
    }
  }
}

// P_l of N8 for a tile of kQueries queries by the 32 keys of a strip.
template <class V, std::size_t kQueries>
struct LaneSums {
  typename V::F at[kQueries][kStripVectors<V>];

  LaneSums() = default;
  LaneSums(const float* const* q, const float* strip, std::size_t dim, std::size_t l) {
    for (auto& query : at) {
      for (auto& sum : query) {
        sum = V::Zero();
      }
    }
    for (std::size_t d = l; d < dim; d += 32) {
      typename V::F keys[kStripVectors<V>];
      for (std::size_t v = 0; v < kStripVectors<V>; ++v) {
        keys[v] = V::Load(strip + d * kAttentionStrip + v * V::kLanes);
      }
      for (std::size_t i = 0; i < kQueries; ++i) {
        const auto x = V::Set1(q[i][d]);
        for (std::size_t v = 0; v < kStripVectors<V>; ++v) {
          at[i][v] = V::Fma(x, keys[v], at[i][v]);
        }
      }
    }
  }

  void Add(const LaneSums& other) {
    for (std::size_t i = 0; i < kQueries; ++i) {
      for (std::size_t v = 0; v < kStripVectors<V>; ++v) {
        at[i][v] = V::Add(at[i][v], other.at[i][v]);
      }
    }
  }
};

// The lanes of N8 pass one after the other, so that the tree needs no shuffles: steps 16 and 8 in
// registers, the other three over eight sums in the nearest cache.
template <class V, std::size_t kQueries>
void ScoreTile(const float* const* q, const float* strip, std::size_t dim, float scale,
               float* scores) {
  using Sums = LaneSums<V, kQueries>;
  Sums tree[8];
  for (std::size_t l = 0; l < 8; ++l) {
    Sums sum(q, strip, dim, l);
    sum.Add(Sums(q, strip, dim, l + 16));
    Sums other(q, strip, dim, l + 8);
    other.Add(Sums(q, strip, dim, l + 24));
    sum.Add(other);
    tree[l] = sum;
  }
  for (std::size_t i = 0; i < kQueries; ++i) {
    for (std::size_t v = 0; v < kStripVectors<V>; ++v) {
      const auto four0 = V::Add(tree[0].at[i][v], tree[4].at[i][v]);
      const auto four1 = V::Add(tree[1].at[i][v], tree[5].at[i][v]);
      const auto four2 = V::Add(tree[2].at[i][v], tree[6].at[i][v]);
      const auto four3 = V::Add(tree[3].at[i][v], tree[7].at[i][v]);
      const auto sum = V::Add(V::Add(four0, four2), V::Add(four1, four3));
      V::Store(scores + i * kAttentionWindow + v * V::kLanes, V::Mul(sum, V::Set1(scale)));
    }
  }
}

template <class V, std::size_t kQueries>
void ScoreTiles(const float* const* q, std::size_t queries, const float* strip, std::size_t dim,
                float scale, float* scores) {
  std::size_t i = 0;
  for (; i + kQueries <= queries; i += kQueries) {
    ScoreTile<V, kQueries>(q + i, strip, dim, scale, scores + i * kAttentionWindow);
  }
  if constexpr (kQueries > 1) {
    ScoreTiles<V, kQueries / 2>(q + i, queries - i, strip, dim, scale,
                                scores + i * kAttentionWindow);
  }
}

template <class V>
void Scores(const float* const* q, std::size_t queries, const float* strip, std::size_t dim,
            float scale, float* scores) {
  ScoreTiles<V, V::kScoreQueries>(q, queries, strip, dim, scale, scores);
}

// Of the first `count` lanes from p: their maximum.
template <class V>
float MaxOf(const float* p, std::size_t count) {
  const auto lowest = V::Set1(-__builtin_inff());
  auto max = lowest;
  std::size_t j = 0;
  for (; j + V::kLanes <= count; j += V::kLanes) {
    max = V::Max(max, V::Load(p + j));
  }
  if (j < count) {
    max = V::Max(max, V::First(count - j, V::Load(p + j), lowest));
  }
  return V::MaxOf(max);
}

// 32 lanes by ascending adds, then the tree.
template <class V>
float SumOf(const float* p, std::size_t count) {
  constexpr std::size_t kV = kStripVectors<V>;
  typename V::F lanes[kV];
  for (auto& lane : lanes) {
    lane = V::Zero();
  }
  std::size_t j = 0;
  for (; j + kAttentionStrip <= count; j += kAttentionStrip) {
    for (std::size_t v = 0; v < kV; ++v) {
      lanes[v] = V::Add(lanes[v], V::Load(p + j + v * V::kLanes));
    }
  }
  for (std::size_t v = 0; v < kV && j < count; ++v, j += V::kLanes) {
    const std::size_t n = count - j < V::kLanes ? count - j : V::kLanes;
    lanes[v] = V::First(n, V::Add(lanes[v], V::Load(p + j)), lanes[v]);
  }
  for (std::size_t half = kV / 2; half > 0; half /= 2) {
    for (std::size_t v = 0; v < half; ++v) {
      lanes[v] = V::Add(lanes[v], lanes[v + half]);
    }
  }
  return V::Reduce(lanes[0]);
}

template <class V>
void Exponentials(float* scores, std::size_t queries, std::size_t count,
                  const AttentionStates& states) {
  for (std::size_t i = 0; i < queries; ++i, scores += kAttentionWindow) {
    const float max = MaxOf<V>(scores, count);
    std::size_t j = 0;
    for (; j + V::kLanes <= count; j += V::kLanes) {
      V::Store(scores + j, ExpLanes<V>(V::Sub(V::Load(scores + j), V::Set1(max))));
    }
    if (j < count) {  // where keys begin inside a window the next lanes may be the next query's
      V::StoreFirst(scores + j, ExpLanes<V>(V::Sub(V::Load(scores + j), V::Set1(max))), count - j);
    }
    states.keep[i] = max;
    states.take[i] = SumOf<V>(scores, count);
  }
}

template <class V>
void MergeSums(std::size_t queries, const AttentionStates& states) {
  for (std::size_t i = 0; i < queries; i += V::kLanes) {
    const auto max = V::Load(states.max + i);
    const auto window_max = V::Load(states.keep + i);
    const auto larger = V::Max(max, window_max);
    const auto keep = ExpLanes<V>(V::Sub(max, larger));
    const auto take = ExpLanes<V>(V::Sub(window_max, larger));
    const std::size_t n = queries - i < V::kLanes ? queries - i : V::kLanes;
    const auto old = V::Load(states.sum + i);
    const auto sum = V::Add(V::Mul(old, keep), V::Mul(V::Load(states.take + i), take));
    V::Store(states.max + i, V::First(n, larger, max));
    V::Store(states.sum + i, V::First(n, sum, old));
    V::Store(states.keep + i, V::First(n, keep, window_max));
    V::Store(states.take + i, V::First(n, take, V::Load(states.take + i)));
  }
}

// Where a tile's values come from: a packed strip, or the plane's rows themselves, whose next rows
// are asked for meanwhile.
template <class V>
struct StripSource {
  const float* strip;

  typename V::F Load(std::size_t j, std::size_t v) const {
    return V::Load(strip + j * kAttentionStrip + v * V::kLanes);
  }
  void Ask(std::size_t /*j*/) const {}
};

template <class V, KvType kType>
struct RowSource {
  const std::byte* const* rows;
  std::size_t at;  // of the first value
  std::size_t ask_begin;
  std::size_t ask_end;

  typename V::F Load(std::size_t j, std::size_t v) const {
    return LoadPlane<V>(kType, rows[j], at + v * V::kLanes, V::kLanes);
  }
  void Ask(std::size_t j) const {
    for (std::size_t byte = ask_begin; byte < ask_end; byte += 64) {
      __builtin_prefetch(rows[j + kAttentionAhead] + byte);
    }
  }
};

template <class V, std::size_t kQueries, class Source>
void WeighTile(const float* p, const Source& source, std::size_t count, bool merging, float* out,
               std::size_t out_stride, const float* keep, const float* take) {
  constexpr std::size_t kV = kStripVectors<V>;
  typename V::F o[kQueries][kV];
  for (auto& query : o) {
    for (auto& sum : query) {
      sum = V::Zero();
    }
  }
  for (std::size_t j = 0; j < count; ++j) {
    source.Ask(j);
    typename V::F values[kV];
    for (std::size_t v = 0; v < kV; ++v) {
      values[v] = source.Load(j, v);
    }
    for (std::size_t i = 0; i < kQueries; ++i) {
      const auto weight = V::Set1(p[i * kAttentionWindow + j]);
      for (std::size_t v = 0; v < kV; ++v) {
        o[i][v] = V::Fma(weight, values[v], o[i][v]);
      }
    }
  }
  for (std::size_t i = 0; i < kQueries; ++i, out += out_stride) {
    for (std::size_t v = 0; v < kV; ++v) {
      if (merging) {
        o[i][v] = V::Add(V::Mul(V::Load(out + v * V::kLanes), V::Set1(keep[i])),
                         V::Mul(o[i][v], V::Set1(take[i])));
      }
      V::Store(out + v * V::kLanes, o[i][v]);
    }
  }
}

template <class V, std::size_t kQueries>
void WeighTiles(const float* p, std::size_t queries, const float* strip, std::size_t count,
                bool merging, float* out, std::size_t out_stride, const float* keep,
                const float* take) {
  std::size_t i = 0;
  for (; i + kQueries <= queries; i += kQueries) {
    WeighTile<V, kQueries>(p + i * kAttentionWindow, StripSource<V>{strip}, count, merging,
                           out + i * out_stride, out_stride, keep + i, take + i);
  }
  if constexpr (kQueries > 1) {
    WeighTiles<V, kQueries / 2>(p + i * kAttentionWindow, queries - i, strip, count, merging,
                                out + i * out_stride, out_stride, keep + i, take + i);
  }
}

template <class V>
void Weigh(const float* p, std::size_t queries, const float* strip, std::size_t count, bool merging,
           std::size_t column, const AttentionStates& states) {
  WeighTiles<V, V::kValueQueries>(p, queries, strip, count, merging, states.out + column,
                                  states.out_stride, states.keep, states.take);
}

template <class V, KvType kType>
void WeighRowsOf(const std::byte* const* rows, const float* p, std::size_t count, std::size_t dim,
                 std::size_t ask, bool merging, const AttentionStates& states) {
  const std::size_t strips = dim / kAttentionStrip;
  const std::size_t ask_each = (ask + strips * 64 - 1) / (strips * 64) * 64;
  for (std::size_t c = 0; c < strips; ++c) {
    const std::size_t ask_end = (c + 1) * ask_each < ask ? (c + 1) * ask_each : ask;
    const RowSource<V, kType> source = {rows, c * kAttentionStrip, c * ask_each, ask_end};
    WeighTile<V, V::kValueQueries>(p, source, count, merging, states.out + c * kAttentionStrip,
                                   states.out_stride, states.keep, states.take);
  }
}

template <class V>
void WeighRows(KvType type, const std::byte* const* rows, const float* p, std::size_t count,
               std::size_t dim, std::size_t ask, bool merging, const AttentionStates& states) {
  auto* weigh = type == KvType::kF32   ? WeighRowsOf<V, KvType::kF32>
                : type == KvType::kF16 ? WeighRowsOf<V, KvType::kF16>
                                       : WeighRowsOf<V, KvType::kQ8_0>;
  weigh(rows, p, count, dim, ask, merging, states);
}

template <class V>
inline constexpr WindowKernels kWindowKernels = {
    .pack_keys = PackKeys<V>,
    .scores = Scores<V>,
    .exponentials = Exponentials<V>,
    .merge = MergeSums<V>,
    .pack_values = PackValues<V>,
    .weigh = Weigh<V>,
    .row_queries = V::kValueQueries,
    .weigh_rows = WeighRows<V>,
};

}  // namespace bloomery::kernels::cpu
