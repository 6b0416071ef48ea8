// The IQ types of 256: codes from a code book, odd sub-block scales 2s+1 (the file's (s + 1/2)
// times a power of two, which goes into d).
#include <cstring>

#include "kernels-common/quant/blocks.h"
#include "kernels-common/quant/iq_tables.h"

namespace bloomery::kernels {
namespace {

std::int16_t Odd(unsigned s) { return static_cast<std::int16_t>(2 * s + 1); }

unsigned NibbleAt(const std::byte* bytes, std::size_t i) {
  return (ByteAt(bytes, i / 2) >> (4 * (i % 2))) & 15U;
}

std::uint32_t WordsAt(const std::byte* p) {
  std::uint32_t word = 0;
  std::memcpy(&word, p, 4);
  return word;
}

// Eight magnitudes with the signs of a bit mask.
void Signed8(std::uint64_t magnitudes, unsigned signs, std::int8_t* codes) {
  for (unsigned i = 0; i < 8; ++i) {
    const int magnitude = static_cast<int>((magnitudes >> (8 * i)) & 255U);
    codes[i] = static_cast<std::int8_t>(((signs >> i) & 1U) != 0 ? -magnitude : magnitude);
  }
}

std::uint64_t Two(std::uint32_t low, std::uint32_t high) {
  return low | (static_cast<std::uint64_t>(high) << 32U);
}

// 8 (g) + 1 or - 1 for the eight values of an entry: the file's g +- 1/8, times 8.
void Shifted8(std::uint64_t entry, bool minus, std::int8_t* codes) {
  for (unsigned i = 0; i < 8; ++i) {
    const auto code = static_cast<std::int8_t>((entry >> (8 * i)) & 255U);
    codes[i] = static_cast<std::int8_t>(code + (minus ? -1 : 1));
  }
}

}  // namespace

// d, then for each 32: four index bytes and a word of four 7-bit sign indices and a 4-bit scale.
void UnpackIq2Xxs(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block) * 0.125F, out);
  for (std::size_t j = 0; j < 8; ++j) {
    const std::byte* part = block + 2 + 8 * j;
    const std::uint32_t word = WordsAt(part + 4);
    out->scales[2 * j] = out->scales[2 * j + 1] = Odd(word >> 28U);
    for (std::size_t l = 0; l < 4; ++l) {
      Signed8(kIq2XxsGrid[ByteAt(part, l)], EvenSigns((word >> (7 * l)) & 127U),
              out->codes + 32 * j + 8 * l);
    }
  }
}

// d, 32 words of a 9-bit index and a 7-bit sign index, 16 nibbles of scales.
void UnpackIq2Xs(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block) * 0.125F, out);
  for (std::size_t j = 0; j < 16; ++j) {
    out->scales[j] = Odd(NibbleAt(block + 66, j));
  }
  for (std::size_t l = 0; l < 32; ++l) {
    const unsigned word = WordAt(block + 2 + 2 * l);
    Signed8(kIq2XsGrid[word & 511U], EvenSigns(word >> 9U), out->codes + 8 * l);
  }
}

// d, 32 low index bytes, 32 sign bytes, 8 bytes of high index pairs, 16 nibbles of scales.
void UnpackIq2S(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block) * 0.125F, out);
  for (std::size_t j = 0; j < 16; ++j) {
    out->scales[j] = Odd(NibbleAt(block + 74, j));
  }
  for (std::size_t l = 0; l < 32; ++l) {
    const unsigned high = (ByteAt(block, 66 + l / 4) >> (2 * (l % 4))) & 3U;
    Signed8(kIq2SGrid[ByteAt(block, 2 + l) | (high << 8U)], ByteAt(block, 34 + l),
            out->codes + 8 * l);
  }
}

// d, 64 index bytes of four values each, 8 words of four 7-bit sign indices and a 4-bit scale.
void UnpackIq3Xxs(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block) * 0.25F, out);
  for (std::size_t j = 0; j < 8; ++j) {
    const std::uint32_t word = WordsAt(block + 66 + 4 * j);
    out->scales[2 * j] = out->scales[2 * j + 1] = Odd(word >> 28U);
    for (std::size_t l = 0; l < 4; ++l) {
      const std::byte* index = block + 2 + 8 * j + 2 * l;
      Signed8(Two(kIq3XxsGrid[ByteAt(index, 0)], kIq3XxsGrid[ByteAt(index, 1)]),
              EvenSigns((word >> (7 * l)) & 127U), out->codes + 32 * j + 8 * l);
    }
  }
}

// d, 64 low index bytes, 8 bytes of high index bits, 32 sign bytes, 8 nibbles of scales.
void UnpackIq3S(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block), out);
  for (std::size_t j = 0; j < 8; ++j) {
    out->scales[2 * j] = out->scales[2 * j + 1] = Odd(NibbleAt(block + 106, j));
  }
  const auto entry = [block](std::size_t i) {
    const unsigned high = (ByteAt(block, 66 + i / 8) >> (i % 8)) & 1U;
    return kIq3SGrid[ByteAt(block, 2 + i) | (high << 8U)];
  };
  for (std::size_t l = 0; l < 32; ++l) {
    Signed8(Two(entry(2 * l), entry(2 * l + 1)), ByteAt(block, 74 + l), out->codes + 8 * l);
  }
}

// d, 32 low index bytes, 8 words: four 3-bit high indices, a 3-bit scale, a sign for the eighth.
void UnpackIq1S(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block) * 0.125F, out);
  for (std::size_t j = 0; j < 8; ++j) {
    const unsigned word = WordAt(block + 34 + 2 * j);
    out->scales[2 * j] = out->scales[2 * j + 1] = Odd((word >> 12U) & 7U);
    for (std::size_t l = 0; l < 4; ++l) {
      const unsigned index = ByteAt(block, 2 + 4 * j + l) | (((word >> (3 * l)) & 7U) << 8U);
      Shifted8(kIq1Grid[index], (word & 0x8000U) != 0, out->codes + 32 * j + 8 * l);
    }
  }
}

// 32 low index bytes, 32 nibbles of three high index bits and a sign for the eighth, 4 words of
// four 3-bit scales whose top nibbles together are d.
void UnpackIq1M(const std::byte* block, IntegerBlock* out) {
  unsigned half = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    const unsigned word = WordAt(block + 48 + 2 * w);
    half |= (word >> 12U) << (4 * w);
    for (std::size_t i = 0; i < 4; ++i) {
      out->scales[4 * w + i] = Odd((word >> (3 * i)) & 7U);
    }
  }
  NoMins(HalfToFloat(static_cast<std::uint16_t>(half)) * 0.125F, out);
  for (std::size_t l = 0; l < 32; ++l) {
    const unsigned high = NibbleAt(block + 32, l);
    Shifted8(kIq1Grid[ByteAt(block, l) | ((high & 7U) << 8U)], (high & 8U) != 0,
             out->codes + 8 * l);
  }
}

// d, a word of high scale pairs, 8 low scale nibbles, nibbles of IQ4_NL's table: in each 32, byte j
// holds elements j and j + 16. Scales lie 32 above their value.
void UnpackIq4Xs(const std::byte* block, IntegerBlock* out) {
  NoMins(HalfAt(block), out);
  const unsigned high = WordAt(block + 2);
  for (std::size_t j = 0; j < 8; ++j) {
    const unsigned scale = NibbleAt(block + 4, j) | (((high >> (2 * j)) & 3U) << 4U);
    out->scales[2 * j] = out->scales[2 * j + 1] =
        static_cast<std::int16_t>(static_cast<int>(scale) - 32);
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned byte = ByteAt(block, 8 + 16 * j + i % 16);
      out->codes[32 * j + i] = kIq4Values[i < 16 ? byte & 15U : byte >> 4U];
    }
  }
}

}  // namespace bloomery::kernels
