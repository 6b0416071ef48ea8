// Repacking to the card form, read back by the lanes that multiply from it.
#include "kernels-common/quant/cuda/card_form.h"

#include <gtest/gtest.h>

#include "tests/gpu/kernels/card_bank.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::CardBank;
using testing::CardFormats;
using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::TestLaunch;

// Values of every expert's matrix, decoded from the file's rows.
std::vector<float> FileValues(const FormatTraits& format, const std::vector<std::byte>& rows,
                              std::size_t count, std::size_t k) {
  std::vector<float> values(count * k);
  for (std::size_t row = 0; row < count; ++row) {
    format.decode_row(rows.data() + row * RowBytes(format, k), values.data() + row * k, k);
  }
  return values;
}

TEST(CardForm, HoldsTheFilesValuesOfEveryFormat) {
  for (const FormatTraits* format : CardFormats()) {
    for (const std::size_t n : {1, 16, 37}) {
      for (const std::size_t k : {64, 256, 320, 768}) {
        if (k % format->block_values != 0) continue;
        Random random(n + k);
        const std::vector<std::byte> rows = testing::RandomWeights(*format, k, n, random);
        const CardBank bank(*format, rows, n, k, 1);
        const DeviceArray<float> values(n * k, 0xFF);
        Finish(cuda::DecodeCardForm(TestLaunch(), format->ggml_type, bank.weight().data,
                                    values.data(), n, k));
        EXPECT_TRUE(SameBits(values.Read(), FileValues(*format, rows, n, k)))
            << format->name << " n " << n << " k " << k;
      }
    }
  }
}

TEST(CardForm, ExpertsFollowOneAnother) {
  const std::size_t n = 24;
  const std::size_t k = 512;
  const std::size_t experts = 5;
  for (const FormatTraits* format : CardFormats()) {
    Random random(7);
    const std::vector<std::byte> rows = testing::RandomWeights(*format, k, n * experts, random);
    const CardBank bank(*format, rows, n, k, experts);
    const std::vector<float> expected = FileValues(*format, rows, n * experts, k);
    for (std::size_t expert = 0; expert < experts; ++expert) {
      const DeviceArray<float> values(n * k, 0xFF);
      const std::byte* card =
          static_cast<const std::byte*>(bank.weight().data) + expert * bank.weight().expert_bytes;
      Finish(cuda::DecodeCardForm(TestLaunch(), format->ggml_type, card, values.data(), n, k));
      EXPECT_TRUE(SameBits(values.Read(), std::span(expected).subspan(expert * n * k, n * k)))
          << format->name << " expert " << expert;
    }
  }
}

TEST(CardForm, FloatFormatsHaveNone) {
  for (const int type : {0, 1, 30}) {
    EXPECT_FALSE(cuda::HasCardForm(type));
    EXPECT_EQ(cuda::CardBytes(type, 16, 256), 0U);
    EXPECT_EQ(cuda::ToCardForm(TestLaunch(), type, nullptr, nullptr, 16, 256, 1),
              cudaErrorInvalidValue);
  }
}

}  // namespace
}  // namespace bloomery::kernels
