// Code books of the IQ types as bytes, for the format table and the vector kernels: an entry holds
// 8 (or 4) codes, the first in the lowest byte. Constant data. Internal.
#pragma once

#include <array>
#include <cstdint>

namespace bloomery::kernels {

extern const std::array<std::uint64_t, 256> kIq2XxsGrid;  // 8 magnitudes
extern const std::array<std::uint64_t, 512> kIq2XsGrid;   // 8 magnitudes
extern const std::array<std::uint64_t, 1024> kIq2SGrid;   // 8 magnitudes
extern const std::array<std::uint32_t, 256> kIq3XxsGrid;  // 4 magnitudes
extern const std::array<std::uint32_t, 512> kIq3SGrid;    // 4 magnitudes
extern const std::array<std::uint64_t, 2048> kIq1Grid;    // 8 signed codes, each 8 times its value

// Byte i of entry s is 0xFF where bit i of EvenSigns(s) is set: a sign mask.
extern const std::array<std::uint64_t, 128> kEvenSignMasks;

// IQ4_NL and IQ4_XS: the value of a nibble. MXFP4 and NVFP4: twice the E2M1 value.
inline constexpr std::array<std::int8_t, 16> kIq4Values = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr std::array<std::int8_t, 16> kFp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                           0, -1, -2, -3, -4, -6, -8, -12};

// The eight signs of a 7-bit index: the eighth makes the count of ones even.
constexpr unsigned EvenSigns(unsigned index) {
  const unsigned folded = index ^ (index >> 4U);
  return index | (((0x6996U >> (folded & 15U)) & 1U) << 7U);
}

// UE4M3 as NVFP4 uses it, by code: half of the value, so that it goes with doubled codes.
extern const std::array<float, 256> kNvScales;

}  // namespace bloomery::kernels
