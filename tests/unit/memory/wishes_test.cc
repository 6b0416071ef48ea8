#include "runtime/memory/wishes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using enum BankWish;

constexpr uint32_t kLayers = 6;

// Layers 1 to 5 of six have experts.
std::vector<BankWish> Wishes(const PlacementRequest& request) {
  std::vector<BankNames> banks;
  std::vector<OtherName> others = {{"token_embd.weight", "CUDA0"}, {"output.weight", "CUDA0"}};
  for (int32_t layer = 0; layer < static_cast<int32_t>(kLayers); ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    others.push_back({block + "attn_q.weight", "CUDA0"});
    if (layer == 0) continue;
    banks.push_back({layer,
                     "CUDA0",
                     {block + "ffn_gate_exps.weight", block + "ffn_up_exps.weight",
                      block + "ffn_down_exps.weight"}});
  }
  const std::string card = "CUDA0";
  return WishesOf(request, kLayers, banks, others, {&card, 1});
}

// The same on two cards, layers 0 to 2 and 3 to 5.
std::vector<BankWish> WishesOnTwo(const PlacementRequest& request) {
  std::vector<BankNames> banks;
  std::vector<OtherName> others = {{"token_embd.weight", "CUDA0"}, {"output.weight", "CUDA3"}};
  for (int32_t layer = 0; layer < static_cast<int32_t>(kLayers); ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const std::string card = layer < 3 ? "CUDA0" : "CUDA3";
    others.push_back({block + "attn_q.weight", card});
    if (layer == 0) continue;
    banks.push_back({layer,
                     card,
                     {block + "ffn_gate_exps.weight", block + "ffn_up_exps.weight",
                      block + "ffn_down_exps.weight"}});
  }
  const std::array<std::string, 2> cards = {"CUDA0", "CUDA3"};
  return WishesOf(request, kLayers, banks, others, cards);
}

PlacementRequest Rules(std::string_view text) { return {.rules = ParseTensorRules(text)}; }

std::string RuleRefusal(const PlacementRequest& request) {
  const test::Refusal refusal = RefusalOf([&] { Wishes(request); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  return refusal.message;
}

TEST(Wishes, WithoutFlagsEveryBankIsFree) {
  EXPECT_THAT(Wishes({}), ElementsAre(kFree, kFree, kFree, kFree, kFree));
}

TEST(Wishes, TheFirstLayersKeepTheirExpertsWithTheHostAndLayersAreCountedNotBanks) {
  EXPECT_THAT(Wishes({.host_expert_layers = 3}), ElementsAre(kHost, kHost, kFree, kFree, kFree));
  EXPECT_THAT(Wishes({.host_expert_layers = 1}), ElementsAre(kFree, kFree, kFree, kFree, kFree));
  EXPECT_THAT(Wishes({.host_expert_layers = UINT32_MAX}),
              ElementsAre(kHost, kHost, kHost, kHost, kHost));
}

TEST(Wishes, OnlyTheLastLayersMayHaveExpertsOnTheCard) {
  EXPECT_THAT(Wishes({.card_layers = 2}), ElementsAre(kHost, kHost, kHost, kFree, kFree));
  EXPECT_THAT(Wishes({.card_layers = 6}), ElementsAre(kFree, kFree, kFree, kFree, kFree));
  EXPECT_THAT(Wishes({.card_layers = 99}), ElementsAre(kFree, kFree, kFree, kFree, kFree));
  EXPECT_THAT(Wishes({.card_layers = 5, .host_expert_layers = 3}),
              ElementsAre(kHost, kHost, kFree, kFree, kFree));
}

TEST(Wishes, RulesSayWhereTheExpertsOfALayerLieAndTheFirstThatIsFoundCounts) {
  EXPECT_THAT(Wishes(Rules("exps=CPU")), ElementsAre(kHost, kHost, kHost, kHost, kHost));
  EXPECT_THAT(Wishes(Rules(R"(blk\.[12]\.ffn_.*_exps=host,blk\.(2|5)\..*exps=CUDA0)")),
              ElementsAre(kHost, kHost, kFree, kFree, kCard));
  EXPECT_THAT(Wishes(Rules(R"(blk\.5\.ffn=card,_exps\.=CPU)")),
              ElementsAre(kHost, kHost, kHost, kHost, kCard));
  // A comma of the expression, and dense weights that are where they would be anyway.
  EXPECT_THAT(Wishes(Rules(R"(blk\.\d{1,2}\.ffn_(gate|up|down)_exps=CPU,attn=CUDA0)")),
              ElementsAre(kHost, kHost, kHost, kHost, kHost));
}

TEST(Wishes, RulesOfAnotherFormAreRefused) {
  for (const char* bad : {"", "exps", "=CPU", "exps=", "exps=GPU", "exps=CUDA", "exps=CUDA0x",
                          "exps=CPU,", "exps=CPU,attn"}) {
    const test::Refusal refusal = RefusalOf([&] { ParseTensorRules(bad); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage) << bad;
    EXPECT_THAT(refusal.message, HasSubstr("expected REGEX=PLACE")) << bad;
  }
  EXPECT_THAT(RefusalOf([] { ParseTensorRules("a(b=CPU"); }).message,
              AllOf(HasSubstr("a(b=CPU"), HasSubstr("parenthesis"), HasSubstr("character 3")));
}

TEST(Wishes, APartOfABankCannotLieElsewhere) {
  EXPECT_THAT(RuleRefusal(Rules("ffn_up_exps=CPU")),
              AllOf(HasSubstr("ffn_up_exps=CPU"), HasSubstr("'blk.1.ffn_up_exps.weight'"),
                    HasSubstr("'blk.1.ffn_gate_exps.weight'"), HasSubstr("lie together")));
  EXPECT_THAT(RuleRefusal(Rules("ffn_gate_exps=CUDA0")), HasSubstr("lie together"));
}

TEST(Wishes, DenseWeightsCannotGoToTheHost) {
  EXPECT_THAT(RuleRefusal(Rules("attn_q=CPU")),
              AllOf(HasSubstr("attn_q=CPU"), HasSubstr("'blk.0.attn_q.weight'"),
                    HasSubstr("no routed expert")));
}

TEST(Wishes, ARuleWithoutEffectAnotherCardAndAnEndlessSearchAreRefused) {
  EXPECT_THAT(RuleRefusal(Rules("shexp=CPU")), HasSubstr("says nothing about this model"));
  EXPECT_THAT(RuleRefusal(Rules("exps=CPU,up_exps=CPU")), HasSubstr("up_exps=CPU"));
  EXPECT_THAT(RuleRefusal(Rules("exps=CUDA1")),
              AllOf(HasSubstr("exps=CUDA1"), HasSubstr("planned for CUDA0; --device")));
  EXPECT_THAT(RuleRefusal(Rules(R"(^(?:[a-z0-9._]+)+[!?]$=CPU)")), HasSubstr("match limit"));
}

TEST(Wishes, OnSeveralCardsARuleNamesTheCardOfTheLayerOrAnyOfThem) {
  EXPECT_THAT(WishesOnTwo(Rules(R"(blk\.[12]\..*exps=CUDA0,blk\.[345]\..*exps=CUDA3)")),
              ElementsAre(kCard, kCard, kCard, kCard, kCard));
  EXPECT_THAT(WishesOnTwo(Rules(R"(blk\.[24]\..*exps=card,exps=CPU)")),
              ElementsAre(kHost, kCard, kHost, kCard, kHost));
  EXPECT_THAT(WishesOnTwo(Rules(R"(^output=CUDA3,blk\.0\.attn=CUDA0)")),
              ElementsAre(kFree, kFree, kFree, kFree, kFree));
  EXPECT_THAT(WishesOnTwo({.card_layers = 2}), ElementsAre(kHost, kHost, kHost, kFree, kFree));
}

TEST(Wishes, ARuleMovesNothingToACardWhereItsLayerDoesNotLie) {
  const auto refused = [](std::string_view rules) {
    const test::Refusal refusal = RefusalOf([&] { WishesOnTwo(Rules(rules)); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
    return refusal.message;
  };
  EXPECT_THAT(refused("exps=CUDA0"),
              AllOf(HasSubstr("exps=CUDA0: the experts of layer 3 lie on CUDA3, not on CUDA0"),
                    HasSubstr("--tensor-split")));
  EXPECT_THAT(refused("output=CUDA0"),
              AllOf(HasSubstr("'output.weight' lies on CUDA3"), HasSubstr("not on CUDA0")));
  // A card that is none of the devices.
  EXPECT_THAT(refused("exps=CUDA1"),
              AllOf(HasSubstr("exps=CUDA1"), HasSubstr("planned for CUDA0, CUDA3; --device")));
  EXPECT_THAT(refused("attn_q=CPU"), HasSubstr("no routed expert"));
}

TEST(Wishes, ContradictionsNameBoth) {
  PlacementRequest request = Rules(R"(blk\.2\..*exps=CUDA0)");
  request.host_expert_layers = 3;
  EXPECT_THAT(RuleRefusal(request), AllOf(HasSubstr(R"(blk\.2\..*exps=CUDA0)"),
                                          HasSubstr("layer 2"), HasSubstr("--n-cpu-moe 3")));
  request.host_expert_layers = 0;
  request.card_layers = 1;
  EXPECT_THAT(RuleRefusal(request), HasSubstr("--gpu-layers 1"));
  EXPECT_THAT(RuleRefusal({.place = Place::kCard, .card_layers = 3}),
              AllOf(HasSubstr("--place card"), HasSubstr("--gpu-layers 3"), HasSubstr("layer 1")));
  EXPECT_THAT(RuleRefusal({.place = Place::kCard, .rules = ParseTensorRules("exps=CPU")}),
              AllOf(HasSubstr("--place card"), HasSubstr("exps=CPU")));
}

}  // namespace
}  // namespace bloomery::memory
