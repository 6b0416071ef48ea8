// F32, F16 and BF16 rows: the value itself, or rounded to nearest even. A value that rounds to
// infinity is refused.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels-common/quant/quantisers.h"

namespace bloomery::kernels {
namespace {

std::uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

template <std::uint16_t (*kRound)(float), std::uint16_t kInfinity>
std::size_t QuantiseWords(const float* values, std::byte* row, std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    const std::uint16_t word = std::isfinite(values[i]) ? kRound(values[i]) : kInfinity;
    if ((word & 0x7FFFU) == kInfinity) {
      return i;
    }
    std::memcpy(row + 2 * i, &word, 2);
  }
  return k;
}

}  // namespace

std::size_t QuantiseF32(const float* values, const float* /*importance*/, std::byte* row,
                        std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    if (!std::isfinite(values[i])) {
      return i;
    }
  }
  std::memcpy(row, values, k * sizeof(float));
  return k;
}

std::size_t QuantiseF16(const float* values, const float* /*importance*/, std::byte* row,
                        std::size_t k) {
  return QuantiseWords<FloatToHalf, 0x7C00>(values, row, k);
}

std::size_t QuantiseBf16(const float* values, const float* /*importance*/, std::byte* row,
                         std::size_t k) {
  return QuantiseWords<ToBf16, 0x7F80>(values, row, k);
}

}  // namespace bloomery::kernels
