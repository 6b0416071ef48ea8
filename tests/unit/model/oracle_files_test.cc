// The model files that other tests rest on open, and hold what their description says: the
// committed ones always, the large set where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/model/gguf.h"
#include "tests/support/oracle_path.h"

namespace bloomery::model {
namespace {

const std::string kSource = BLOOMERY_SOURCE_DIR;

std::map<std::string, int> TypeCounts(const ModelFile& model) {
  std::map<std::string, int> counts;
  for (const TensorInfo& tensor : model.tensors()) ++counts[std::string(Info(tensor.type).name)];
  return counts;
}

void ExpectMappedEqualsRead(const ModelFile& model) {
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const auto mapping = model.MapTensor(i);
    ASSERT_NE(mapping, nullptr);
    const auto read = model.ReadTensor(i);
    EXPECT_TRUE(std::ranges::equal(mapping->bytes(), read)) << model.tensors()[i].name;
  }
}

TEST(OracleFiles, MiniModelOpens) {
  const ModelFile model =
      OpenGguf(RealFileSystem(), kSource + "/tests/data/mini/qwen3moe/model.gguf");
  EXPECT_EQ(model.format(), "GGUF v3");
  EXPECT_EQ(model.metadata().GetString("general.architecture"), "qwen3moe");
  EXPECT_EQ(model.metadata().GetU64("qwen3moe.block_count"), 3u);
  EXPECT_EQ(model.metadata().GetStringArray("tokenizer.ggml.tokens").size(), 2012u);
  EXPECT_EQ(model.metadata().GetStringArray("tokenizer.ggml.tokens").String(2), "<|im_end|>");
  EXPECT_EQ(TypeCounts(model), (std::map<std::string, int>{{"BF16", 23}, {"F32", 16}}));
  const TensorInfo& experts = model.tensors()[model.GetTensorIndex("blk.0.ffn_gate_exps.weight")];
  EXPECT_THAT(experts.ne, testing::ElementsAre(128, 64, 8, 1));
  ExpectMappedEqualsRead(model);
}

TEST(OracleFiles, SeedlingOpens) {
  const ModelFile model =
      OpenGguf(RealFileSystem(), kSource + "/runtime/assets/seedling-Q4_K_M.gguf");
  EXPECT_EQ(model.metadata().GetString("general.license"), "mit");
  EXPECT_EQ(TypeCounts(model),
            (std::map<std::string, int>{{"F32", 31}, {"Q4_K", 39}, {"Q6_K", 5}}));
  uint64_t values = 0;
  for (const TensorInfo& tensor : model.tensors()) values += tensor.ne[0] * tensor.rows();
  EXPECT_NEAR(static_cast<double>(values), 22.29e6, 0.005e6);  // as the model card says
  ExpectMappedEqualsRead(model);
}

TEST(OracleFiles, EveryModelOfTheLargeSetOpens) {
  const std::string oracles = test::OraclePath();
  if (oracles.empty()) GTEST_SKIP() << "the large oracle set is not here";
  int opened = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(oracles)) {
    if (entry.path().extension() != ".gguf") continue;
    const ModelFile model = OpenGguf(RealFileSystem(), entry.path().string());
    EXPECT_FALSE(model.metadata().GetString("general.architecture").empty());
    EXPECT_GT(model.tensors().size(), 0u);
    ExpectMappedEqualsRead(model);
    ++opened;
  }
  EXPECT_GE(opened, 12);
}

}  // namespace
}  // namespace bloomery::model
