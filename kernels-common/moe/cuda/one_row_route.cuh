// Inside CUDA sources: routing and the sum of picks of one row of up to 128 or 256 experts and 8
// picks, the shapes that decode speed depends on (one_row_experts.cu, layer/cuda).
#pragma once

#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/moe/cuda/route.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kOneRowPicks = 8;
inline constexpr int kOneRowExperts = 128;

// The expert of the pass's pick `last` (and all before it, whose weights lane l < 8 has of pick l)
// by one warp: reference::RouteRow's bits.
struct Routed {
  std::int32_t id;     // of pick `last`
  std::int32_t my_id;  // of pick `lane`
  float my_probability;
  float picked;  // their sum
  bool finite;

  // Of pick `lane`.
  __device__ __forceinline__ float Weight(bool renormalise, float scale) const {
    const float w = (renormalise ? my_probability / picked : my_probability) * scale;
    return finite ? w : __uint_as_float(0x7FC00000U);
  }
};

// `p`: logits of experts 32j + lane, 0 where there is none; kSlots is a power of two. each(pick,
// id) is called as soon as an expert is known.
template <int kSlots, class Each>
__device__ __forceinline__ Routed RouteUpTo(float (&p)[kSlots], int experts, int last,
                                            const Each& each) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool finite = Softmax(p, experts);
  std::int32_t key[kSlots];
#pragma unroll
  for (int j = 0; j < kSlots; ++j) key[j] = 32 * j + lane < experts ? __float_as_int(p[j]) : -1;
  Routed routed = {0, 0, 0.0F, 0.0F, finite};
#pragma unroll 1
  for (int pick = 0; pick <= last; ++pick) {
    std::int32_t best[kSlots];
    int slot[kSlots];
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      best[j] = key[j];
      slot[j] = j;
    }
#pragma unroll
    for (int step = 1; step < kSlots; step *= 2) {  // the lower slot where they are equal
#pragma unroll
      for (int j = 0; j < kSlots; j += 2 * step) {
        if (best[j + step] <= best[j]) continue;
        best[j] = best[j + step];
        slot[j] = slot[j + step];
      }
    }
    const std::int32_t most = __reduce_max_sync(kAllLanes, best[0]);
    const std::int32_t id =
        __reduce_min_sync(kAllLanes, best[0] == most ? 32 * slot[0] + lane : 32 * kSlots);
#pragma unroll
    for (int j = 0; j < kSlots; ++j) key[j] = 32 * j + lane == id ? -1 : key[j];
    routed.picked += __int_as_float(most);
    routed.id = id;
    each(pick, id);
    if (pick == lane) {
      routed.my_id = id;
      routed.my_probability = __int_as_float(most);
    }
  }
  return routed;
}

// Eight experts by descending logits to 25 bits (ties: the lower id), `bits` those of experts
// 32j + lane, by one warp: each(pick, id) as soon as an expert is known. A guess of RouteRow's
// picks: wrong where logits that it tells apart agree to 25 bits, or one is not finite.
template <class Each>
__device__ __forceinline__ void GuessPicks(const std::uint32_t (&bits)[4], const Each& each) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t key[4];  // ordered as floats, then ids; descending
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t ordered = bits[j] ^ ((bits[j] >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
    key[j] = (ordered & ~127U) | static_cast<std::uint32_t>(127 - 32 * j - lane);
  }
  const auto order = [&](int i, int j) {
    const std::uint32_t high = max(key[i], key[j]);
    key[j] = min(key[i], key[j]);
    key[i] = high;
  };
  order(0, 1);
  order(2, 3);
  order(0, 2);
  order(1, 3);
  order(1, 2);
#pragma unroll 1
  for (int pick = 0; pick < kOneRowPicks; ++pick) {
    const std::uint32_t most = __reduce_max_sync(kAllLanes, key[0]);
    if (key[0] == most) {
      key[0] = key[1];
      key[1] = key[2];
      key[2] = key[3];
      key[3] = 0;
    }
    each(pick, 127 - static_cast<int>(most & 127U));
  }
}

// N7 of an output's eight picks, four a lane with v_p each, lanes l and l + 16: f32(sum Q) * 2^-32.
__device__ __forceinline__ float SumOfPicks(const float (&values)[kOneRowPicks / 2],
                                            std::int32_t* failed_row) {
  bool valid = true;
  long long sum = 0;
#pragma unroll
  for (const float value : values) {
    valid = valid && fabsf(value) < 0x1p26F;
    sum += __double2ll_rn(static_cast<double>(value) * 0x1p32);
  }
  if (!valid) atomicMin(failed_row, 0);
  sum += __shfl_xor_sync(kAllLanes, sum, 16);
  return __ll2float_rn(sum) * 0x1p-32F;
}

// N7 of an output's eight picks, lanes 8r + pick with v_p each: f32(sum Q) * 2^-32. `others`: Q of
// picks that are summed elsewhere, counted once.
__device__ __forceinline__ float SumOfPicks(float value, std::int32_t* failed_row,
                                            long long others = 0) {
  const bool valid = fabsf(value) < 0x1p26F;
  if (!valid) atomicMin(failed_row, 0);
  long long sum = valid ? __double2ll_rn(static_cast<double>(value) * 0x1p32) : 0;
#pragma unroll
  for (int step = 1; step < kOneRowPicks; step *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  return __ll2float_rn(sum + others) * 0x1p-32F;
}

}  // namespace bloomery::kernels::cuda
