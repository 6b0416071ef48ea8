// Flags that say on which cards a model lies, and with how much of each.
#include "runtime/serve/card_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/serve/parse_flags.h"

namespace bloomery::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Flags, TheCardsLayersAreANumberOrAWordForAll) {
  EXPECT_EQ(Parse({"-ngl", "0"}).settings.placing.card_layers, 0U);
  EXPECT_EQ(Parse({"-ngl", "99"}).settings.placing.card_layers, 99U);
  for (const char* all : {"auto", "all", "-1"}) {
    EXPECT_EQ(Parse({"-ngl", "7", "-ngl", all}).settings.placing.card_layers, std::nullopt) << all;
  }
  for (const char* bad : {"", "some", "3x", "-2"}) {
    EXPECT_THAT(Refusal({"-ngl", bad}), HasSubstr("-ngl: ")) << bad;
  }
  EXPECT_EQ(Parse({"-dev", "CUDA1", "--card-budget", "8GiB"}).settings.device, "CUDA1");
  EXPECT_EQ(Parse({"--card-budget", "8GiB"}).settings.card_budget_bytes, uint64_t{8} << 30);
}

TEST(Flags, PlacementIsReadFromLlamaServersNamesAndOurs) {
  using exec::Place;
  const exec::PlacementRequest none = Parse({}).settings.placing;
  EXPECT_EQ(none.place, Place::kAuto);
  EXPECT_EQ(none.host_expert_layers, 0U);
  EXPECT_EQ(Parse({"--place", "split"}).settings.placing.place, Place::kSplit);
  EXPECT_EQ(Parse({}, {{"BLOOMERY_PLACE", "host"}}).settings.placing.place, Place::kHost);
  EXPECT_EQ(Parse({"-ncmoe", "7"}).settings.placing.host_expert_layers, 7U);
  EXPECT_EQ(Parse({"-cmoe"}).settings.placing.host_expert_layers, UINT32_MAX);
  EXPECT_EQ(Parse({"--cpu-moe", "--n-cpu-moe", "7"}).settings.placing.host_expert_layers,
            UINT32_MAX);
  const auto rules =
      Parse({"-ot", "a{1,2}=CPU,b=CUDA0", "--override-tensor", "c=card"}).settings.placing.rules;
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].pattern, "a{1,2}");
  EXPECT_TRUE(rules[0].OnHost());
  EXPECT_EQ(rules[1].place, "CUDA0");
  EXPECT_EQ(rules[2].Text(), "c=card");
  EXPECT_THAT(Refusal({"-ot", "exps=GPU"}), HasSubstr("-ot: 'exps=GPU': expected REGEX=PLACE"));
  EXPECT_THAT(Refusal({"-ncmoe", "-1"}), HasSubstr("-ncmoe"));
}

TEST(Flags, SizesToFitHaveLlamaServersDefaults) {
  const ServeSettings settings = Parse({}).settings;
  EXPECT_TRUE(settings.fit);
  EXPECT_EQ(settings.fit_margin_bytes, uint64_t{1024} << 20);
  EXPECT_EQ(settings.fit_context, 4096);
  EXPECT_FALSE(Parse({"-fit", "off"}).settings.fit);
  EXPECT_EQ(Parse({"-fitt", "300"}).settings.fit_margin_bytes, uint64_t{300} << 20);
  EXPECT_EQ(Parse({"-fitc", "512"}).settings.fit_context, 512);
  for (const char* bad : {"much", "", "1,", "1,-2", "1.5"}) {
    EXPECT_THAT(Refusal({"-fitt", bad}), HasSubstr("expected MiB")) << bad;
  }
}

TEST(Flags, MarginsAreOneForAllCardsOrOneACardAndThoseLeftOutHaveTheDefault) {
  const ServeSettings one = Parse({"-fitt", "300"}).settings;
  EXPECT_EQ(one.fit_margin_bytes, uint64_t{300} << 20);
  EXPECT_THAT(one.fit_margins_bytes, IsEmpty());
  const ServeSettings two = Parse({"-fitt", "300, 20"}).settings;
  EXPECT_EQ(two.fit_margin_bytes, uint64_t{1024} << 20);
  EXPECT_THAT(two.fit_margins_bytes, ElementsAre(uint64_t{300} << 20, uint64_t{20} << 20));
  // The later one replaces all of the earlier.
  const ServeSettings again = Parse({"-fitt", "300,20", "-fitt", "7"}).settings;
  EXPECT_EQ(again.fit_margin_bytes, uint64_t{7} << 20);
  EXPECT_THAT(again.fit_margins_bytes, IsEmpty());
  EXPECT_THAT(Refusal({"-fitt", "1,2,3", "-dev", "CUDA0,CUDA1"}),
              AllOf(HasSubstr("--fit-target: 3 values for the 2 cards"),
                    HasSubstr("--device CUDA0,CUDA1")));
}

TEST(Flags, DevicesAreCardsInTheirOrderEachOnce) {
  EXPECT_EQ(Parse({"-dev", "CUDA1"}).settings.device, "CUDA1");
  EXPECT_EQ(Parse({"-dev", " CUDA1, CUDA0"}).settings.device, "CUDA1,CUDA0");
  EXPECT_EQ(Parse({}, {{"LLAMA_ARG_DEVICE", "none"}}).settings.device, "none");
  EXPECT_THAT(Refusal({"-dev", "CUDA0,CUDA1,CUDA0"}), HasSubstr("-dev: CUDA0 is named twice"));
  EXPECT_THAT(Refusal({"-dev", "CUDA0,none"}),
              AllOf(HasSubstr("'CUDA0,none'"), HasSubstr("none cannot be one of several")));
  EXPECT_THAT(Refusal({"--device", "auto,CUDA0"}), HasSubstr("auto cannot be one of several"));
  EXPECT_THAT(Refusal({"-dev", "nonsense"}), HasSubstr("-dev: the device is 'nonsense', must be"));
}

TEST(Flags, SharesOfCardsAreNumbersBetweenCommasOrSlashes) {
  EXPECT_THAT(Parse({}).settings.card_shares, IsEmpty());
  EXPECT_THAT(Parse({"-ts", "3,1"}).settings.card_shares, ElementsAre(3, 1));
  EXPECT_THAT(Parse({"-ts", "0.5/ 0 / 1e1"}).settings.card_shares, ElementsAre(0.5, 0, 10));
  EXPECT_THAT(Parse({}, {{"LLAMA_ARG_TENSOR_SPLIT", "2,1"}}).settings.card_shares,
              ElementsAre(2, 1));
  // Cards that are left out have none, and so do those that are said to.
  EXPECT_THAT(Parse({"-ts", "1,0", "-dev", "CUDA0"}).settings.card_shares, ElementsAre(1));
  for (const char* bad : {"", "3,x", "3,,1", "3;1", "nan", "1,inf", "1e999", "3 1"}) {
    EXPECT_THAT(Refusal({"-ts", bad}), AllOf(HasSubstr("-ts: "), HasSubstr("is not a number")))
        << bad;
  }
  EXPECT_THAT(Refusal({"-ts", "3,-1"}), HasSubstr("'-1': a share is 0 or more"));
  EXPECT_THAT(Refusal({"-ts", "0,0.0"}), HasSubstr("no share is above 0"));
  EXPECT_THAT(Refusal({"-ts", "3,0,1", "-dev", "CUDA0,CUDA1"}),
              AllOf(HasSubstr("--tensor-split 3,0,1: 3 shares for the 2 cards"),
                    HasSubstr("--device CUDA0,CUDA1")));
}

TEST(Flags, SplitModeNoneTakesTheOneCardThatMainGpuCounts) {
  EXPECT_EQ(Parse({"-sm", "none"}).settings.device, "CUDA0");
  EXPECT_EQ(Parse({"-sm", "none", "-mg", "2"}).settings.device, "CUDA2");
  EXPECT_EQ(Parse({"-sm", "none", "-mg", "1", "-dev", "CUDA3,CUDA5"}).settings.device, "CUDA5");
  const ServeSettings one =
      Parse({"-sm", "none", "-mg", "1", "-ts", "0,4", "-fitt", "100,200"}).settings;
  EXPECT_THAT(one.card_shares, IsEmpty());
  EXPECT_EQ(one.fit_margin_bytes, uint64_t{200} << 20);
  EXPECT_THAT(one.fit_margins_bytes, IsEmpty());
  // In the mode of layers it counts nothing, as with llama-server.
  const ServeSettings layers = Parse({"-sm", "layer", "-mg", "7", "-dev", "CUDA1"}).settings;
  EXPECT_EQ(layers.device, "CUDA1");
  // Where there is no card to choose there is none to take.
  EXPECT_EQ(Parse({"-sm", "none", "-dev", "none"}).settings.device, "none");
  EXPECT_EQ(Parse({"-sm", "none", "--place", "host"}).settings.device, "auto");
  EXPECT_EQ(Parse({"-sm", "none", "-ngl", "0"}).settings.device, "auto");
  for (const char* mode : {"row", "tensor"}) {
    EXPECT_THAT(Refusal({"-sm", mode}), HasSubstr("layers are not divided among cards"));
  }
  EXPECT_THAT(Refusal({"-sm", "graph"}), HasSubstr("-sm: 'graph': expected layer or none"));
  EXPECT_THAT(Refusal({"-sm", "none", "-mg", "2", "-dev", "CUDA0,CUDA1"}),
              HasSubstr("--main-gpu 2: --device CUDA0,CUDA1 names 2 cards"));
  EXPECT_THAT(Refusal({"-sm", "none", "-mg", "0", "-dev", "none"}),
              HasSubstr("--main-gpu 0: cannot be given together with --device none"));
  EXPECT_THAT(Refusal({"-mg", "-1"}), HasSubstr("-mg: "));
}

TEST(Flags, PlacementsThatContradictEachOtherAreRefusedNamingBoth) {
  const std::vector<std::vector<std::string>> pairs = {
      {"--place card", "--device none"},
      {"--place split", "--device cpu"},
      {"--place split", "--gpu-layers 0"},
      {"--place card", "--cpu-moe"},
      {"--place card", "--n-cpu-moe 3"},
      {"--place host", "--device CUDA0"},
      {"--place host", "--gpu-layers 7"},
      {"--place card", "--override-tensor exps=CPU"},
      {"--place host", "--override-tensor exps=CUDA0"},
      {"--device none", "--override-tensor exps=card"},
      {"--device CUDA1,CUDA2", "--override-tensor exps=CUDA0"},
      {"--split-mode none", "--override-tensor exps=CUDA1"},
      {"--tensor-split 3,1", "--device none"},
      {"--tensor-split 1", "--place host"},
      {"--tensor-split 3,1", "--gpu-layers 0"},
      {"--tensor-split 3,1", "--split-mode none"},
      {"--tensor-split 0,1", "--split-mode none"},
      {"--place host", "--device CUDA0,CUDA1"},
      {"--gpu-layers 0", "--override-tensor exps=card"}};
  for (const auto& pair : pairs) {
    std::vector<std::string> words;
    for (const std::string& flag : pair) {
      const size_t space = flag.find(' ');
      words.push_back(flag.substr(0, space));
      if (space != std::string::npos) words.push_back(flag.substr(space + 1));
    }
    const std::string refusal = Refusal(words);
    EXPECT_THAT(refusal, AllOf(HasSubstr(pair[0]), HasSubstr(pair[1]))) << refusal;
    EXPECT_THAT(refusal, HasSubstr("cannot be given together"));
  }
  for (const std::vector<std::string>& both :
       {std::vector<std::string>{"--place", "split", "--cpu-moe"},
        {"--place", "host", "--device", "none"},
        {"-dev", "CUDA2", "-ot", "exps=CUDA2"},
        {"-sm", "none", "-mg", "1", "-ot", "exps=CUDA1"},
        {"-sm", "layer", "-ts", "3,1", "-dev", "CUDA1,CUDA0", "-mg", "9"},
        {"-sm", "none", "-ts", "1,0"},
        {"-dev", "CUDA0", "-ts", "5"},
        {"--place", "card", "-ngl", "all"},
        {"-dev", "none", "-ncmoe", "4"}}) {
    EXPECT_TRUE(Parse(both).warnings.empty());
  }
}

}  // namespace
}  // namespace bloomery::serve
