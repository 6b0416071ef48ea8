#include "runtime/apps/tools/fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/apps/tools/random_weights.h"
#include "runtime/model/gguf.h"
#include "runtime/model/gguf_writer.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

constexpr const char* kRecipe = R"({
  "model": "Toy", "architectures": ["toy"],
  "sizes": {"width": 256, "experts": 16, "used": 2},
  "keys": [{"key": "{arch}.block_count", "type": "u32", "value": "layers"},
           {"key": "{arch}.eps", "type": "f32", "value": 0.5}],
  "tensors": [
    {"name": "token_embd.weight", "ne": ["width", "vocabulary"], "fill": "embedding"},
    {"name": "blk.{l}.attn_norm.weight", "ne": ["width"], "fill": "gains"},
    {"name": "blk.{l}.ffn_gate_inp.weight", "ne": ["width", "experts"], "fill": "router",
     "picks": "used"},
    {"name": "blk.{l}.ffn_down_exps.weight", "ne": ["width", "2*width", "experts"],
     "fill": "normal"},
    {"name": "output.weight", "ne": ["width", "vocabulary"], "fill": "normal"}]})";

std::string Refused(const std::string& json) {
  const Refusal refusal =
      RefusalOf([&] { FixtureRecipe::ParseAll(json, "r.json").front().Tensors(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("r.json"));
  return refusal.message;
}

// kRecipe with one text replaced by another.
std::string Changed(const std::string& from, const std::string& to) {
  std::string json = kRecipe;
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(FixtureRecipe, TensorsStandInFileOrderWithTheirSizes) {
  FixtureRecipe recipe = FixtureRecipe::ParseAll(kRecipe, "r.json").front();
  recipe.Set("layers", 2);
  recipe.Set("vocabulary", 300);
  recipe.Set("experts", 8);
  const std::vector<FixtureTensor> tensors = recipe.Tensors();
  std::vector<std::string> names;
  for (const FixtureTensor& tensor : tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::ElementsAre("token_embd.weight", "blk.0.attn_norm.weight",
                                          "blk.0.ffn_gate_inp.weight", "blk.0.ffn_down_exps.weight",
                                          "blk.1.attn_norm.weight", "blk.1.ffn_gate_inp.weight",
                                          "blk.1.ffn_down_exps.weight", "output.weight"));
  EXPECT_THAT(tensors[3].ne, testing::ElementsAre(256, 512, 8));
  EXPECT_EQ(tensors[2].picks, 2u);
  const auto keys = recipe.Keys("toy");
  EXPECT_EQ(keys[0].first, "toy.block_count");
  EXPECT_EQ(std::get<uint64_t>(keys[0].second.data), 2u);
  EXPECT_EQ(std::get<double>(keys[1].second.data), 0.5);
}

// Layers chosen in each way, by tensors and by a key with a number for each.
TEST(FixtureRecipe, LayersAreChosenByTensorsAndByKeysAlike) {
  const std::string json = R"({"model": "m", "architectures": ["toy"], "sizes": {"n": 4, "step": 3},
    "keys": [{"key": "{arch}.heads", "type": "i32s", "value": "n*2", "otherwise": "n",
              "every": "step", "with_first": true},
             {"key": "{arch}.on", "type": "bool", "value": true}],
    "tensors": [{"name": "blk.{l}.a", "ne": ["n"], "fill": "gains", "every": "step", "with_first": true},
                {"name": "blk.{l}.b", "ne": ["n"], "fill": "gains", "except_every": "step", "with_first": true},
                {"name": "blk.{l}.c", "ne": ["n"], "fill": "gains", "first": true},
                {"name": "blk.{l}.d", "ne": ["n"], "fill": "gains", "first": false},
                {"name": "blk.{l}.e", "ne": ["n"], "fill": "gains", "below": "step"},
                {"name": "blk.{l}.f", "ne": ["n"], "fill": "gains", "from": "step"},
                {"name": "blk.{l}.g", "ne": ["n"], "fill": "gains", "every": "layers"}]})";
  FixtureRecipe recipe = FixtureRecipe::ParseAll(json, "r.json").front();
  recipe.Set("layers", 6);
  std::map<char, std::string> layers;  // by the tensor's letter
  for (const FixtureTensor& tensor : recipe.Tensors()) {
    layers[tensor.name.back()] += tensor.name[4];
  }
  EXPECT_EQ(layers, (std::map<char, std::string>{{'a', "025"},
                                                 {'b', "134"},
                                                 {'c', "0"},
                                                 {'d', "12345"},
                                                 {'e', "012"},
                                                 {'f', "345"},
                                                 {'g', "5"}}));
  const auto keys = recipe.Keys("toy");
  EXPECT_EQ(keys[0].first, "toy.heads");
  EXPECT_TRUE(keys[0].second.data ==
              model::I32ArrayValue(std::vector<int32_t>{8, 4, 8, 4, 4, 8}).data);
  EXPECT_TRUE(keys[1].second.data == model::BoolValue(true).data);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = json;
    changed.replace(changed.find(from), from.size(), to);
    return test::RefusalOf([&] { FixtureRecipe::ParseAll(changed, "r.json"); }).message;
  };
  EXPECT_THAT(refused("\"every\": \"step\", ", ""), HasSubstr("'with_first' needs 'every'"));
  EXPECT_THAT(refused("\"first\": true", "\"first\": true, \"every\": \"step\""),
              HasSubstr("'every', 'first', 'below' and 'from' exclude each other"));
  EXPECT_THAT(refused("\"first\": true", "\"first\": 1"),
              HasSubstr("'first' must be true or false"));
  EXPECT_THAT(refused("\"below\": \"step\"", "\"below\": \"step\", \"from\": \"step\""),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refused("\"value\": true", "\"value\": 1"),
              HasSubstr("'value' must be true or false"));
}

// A file may hold recipes of several architectures, and layers of two kinds.
TEST(FixtureRecipe, TensorsMayBeOfSomeLayersAndRecipesAnArray) {
  std::string other = kRecipe;
  other.replace(other.find("\"toy\""), 5, "\"hybrid\"");
  const std::string norm = "\"ne\": [\"width\"], \"fill\": \"gains\"";
  other.replace(other.find(norm), norm.size(),
                "\"ne\": [\"width\"], \"fill\": \"uniform\", \"low\": -4, \"high\": -1, "
                "\"every\": \"used\"");
  const std::string router = "\"picks\": \"used\"";
  other.replace(other.find(router), router.size(), router + ", \"except_every\": \"used\"");
  std::vector<FixtureRecipe> recipes =
      FixtureRecipe::ParseAll("[" + std::string(kRecipe) + "," + other + "]", "r.json");
  ASSERT_EQ(recipes.size(), 2u);
  EXPECT_THAT(recipes[1].architectures(), testing::ElementsAre("hybrid"));
  recipes[1].Set("layers", 4);
  std::vector<std::string> norms, routers;
  for (const FixtureTensor& tensor : recipes[1].Tensors()) {
    if (tensor.fill == Fill::kUniform) norms.push_back(tensor.name);
    if (tensor.fill == Fill::kRouter) routers.push_back(tensor.name);
  }
  EXPECT_THAT(norms, testing::ElementsAre("blk.1.attn_norm.weight", "blk.3.attn_norm.weight"));
  EXPECT_THAT(routers,
              testing::ElementsAre("blk.0.ffn_gate_inp.weight", "blk.2.ffn_gate_inp.weight"));
  EXPECT_THAT(Refused(Changed("\"gains\"", "\"uniform\"")), HasSubstr("'low' must be below"));
  EXPECT_THAT(Refused(Changed("\"gains\"", "\"gains\", \"every\": \"0\"")),
              HasSubstr("every 0 layers"));
}

TEST(FixtureRecipe, DraftLayersLieBehindTheOthersAndHaveWhatIsSaidOfThem) {
  std::string json = Changed(R"("fill": "gains"})", R"("fill": "gains", "drafts": "also"})");
  const std::string join =
      R"({"name": "blk.{l}.join.weight", "ne": ["2*width", "width"], "fill": "first_half",
          "drafts": "only", "over": "used"},)";
  json.insert(json.find(R"({"name": "output.weight")"), join);
  const std::string count = R"("type": "u32", "value": "layers"})";
  json.replace(json.find(count), count.size(), R"("type": "u32", "value": "blocks"})");
  FixtureRecipe recipe = FixtureRecipe::ParseAll(json, "r.json").front();
  recipe.Set("layers", 2);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const FixtureTensor& tensor : recipe.Tensors()) all.push_back(tensor.name);
    return all;
  };
  EXPECT_THAT(names(), testing::Not(testing::Contains(HasSubstr("join"))));
  recipe.Set("drafts", 1);
  EXPECT_EQ(std::get<uint64_t>(recipe.Keys("toy")[0].second.data), 3u);
  EXPECT_THAT(names(),
              testing::ElementsAre("token_embd.weight", "blk.0.attn_norm.weight",
                                   "blk.0.ffn_gate_inp.weight", "blk.0.ffn_down_exps.weight",
                                   "blk.1.attn_norm.weight", "blk.1.ffn_gate_inp.weight",
                                   "blk.1.ffn_down_exps.weight", "blk.2.attn_norm.weight",
                                   "blk.2.join.weight", "output.weight"));
  EXPECT_EQ(recipe.Tensors()[8].gain, 0.5);  // over the two experts used
  EXPECT_EQ(RefusalOf([&] { recipe.Set("blocks", 4); }).kind, ErrorKind::kUsage);
}

TEST(FixtureRecipe, WrongRecipesAreRefusedByField) {
  EXPECT_THAT(Refused(Changed("\"normal\"", "\"noise\"")), HasSubstr("tensor 3: 'fill'"));
  EXPECT_THAT(Refused(Changed("2*width", "2*wide")), HasSubstr("'wide' is no size"));
  EXPECT_THAT(Refused(Changed("\"picks\": \"used\"", "\"picks\": \"99\"")), HasSubstr("picks 99"));
  EXPECT_THAT(Refused(Changed("2*width", "9223372036854775807*width")), HasSubstr("out of range"));
  EXPECT_THAT(Refused(Changed("\"model\"", "\"modell\"")), HasSubstr("'modell'"));
}

TEST(RandomWeights, NormalsHaveMeanZeroAndDeviationOne) {
  Random random(3, "x");
  double sum = 0, squares = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double value = double{random.Normal()};
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
}

// Without a pass: the picks of the first layer follow from embedding and router alone.
TEST(RandomWeights, LocalityIsTheShareOfPicksThatFollowTheTopic) {
  constexpr uint64_t kWidth = 2048, kExperts = 128, kPicks = 8, kTokens = 400;
  for (const double share : {0.3, 0.6, 0.9}) {
    const Topics topics(1, kWidth, kExperts, kPicks, share);
    ASSERT_EQ(topics.count(), 16u);
    std::vector<float> router(kWidth * kExperts), planted(router.size(), 0.0F);
    Random random(1, "router");
    for (float& value : router) value = random.Normal() / std::sqrt(float{kWidth});
    topics.AddToRouter("blk.0", router);
    topics.AddToRouter("blk.0", planted);
    uint64_t hits = 0;
    std::vector<uint64_t> uses(kExperts, 0);
    for (uint64_t token = 0; token < kTokens; ++token) {
      std::vector<float> row(kWidth), own(kWidth, 0.0F);
      for (float& value : row) value = random.Normal();
      topics.AddToEmbedding(token, row);
      topics.AddToEmbedding(token, own);
      std::vector<std::pair<float, uint64_t>> logits(kExperts), pure(kExperts);
      for (uint64_t e = 0; e < kExperts; ++e) {
        const float* at = router.data() + e * kWidth;
        const float* planted_at = planted.data() + e * kWidth;
        logits[e] = {std::inner_product(row.begin(), row.end(), at, 0.0F), e};
        pure[e] = {std::inner_product(own.begin(), own.end(), planted_at, 0.0F), e};
      }
      std::ranges::sort(logits, std::greater());
      std::ranges::sort(pure, std::greater());
      for (uint64_t i = 0; i < kPicks; ++i) {
        ++uses[logits[i].second];
        for (uint64_t j = 0; j < kPicks; ++j) hits += logits[i].second == pure[j].second ? 1 : 0;
      }
    }
    EXPECT_NEAR(static_cast<double>(hits) / (kTokens * kPicks), share, 0.08) << share;
    // And the skew: the busiest eighth of the experts takes far more than an eighth.
    std::ranges::sort(uses, std::greater());
    const double busiest = static_cast<double>(
        std::accumulate(uses.begin(), uses.begin() + kExperts / 8, uint64_t{0}));
    EXPECT_GT(busiest / (kTokens * kPicks), 0.125 + share / 4) << share;
  }
}

// Greedy steps over embedding and head alone, as if layers added nothing.
TEST(RandomWeights, PersistenceIsTheShareOfGreedyStepsThatStayWithTheTopic) {
  constexpr uint64_t kWidth = 2048, kTokens = 600;
  for (const double stay : {0.5, 0.9}) {
    Topics topics(1, kWidth, 64, 4, 0.5);
    ASSERT_FALSE(topics.stays());
    topics.SetStay(stay, kTokens);
    ASSERT_TRUE(topics.stays());
    std::vector<float> head(kWidth * kTokens), embedding(head.size());
    Random random(3, "head");
    for (float& value : head) value = random.Normal() / std::sqrt(float{kWidth});
    for (float& value : embedding) value = random.Normal();
    for (uint64_t token = 0; token < kTokens; ++token) {
      topics.AddToHead(token, 1, std::span(head).subspan(token * kWidth, kWidth));
      topics.AddToEmbedding(token, std::span(embedding).subspan(token * kWidth, kWidth));
    }
    uint64_t stays = 0;
    for (uint64_t token = 0; token < kTokens; ++token) {
      const float* x = embedding.data() + token * kWidth;
      std::pair<float, uint64_t> best{-1e9F, 0};
      for (uint64_t next = 0; next < kTokens; ++next) {
        const float* row = head.data() + next * kWidth;
        best = std::max(best, {std::inner_product(row, row + kWidth, x, 0.0F), next});
      }
      stays += topics.TopicOf(best.second) == topics.TopicOf(token) ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(stays) / kTokens, stay, 0.1) << stay;
  }
}

TEST(RandomWeights, PoolRowsHaveTheDeviationAskedFor) {
  const BlockPool pool(model::TensorType::kF32, 256, 0.25, 1, 2);
  Random random(1, "t");
  std::vector<float> values(256 * 512);
  pool.Fill(random, std::as_writable_bytes(std::span(values)));
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 0.25, 0.005);
}

class FixtureTest : public testing::Test {
 protected:
  void Write(const std::string& path, uint64_t seed, double locality, int32_t threads) const {
    FixtureRecipe recipe = FixtureRecipe::ParseAll(kRecipe, "r.json").front();
    recipe.Set("layers", 2);
    recipe.Set("vocabulary", 3000);
    const model::ModelFile demo = model::OpenGguf(
        RealFileSystem(), BLOOMERY_SOURCE_DIR "/runtime/assets/seedling-Q4_K_M.gguf");
    WriteFixture(path, recipe, model::GetQuantMix("Q4_K_M"), demo.metadata(),
                 {.architecture = "toy", .seed = seed, .locality = locality, .threads = threads},
                 [](uint64_t, uint64_t) {});
  }
  static std::string Content(const std::string& path) {
    return ReadWholeFile(RealFileSystem(), path, uint64_t{1} << 28);
  }
  test::TempDir folder_;
};

TEST_F(FixtureTest, FileHasKeysTypesAndAPaddedVocabulary) {
  const std::string path = folder_.File("f.gguf");
  Write(path, 1, 0, 2);
  const model::ModelFile file = model::OpenGguf(RealFileSystem(), path);
  EXPECT_EQ(file.metadata().GetString("general.architecture"), "toy");
  EXPECT_EQ(file.metadata().GetU64("toy.block_count"), 2u);
  EXPECT_EQ(file.metadata().GetStringArray("tokenizer.ggml.tokens").size(), 3000u);
  EXPECT_EQ(file.metadata().GetI64Array("tokenizer.ggml.token_type").back(), 5);
  const auto type = [&](const char* name) {
    return file.tensors()[file.GetTensorIndex(name)].type;
  };
  EXPECT_EQ(type("token_embd.weight"), model::TensorType::kQ4_K);
  EXPECT_EQ(type("output.weight"), model::TensorType::kQ6_K);
  EXPECT_EQ(type("blk.0.ffn_gate_inp.weight"), model::TensorType::kF32);
  // Two layers: 7·2/8 = 1, so the second is one of the last eighth.
  EXPECT_EQ(type("blk.0.ffn_down_exps.weight"), model::TensorType::kQ4_K);
  EXPECT_EQ(type("blk.1.ffn_down_exps.weight"), model::TensorType::kQ6_K);
}

TEST_F(FixtureTest, SameArgumentsGiveTheSameBytesAndAnotherSeedOthers) {
  for (const double locality : {0.0, 0.5}) {
    Write(folder_.File("a"), 1, locality, 1);
    Write(folder_.File("b"), 1, locality, 3);
    Write(folder_.File("c"), 2, locality, 1);
    EXPECT_EQ(Content(folder_.File("a")), Content(folder_.File("b")));
    EXPECT_NE(Content(folder_.File("a")), Content(folder_.File("c")));
  }
}

}  // namespace
}  // namespace bloomery::apps
