// Eight f32 lanes in plain C++: what the templates of the CPU kernels need from an instruction set.
// lanes_avx2.h has the same operations; each is one correctly rounded operation a lane, so a
// template gives the same bits with both. Internal to kernels-common/*/cpu.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cpu {

struct ScalarLanes {
  struct F {
    float v[8];
  };
  static constexpr std::size_t kLanes = 8;

  template <class Op>
  static F Map(Op op) {
    F out;
    for (int i = 0; i < 8; ++i) {
      out.v[i] = op(i);
    }
    return out;
  }

  static F Zero() { return Set1(0.0F); }
  static F Set1(float x) {
    return Map([&](int) { return x; });
  }
  static F Load(const float* p) {
    return Map([&](int i) { return p[i]; });
  }
  static void Store(float* p, F a) { std::memcpy(p, a.v, sizeof(a.v)); }
  // The first n lanes from memory, the others zero; n <= 8.
  static F LoadFirst(const float* p, std::size_t n) {
    return Map([&](int i) { return static_cast<std::size_t>(i) < n ? p[i] : 0.0F; });
  }
  static void StoreFirst(float* p, F a, std::size_t n) { std::memcpy(p, a.v, n * sizeof(float)); }

  // Eight floats at any address.
  static F LoadBytes(const std::byte* p) {
    F out;
    std::memcpy(out.v, p, sizeof(out.v));
    return out;
  }
  // Eight weights or plane values of two bytes, exact.
  static F LoadHalf(const std::byte* p) {
    return Map([&](int i) { return HalfToFloat(Word(p, i)); });
  }
  // One half in every lane.
  static F SetHalf(const std::byte* p) { return Set1(HalfToFloat(Word(p, 0))); }
  static F LoadBf16(const std::byte* p) {
    return Map(
        [&](int i) { return std::bit_cast<float>(static_cast<std::uint32_t>(Word(p, i)) << 16U); });
  }
  static F LoadInt8(const std::byte* p) {
    return Map([&](int i) { return static_cast<float>(static_cast<std::int8_t>(p[i])); });
  }
  static void StoreHalf(std::byte* p, F a) {
    for (int i = 0; i < 8; ++i) {
      const std::uint16_t half = FloatToHalf(a.v[i]);
      std::memcpy(p + 2 * i, &half, 2);
    }
  }

  static F Add(F a, F b) {
    return Map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F Sub(F a, F b) {
    return Map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F Mul(F a, F b) {
    return Map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F Div(F a, F b) {
    return Map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F Fma(F a, F b, F c) {
    return Map([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  // b where either is NaN, as the x86 instructions do.
  static F Max(F a, F b) {
    return Map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F Min(F a, F b) {
    return Map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F Rint(F a) {
    return Map([&](int i) { return std::rint(a.v[i]); });
  }
  static F Negate(F a) {
    return Map([&](int i) { return -a.v[i]; });
  }
  // 2^n of integral n in [-126, 127]; any bits where n is NaN.
  static F PowerOfTwo(F n) {
    return Map([&](int i) {
      const int whole = n.v[i] == n.v[i] ? static_cast<int>(n.v[i]) : 0;
      return std::bit_cast<float>(static_cast<std::uint32_t>(whole + 127) << 23U);
    });
  }
  // x where x is NaN, else y.
  static F KeepNan(F x, F y) {
    return Map([&](int i) { return x.v[i] != x.v[i] ? x.v[i] : y.v[i]; });
  }
  // `changed` in the first n lanes, `kept` in the others.
  static F First(std::size_t n, F changed, F kept) {
    return Map([&](int i) { return static_cast<std::size_t>(i) < n ? changed.v[i] : kept.v[i]; });
  }

  // The tree 4, 2, 1 over eight lanes.
  static float Reduce(F a) {
    const float s0 = (a.v[0] + a.v[4]) + (a.v[2] + a.v[6]);
    const float s1 = (a.v[1] + a.v[5]) + (a.v[3] + a.v[7]);
    return s0 + s1;
  }
  static float MaxOf(F a) {
    float max = a.v[0];
    for (int i = 1; i < 8; ++i) {
      max = max > a.v[i] ? max : a.v[i];
    }
    return max;
  }
  // rows[i], lane j becomes rows[j], lane i; kLanes rows.
  static void Transpose(F* rows) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        std::swap(rows[i].v[j], rows[j].v[i]);
      }
    }
  }

 private:
  static std::uint16_t Word(const std::byte* p, int i) {
    std::uint16_t word = 0;
    std::memcpy(&word, p + 2 * i, 2);
    return word;
  }
};

}  // namespace bloomery::kernels::cpu
