#include "tests/unit/kernels-common/amx_emulated.h"

#include <bit>

#include "kernels-common/linear/cpu/amx_impl.h"

namespace bloomery::kernels::testing {
namespace {

// What the processor's manual says of each instruction, on eight registers of 16 rows of 64 bytes.
class PlainTiles {
 public:
  void Configure(std::size_t height) {
    for (std::size_t i = 0; i < 8; ++i) {
      rows_[i] = i < 6 ? height : 16;
      std::memset(tiles_[i], 0, sizeof(tiles_[i]));
    }
  }
  template <int kTile>
  void Zero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Load(const void* at, std::size_t stride) {
    Zero<kTile>();
    for (std::size_t row = 0; row < rows_[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const std::uint8_t*>(at) + row * stride, 64);
    }
  }
  template <int kTile>
  void Store(void* at) {
    for (std::size_t row = 0; row < rows_[kTile]; ++row) {
      std::memcpy(static_cast<std::uint8_t*>(at) + 64 * row, tiles_[kTile][row], 64);
    }
  }
  template <int kC, int kA, int kB>
  void MultiplySigned() {
    Multiply<kC, kA, kB, std::int8_t>();
  }
  template <int kC, int kA, int kB>
  void MultiplyUnsigned() {
    Multiply<kC, kA, kB, std::uint8_t>();
  }
  // C[m][n] += A[m][2k .. 2k+1] . B[k][2n .. 2n+1]
  template <int kC, int kA, int kB>
  void MultiplyBf16() {
    for (std::size_t m = 0; m < rows_[kC]; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        float sum = 0.0F;
        std::memcpy(&sum, &tiles_[kC][m][4 * n], 4);
        for (std::size_t k = 0; k < 2 * rows_[kB]; ++k) {
          sum += Bf16(&tiles_[kA][m][2 * k]) * Bf16(&tiles_[kB][k / 2][4 * n + 2 * (k % 2)]);
        }
        std::memcpy(&tiles_[kC][m][4 * n], &sum, 4);
      }
    }
  }

 private:
  static float Bf16(const std::uint8_t* at) {
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 2, at, 2);
    return std::bit_cast<float>(bits);
  }

  // C[m][n] += A[m][4k .. 4k+3] . B[k][4n .. 4n+3]
  template <int kC, int kA, int kB, class OfB>
  void Multiply() {
    for (std::size_t m = 0; m < rows_[kC]; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        std::int32_t sum = 0;
        std::memcpy(&sum, &tiles_[kC][m][4 * n], 4);
        for (std::size_t k = 0; k < rows_[kB]; ++k) {
          for (std::size_t i = 0; i < 4; ++i) {
            sum += static_cast<std::int8_t>(tiles_[kA][m][4 * k + i]) *
                   static_cast<OfB>(tiles_[kB][k][4 * n + i]);
          }
        }
        std::memcpy(&tiles_[kC][m][4 * n], &sum, 4);
      }
    }
  }

  std::size_t rows_[8] = {};
  std::uint8_t tiles_[8][16][64] = {};
};

}  // namespace

cpu::LinearFunction* EmulatedTileKernel(const FormatTraits& format) {
  const cpu::TileKernel* kernel = cpu::FindTileKernel<PlainTiles>(format);
  return kernel == nullptr ? nullptr : kernel->run;
}

}  // namespace bloomery::kernels::testing
