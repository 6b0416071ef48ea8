// The tile registers, for amx_impl.h. Entered only after cpu/isa.cc has seen the CPU's AMX and was
// given the right to its state.
#include "kernels-common/linear/cpu/amx_impl.h"
#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::amx {
namespace {

// Written as assembly, not with the compiler's intrinsics: gcc 12's do not say that they read the
// memory they load, and take no number from a template.
class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }

  // Sums and activations of `height` rows, planes of 16; all 64 bytes wide.
  void Configure(std::size_t height) {
    struct alignas(64) Shape {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t unused[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {};
    } shape;
    static_assert(sizeof(Shape) == 64);
    std::fill_n(shape.rows, 6, static_cast<std::uint8_t>(height));
    std::fill_n(shape.rows + 6, 2, std::uint8_t{16});
    asm volatile("ldtilecfg %0" ::"m"(shape) : "memory");
  }

  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void Load(const void* at, std::size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(at), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void Store(void* at) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(at), "r"(std::size_t{64}), "i"(kTile)
                 : "memory");
  }
  // Sums kC += signed bytes of kA times signed, or unsigned, ones of kB.
  template <int kC, int kA, int kB>
  void MultiplySigned() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  void MultiplyUnsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  // Sums kC, of float, += pairs of bf16 of kA times those of kB.
  template <int kC, int kA, int kB>
  void MultiplyBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace

bool TakesTiles(const FormatTraits& format, std::size_t rows) {
  const TileKernel* kernel = FindTileKernel<Tiles>(format);
  return kernel != nullptr && rows >= kernel->from_rows;
}

void IntegerLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::byte* scratch) {
  if (args.row_ids == nullptr && TakesTiles(*args.weight.format, args.rows)) {
    FindTileKernel<Tiles>(*args.weight.format)->run(args, n_begin, n_end, scratch);
  } else {
    avx512vnni::IntegerLinear(args, n_begin, n_end, scratch);
  }
}

}  // namespace bloomery::kernels::cpu::amx
