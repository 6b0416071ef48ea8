// The functions of the numeric rule (N1, N6) with one set of bits on every machine: exp, silu, and
// the few correctly rounded primitives under them. For C++ and CUDA: no libm beyond fma, rint and
// sqrt, no contraction (-ffp-contract=off, --fmad=false). exact_math/lanes.h has the same steps on
// 8 lanes.
#pragma once

#if !defined(__CUDA_ARCH__)
#include <bit>
#include <cmath>
#endif
#include <cstdint>

#if defined(__CUDACC__)
#define BLOOMERY_EXACT __host__ __device__ inline
#else
#define BLOOMERY_EXACT inline
#endif

namespace bloomery::kernels {

// exp(x) = 2^n * e^r with n = rint(x * log2 e), r = x - n*ln2 in two fma steps (the first is
// exact), and e^r by the Taylor polynomial of degree 7, whose error 0.347^8/8! = 5e-9 is under a
// tenth of an ulp.
struct ExpConstants {
  static constexpr float kLow = -87.0F;  // 2^n stays a normal number on [kLow, kHigh]
  static constexpr float kHigh = 88.0F;
  static constexpr float kLog2E = 0x1.715476p+0F;
  static constexpr float kLn2High = 0x1.62e43p-1F;    // ln 2 rounded to f32
  static constexpr float kLn2Low = -0x1.05c610p-29F;  // ln 2 - kLn2High
  static constexpr float kC7 = 1.0F / 5040.0F;
  static constexpr float kC6 = 1.0F / 720.0F;
  static constexpr float kC5 = 1.0F / 120.0F;
  static constexpr float kC4 = 1.0F / 24.0F;
  static constexpr float kC3 = 1.0F / 6.0F;
  static constexpr float kC2 = 0.5F;
};

BLOOMERY_EXACT float ExactFma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

BLOOMERY_EXACT float ExactRint(float x) {
#if defined(__CUDA_ARCH__)
  return rintf(x);
#else
  return std::rint(x);
#endif
}

BLOOMERY_EXACT float ExactSqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

// 2^n for n in [-126, 127].
BLOOMERY_EXACT float ExactPowerOfTwo(std::int32_t n) {
  const std::uint32_t bits = static_cast<std::uint32_t>(n + 127) << 23;
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// e^x of x clamped to [-87, 88]; within 1 ulp there; NaN stays NaN.
BLOOMERY_EXACT float ExactExp(float x) {
  using C = ExpConstants;
  if (x != x) {
    return x;
  }
  x = x < C::kLow ? C::kLow : x;
  x = x > C::kHigh ? C::kHigh : x;
  const float n = ExactRint(x * C::kLog2E);
  float r = ExactFma(n, -C::kLn2High, x);
  r = ExactFma(n, -C::kLn2Low, r);
  float p = C::kC7;
  p = ExactFma(p, r, C::kC6);
  p = ExactFma(p, r, C::kC5);
  p = ExactFma(p, r, C::kC4);
  p = ExactFma(p, r, C::kC3);
  p = ExactFma(p, r, C::kC2);
  p = ExactFma(p, r, 1.0F);
  p = ExactFma(p, r, 1.0F);
  return p * ExactPowerOfTwo(static_cast<std::int32_t>(n));
}

// x / (1 + exp(-x)).
BLOOMERY_EXACT float ExactSilu(float x) { return x / (1.0F + ExactExp(-x)); }

// 1 / (1 + exp(-x)).
BLOOMERY_EXACT float ExactSigmoid(float x) { return 1.0F / (1.0F + ExactExp(-x)); }

// 1 / sqrt(x), two correctly rounded steps.
BLOOMERY_EXACT float ExactInverseSqrt(float x) { return 1.0F / ExactSqrt(x); }

}  // namespace bloomery::kernels
