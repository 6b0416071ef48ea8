// Checked integer arithmetic for sizes, counts and offsets that come from outside: each function
// gives the exact result or throws Error(kind) naming what was computed and its operands. Values
// only: owns nothing, any thread. For quantities we made ourselves plain arithmetic is enough.
//
//   uint64_t end = CheckedAdd(offset, bytes, ErrorKind::kBadModel, "end of tensor data");
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"

namespace bloomery {

namespace internal {
// Out of line so that the checked path stays small.
[[noreturn]] void ThrowOverflow(ErrorKind kind, std::string_view what, const std::string& operands);
}  // namespace internal

// a + b; throws Error(kind, "<what>: a + b overflows …").
template <std::unsigned_integral T>
T CheckedAdd(T a, T b, ErrorKind kind, std::string_view what) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) {
    internal::ThrowOverflow(kind, what, std::to_string(a) + " + " + std::to_string(b));
  }
  return sum;
}

// a * b; throws Error(kind, "<what>: a * b overflows …").
template <std::unsigned_integral T>
T CheckedMul(T a, T b, ErrorKind kind, std::string_view what) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) {
    internal::ThrowOverflow(kind, what, std::to_string(a) + " * " + std::to_string(b));
  }
  return product;
}

// a - b; throws Error(kind, …) when b > a.
template <std::unsigned_integral T>
T CheckedSub(T a, T b, ErrorKind kind, std::string_view what) {
  if (b > a) internal::ThrowOverflow(kind, what, std::to_string(a) + " - " + std::to_string(b));
  return a - b;
}

// The same value as another integer type; throws Error(kind, …) when that type cannot hold it.
template <std::integral To, std::integral From>
To CheckedNarrow(From value, ErrorKind kind, std::string_view what) {
  if (!std::in_range<To>(value)) internal::ThrowOverflow(kind, what, std::to_string(value));
  return static_cast<To>(value);
}

// `value` rounded up to a multiple of `alignment` (> 0); throws Error(kind, …) on overflow.
template <std::unsigned_integral T>
T CheckedAlignUp(T value, T alignment, ErrorKind kind, std::string_view what) {
  const T rest = static_cast<T>(value % alignment);
  return rest == 0 ? value : CheckedAdd(value, static_cast<T>(alignment - rest), kind, what);
}

}  // namespace bloomery
