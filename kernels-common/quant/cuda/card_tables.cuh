// Inside CUDA sources: the code books of the IQ types in device memory, each source's own copy.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

// The unused ones among the tables' constants.
#pragma nv_diag_suppress 177
namespace card_tables {

#include "kernels-common/quant/iq_tables.inc"

template <class Entry, int kEntries>
struct Table {
  Entry entry[kEntries];
};

// An entry's codes as bytes, the first in the lowest; each packed as kBits of an index into levels.
template <class Entry, int kBits, int kEntries, int kLevels>
constexpr Table<Entry, kEntries> Expand(const std::uint16_t (&packed)[kEntries],
                                        const std::int8_t (&levels)[kLevels]) {
  Table<Entry, kEntries> table{};
  for (int e = 0; e < kEntries; ++e) {
    for (unsigned i = 0; i < sizeof(Entry); ++i) {
      const int level = (packed[e] >> (kBits * i)) & ((1 << kBits) - 1);
      table.entry[e] |= static_cast<Entry>(static_cast<std::uint8_t>(levels[level])) << (8 * i);
    }
  }
  return table;
}

}  // namespace card_tables

static __device__ constexpr card_tables::Table<std::uint64_t, 256> kIq2XxsBook =
    card_tables::Expand<std::uint64_t, 2>(card_tables::kIq2XxsPacked, card_tables::kIq2XxsLevels);
static __device__ constexpr card_tables::Table<std::uint64_t, 512> kIq2XsBook =
    card_tables::Expand<std::uint64_t, 2>(card_tables::kIq2XsPacked, card_tables::kIq2XsLevels);
static __device__ constexpr card_tables::Table<std::uint32_t, 256> kIq3XxsBook =
    card_tables::Expand<std::uint32_t, 3>(card_tables::kIq3XxsPacked, card_tables::kIq3XxsLevels);
static __device__ constexpr card_tables::Table<std::uint32_t, 512> kIq3SBook =
    card_tables::Expand<std::uint32_t, 3>(card_tables::kIq3SPacked, card_tables::kIq3SLevels);
#pragma nv_diag_default 177

}  // namespace bloomery::kernels::cuda
