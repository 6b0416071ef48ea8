// Table rows decoded on the card: a thread decodes one value by itself, from blocks as they lie in
// the file (no alignment), with FormatTraits::decode_row's roundings. A pass embeds a few MB at
// most, so nothing is shared between threads.
#include <cuda_fp16.h>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ unsigned Word(const std::uint8_t* p) { return p[0] | (p[1] << 8); }

__device__ __forceinline__ float Half(const std::uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(Word(p))));
}

__device__ __forceinline__ int Nibble(const std::uint8_t* nibbles, int i) {
  return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
}

__device__ __forceinline__ int Iq4Value(int nibble) {
  constexpr std::int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
  return kValues[nibble];
}

__device__ __forceinline__ int Fp4Value(int nibble) {
  constexpr std::int8_t kValues[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  return nibble < 8 ? kValues[nibble] : -kValues[nibble - 8];
}

// The two bits of element i where each 128 elements own 32 bytes, shifts 0, 2, 4, 6.
__device__ __forceinline__ int BitPair(const std::uint8_t* bytes, int i) {
  return (bytes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
}

// Six-bit scale and min of sub-block j (quant/blocks_256.cc).
__device__ __forceinline__ int2 ScaleAndMin(const std::uint8_t* packed, int j) {
  if (j < 4) {
    return make_int2(packed[j] & 63, packed[j + 4] & 63);
  }
  return make_int2((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4),
                   (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4));
}

__device__ __forceinline__ float Scaled(float d, int scale, int code) {
  return d * static_cast<float>(scale) * static_cast<float>(code);
}

__device__ __forceinline__ float WithMin(float d, int scale, int code, float m, int min) {
  return ExactFma(d * static_cast<float>(scale), static_cast<float>(code),
                  static_cast<float>(min) * m);
}

// Half of a UE4M3 number (NVFP4 codes are doubled); 0x7F is zero (quant/iq_tables.cc).
__device__ __forceinline__ float NvScale(unsigned code) {
  const unsigned exponent = (code >> 3U) & 15U;
  const unsigned mantissa = code & 7U;
  if (code == 127U) {
    return 0.0F;
  }
  return exponent == 0 ? static_cast<float>(mantissa) * 0x1p-10F
                       : static_cast<float>(8 + mantissa) *
                             ExactPowerOfTwo(static_cast<std::int32_t>(exponent) - 11);
}

// One format: values and bytes of a block, and value i of one.
template <int type>
struct Table;

template <>
struct Table<0> {
  static constexpr int kValues = 1, kBytes = 4;
  __device__ static float Value(const std::uint8_t* b, int) {
    return __uint_as_float(Word(b) | (Word(b + 2) << 16));
  }
};
template <>
struct Table<1> {
  static constexpr int kValues = 1, kBytes = 2;
  __device__ static float Value(const std::uint8_t* b, int) { return Half(b); }
};
template <>
struct Table<30> {
  static constexpr int kValues = 1, kBytes = 2;
  __device__ static float Value(const std::uint8_t* b, int) {
    return __uint_as_float(Word(b) << 16);
  }
};
template <>
struct Table<2> {  // Q4_0
  static constexpr int kValues = 32, kBytes = 18;
  __device__ static float Value(const std::uint8_t* b, int i) {
    return Scaled(Half(b), 1, Nibble(b + 2, i) - 8);
  }
};
template <>
struct Table<3> {  // Q4_1
  static constexpr int kValues = 32, kBytes = 20;
  __device__ static float Value(const std::uint8_t* b, int i) {
    return WithMin(Half(b), 1, Nibble(b + 4, i), Half(b + 2), 1);
  }
};
template <>
struct Table<6> {  // Q5_0
  static constexpr int kValues = 32, kBytes = 22;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int high = (b[2 + i / 8] >> (i % 8)) & 1;
    return Scaled(Half(b), 1, (Nibble(b + 6, i) | (high << 4)) - 16);
  }
};
template <>
struct Table<7> {  // Q5_1
  static constexpr int kValues = 32, kBytes = 24;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int high = (b[4 + i / 8] >> (i % 8)) & 1;
    return WithMin(Half(b), 1, Nibble(b + 8, i) | (high << 4), Half(b + 2), 1);
  }
};
template <>
struct Table<8> {  // Q8_0
  static constexpr int kValues = 32, kBytes = 34;
  __device__ static float Value(const std::uint8_t* b, int i) {
    return Scaled(Half(b), 1, static_cast<std::int8_t>(b[2 + i]));
  }
};
template <>
struct Table<10> {  // Q2_K
  static constexpr int kValues = 256, kBytes = 84;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int pair = b[i / 16];
    return WithMin(Half(b + 80), pair & 15, BitPair(b + 16, i), -Half(b + 82), pair >> 4);
  }
};
template <>
struct Table<11> {  // Q3_K
  static constexpr int kValues = 256, kBytes = 110;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int j = i / 16;
    const int low = j < 8 ? b[96 + j] & 15 : b[96 + j - 8] >> 4;
    const int scale = (low | (((b[104 + j % 4] >> (2 * (j / 4))) & 3) << 4)) - 32;
    const int high = (b[i % 32] >> (i / 32)) & 1;
    return Scaled(Half(b + 108), scale, BitPair(b + 32, i) - (high != 0 ? 0 : 4));
  }
};
template <>
struct Table<12> {  // Q4_K
  static constexpr int kValues = 256, kBytes = 144;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int2 s = ScaleAndMin(b + 4, i / 32);
    const int byte = b[16 + i / 64 * 32 + i % 32];
    return WithMin(Half(b), s.x, i % 64 < 32 ? byte & 15 : byte >> 4, -Half(b + 2), s.y);
  }
};
template <>
struct Table<13> {  // Q5_K
  static constexpr int kValues = 256, kBytes = 176;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int2 s = ScaleAndMin(b + 4, i / 32);
    const int byte = b[48 + i / 64 * 32 + i % 32];
    const int high = (b[16 + i % 32] >> (i / 32)) & 1;
    return WithMin(Half(b), s.x, (i % 64 < 32 ? byte & 15 : byte >> 4) | (high << 4), -Half(b + 2),
                   s.y);
  }
};
template <>
struct Table<14> {  // Q6_K
  static constexpr int kValues = 256, kBytes = 210;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int group = i % 128 / 32;
    const int low = b[i / 128 * 64 + 32 * (group % 2) + i % 32] >> (group < 2 ? 0 : 4);
    return Scaled(Half(b + 208), static_cast<std::int8_t>(b[192 + i / 16]),
                  ((low & 15) | (BitPair(b + 128, i) << 4)) - 32);
  }
};
template <>
struct Table<20> {  // IQ4_NL
  static constexpr int kValues = 32, kBytes = 18;
  __device__ static float Value(const std::uint8_t* b, int i) {
    return Scaled(Half(b), 1, Iq4Value(Nibble(b + 2, i)));
  }
};
template <>
struct Table<23> {  // IQ4_XS
  static constexpr int kValues = 256, kBytes = 136;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int j = i / 32;
    const int low = (b[4 + j / 2] >> (4 * (j % 2))) & 15;
    const int scale = (low | (((Word(b + 2) >> (2 * j)) & 3) << 4)) - 32;
    return Scaled(Half(b), scale, Iq4Value(Nibble(b + 8 + 16 * j, i % 32)));
  }
};
template <>
struct Table<39> {  // MXFP4
  static constexpr int kValues = 32, kBytes = 17;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const unsigned e = b[0];
    const float d = __uint_as_float(e < 2 ? 0x00200000U << e : (e - 1U) << 23U);
    return Scaled(d, 1, Fp4Value(Nibble(b + 1, i)));
  }
};
template <>
struct Table<40> {  // NVFP4
  static constexpr int kValues = 64, kBytes = 36;
  __device__ static float Value(const std::uint8_t* b, int i) {
    const int part = i / 16;
    const int byte = b[4 + 8 * part + i % 8];
    return NvScale(b[part]) * static_cast<float>(Fp4Value(i % 16 < 8 ? byte & 15 : byte >> 4));
  }
};

// Block (column block, row).
template <int type>
__global__ void __launch_bounds__(kThreads) EmbedKernel(const EmbedRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  if (row >= LiveRows(p.rows)) {
    return;
  }
  const std::int32_t id = p.ids[row];
  const bool known = id >= 0 && id < p.table_rows;
  if (!known && blockIdx.x == 0 && threadIdx.x == 0) {
    atomicMin(p.failed_row, row);
  }
  const auto* source = static_cast<const std::uint8_t*>(p.table) +
                       static_cast<std::size_t>(known ? id : 0) * p.row_bytes;
  float* y = p.y + static_cast<std::size_t>(row) * p.y_stride;
  for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x); i < p.k;
       i += static_cast<std::int32_t>(gridDim.x * kThreads)) {
    const std::uint8_t* block = source + i / Table<type>::kValues * Table<type>::kBytes;
    y[i] = known ? Table<type>::Value(block, i % Table<type>::kValues) : 0.0F;
  }
}

using Kernel = void (*)(EmbedRowsArgs);

struct Entry {
  int type;
  Kernel kernel;
};

template <int... types>
const Entry* Find(int ggml_type) {
  static constexpr Entry kEntries[] = {{types, EmbedKernel<types>}...};
  for (const Entry& entry : kEntries) {
    if (entry.type == ggml_type) {
      return &entry;
    }
  }
  return nullptr;
}

const Entry* FindKernel(int ggml_type) {
  return Find<0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39, 40>(ggml_type);
}

}  // namespace

bool CanEmbed(int ggml_type) { return FindKernel(ggml_type) != nullptr; }

cudaError_t EmbedRows(const Launch& launch, const EmbedRowsArgs& args) {
  const Entry* entry = FindKernel(args.ggml_type);
  if (entry == nullptr) {
    return cudaErrorInvalidValue;
  }
  if (args.rows.max == 0 || args.k == 0) {
    return cudaSuccess;
  }
  const int blocks = (args.k + 4 * kThreads - 1) / (4 * kThreads);  // four values a thread
  return Start(launch, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.rows.max)),
               dim3(kThreads), 0, entry->kernel, args);
}

}  // namespace bloomery::kernels::cuda
