#include "kernels-common/quant/iq_tables.h"

#include <bit>
#include <cstddef>

namespace bloomery::kernels {
namespace {

#include "kernels-common/quant/iq_tables.inc"

template <class Entry, unsigned kBits, std::size_t kEntries, std::size_t kLevels>
constexpr std::array<Entry, kEntries> Expand(const std::uint16_t (&packed)[kEntries],
                                             const std::int8_t (&levels)[kLevels], int factor) {
  std::array<Entry, kEntries> grid{};
  for (std::size_t e = 0; e < kEntries; ++e) {
    for (unsigned i = 0; i < sizeof(Entry); ++i) {
      const unsigned level = (packed[e] >> (kBits * i)) & ((1U << kBits) - 1U);
      const auto code = static_cast<std::uint8_t>(levels[level] * factor);
      grid[e] |= static_cast<Entry>(code) << (8 * i);
    }
  }
  return grid;
}

constexpr std::array<std::uint64_t, 128> MakeEvenSignMasks() {
  std::array<std::uint64_t, 128> masks{};
  for (unsigned index = 0; index < 128; ++index) {
    for (unsigned i = 0; i < 8; ++i) {
      const bool negative = ((EvenSigns(index) >> i) & 1U) != 0;
      masks[index] |= static_cast<std::uint64_t>(negative ? 0xFF : 0) << (8 * i);
    }
  }
  return masks;
}

constexpr float NvScale(std::uint8_t code) {
  if (code == 0 || code == 0x7F) {
    return 0.0F;
  }
  const unsigned exponent = (code >> 3U) & 15U;
  const auto mantissa = static_cast<float>(code & 7U);
  if (exponent == 0) {
    return mantissa * 0x1p-10F;
  }
  // (1 + mantissa/8) * 2^(exponent-7) / 2, as (8 + mantissa) * 2^(exponent-11)
  return (8.0F + mantissa) * std::bit_cast<float>((exponent + 127U - 11U) << 23U);
}

constexpr std::array<float, 256> MakeNvScales() {
  std::array<float, 256> scales{};
  for (unsigned code = 0; code < 256; ++code) {
    scales[code] = NvScale(static_cast<std::uint8_t>(code));
  }
  return scales;
}

}  // namespace

constexpr std::array<std::uint64_t, 256> kIq2XxsGrid =
    Expand<std::uint64_t, 2>(kIq2XxsPacked, kIq2XxsLevels, 1);
constexpr std::array<std::uint64_t, 512> kIq2XsGrid =
    Expand<std::uint64_t, 2>(kIq2XsPacked, kIq2XsLevels, 1);
constexpr std::array<std::uint64_t, 1024> kIq2SGrid =
    Expand<std::uint64_t, 2>(kIq2SPacked, kIq2SLevels, 1);
constexpr std::array<std::uint32_t, 256> kIq3XxsGrid =
    Expand<std::uint32_t, 3>(kIq3XxsPacked, kIq3XxsLevels, 1);
constexpr std::array<std::uint32_t, 512> kIq3SGrid =
    Expand<std::uint32_t, 3>(kIq3SPacked, kIq3SLevels, 1);
constexpr std::array<std::uint64_t, 2048> kIq1Grid =
    Expand<std::uint64_t, 2>(kIq1SPacked, kIq1SLevels, 8);
constexpr std::array<std::uint64_t, 128> kEvenSignMasks = MakeEvenSignMasks();
constexpr std::array<float, 256> kNvScales = MakeNvScales();

}  // namespace bloomery::kernels
