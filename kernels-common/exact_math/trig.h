// Cosine, sine, exp and log in f64 for rotary angles, with one set of bits on every machine: only
// additions, products, divisions, fma and rint, each correctly rounded. Callers round to f32 once.
// Accuracy is far inside f32: SinCos is good to 1e-15 for |angle| <= 2^30, PowerOf to about
// 2^-50 * (1 + |exponent * ln base|) relative. ExactPowerOf is for hosts, the rest for C++ and
// CUDA.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels {

// pi/2 in two parts: n*High is subtracted exactly by one fma while |n| < 2^21.
struct TrigConstants {
  static constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  static constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
  static constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
  // Taylor: sin r = r + r^3 * S(r^2), cos r = 1 + r^2 * C(r^2), index = power of r; on |r| <= pi/4
  // the first term left out is below 1e-17.
  static constexpr double kSin17 = 1.0 / 355687428096000.0;
  static constexpr double kSin15 = -1.0 / 1307674368000.0;
  static constexpr double kSin13 = 1.0 / 6227020800.0;
  static constexpr double kSin11 = -1.0 / 39916800.0;
  static constexpr double kSin9 = 1.0 / 362880.0;
  static constexpr double kSin7 = -1.0 / 5040.0;
  static constexpr double kSin5 = 1.0 / 120.0;
  static constexpr double kSin3 = -1.0 / 6.0;
  static constexpr double kCos16 = 1.0 / 20922789888000.0;
  static constexpr double kCos14 = -1.0 / 87178291200.0;
  static constexpr double kCos12 = 1.0 / 479001600.0;
  static constexpr double kCos10 = -1.0 / 3628800.0;
  static constexpr double kCos8 = 1.0 / 40320.0;
  static constexpr double kCos6 = -1.0 / 720.0;
  static constexpr double kCos4 = 1.0 / 24.0;
  static constexpr double kCos2 = -1.0 / 2.0;
  // The same, highest power first, for loops of host code.
  static constexpr double kSin[8] = {kSin17, kSin15, kSin13, kSin11, kSin9, kSin7, kSin5, kSin3};
  static constexpr double kCos[8] = {kCos16, kCos14, kCos12, kCos10, kCos8, kCos6, kCos4, kCos2};
};

BLOOMERY_EXACT double ExactFma64(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

BLOOMERY_EXACT double ExactRint64(double x) {
#if defined(__CUDA_ARCH__)
  return rint(x);
#else
  return std::rint(x);
#endif
}

struct SinCosResult {
  double sin;
  double cos;
};

BLOOMERY_EXACT SinCosResult ExactSinCos(double angle) {
  using C = TrigConstants;
  const double n = ExactRint64(angle * C::kTwoOverPi);
  double r = ExactFma64(-n, C::kHalfPiHigh, angle);
  r = ExactFma64(-n, C::kHalfPiLow, r);
  const double r2 = r * r;
  double s = C::kSin17;
  s = ExactFma64(s, r2, C::kSin15);
  s = ExactFma64(s, r2, C::kSin13);
  s = ExactFma64(s, r2, C::kSin11);
  s = ExactFma64(s, r2, C::kSin9);
  s = ExactFma64(s, r2, C::kSin7);
  s = ExactFma64(s, r2, C::kSin5);
  s = ExactFma64(s, r2, C::kSin3);
  double c = C::kCos16;
  c = ExactFma64(c, r2, C::kCos14);
  c = ExactFma64(c, r2, C::kCos12);
  c = ExactFma64(c, r2, C::kCos10);
  c = ExactFma64(c, r2, C::kCos8);
  c = ExactFma64(c, r2, C::kCos6);
  c = ExactFma64(c, r2, C::kCos4);
  c = ExactFma64(c, r2, C::kCos2);
  s = ExactFma64(r * r2, s, r);
  c = ExactFma64(r2, c, 1.0);
  const auto quadrant = static_cast<std::uint32_t>(static_cast<std::int32_t>(n)) & 3U;
  const double sine = (quadrant & 1U) != 0 ? c : s;
  const double cosine = (quadrant & 1U) != 0 ? s : c;
  return {(quadrant & 2U) != 0 ? -sine : sine, ((quadrant + 1U) & 2U) != 0 ? -cosine : cosine};
}

BLOOMERY_EXACT std::uint64_t ExactBits64(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(__double_as_longlong(x));
#else
  return std::bit_cast<std::uint64_t>(x);
#endif
}

BLOOMERY_EXACT double ExactFromBits64(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return std::bit_cast<double>(bits);
#endif
}

// Natural logarithm of a positive normal number, by 2*atanh((m-1)/(m+1)).
BLOOMERY_EXACT double ExactLog(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  const std::uint64_t bits = ExactBits64(x);
  int exponent = static_cast<int>(bits >> 52U) - 1023;
  double m = ExactFromBits64((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 1.0 / 27.0;  // |s| <= 0.172: the next term is below 1e-22
  for (int odd = 25; odd >= 3; odd -= 2) {
    series = ExactFma64(series, s2, 1.0 / odd);
  }
  const double log_m = 2.0 * ExactFma64(s * s2, series, s);
  return ExactFma64(static_cast<double>(exponent), kLn2, log_m);
}

// e^x for |x| <= 700.
BLOOMERY_EXACT double ExactExp64(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa39efp-1;
  constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;
  const double n = ExactRint64(x * kLog2E);
  double r = ExactFma64(-n, kLn2High, x);
  r = ExactFma64(-n, kLn2Low, r);
  double p = 1.0;  // Horner by division-free factorials: p = 1 + r/k * p, k = 14 .. 1
  for (int k = 14; k >= 1; --k) {
    p = ExactFma64(r * (1.0 / k), p, 1.0);
  }
  const auto power = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52U;
  return p * ExactFromBits64(power);
}

// ln(1 + e^x); x itself above 20, where they differ by less than half an ulp. Within 1 ulp; NaN
// stays NaN.
BLOOMERY_EXACT float ExactSoftplus(float x) {
  constexpr float kSame = 20.0F;
  constexpr float kLow = -87.0F;
  if (x != x || x > kSame) {
    return x;
  }
  const double e = ExactExp64(static_cast<double>(x < kLow ? kLow : x));
  const double y = 1.0 + e;
  // What the sum lost is put back by the quotient.
  return static_cast<float>(y == 1.0 ? e : ExactLog(y) * (e / (y - 1.0)));
}

// base^exponent for base > 0.
inline double ExactPowerOf(double base, double exponent) {
  return ExactExp64(exponent * ExactLog(base));
}

}  // namespace bloomery::kernels
