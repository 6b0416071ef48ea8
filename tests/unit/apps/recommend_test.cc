#include "runtime/apps/recommend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

ListedModel Model(const char* name, uint64_t bytes) {
  ListedModel model;
  model.name = name;
  model.repo = "o/n";
  model.quant = "Q4_K_M";
  model.bytes = bytes;
  model.context_row_bytes = 131072;  // 4 GiB for 32768 rows
  model.context_trained = 65536;
  return model;
}

MachineView Machine(uint64_t host, const std::vector<uint64_t>& cards = {}) {
  MachineView machine;
  machine.available = memory::HostLimit{host, "MemAvailable"};
  for (const uint64_t free : cards) {
    exec::VideoCard card;
    card.index = static_cast<uint32_t>(machine.cards.size());
    card.free_bytes = free;
    machine.cards.push_back(card);
  }
  return machine;
}

TEST(RecommendTest, TheLargestContextThatFitsIsTakenAndNeverMoreThanTrained) {
  const ListedModel model = Model("m", 10 * kGiB);
  const Fit all = FitOf(model, Machine(100 * kGiB));
  EXPECT_EQ(all.context, 65536);
  EXPECT_EQ(all.need, 10 * kGiB + 8 * kGiB + (uint64_t{1536} << 20));
  EXPECT_EQ(FitOf(model, Machine(all.need)).context, 65536);
  EXPECT_EQ(FitOf(model, Machine(all.need - 1)).context, 32768);
  EXPECT_FALSE(FitOf(model, Machine(10 * kGiB)).fits);
}

TEST(RecommendTest, ACardIsBetterThanTheHostAndALongerContextBetterThanACard) {
  const ListedModel model = Model("m", 10 * kGiB);
  EXPECT_EQ(FitOf(model, Machine(100 * kGiB, {5 * kGiB, 80 * kGiB})).place, "CUDA1");
  EXPECT_EQ(FitOf(model, Machine(100 * kGiB, {5 * kGiB})).place, "cpu");
  EXPECT_EQ(FitOf(model, Machine(4 * kGiB, {20 * kGiB})).place, "CUDA0");
}

TEST(RecommendTest, CardsTogetherHoldWhatNoneOfThemDoesAndEachHasItsBuffers) {
  const ListedModel model = Model("m", 10 * kGiB);
  // Weights 10, context 8, and buffers of 1.5 GiB on each card: 21 in all.
  const Fit together = FitOf(model, Machine(100 * kGiB, {11 * kGiB, 10 * kGiB}));
  EXPECT_EQ(together.place, "CUDA0,CUDA1");
  EXPECT_EQ(together.context, 65536);
  EXPECT_EQ(FitOf(model, Machine(kGiB, {11 * kGiB, 10 * kGiB - 1})).context, 32768);
  EXPECT_EQ(FitOf(model, Machine(100 * kGiB, {11 * kGiB, 10 * kGiB - 1})).place, "cpu");
  // One card that holds it is taken before all of them; one without room adds nothing.
  EXPECT_EQ(FitOf(model, Machine(kGiB, {11 * kGiB, 20 * kGiB})).place, "CUDA1");
  EXPECT_FALSE(FitOf(model, Machine(kGiB, {10 * kGiB, kGiB, kGiB})).fits);
}

TEST(RecommendTest, WhatFitsComesFirstInTheListsOrderAndThePickIsTheFirst) {
  const std::vector<ListedModel> models{Model("huge", 900 * kGiB), Model("good", 10 * kGiB),
                                        Model("small", kGiB)};
  const std::string text = RecommendJson(models, Machine(30 * kGiB), [](const ListedModel& model) {
                             return model.name == "small";
                           }).Text();
  EXPECT_LT(text.find("\"good\""), text.find("\"small\""));
  EXPECT_LT(text.find("\"small\""), text.find("\"huge\""));
  EXPECT_THAT(text, HasSubstr(R"("pick":"good")"));
  EXPECT_THAT(text, HasSubstr(R"("command":["bloomery-serve","--hf","o/n:Q4_K_M","-c","65536"])"));
  EXPECT_THAT(RecommendJson(models, Machine(1), [](const ListedModel&) { return false; }).Text(),
              HasSubstr(R"("pick":null)"));
}

TEST(RecommendTest, PeopleReadItInTheSameOrder) {
  const std::vector<ListedModel> models{Model("huge", 900 * kGiB), Model("good", 10 * kGiB),
                                        Model("small", kGiB)};
  std::ostringstream out;
  PrintRecommendation(out, models, Machine(30 * kGiB));
  const std::string text = out.str();
  EXPECT_LT(text.find("\ngood: fits"), text.find("\nsmall: fits"));
  EXPECT_LT(text.find("\nsmall: fits"), text.find("\nhuge: does not fit"));
}

class ListsTest : public testing::Test {
 protected:
  ListsTest() {
    settings_.plugin_dirs = {room_.path()};
    Put("libtoy.so", "");
    Put("toy.json", R"({"name": "toy", "version": "0.1.0", "abi": "0.1", "architectures": ["toy"],
        "gpu_architectures": [], "licence": "MIT"})");
  }
  void Put(const std::string& name, const std::string& text) const {
    std::ofstream(room_.File(name)) << text;
  }
  test::TempDir room_;
  serve::ServeSettings settings_;
};

TEST_F(ListsTest, APluginsListIsReadAndItsNamesStandForRepositories) {
  Put("toy.models.json", R"({"models": [{"name": "toy-1b", "arch": "toy", "repo": "o/toy",
      "quant": "Q8_0", "bytes": 5, "context_row_bytes": 1, "context_trained": 9, "why": "w"}]})");
  const auto models = ListedModels(settings_, "/nowhere/bin/x", "");
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].name, "toy-1b");
  settings_.model_path = "toy-1b";
  ResolveModelName(settings_, "/nowhere/bin/x", "");
  EXPECT_EQ(settings_.hf_repo, "o/toy:Q8_0");
  EXPECT_EQ(settings_.model_path, "");
  for (const char* path : {"a/toy-1b", "toy-1b.gguf"}) {
    settings_.model_path = path;
    ResolveModelName(settings_, "/nowhere/bin/x", "");
    EXPECT_EQ(settings_.model_path, path);
  }
  settings_.model_path = "toy-2b";
  const auto refusal = test::RefusalOf([&] { ResolveModelName(settings_, "/nowhere/bin/x", ""); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, HasSubstr("toy-1b, seedling"));
}

TEST_F(ListsTest, ADamagedListIsRefusedByItsPath) {
  for (const char* text : {"", "[]", "{}", R"({"models": 5})", R"({"models": [5]})",
                           R"({"models": [{"name": "x"}]})"}) {
    Put("toy.models.json", text);
    const auto refusal = test::RefusalOf([&] { ListedModels(settings_, "/nowhere/bin/x", ""); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel) << text;
    EXPECT_THAT(refusal.message, HasSubstr("toy.models.json"));
  }
}

}  // namespace
}  // namespace bloomery::apps
