// Attention on lane types, in the order of attention.h. A chunk of rows of one slot walks the
// windows together: a window of keys and values is decoded once, then every (row, head) takes its
// own part. Internal.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels-common/attention/attention.h"
#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/scratch.h"
#include "kernels-common/cpu/dot32.h"
#include "kernels-common/exact_math/lanes.h"

namespace bloomery::kernels::cpu {

// The two inner loops for lane types with registers of 16 values; the same order, so the same bits.
// Specialised where there are such kernels (avx2.cc).
template <class V>
struct WideKernels {
  static constexpr bool kHas = false;
};

// `count` values at `source` in the plane's type, starting at a multiple of 32 for q8_0.
template <class V>
void DecodeHead(KvType type, const std::byte* row, std::size_t first, std::size_t count,
                float* out) {
  std::size_t i = 0;
  if (type == KvType::kF32) {
    std::memcpy(out, row + 4 * first, 4 * count);
  } else if (type == KvType::kF16) {
    for (; i + 8 <= count; i += 8) {
      V::Store(out + i, V::LoadHalf(row + 2 * (first + i)));
    }
    for (; i < count; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, row + 2 * (first + i), 2);
      out[i] = HalfToFloat(half);
    }
  } else {
    for (; i < count; i += 8) {
      const std::byte* block = row + (first + i) / 32 * 34;
      std::uint16_t half = 0;
      std::memcpy(&half, block, 2);
      V::Store(out + i, V::Mul(V::LoadInt8(block + 2 + i % 32), V::Set1(HalfToFloat(half))));
    }
  }
}

template <class V>
void DecodeWindow(const KvView& view, std::size_t begin, std::size_t count, std::size_t first,
                  std::size_t dim, float* out, std::size_t stride) {
  for (std::size_t j = 0; j < count; ++j) {
    DecodeHead<V>(view.type, view.Row(begin + j), first, dim, out + j * stride);
  }
}

// Folded lanes (steps 16 and 8 of the tree) of q with two keys.
template <class V>
void DotPair(const float* q, const float* key0, const float* key1, std::size_t dim,
             typename V::F* folded0, typename V::F* folded1) {
  typename V::F a[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  typename V::F b[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  std::size_t i = 0;
  for (; i + 32 <= dim; i += 32) {
    for (std::size_t p = 0; p < 4; ++p) {
      const auto lanes = V::Load(q + i + 8 * p);
      a[p] = V::Fma(lanes, V::Load(key0 + i + 8 * p), a[p]);
      b[p] = V::Fma(lanes, V::Load(key1 + i + 8 * p), b[p]);
    }
  }
  for (std::size_t p = 0; p < 4 && i < dim; ++p) {
    const std::size_t n = TailLanes(dim - i, p);
    const auto lanes = V::LoadFirst(q + i + 8 * p, n);
    a[p] = V::First(n, V::Fma(lanes, V::LoadFirst(key0 + i + 8 * p, n), a[p]), a[p]);
    b[p] = V::First(n, V::Fma(lanes, V::LoadFirst(key1 + i + 8 * p, n), b[p]), b[p]);
  }
  *folded0 = Fold<V>(a);
  *folded1 = Fold<V>(b);
}

// scores[j .. j+8) = dot(q, key) * scale; places past `count` repeat the last key.
template <class V>
void Scores8(const float* q, const float* keys, std::size_t stride, std::size_t j,
             std::size_t count, std::size_t dim, float scale, float* scores) {
  if constexpr (WideKernels<V>::kHas) {
    if (dim % 32 == 0) {
      const float* key[8];
      for (std::size_t i = 0; i < 8; ++i) {
        key[i] = keys + std::min(j + i, count - 1) * stride;
      }
      WideKernels<V>::Dots8(q, key, dim, scale, scores + j);
      return;
    }
  }
  typename V::F folded[8];
  for (std::size_t i = 0; i < 8; i += 2) {
    const float* key0 = keys + std::min(j + i, count - 1) * stride;
    const float* key1 = keys + std::min(j + i + 1, count - 1) * stride;
    DotPair<V>(q, key0, key1, dim, folded + i, folded + i + 1);
  }
  V::Store(scores + j, V::Mul(V::Reduce8(folded), V::Set1(scale)));
}

// scores become exp(score - max); returns max. count is padded as Scores8 pads it.
template <class V>
float Exponentials(float* scores, std::size_t count) {
  auto lanes = V::Load(scores);
  for (std::size_t j = 8; j < count; j += 8) {
    lanes = V::Max(lanes, V::Load(scores + j));
  }
  const float max = V::MaxOf(lanes);
  for (std::size_t j = 0; j < count; j += 8) {
    V::Store(scores + j, ExpLanes<V>(V::Sub(V::Load(scores + j), V::Set1(max))));
  }
  return max;
}

// o[d .. d+8*kVectors) = ascending fma over the keys from +0.
template <class V, std::size_t kVectors>
void WeighColumns(const float* p, const float* values, std::size_t stride, std::size_t count,
                  float* o) {
  typename V::F sums[kVectors];
  for (auto& sum : sums) {
    sum = V::Zero();
  }
  for (std::size_t j = 0; j < count; ++j) {
    const auto weight = V::Set1(p[j]);
    for (std::size_t i = 0; i < kVectors; ++i) {
      sums[i] = V::Fma(weight, V::Load(values + j * stride + 8 * i), sums[i]);
    }
  }
  for (std::size_t i = 0; i < kVectors; ++i) {
    V::Store(o + 8 * i, sums[i]);
  }
}

// The running state of one (row, head).
struct AttentionState {
  float* max;
  float* sum;
  float* out;
};

template <class V>
void Merge(bool first, float max, float sum, const float* o, std::size_t width,
           const AttentionState& state) {
  if (first) {
    *state.max = max;
    *state.sum = sum;
    std::copy_n(o, width, state.out);
    return;
  }
  const float larger = *state.max > max ? *state.max : max;
  const float a = ExactExp(*state.max - larger);
  const float b = ExactExp(max - larger);
  *state.sum = *state.sum * a + sum * b;
  for (std::size_t d = 0; d < width; d += 8) {
    V::Store(state.out + d, V::Add(V::Mul(V::Load(state.out + d), V::Set1(a)),
                                   V::Mul(V::Load(o + d), V::Set1(b))));
  }
  *state.max = larger;
}

template <class V>
void Finish(const AttentionState& state, std::size_t dim, float* out) {
  const auto sum = V::Set1(*state.sum);
  for (std::size_t d = 0; d < dim; d += 8) {
    const std::size_t n = std::min<std::size_t>(8, dim - d);
    V::StoreFirst(out + d, V::Div(V::LoadFirst(state.out + d, n), sum), n);
  }
}

// Rows [row_begin, row_end), at most kAttentionChunkRows, all of one slot.
template <class V>
class AttentionChunk {
 public:
  AttentionChunk(const AttentionArgs& args, std::size_t slot, std::size_t kv_head, float* scratch)
      : args_(args),
        keys_(args.keys[slot]),
        values_(args.values[slot]),
        kv_head_(kv_head),
        group_(args.heads / args.kv_heads),
        cut_(args),
        scratch_(scratch) {}

  void Run(std::size_t row_begin, std::size_t row_end) {
    const std::int32_t last = *std::max_element(args_.index + row_begin, args_.index + row_end);
    const std::size_t keys = last < 0 ? 0 : static_cast<std::size_t>(last) + 1;
    for (std::size_t begin = 0; begin < keys; begin += kAttentionWindow) {
      const std::size_t count = std::min(kAttentionWindow, keys - begin);
      DecodeWindow<V>(keys_, begin, count, kv_head_ * args_.key_dim, args_.key_dim,
                      scratch_ + cut_.KeysAt(), cut_.key_stride);
      DecodeWindow<V>(values_, begin, count, kv_head_ * args_.value_dim, args_.value_dim,
                      scratch_ + cut_.ValuesAt(), cut_.value_stride);
      for (std::size_t row = row_begin; row < row_end; ++row) {
        RowWindow(row, row - row_begin, begin);
      }
    }
    for (std::size_t row = row_begin; row < row_end; ++row) {
      for (std::size_t g = 0; g < group_; ++g) {
        float* out = args_.out + row * args_.out_stride + (kv_head_ * group_ + g) * args_.value_dim;
        if (args_.index[row] < 0) {
          std::fill_n(out, args_.value_dim, 0.0F);
        } else {
          Finish<V>(State((row - row_begin) * group_ + g), args_.value_dim, out);
        }
      }
    }
  }

 private:
  AttentionState State(std::size_t i) const {
    return {scratch_ + cut_.MaxAt() + i, scratch_ + cut_.SumAt() + i,
            scratch_ + cut_.OutAt() + i * cut_.value_stride};
  }

  // What row sees of the decoded window that starts at key `begin`.
  void RowWindow(std::size_t row, std::size_t chunk_row, std::size_t begin) {
    const std::int64_t seen = static_cast<std::int64_t>(args_.index[row]) + 1;
    if (seen <= static_cast<std::int64_t>(begin)) {
      return;
    }
    const std::size_t count = std::min(kAttentionWindow, static_cast<std::size_t>(seen) - begin);
    // Heads go inside keys and columns, so that what is decoded is read from the nearest cache.
    const float* q = args_.q + row * args_.q_stride + kv_head_ * group_ * args_.key_dim;
    for (std::size_t j = 0; j < count; j += 8) {
      for (std::size_t g = 0; g < group_; ++g) {
        Scores8<V>(q + g * args_.key_dim, scratch_ + cut_.KeysAt(), cut_.key_stride, j, count,
                   args_.key_dim, args_.scale, WindowScores(g));
      }
    }
    float* max = scratch_ + cut_.WindowMaxAt();
    float* sum = scratch_ + cut_.WindowSumAt();
    for (std::size_t g = 0; g < group_; ++g) {
      max[g] = Exponentials<V>(WindowScores(g), count);
      sum[g] = Sum32<V>(WindowScores(g), count);
    }
    WeighValues(count);
    for (std::size_t g = 0; g < group_; ++g) {
      Merge<V>(begin == 0, max[g], sum[g], WindowOut(g), cut_.value_stride,
               State(chunk_row * group_ + g));
    }
  }

  // o of every head. Rows of values are padded to 16 floats; what the padding holds lands in the
  // padding of o.
  void WeighValues(std::size_t count) {
    const float* values = scratch_ + cut_.ValuesAt();
    const std::size_t stride = cut_.value_stride;
    std::size_t d = 0;
    for (; d + 64 <= stride; d += 64) {
      std::size_t g = 0;
      if constexpr (WideKernels<V>::kHas) {
        for (; g + 2 <= group_; g += 2) {
          WideKernels<V>::WeighPair(WindowScores(g), WindowScores(g + 1), values + d, stride, count,
                                    WindowOut(g) + d, WindowOut(g + 1) + d);
        }
      }
      for (; g < group_; ++g) {
        WeighColumns<V, 8>(WindowScores(g), values + d, stride, count, WindowOut(g) + d);
      }
    }
    for (; d < stride; d += 16) {
      for (std::size_t g = 0; g < group_; ++g) {
        WeighColumns<V, 2>(WindowScores(g), values + d, stride, count, WindowOut(g) + d);
      }
    }
  }

  float* WindowScores(std::size_t g) const {
    return scratch_ + cut_.ScoresAt() + g * kAttentionWindow;
  }
  float* WindowOut(std::size_t g) const {
    return scratch_ + cut_.WindowAt() + g * cut_.value_stride;
  }

  const AttentionArgs& args_;
  const KvView& keys_;
  const KvView& values_;
  std::size_t kv_head_;
  std::size_t group_;
  AttentionScratch cut_;
  float* scratch_;
};

inline std::size_t SlotOf(const AttentionArgs& args, std::size_t row) {
  return args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row]);
}

template <class V>
void AttentionTask(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                   std::size_t kv_head, std::byte* scratch) {
  std::size_t row = row_begin;
  while (row < row_end) {
    const std::size_t slot = SlotOf(args, row);
    std::size_t end = row + 1;
    while (end < row_end && end - row < kAttentionChunkRows && SlotOf(args, end) == slot) {
      ++end;
    }
    AttentionChunk<V>(args, slot, kv_head, reinterpret_cast<float*>(scratch)).Run(row, end);
    row = end;
  }
}

}  // namespace bloomery::kernels::cpu
