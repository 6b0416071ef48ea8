// Repacking to the card form: one lane of a warp writes what the same lane of the kernels will
// read, gathered byte by byte from the file's blocks (once a load, far above the copy's speed).
#include "kernels-common/quant/cuda/card_form.h"

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/quant/cuda/card_form.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

using Byte = std::uint8_t;

// Where blocks of a type lie in the file, and their codes before tables, signs and offsets.
template <int kType>
struct FileBlock;

template <int kValues_, int kBytes_>
struct BlockSize {
  static constexpr int kValues = kValues_;
  static constexpr int kBytes = kBytes_;
};

// Nibble bytes in which byte j of each 2*kHalf values holds values j and j + kHalf.
template <int kHalf>
__device__ std::uint32_t HalvesNibble(const Byte* nibbles, int i) {
  const std::uint32_t byte = nibbles[i / (2 * kHalf) * kHalf + i % kHalf];
  return i % (2 * kHalf) < kHalf ? byte & 15U : byte >> 4;
}
// Bit pairs: each 128 values own 32 bytes, shifts 0, 2, 4, 6.
__device__ std::uint32_t FilePair(const Byte* bytes, int i) {
  return (bytes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3U;
}
// High bits: bit `part` of byte l is of value 32*part + l. The two come apart: where they were one
// value, nvcc 13.0 left the division by 32 out for odd values of Q5_K.
__device__ std::uint32_t FileBit(const Byte* bytes, int l, int part) {
  return (static_cast<std::uint32_t>(bytes[l]) >> part) & 1U;
}

template <>
struct FileBlock<kQ4_0> : BlockSize<32, 18> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    return HalvesNibble<16>(b + 2, i);
  }
};
template <>
struct FileBlock<kIq4Nl> : FileBlock<kQ4_0> {};
template <>
struct FileBlock<kMxfp4> : BlockSize<32, 17> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    return HalvesNibble<16>(b + 1, i);
  }
};
template <>
struct FileBlock<kNvfp4> : BlockSize<64, 36> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) { return HalvesNibble<8>(b + 4, i); }
};
template <>
struct FileBlock<kQ8_0> : BlockSize<32, 34> {};
template <>
struct FileBlock<kQ4K> : BlockSize<256, 144> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    return HalvesNibble<32>(b + 16, i);
  }
};
template <>
struct FileBlock<kQ5K> : BlockSize<256, 176> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    return HalvesNibble<32>(b + 48, i);
  }
  __device__ static std::uint32_t Bit(const Byte* b, int l, int part) {
    return FileBit(b + 16, l, part);
  }
};
template <>
struct FileBlock<kIq4Xs> : BlockSize<256, 136> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    return HalvesNibble<16>(b + 8, i);
  }
};
template <>
struct FileBlock<kQ6K> : BlockSize<256, 210> {
  __device__ static std::uint32_t Nibble(const Byte* b, int i) {
    const int part = i % 128 / 32;
    const std::uint32_t byte = b[i / 128 * 64 + 32 * (part % 2) + i % 32];
    return part < 2 ? byte & 15U : byte >> 4;
  }
  __device__ static std::uint32_t Pair(const Byte* b, int i) { return FilePair(b + 128, i); }
};
template <>
struct FileBlock<kQ2K> : BlockSize<256, 84> {
  __device__ static std::uint32_t Pair(const Byte* b, int i) { return FilePair(b + 16, i); }
};
template <>
struct FileBlock<kQ3K> : BlockSize<256, 110> {
  __device__ static std::uint32_t Pair(const Byte* b, int i) { return FilePair(b + 32, i); }
  __device__ static std::uint32_t Bit(const Byte* b, int l, int part) {
    return FileBit(b, l, part);
  }
};
template <>
struct FileBlock<kIq2Xxs> : BlockSize<256, 66> {};
template <>
struct FileBlock<kIq2Xs> : BlockSize<256, 74> {};
template <>
struct FileBlock<kIq3Xxs> : BlockSize<256, 98> {};
template <>
struct FileBlock<kIq3S> : BlockSize<256, 110> {};

// The file rows under a tile; values beyond n or k are null.
template <int kType>
struct FileTile {
  using Block = FileBlock<kType>;
  const Byte* rows;  // of the matrix
  int n;
  int k;
  int first_row;
  int first_value;

  // The block of value kk of the tile's row r; kk % Block::kValues is its place in the block.
  __device__ const Byte* At(int r, int kk) const {
    const int row = first_row + r;
    const int value = first_value + kk;
    if (row >= n || value >= k) return nullptr;
    const auto row_bytes = static_cast<std::size_t>(k / Block::kValues) * Block::kBytes;
    return rows + row * row_bytes +
           static_cast<std::size_t>(value / Block::kValues) * Block::kBytes;
  }
  __device__ std::uint32_t Nibble(int r, int kk) const {
    const Byte* block = At(r, kk);
    return block == nullptr ? 0U : Block::Nibble(block, kk % Block::kValues);
  }
  __device__ std::uint32_t Pair(int r, int kk) const {
    const Byte* block = At(r, kk);
    return block == nullptr ? 0U : Block::Pair(block, kk % Block::kValues);
  }
  // The high bit of value 32*part + l.
  __device__ std::uint32_t Bit(int r, int part, int l) const {
    const Byte* block = At(r, 0);
    return block == nullptr ? 0U : Block::Bit(block, l, part);
  }
  // Byte i of the block of value kk.
  __device__ Byte ByteOf(int r, int kk, int i) const {
    const Byte* block = At(r, kk);
    return block == nullptr ? Byte{0} : block[i];
  }
  __device__ std::uint32_t ShortOf(int r, int kk, int i) const {
    return ByteOf(r, kk, i) | static_cast<std::uint32_t>(ByteOf(r, kk, i + 1)) << 8;
  }
};

__device__ void Store(Byte* tile, int offset, std::uint32_t word) {
  *reinterpret_cast<std::uint32_t*>(tile + offset) = word;
}

// Word w of a lane's vectors.
__device__ int VectorOffset(int lane, int w) { return w / 4 * 512 + lane * 16 + w % 4 * 4; }

template <class Tile>
__device__ void PackNibbles32(const Tile& file, Byte* out, int lane) {
  for (int w = 0; w < 16; ++w) {
    const int i = w % 4;
    const int row = lane / 4 + 8 * (i & 1);
    const int kk = 64 * (w / 4) + 8 * (lane % 4) + 4 * (i / 2);
    std::uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      word |= (file.Nibble(row, kk + b) | file.Nibble(row, kk + 32 + b) << 4) << (8 * b);
    }
    Store(out, VectorOffset(lane, w), word);
  }
}

template <class Tile>
__device__ void PackNibbles16(const Tile& file, Byte* out, int lane) {
  for (int w = 0; w < 16; ++w) {
    const int row = lane / 4 + 8 * (w & 1);
    const int kk = 32 * (w / 2) + 4 * (lane % 4);
    std::uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      word |= (file.Nibble(row, kk + b) | file.Nibble(row, kk + 16 + b) << 4) << (8 * b);
    }
    Store(out, VectorOffset(lane, w), word);
  }
}

template <class Tile>
__device__ void PackPairs16(const Tile& file, Byte* out, int lane) {
  for (int w = 0; w < 8; ++w) {
    const int row = lane / 4 + 8 * (w & 1);
    std::uint32_t word = 0;
    for (int part = 0; part < 4; ++part) {
      const int kk = 16 * (4 * (w / 2) + part) + 4 * (lane % 4);
      for (int b = 0; b < 4; ++b) word |= file.Pair(row, kk + b) << (8 * b + 2 * part);
    }
    Store(out, VectorOffset(lane, w), word);
  }
}

template <class Tile>
__device__ void PackBits32(const Tile& file, Byte* out, int lane) {
  for (int w = 0; w < 4; ++w) {
    const int row = lane / 4 + 8 * (w & 1);
    std::uint32_t word = 0;
    for (int s = 0; s < 8; ++s) {
      const int l = 8 * (lane % 4) + 4 * (w / 2);
      for (int b = 0; b < 4; ++b) word |= file.Bit(row, s, l + b) << (8 * b + s);
    }
    Store(out, VectorOffset(lane, w), word);
  }
}

template <class Tile>
__device__ void PackBits16(const Tile& file, Byte* out, int lane) {
  for (int w = 0; w < 4; ++w) {
    const int row = lane / 4 + 8 * (w & 1);
    std::uint32_t word = 0;
    for (int s = 0; s < 8; ++s) {
      const int sub = 8 * (w / 2) + s;
      const int l = 16 * (sub % 2) + 4 * (lane % 4);
      for (int b = 0; b < 4; ++b) word |= file.Bit(row, sub / 2, l + b) << (8 * b + s);
    }
    Store(out, VectorOffset(lane, w), word);
  }
}

// Bytes [first, first + count) of each row's block, one row a lane.
template <class Tile>
__device__ void CopyRowBytes(const Tile& file, Byte* area, int lane, int first, int count) {
  if (lane >= 16) return;
  for (int i = 0; i < count; ++i) area[lane * count + i] = file.ByteOf(lane, 0, first + i);
}
// One f16 of each 32 values, and the same of bytes: the first bytes of blocks of 32.
template <class Tile>
__device__ void CopyBlockHeads(const Tile& file, Byte* area, int lane, int count) {
  if (lane >= 16) return;
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < count; ++i) {
      area[(lane * 8 + j) * count + i] = file.ByteOf(lane, 32 * j, i);
    }
  }
}

// IQ2: the entry of the 8 values at kk of row r: index | sign index << 9.
__device__ std::uint32_t Iq2Entry(const FileTile<kIq2Xxs>& file, int r, int kk) {
  const int j = kk / 32;
  const int l = kk % 32 / 8;
  const std::uint32_t word = file.ShortOf(r, kk, 2 + 8 * j + 4) | file.ShortOf(r, kk, 2 + 8 * j + 6)
                                                                      << 16;
  return file.ByteOf(r, kk, 2 + 8 * j + l) | ((word >> (7 * l)) & 127U) << 9;
}
__device__ std::uint32_t Iq2Entry(const FileTile<kIq2Xs>& file, int r, int kk) {
  return file.ShortOf(r, kk, 2 + 2 * (kk / 8));
}

// IQ3: the signs of the 8 values at kk.
__device__ std::uint32_t Iq3Signs(const FileTile<kIq3Xxs>& file, int r, int kk) {
  const int word = 66 + 4 * (kk / 32);
  const std::uint32_t bits = file.ShortOf(r, kk, word) | file.ShortOf(r, kk, word + 2) << 16;
  return EvenSignBits((bits >> (7 * (kk % 32 / 8))) & 127U);
}
__device__ std::uint32_t Iq3Signs(const FileTile<kIq3S>& file, int r, int kk) {
  return file.ByteOf(r, kk, 74 + kk / 8);
}
template <class Tile>
__device__ void PackIq3(const Tile& file, Byte* out, int lane, int first_index) {
  for (int s = 0; s < 8; ++s) {
    const int kk = 32 * s + 8 * (lane % 4);
    std::uint32_t indices = 0;
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      indices |= file.ShortOf(row, kk, first_index + kk / 4) << (16 * half);
      out[1024 + lane * 16 + 2 * s + half] = static_cast<Byte>(Iq3Signs(file, row, kk));
    }
    Store(out, VectorOffset(lane, s), indices);
  }
}

__device__ void Pack(const FileTile<kQ4K>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  CopyRowBytes(file, out + 2048, lane, 0, 16);
}
__device__ void Pack(const FileTile<kQ5K>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  PackBits32(file, out + 2048, lane);
  CopyRowBytes(file, out + 2560, lane, 0, 16);
}
__device__ void Pack(const FileTile<kQ6K>& file, Byte* out, int lane) {
  PackNibbles16(file, out, lane);
  PackPairs16(file, out + 2048, lane);
  CopyRowBytes(file, out + 3072, lane, 192, 16);
  CopyRowBytes(file, out + 3328, lane, 208, 2);
}
__device__ void Pack(const FileTile<kQ2K>& file, Byte* out, int lane) {
  PackPairs16(file, out, lane);
  CopyRowBytes(file, out + 1024, lane, 0, 16);
  CopyRowBytes(file, out + 1280, lane, 80, 4);
}
__device__ void Pack(const FileTile<kQ3K>& file, Byte* out, int lane) {
  PackPairs16(file, out, lane);
  PackBits16(file, out + 1024, lane);
  CopyRowBytes(file, out + 1792, lane, 108, 2);
  if (lane >= 16) return;
  for (int j = 0; j < 16; ++j) {  // 6-bit scales 32 above their value
    const int low = file.ByteOf(lane, 0, 96 + j % 8) >> (j < 8 ? 0 : 4) & 15;
    const int high = file.ByteOf(lane, 0, 104 + j % 4) >> (2 * (j / 4)) & 3;
    out[1536 + lane * 16 + j] = static_cast<Byte>((low | high << 4) - 32);
  }
}
__device__ void Pack(const FileTile<kIq4Xs>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  CopyRowBytes(file, out + 2176, lane, 0, 2);
  if (lane >= 16) return;
  const int high = static_cast<int>(file.ShortOf(lane, 0, 2));
  for (int j = 0; j < 8; ++j) {
    const int low = file.ByteOf(lane, 0, 4 + j / 2) >> (4 * (j % 2)) & 15;
    out[2048 + lane * 8 + j] = static_cast<Byte>((low | (high >> (2 * j) & 3) << 4) - 32);
  }
}
__device__ void Pack(const FileTile<kIq2Xxs>& file, Byte* out, int lane) {
  for (int s = 0; s < 8; ++s) {
    const int kk = 32 * s + 8 * (lane % 4);
    Store(out, VectorOffset(lane, s),
          Iq2Entry(file, lane / 4, kk) | Iq2Entry(file, lane / 4 + 8, kk) << 16);
  }
  CopyRowBytes(file, out + 1088, lane, 0, 2);
  if (lane >= 16) return;
  std::uint32_t scales = 0;
  for (int j = 0; j < 8; ++j) {
    scales |= static_cast<std::uint32_t>(file.ByteOf(lane, 0, 2 + 8 * j + 7) >> 4) << (4 * j);
  }
  Store(out, 1024 + 4 * lane, scales);
}
__device__ void Pack(const FileTile<kIq2Xs>& file, Byte* out, int lane) {
  if (lane % 2 == 0) {
    for (int s = 0; s < 16; ++s) {
      const int kk = 16 * s + 8 * (lane % 4 / 2);
      Store(out, s / 4 * 256 + lane / 2 * 16 + s % 4 * 4,
            Iq2Entry(file, lane / 4, kk) | Iq2Entry(file, lane / 4 + 8, kk) << 16);
    }
  }
  CopyRowBytes(file, out + 1024, lane, 66, 8);
  CopyRowBytes(file, out + 1152, lane, 0, 2);
}
__device__ void Pack(const FileTile<kIq3Xxs>& file, Byte* out, int lane) {
  PackIq3(file, out, lane, 2);
  CopyRowBytes(file, out + 1600, lane, 0, 2);
  if (lane >= 16) return;
  std::uint32_t scales = 0;
  for (int j = 0; j < 8; ++j) {
    scales |= static_cast<std::uint32_t>(file.ByteOf(lane, 0, 66 + 4 * j + 3) >> 4) << (4 * j);
  }
  Store(out, 1536 + 4 * lane, scales);
}
__device__ void Pack(const FileTile<kIq3S>& file, Byte* out, int lane) {
  PackIq3(file, out, lane, 2);
  std::uint32_t high = 0;
  for (int s = 0; s < 8; ++s) {
    const int entry = 8 * s + 2 * (lane % 4);  // of the row: four values each
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t bits = file.ByteOf(lane / 4 + 8 * half, 0, 66 + s) >> (entry % 8) & 3U;
      high |= bits << (4 * s + 2 * half);
    }
  }
  Store(out, 1536 + 4 * lane, high);
  CopyRowBytes(file, out + 1664, lane, 106, 4);
  CopyRowBytes(file, out + 1728, lane, 0, 2);
}
__device__ void Pack(const FileTile<kQ8_0>& file, Byte* out, int lane) {
  for (int w = 0; w < 32; ++w) {
    const int i = w % 4;
    const int row = lane / 4 + 8 * (i & 1);
    const int kk = 32 * (w / 4);
    std::uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      const int at = 2 + 8 * (lane % 4) + 4 * (i / 2) + b;
      word |= static_cast<std::uint32_t>(file.ByteOf(row, kk, at)) << (8 * b);
    }
    Store(out, VectorOffset(lane, w), word);
  }
  CopyBlockHeads(file, out + 4096, lane, 2);
}
__device__ void Pack(const FileTile<kQ4_0>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  CopyBlockHeads(file, out + 2048, lane, 2);
}
__device__ void Pack(const FileTile<kIq4Nl>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  CopyBlockHeads(file, out + 2048, lane, 2);
}
__device__ void Pack(const FileTile<kMxfp4>& file, Byte* out, int lane) {
  PackNibbles32(file, out, lane);
  CopyBlockHeads(file, out + 2048, lane, 1);
}
__device__ void Pack(const FileTile<kNvfp4>& file, Byte* out, int lane) {
  PackNibbles16(file, out, lane);
  if (lane >= 16) return;
  for (int j = 0; j < 16; ++j) {
    out[2048 + lane * 16 + j] = file.ByteOf(lane, 16 * j, j % 4);
  }
}

// One warp a tile; tiles of all experts in a row.
template <int kType>
__global__ void PackKernel(const Byte* rows, Byte* card, int n, int k, std::size_t tiles,
                           std::size_t tiles_of_expert, std::size_t expert_bytes) {
  WaitForInputs();
  const int groups = (k + 255) / 256;
  const auto stride = static_cast<std::size_t>(gridDim.x) * (blockDim.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::size_t tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; tile < tiles;
       tile += stride) {
    const std::size_t expert = tile / tiles_of_expert;
    const auto place = static_cast<int>(tile % tiles_of_expert);
    const FileTile<kType> file = {rows + expert * expert_bytes, n, k, place / groups * 16,
                                  place % groups * 256};
    Pack(file, card + tile * CardTile<kType>::kBytes, lane);
  }
}

// Values of sub-block s, word i, byte b of a lane's codes: row and place in the tile.
template <int kSpan>
__device__ int CodeRow(int lane, int i) {
  return lane / 4 + 8 * (i % 2);
}
template <int kSpan>
__device__ int CodeValue(int lane, int s, int i, int b) {
  return kSpan == 32 ? 32 * s + 8 * (lane % 4) + 4 * (i / 2) + b : 16 * s + 4 * (lane % 4) + b;
}

template <class Tile>
__device__ float TileValue(const typename Tile::Raw& raw, int s, int half, int code, int value) {
  const auto integer = static_cast<float>(code);
  if constexpr (Tile::kGroup == 32) {
    return Tile::D(raw, s, half) * integer;
  } else {
    const float scale = Tile::D(raw, half) * static_cast<float>(Tile::Scale(raw, s, half));
    if constexpr (Tile::kForm == BlockForm::kScaleMin) {
      const int part = value / 16;
      const std::uint32_t mins = Tile::Mins(raw, half, part / 4);
      const auto min = static_cast<float>((mins >> (8 * (part % 4))) & 255U);
      return __fmaf_rn(scale, integer, min * Tile::M(raw, half));
    } else {
      return scale * integer;
    }
  }
}

template <int kType>
__global__ void DecodeKernel(const std::byte* card, float* values, std::size_t n, std::size_t k) {
  using Tile = CardTile<kType>;
  WaitForInputs();
  constexpr int kWords = Tile::kSpan / 8;
  const std::size_t groups = (k + 255) / 256;
  const std::size_t place = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  typename Tile::Raw raw;
  Tile::Load(card + place * Tile::kBytes, lane, raw);
#pragma unroll
  for (int s = 0; s < 256 / Tile::kSpan; ++s) {
    std::uint32_t a[kWords];
    Tile::Codes(raw, s, a);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      for (int b = 0; b < 4; ++b) {
        const std::size_t row = place / groups * 16 + CodeRow<Tile::kSpan>(lane, i);
        const int value = CodeValue<Tile::kSpan>(lane, s, i, b);
        const std::size_t column = place % groups * 256 + value;
        if (row < n && column < k) {
          values[row * k + column] = TileValue<Tile>(raw, s, i % 2, SignedByte(a[i], b), value);
        }
      }
    }
  }
}

}  // namespace

bool HasCardForm(int ggml_type) { return CardTypes::Has(ggml_type); }

std::size_t CardTileBytes(int ggml_type) {
  std::size_t bytes = 0;
  CardTypes::HostDispatch(ggml_type,
                          [&](auto type) { bytes = CardTile<decltype(type)::value>::kBytes; });
  return bytes;
}

std::size_t CardBytes(int ggml_type, std::size_t n, std::size_t k) {
  return (n + kCardRows - 1) / kCardRows * ((k + kCardValues - 1) / kCardValues) *
         CardTileBytes(ggml_type);
}

cudaError_t ToCardForm(const Launch& launch, int ggml_type, const void* file_rows, void* card,
                       std::size_t n, std::size_t k, std::size_t experts) {
  cudaError_t status = cudaErrorInvalidValue;
  CardTypes::HostDispatch(ggml_type, [&](auto type) {
    constexpr int kType = decltype(type)::value;
    using Block = FileBlock<kType>;
    if (n == 0 || k == 0 || experts == 0 || k % Block::kValues != 0) return;
    const std::size_t tiles_of_expert = (n + 15) / 16 * ((k + 255) / 256);
    const std::size_t tiles = tiles_of_expert * experts;
    const std::size_t blocks = (tiles + 3) / 4;
    const auto grid = static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
    status = Start(launch, dim3(grid), dim3(128), 0, PackKernel<kType>,
                   static_cast<const Byte*>(file_rows), static_cast<Byte*>(card),
                   static_cast<int>(n), static_cast<int>(k), tiles, tiles_of_expert,
                   n * (k / Block::kValues) * Block::kBytes);
  });
  return status;
}

cudaError_t DecodeCardForm(const Launch& launch, int ggml_type, const void* card, float* values,
                           std::size_t n, std::size_t k) {
  cudaError_t status = cudaErrorInvalidValue;
  CardTypes::HostDispatch(ggml_type, [&](auto type) {
    const std::size_t tiles = (n + 15) / 16 * ((k + 255) / 256);
    status = Start(launch, dim3(static_cast<unsigned>(tiles)), dim3(32), 0,
                   DecodeKernel<decltype(type)::value>, static_cast<const std::byte*>(card), values,
                   n, k);
  });
  return status;
}

}  // namespace bloomery::kernels::cuda
