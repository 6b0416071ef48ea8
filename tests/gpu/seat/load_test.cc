// Repacking of a matrix batch by batch, as loading does it, against repacking it whole.
#include <gtest/gtest.h>

#include "runtime/exec/cuda/card_load.h"
#include "tests/gpu/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::exec {
namespace {

using kernels::testing::DeviceArray;
using kernels::testing::Finish;
using kernels::testing::TestLaunch;

TEST(CardLoad, BatchesMakeTheCardFormOfTheWholeMatrix) {
  for (const int type : {12, 14, 8}) {  // Q4_K, Q6_K, Q8_0
    const kernels::FormatTraits& format = *kernels::FindFormat(type);
    plugin::Weight weight;
    weight.ne = {512, 70, 3, 1};
    const uint64_t row = kernels::RowBytes(format, 512);
    kernels::testing::Random random(5);
    const DeviceArray<std::byte> file(kernels::testing::RandomWeights(format, 512, 210, random));
    const uint64_t expert = kernels::cuda::CardBytes(format.ggml_type, 70, 512);
    const DeviceArray<std::byte> whole(3 * expert, 0xEE);
    Finish(kernels::cuda::ToCardForm(TestLaunch(), format.ggml_type, file.data(), whole.data(), 70,
                                     512, 3));
    for (const uint64_t most : {row, 40 * row, 70 * row, 140 * row, 1000 * row}) {
      const DeviceArray<std::byte> parts(3 * expert, 0xDD);
      for (const CardBatch& batch : CutBatches(format, weight, most)) {
        Finish(kernels::cuda::ToCardForm(TestLaunch(), format.ggml_type, file.data() + batch.begin,
                                         parts.data() + batch.to, batch.rows, 512, batch.experts));
      }
      EXPECT_EQ(parts.Read(), whole.Read()) << format.name << ", " << most / row << " rows";
    }
  }
}

}  // namespace
}  // namespace bloomery::exec
