#include "runtime/memory/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

using testing::HasSubstr;

// A file of one tensor "norm" of these values, checked in both ways of loading.
void Check(const std::vector<float>& values) {
  test::GgufWriter writer;
  writer.Add("general.architecture", std::string("toy"));
  std::string data;
  for (const float value : values) data += test::GgufWriter::Encode(value);
  writer.AddTensor("norm", {values.size()}, 0, data);
  const model::ModelFile model =
      model::OpenGguf(test::MemoryFileSystem("toy.gguf", writer.Bytes()), "toy.gguf");
  const std::vector<size_t> tensors = {0};
  CheckFinite(model, tensors, WeightStore(model, tensors, WeightSource::kRead));
}

TEST(Finite, NumbersPassAndTheFirstThatIsNoneIsNamed) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_NO_THROW(Check({0.0F, -0.0F, kMax, -kMax, 1e-45F}));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const test::Refusal refusal = test::RefusalOf([&] { Check({1.0F, 2.0F, bad, bad}); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message, HasSubstr("tensor 'norm' of toy.gguf: value 2 of 4 is NaN"));
  }
}

TEST(Finite, TensorsUpToTheLimitAreLookedAt) {
  std::vector<float> values(limits::kCheckedTensorBytesMax / sizeof(float));
  values.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(test::RefusalOf([&] { Check(values); }).kind, ErrorKind::kBadModel);
  values.push_back(0.0F);
  EXPECT_NO_THROW(Check(values));
}

}  // namespace
}  // namespace bloomery::memory
