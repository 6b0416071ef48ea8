// Inside CUDA sources: the routing of one row by one warp, with the bits of reference::RouteRow.
#pragma once

#include <cstdint>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::cuda {

// Softmax of a row's logits in place: p[j] of lane l is that of expert 32j + l. Lanes of the sum
// are experts mod 32, ascending, then the tree. False where a logit is not finite; p is then 0.
template <int kValues>
__device__ __forceinline__ bool Softmax(float (&p)[kValues], std::int32_t experts) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  bool finite = true;
  float most = __uint_as_float(0xFF800000U);
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    if (32 * j + lane < experts) {
      finite = finite && (__float_as_uint(p[j]) & 0x7F800000U) != 0x7F800000U;
      most = p[j] > most ? p[j] : most;
    }
  }
  finite = __all_sync(kAll, finite);
  // Bits in ascending order of their floats, for one instruction over the warp.
  const std::uint32_t bits = __float_as_uint(most);
  const std::uint32_t ordered =
      __reduce_max_sync(kAll, bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U));
  most = __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000U : 0xFFFFFFFFU));
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    p[j] = finite ? ExactExp(p[j] - most) : 0.0F;
    if (32 * j + lane < experts) {
      sum += p[j];
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAll, sum, step);
  }
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    p[j] = finite ? p[j] / sum : 0.0F;
  }
  return finite;
}

// What lane l < top_k has of a row: pick l. Lanes from top_k on have nothing of use.
struct LanePick {
  std::int32_t id;
  float weight;  // NaN where a logit of the row is not finite
  bool finite;
};

// Of plain routers (moe.h). kValues: experts a lane holds, 32 * kValues at least as many as there
// are. Probabilities are not negative, so they order as their bits do; what is taken or does not
// exist is -1.
template <int kValues>
__device__ __forceinline__ LanePick RouteRow(const RouterArgs& router, std::int32_t row) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const auto experts = static_cast<std::int32_t>(router.experts);
  const auto top_k = static_cast<std::int32_t>(router.top_k);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const float* logits = router.logits + static_cast<std::size_t>(row) * router.logits_stride;
  float p[kValues];
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    p[j] = 32 * j + lane < experts ? logits[32 * j + lane] : 0.0F;
  }
  const bool finite = Softmax(p, experts);
  std::int32_t key[kValues];
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    key[j] = 32 * j + lane < experts ? __float_as_int(p[j]) : -1;
  }
  float picked = 0.0F;
  float mine = 0.0F;  // of pick `lane`
  std::int32_t my_id = 0;
  for (std::int32_t pick = 0; pick < top_k; ++pick) {
    std::int32_t best = -1;
    std::int32_t id = experts;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (key[j] > best) {
        best = key[j];
        id = 32 * j + lane;
      }
    }
    const std::int32_t most = __reduce_max_sync(kAll, best);
    id = __reduce_min_sync(kAll, best == most ? id : experts);
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      key[j] = 32 * j + lane == id ? -1 : key[j];
    }
    picked += __int_as_float(most);
    if (pick == lane) {
      mine = __int_as_float(most);
      my_id = id;
    }
  }
  const float w = (router.renormalise ? mine / picked : mine) * router.weight_scale;
  return {my_id, finite ? w : __uint_as_float(0x7FC00000U), finite};
}

// Sigmoids of a row's logits in place, as Softmax above.
template <int kValues>
__device__ __forceinline__ bool Sigmoids(float (&p)[kValues], std::int32_t experts) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  bool finite = true;
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    const bool is = 32 * j + lane < experts;
    finite = finite && (!is || (__float_as_uint(p[j]) & 0x7F800000U) != 0x7F800000U);
  }
  finite = __all_sync(0xFFFFFFFFU, finite);
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    p[j] = finite ? ExactSigmoid(p[j]) : 0.0F;
  }
  return finite;
}

// RouteRow of every router. What chooses may be negative: keys are the bits of floats put in the
// order of integers (no sum here is -0), and what is taken or does not exist is below all of them.
template <int kValues>
__device__ __forceinline__ LanePick RouteAnyRow(const RouterArgs& router, std::int32_t row) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  constexpr std::int32_t kNone = INT32_MIN;
  const auto experts = static_cast<std::int32_t>(router.experts);
  const auto top_k = static_cast<std::int32_t>(router.top_k);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const float* logits = router.logits + static_cast<std::size_t>(row) * router.logits_stride;
  float p[kValues];
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    p[j] = 32 * j + lane < experts ? logits[32 * j + lane] : 0.0F;
  }
  const bool finite =
      router.gate == RouterGate::kSigmoid ? Sigmoids(p, experts) : Softmax(p, experts);
  std::int32_t key[kValues];
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    key[j] = kNone;
    if (32 * j + lane < experts) {
      const float choice = router.bias == nullptr ? p[j] : p[j] + router.bias[32 * j + lane];
      const std::int32_t bits = __float_as_int(choice);
      key[j] = bits ^ ((bits >> 31) & INT32_MAX);
    }
  }
  float picked = 0.0F;
  float mine = 0.0F;  // of pick `lane`
  std::int32_t my_id = 0;
  for (std::int32_t pick = 0; pick < top_k; ++pick) {
    std::int32_t best = kNone;
    std::int32_t id = experts;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (key[j] > best) {
        best = key[j];
        id = 32 * j + lane;
      }
    }
    const std::int32_t most = __reduce_max_sync(kAll, best);
    id = __reduce_min_sync(kAll, best == most ? id : experts);
    float of_id = 0.0F;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (32 * j + lane != id) continue;
      key[j] = kNone;
      of_id = p[j];
    }
    of_id = __shfl_sync(kAll, of_id, id % 32);
    picked += of_id;
    if (pick == lane) {
      mine = of_id;
      my_id = id;
    }
  }
  picked = picked > router.sum_min ? picked : router.sum_min;
  const float w = (router.renormalise ? mine / picked : mine) * router.weight_scale;
  return {my_id, finite ? w : __uint_as_float(0x7FC00000U), finite};
}

}  // namespace bloomery::kernels::cuda
