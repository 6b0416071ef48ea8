// Weights in card form for the tests of the card's kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels-common/quant/cuda/card_form.h"
#include "kernels-common/quant/quant.h"
#include "tests/gpu/kernels/device.h"

namespace bloomery::kernels::testing {

// Every format that has a card form.
inline std::vector<const FormatTraits*> CardFormats() {
  std::vector<const FormatTraits*> formats;
  for (const FormatTraits& format : Formats()) {
    if (cuda::HasCardForm(format.ggml_type)) {
      formats.push_back(&format);
    }
  }
  return formats;
}

// A bank of `experts` matrices in card form, made from file rows.
class CardBank {
 public:
  CardBank(const FormatTraits& format, const std::vector<std::byte>& file_rows, std::size_t n,
           std::size_t k, std::size_t experts)
      : file_(file_rows), card_(cuda::CardBytes(format.ggml_type, n, k) * experts, 0xEE) {
    Finish(cuda::ToCardForm(TestLaunch(), format.ggml_type, file_.data(), card_.data(), n, k,
                            experts));
    weight_.format = &format;
    weight_.data = card_.data();
    weight_.n = n;
    weight_.k = k;
    weight_.expert_bytes = cuda::CardBytes(format.ggml_type, n, k);
  }
  const cuda::CardWeight& weight() const { return weight_; }

 private:
  DeviceArray<std::byte> file_;
  DeviceArray<std::byte> card_;
  cuda::CardWeight weight_;
};

}  // namespace bloomery::kernels::testing
