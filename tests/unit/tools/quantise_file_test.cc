#include "runtime/apps/tools/quantise_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "runtime/model/gguf.h"
#include "runtime/ops/row_codec.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using model::TensorType;
using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::HasSubstr;

std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// A wave of 256 x `rows` values between -1 and 1.
std::vector<float> Wave(size_t rows) {
  std::vector<float> values(256 * rows);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i) * 0.37F);
  }
  return values;
}

class QuantiseFileTest : public testing::Test {
 protected:
  test::GgufWriter Toy(const std::vector<float>& wave) const {
    test::GgufWriter writer;
    writer.Add("general.architecture", "toy").Add("toy.block_count", uint32_t{1});
    writer.AddTensor("blk.0.attn_q.weight", {256, wave.size() / 256}, 0, FloatBytes(wave));
    writer.AddTensor("blk.0.attn_norm.weight", {4}, 0, FloatBytes({1, 2, 3, 4}));
    return writer;
  }
  TypeCounts Run(const std::string& mix, int32_t threads = 2) const {
    const model::ModelFile source = model::OpenGguf(RealFileSystem(), in_);
    return QuantiseFile(ModelFileSource(source), out_, model::GetQuantMix(mix), threads,
                        [](uint64_t, uint64_t) {});
  }

  test::TempDir folder_;
  std::string in_ = folder_.File("in.gguf");
  std::string out_ = folder_.File("out.gguf");
};

TEST_F(QuantiseFileTest, EveryWritableTypeKeepsItsErrorBound) {
  const std::vector<float> wave = Wave(200);
  Toy(wave).WriteTo(in_);
  // Half a step over a range of 2; with the K types also the rounding of sub-block scales to 1/63
  // (2 / 126) and of minima (1 / 126).
  const std::vector<std::pair<std::string, double>> bounds{
      {"F32", 0},        {"F16", 2.5e-4},   {"BF16", 2e-3},  {"Q8_0", 4.1e-3}, {"Q4_0", 0.14},
      {"Q4_K_M", 0.091}, {"Q5_K_M", 0.057}, {"Q6_K", 0.035}, {"IQ4_NL", 0.13}};
  for (const auto& [mix, bound] : bounds) {
    Run(mix);
    const model::ModelFile result = model::OpenGguf(RealFileSystem(), out_);
    const model::TensorInfo& tensor = result.tensors()[0];
    const std::vector<std::byte> bytes = result.ReadTensor(0);
    const auto decode = ops::RowCodecOf(static_cast<uint32_t>(tensor.type)).decode;
    std::vector<float> values(wave.size());
    for (uint64_t r = 0; r < tensor.rows(); ++r) {
      decode(bytes.data() + r * tensor.row_bytes(), values.data() + r * 256, 256);
    }
    double worst = 0;
    for (size_t i = 0; i < wave.size(); ++i) {
      worst = std::max(worst, std::abs(double{values[i]} - double{wave[i]}));
    }
    EXPECT_LE(worst, bound) << mix;
    EXPECT_EQ(result.metadata().GetU64("general.file_type"), model::GetQuantMix(mix).file_type);
    EXPECT_EQ(result.tensors()[1].type, TensorType::kF32);
  }
}

TEST_F(QuantiseFileTest, ThreadsDoNotChangeTheBytes) {
  Toy(Wave(300)).WriteTo(in_);
  Run("Q4_K_M", 1);
  const std::string one = ReadWholeFile(RealFileSystem(), out_, 1 << 24);
  Run("Q4_K_M", 3);
  EXPECT_EQ(ReadWholeFile(RealFileSystem(), out_, 1 << 24), one);
}

TEST_F(QuantiseFileTest, ValueThatIsNotFiniteIsRefusedWithItsPlaceAndNothingIsLeft) {
  std::vector<float> wave = Wave(3);
  wave[256 + 17] = std::numeric_limits<float>::quiet_NaN();
  Toy(wave).WriteTo(in_);
  const Refusal refusal = RefusalOf([&] { Run("Q8_0"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("blk.0.attn_q.weight"), HasSubstr("row 1"), HasSubstr("value 17")));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(QuantiseFileTest, SourceThatCannotBeDecodedIsRefusedByName) {
  test::GgufWriter writer;
  writer.Add("general.architecture", "toy").Add("toy.block_count", uint32_t{1});
  writer.AddTensor("blk.0.attn_q.weight", {256, 2}, 26, std::string(2048, '\0'));  // I32
  writer.WriteTo(in_);
  const Refusal refusal = RefusalOf([&] { Run("Q8_0"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("blk.0.attn_q.weight"), HasSubstr("I32")));
}

}  // namespace
}  // namespace bloomery::apps
