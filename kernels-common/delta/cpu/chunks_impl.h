// The delta rule of a prompt, 64 rows at a time, on lane types: products of small matrices in place
// of two walks over the state a row. Internal.
//
// With G_i the sum of a chunk's log decays up to row i (in f64), E_ij = exp(G_i - G_j) for j <= i,
// S the state before the chunk:
//   A_ij = b'_i E_ij k_i.k_j for j < i;  P_ij = E_ij q_i.k_j for j <= i
//   (I + A) U = b' (V - exp(G) K S)   by forward substitution, four rows at a time
//   out = exp(G) Q S + P U;  S = exp(G_last) S + (exp(G_last - G) K)^T U
// All products are f32 sums ascending by fma, alike on every Isa. No exponent is above 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "kernels-common/delta/cpu/impl.h"
#include "kernels-common/delta/cpu/isa_entries.h"
#include "kernels-common/exact_math/lanes.h"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::cpu {

// Rows of a tile. The same everywhere: sums are split by it.
inline constexpr std::size_t kChunkTile = 4;
// What a chunk has in the scratch memory (ChunkMemoryFloats); rows behind its last up to a whole
// tile are zeros.
struct ChunkMemory {
  float* k;         // [kDeltaChunk][key_dim]
  float* q;         // [kDeltaChunk][key_dim]
  float* k_turned;  // [key_dim][kDeltaChunk]
  float* a;         // [kDeltaChunk][kDeltaChunk], zeros from the diagonal on
  float* p;         // [kDeltaChunk][kDeltaChunk], zeros behind the diagonal
  float* u;         // [kDeltaChunk][kChunkColumnsMax]

  ChunkMemory(float* memory, std::size_t key_dim)
      : k(memory),
        q(k + kDeltaChunk * key_dim),
        k_turned(q + kDeltaChunk * key_dim),
        a(k_turned + kDeltaChunk * key_dim),
        p(a + kDeltaChunk * kDeltaChunk),
        u(p + kDeltaChunk * kDeltaChunk) {}
};

// Of each row of a chunk; those behind its last are as if nothing decayed and nothing was written.
struct ChunkGates {
  std::array<double, kDeltaChunk> log_decay;  // summed from the chunk's first row
  std::array<float, kDeltaChunk> strength;
  std::array<float, kDeltaChunk> from_start;  // exp of the sum
  std::array<float, kDeltaChunk> to_end;      // exp of what the last row's sum has more
};

// acc[r][c] += sum over d of a[r][d] * b[d][c], d ascending.
template <class V, std::size_t kVectors>
void TileProduct(std::size_t depth, const float* a, std::size_t a_row, const float* b,
                 std::size_t b_row, typename V::F (&acc)[kChunkTile][kVectors]) {
  for (std::size_t d = 0; d < depth; ++d) {
    typename V::F right[kVectors];
    for (std::size_t c = 0; c < kVectors; ++c) right[c] = V::Load(b + d * b_row + c * V::kLanes);
    for (std::size_t r = 0; r < kChunkTile; ++r) {
      const auto left = V::Set1(a[r * a_row + d]);
      for (std::size_t c = 0; c < kVectors; ++c) acc[r][c] = V::Fma(left, right[c], acc[r][c]);
    }
  }
}

template <class V, std::size_t kVectors>
void SetZero(typename V::F (&acc)[kChunkTile][kVectors]) {
  for (auto& row : acc) {
    for (typename V::F& value : row) value = V::Zero();
  }
}

template <class V>
class DeltaChunk {
 public:
  using F = typename V::F;

  DeltaChunk(const DeltaArgs& args, std::size_t head, float* memory)
      : args_(args), head_(head), n_k_(args.key_dim), memory_(memory, args.key_dim) {}

  // Rows [first, first + rows), at most kDeltaChunk, over the head's state.
  void Run(std::size_t first, std::size_t rows, float* s) {
    first_ = first;
    rows_ = rows;
    padded_ = (rows + kChunkTile - 1) / kChunkTile * kChunkTile;
    ReadGates();
    Gather();
    for (std::size_t row = 0; row < padded_; row += kChunkTile) Scores(row);
    constexpr std::size_t kVectors = std::min<std::size_t>(4, kChunkColumnsMax / V::kLanes);
    std::size_t j = 0;
    for (; j + kVectors * V::kLanes <= args_.value_dim; j += kVectors * V::kLanes) {
      Columns<kVectors>(s + j, j);
    }
    for (; j < args_.value_dim; j += V::kLanes) Columns<1>(s + j, j);
  }

 private:
  std::size_t At(std::size_t row) const { return (first_ + row) * args_.value_heads + head_; }

  void ReadGates() {
    double sum = 0;
    for (std::size_t i = 0; i < padded_; ++i) {
      gates_.strength[i] = 0.0F;
      if (i < rows_) {
        const float x = args_.a[At(i)] + args_.dt_bias[head_];
        sum += static_cast<double>(args_.decay[head_] * ExactSoftplus(x));
        gates_.strength[i] = ExactSigmoid(args_.b[At(i)]);
      }
      gates_.log_decay[i] = sum;
      gates_.from_start[i] = ExactExp(static_cast<float>(sum));
    }
    for (std::size_t i = 0; i < padded_; ++i) {
      gates_.to_end[i] = ExactExp(static_cast<float>(sum - gates_.log_decay[i]));
    }
  }

  void Gather() {
    for (std::size_t i = 0; i < padded_; ++i) {
      if (i < rows_) {
        const std::size_t at = ((first_ + i) * args_.key_heads + args_.KeyHead(head_)) * n_k_;
        std::copy_n(args_.k + at, n_k_, memory_.k + i * n_k_);
        std::copy_n(args_.q + at, n_k_, memory_.q + i * n_k_);
      } else {
        std::fill_n(memory_.k + i * n_k_, n_k_, 0.0F);
        std::fill_n(memory_.q + i * n_k_, n_k_, 0.0F);
      }
    }
    for (std::size_t d = 0; d < n_k_; ++d) {
      float* turned = memory_.k_turned + d * kDeltaChunk;
      for (std::size_t i = 0; i < padded_; ++i) turned[i] = memory_.k[i * n_k_ + d];
      std::fill(turned + padded_, turned + kDeltaChunk, 0.0F);
    }
  }

  // E of one row, zeros behind the diagonal up to `columns`.
  void Decays(std::size_t row, std::size_t columns, float* e) const {
    for (std::size_t j = 0; j < columns; ++j) {
      e[j] = j <= row ? static_cast<float>(gates_.log_decay[row] - gates_.log_decay[j]) : 0.0F;
    }
    for (std::size_t j = 0; j < columns; j += V::kLanes) {
      V::Store(e + j, ExpLanes<V>(V::Load(e + j)));
    }
    for (std::size_t j = row + 1; j < columns; ++j) e[j] = 0.0F;
  }

  // Rows [row, row + kChunkTile) of A and P, up to the last of them.
  void Scores(std::size_t row) {
    constexpr std::size_t kVectors = V::kLanes == 16 ? 2 : 1;
    constexpr std::size_t kGroup = kVectors * V::kLanes;
    for (std::size_t j = 0; j < row + kChunkTile; j += kGroup) {
      F of_k[kChunkTile][kVectors];
      F of_q[kChunkTile][kVectors];
      SetZero<V>(of_k);
      SetZero<V>(of_q);
      TileProduct<V>(n_k_, memory_.k + row * n_k_, n_k_, memory_.k_turned + j, kDeltaChunk, of_k);
      TileProduct<V>(n_k_, memory_.q + row * n_k_, n_k_, memory_.k_turned + j, kDeltaChunk, of_q);
      for (std::size_t r = 0; r < kChunkTile; ++r) {
        for (std::size_t c = 0; c < kVectors; ++c) {
          const std::size_t at = (row + r) * kDeltaChunk + j + c * V::kLanes;
          V::Store(memory_.a + at, of_k[r][c]);
          V::Store(memory_.p + at, of_q[r][c]);
        }
      }
    }
    const std::size_t columns = (row + kChunkTile + kGroup - 1) / kGroup * kGroup;
    for (std::size_t i = row; i < row + kChunkTile; ++i) {
      float e[kDeltaChunk];
      Decays(i, columns, e);
      float* a = memory_.a + i * kDeltaChunk;
      float* p = memory_.p + i * kDeltaChunk;
      const auto strength = V::Set1(gates_.strength[i]);
      for (std::size_t j = 0; j < columns; j += V::kLanes) {
        const auto decay = V::Load(e + j);
        V::Store(p + j, V::Mul(decay, V::Load(p + j)));
        V::Store(a + j, V::Mul(strength, V::Mul(decay, V::Load(a + j))));
      }
      a[i] = 0.0F;
    }
  }

  // U and the output of a group of columns, tile by tile, then the state behind the chunk.
  template <std::size_t kVectors>
  void Columns(float* s, std::size_t column) {
    const std::size_t n_v = args_.value_dim;
    constexpr std::size_t kWidth = kVectors * V::kLanes;
    for (std::size_t row = 0; row < padded_; row += kChunkTile) {
      Solve<kVectors>(row, s, column);
      F out[kChunkTile][kVectors];
      SetZero<V>(out);
      TileProduct<V>(n_k_, memory_.q + row * n_k_, n_k_, s, n_v, out);
      for (std::size_t r = 0; r < kChunkTile; ++r) {
        const auto decay = V::Set1(gates_.from_start[row + r]);
        for (F& value : out[r]) value = V::Mul(decay, value);
      }
      TileProduct<V>(row + kChunkTile, memory_.p + row * kDeltaChunk, kDeltaChunk, memory_.u,
                     kWidth, out);
      for (std::size_t r = 0; r < kChunkTile && row + r < rows_; ++r) {
        float* to = args_.out + At(row + r) * n_v + column;
        for (std::size_t c = 0; c < kVectors; ++c) V::Store(to + c * V::kLanes, out[r][c]);
      }
    }
    for (std::size_t i = 0; i < padded_; ++i) {
      const auto decay = V::Set1(gates_.to_end[i]);
      for (float* u = memory_.u + i * kWidth; u < memory_.u + (i + 1) * kWidth; u += V::kLanes) {
        V::Store(u, V::Mul(decay, V::Load(u)));
      }
    }
    UpdateState<kVectors>(s);
  }

  // Rows [row, row + kChunkTile) of U.
  template <std::size_t kVectors>
  void Solve(std::size_t row, const float* s, std::size_t column) {
    const std::size_t n_v = args_.value_dim;
    constexpr std::size_t kWidth = kVectors * V::kLanes;
    F u[kChunkTile][kVectors];
    F before[kChunkTile][kVectors];
    SetZero<V>(u);
    SetZero<V>(before);
    TileProduct<V>(n_k_, memory_.k + row * n_k_, n_k_, s, n_v, u);
    TileProduct<V>(row, memory_.a + row * kDeltaChunk, kDeltaChunk, memory_.u, kWidth, before);
    for (std::size_t r = 0; r < kChunkTile; ++r) {
      const auto decay = V::Set1(gates_.from_start[row + r]);
      const auto strength = V::Set1(gates_.strength[row + r]);
      const float* a = memory_.a + (row + r) * kDeltaChunk + row;
      for (std::size_t c = 0; c < kVectors; ++c) {
        const float* v = args_.v + At(row + r) * n_v + column + c * V::kLanes;
        const auto value = row + r < rows_ ? V::Load(v) : V::Zero();
        F x = V::Mul(strength, V::Sub(value, V::Mul(decay, u[r][c])));
        x = V::Sub(x, before[r][c]);
        for (std::size_t t = 0; t < r; ++t) x = V::Fma(V::Set1(-a[t]), u[t][c], x);
        u[r][c] = x;
        V::Store(memory_.u + (row + r) * kWidth + c * V::kLanes, x);
      }
    }
  }

  template <std::size_t kVectors>
  void UpdateState(float* s) {
    const std::size_t n_v = args_.value_dim;
    constexpr std::size_t kWidth = kVectors * V::kLanes;
    const auto decay = V::Set1(gates_.from_start[padded_ - 1]);
    std::size_t d = 0;
    for (; d + kChunkTile <= n_k_; d += kChunkTile) {
      F acc[kChunkTile][kVectors];
      for (std::size_t r = 0; r < kChunkTile; ++r) {
        for (std::size_t c = 0; c < kVectors; ++c) {
          acc[r][c] = V::Mul(decay, V::Load(s + (d + r) * n_v + c * V::kLanes));
        }
      }
      TileProduct<V>(padded_, memory_.k_turned + d * kDeltaChunk, kDeltaChunk, memory_.u, kWidth,
                     acc);
      for (std::size_t r = 0; r < kChunkTile; ++r) {
        for (std::size_t c = 0; c < kVectors; ++c) {
          V::Store(s + (d + r) * n_v + c * V::kLanes, acc[r][c]);
        }
      }
    }
    for (; d < n_k_; ++d) {
      for (std::size_t c = 0; c < kWidth; c += V::kLanes) {
        F sum = V::Mul(decay, V::Load(s + d * n_v + c));
        for (std::size_t i = 0; i < padded_; ++i) {
          const auto key = V::Set1(memory_.k_turned[d * kDeltaChunk + i]);
          sum = V::Fma(key, V::Load(memory_.u + i * kWidth + c), sum);
        }
        V::Store(s + d * n_v + c, sum);
      }
    }
  }

  const DeltaArgs& args_;
  std::size_t head_;
  std::size_t n_k_;
  ChunkMemory memory_;
  ChunkGates gates_{};
  std::size_t first_ = 0;
  std::size_t rows_ = 0;
  std::size_t padded_ = 0;
};

template <class V>
void DeltaChunkLanes(const DeltaArgs& args, std::size_t rows, std::size_t head, float* memory) {
  float* s = StateToChange(args, head);
  DeltaChunk<V> chunk(args, head, memory);
  for (std::size_t first = 0; first < rows; first += kDeltaChunk) {
    chunk.Run(first, std::min(kDeltaChunk, rows - first), s);
  }
}

}  // namespace bloomery::kernels::cpu
