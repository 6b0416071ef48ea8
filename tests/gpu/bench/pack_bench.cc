// Repacking to card form: it must be faster than the link brings what is repacked.
#include "kernels-common/quant/cuda/card_form.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::bench {
namespace {

void MeasurePack() {
  constexpr std::size_t kRows = 768;
  constexpr std::size_t kWidth = 2048;
  constexpr std::size_t kExperts = 16;
  for (const int type : {12, 14, 8, 16}) {  // Q4_K, Q6_K, Q8_0, IQ2_XXS
    const FormatTraits& format = *FindFormat(type);
    const std::size_t bytes = RowBytes(format, kWidth) * kRows * kExperts;
    const testing::DeviceArray<std::byte> file(bytes, 0x11);
    const testing::DeviceArray<std::byte> card(cuda::CardBytes(format.ggml_type, kRows, kWidth) *
                                               kExperts);
    Measure(std::string("repack ") + format.name, {.bytes = static_cast<double>(bytes)}, 4,
            [&](const cuda::Launch& launch, int) {
              return cuda::ToCardForm(launch, format.ggml_type, file.data(), card.data(), kRows,
                                      kWidth, kExperts);
            });
  }
}

const Registered kPack("repack", MeasurePack);

}  // namespace
}  // namespace bloomery::kernels::bench
