#include "runtime/apps/tools/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

// A seat that is split, as GET /residency has it.
std::string Split(int passes, int hits, int moves) {
  const std::string n = std::to_string(passes);
  const std::string picks = std::to_string(passes * 8);
  return R"({"tiers":[{"name":"CUDA0","device":"a card","used_bytes":1048576,"limit_bytes":2097152,)"
         R"("classes":[]},{"name":"host","device":"CPU, avx2","used_bytes":1024,"limit_bytes":null,)"
         R"("classes":[]}],"residency":{"policy":"payback","moves_max":24,"rows":)" +
         n + R"(,"picks":)" + picks + R"(,"hits":)" + std::to_string(hits) + R"(,"moves":)" +
         std::to_string(moves) + R"(,"stopped":null},"times":{"passes":)" + n + R"(,"rows":)" + n +
         R"(,"card_seconds":)" + std::to_string(passes * 0.002) + R"(,"host_seconds":)" +
         std::to_string(passes * 0.005) + R"(,"link_seconds":)" + std::to_string(passes * 0.001) +
         R"(,"sync_seconds":0},"trace":null,"rows_counted":true,"banks":[)"
         R"({"layer":0,"tier":"CUDA0","experts":16,"used":4,"frames":4,"picks":)" +
         std::to_string(passes * 4) + R"(,"hits":)" + std::to_string(hits) +
         R"(,"moves":0,"rows":null},{"layer":1,"tier":"CUDA0","experts":16,"used":4,"frames":4,)"
         R"("picks":)" +
         std::to_string(passes * 4) + R"(,"hits":0,"moves":0,"rows":null}]})";
}

// A seat on the CPU: of eight experts one had 6 of 12 rows.
constexpr const char* kCpu =
    R"({"tiers":[{"name":"host","device":"CPU, avx2","used_bytes":42,"limit_bytes":100,"classes":[]}],)"
    R"("residency":null,"times":{"passes":2,"rows":6,"card_seconds":0,"host_seconds":0.006,)"
    R"("link_seconds":0,"sync_seconds":0.002},"trace":null,"rows_counted":true,)"
    R"("banks":[{"layer":0,"tier":"host","experts":8,"used":2,"frames":null,"picks":null,)"
    R"("hits":null,"moves":null,"rows":[0,6,1,1,1,1,1,1]}]})";

TEST(TopView, RatesAreThoseBetweenTwoLooks) {
  const TopLook before = ReadTopLook(Split(100, 200, 10));
  const TopLook now = ReadTopLook(Split(150, 350, 30));
  const std::vector<std::string> lines =
      TopLines("http://a", now, &before, 2, {.columns = 120, .lines = 40, .colour = false});
  // 50 passes in 2 s; 150 hits of 400 picks between; 20 moves in 2 s; 2 + 5 + 1 ms a pass.
  EXPECT_EQ(lines[0], "bloomery top  http://a  policy payback  25.0 passes/s  25.0 rows/s");
  EXPECT_EQ(lines[1], "  CUDA0  [############............] 1.0 MiB of 2.0 MiB  a card");
  EXPECT_EQ(lines[2], "  host   1.0 KiB  CPU, avx2");
  EXPECT_EQ(lines[3],
            "a pass 8.00 ms: card 2.00  host 5.00  link 1.00  sync 0.00  "
            "[cccccchhhhhhhhhhhhhhhlll]");
  EXPECT_EQ(lines[4], "experts  2 banks, 4 of 16 a row, frames 4");
  EXPECT_EQ(lines[5],
            "hits  37.5 % (29.2 % since loading)  swaps 10.0/s (30 in all, 24 a pass at most)");
  EXPECT_EQ(lines[6], "hit rate of each bank, %, by layer");
  // Bank 0: 150 hits of 200 picks; bank 1 none.
  EXPECT_EQ(lines[7], "    0 75  0 ");
  EXPECT_THAT(lines, SizeIs(8));
}

TEST(TopView, ACpuSeatShowsWhatThereIs) {
  const TopLook now = ReadTopLook(kCpu);
  const std::vector<std::string> lines =
      TopLines("u", now, nullptr, 0, {.columns = 100, .lines = 40, .colour = false});
  EXPECT_EQ(lines[0], "bloomery top  u  policy none");
  EXPECT_THAT(lines[2], HasSubstr("a pass 4.00 ms: card 0.00  host 3.00  link 0.00  sync 1.00"));
  EXPECT_EQ(lines[4], "all experts lie in one memory: nothing moves");
  // One expert is an eighth of eight: 6 of 12.
  EXPECT_EQ(lines[6], "    0 50 ");
}

// Two cards with layers of their own beside the host.
std::string OnTwoCards(const char* frames_of_last, const char* policy) {
  const auto bank = [](int layer, const char* tier, const std::string& frames) {
    return R"({"layer":)" + std::to_string(layer) + R"(,"tier":")" + tier +
           R"(","experts":16,"used":4,"frames":)" + frames +
           R"(,"picks":8,"hits":6,"moves":0,"rows":null})";
  };
  const bool split = std::string_view(frames_of_last) != "null";
  return R"({"tiers":[{"name":"CUDA0","device":"a card","used_bytes":1048576,"limit_bytes":2097152,)"
         R"("classes":[]},{"name":"CUDA1","device":"another","used_bytes":524288,)"
         R"("limit_bytes":2097152,"classes":[]},{"name":"host","device":"CPU","used_bytes":1024,)"
         R"("limit_bytes":null,"classes":[]}],"residency":)" +
         std::string(policy) +
         R"(,"times":{"passes":1,"rows":1,"card_seconds":0.001,"host_seconds":0,"link_seconds":0,)"
         R"("sync_seconds":0},"trace":null,"rows_counted":false,"banks":[)" +
         bank(0, "CUDA0", split ? "4" : "null") + "," + bank(1, "CUDA1", split ? "6" : "null") +
         "," + bank(2, "CUDA1", frames_of_last) + "]}";
}

TEST(TopView, EveryCardHasItsLineAndItsFrames) {
  const TopLook now = ReadTopLook(
      OnTwoCards("9", R"({"policy":"payback","moves_max":24,"picks":24,"hits":18,"moves":0})"));
  const std::vector<std::string> lines =
      TopLines("u", now, nullptr, 0, {.columns = 100, .lines = 40, .colour = false});
  EXPECT_EQ(lines[1], "  CUDA0  [############............] 1.0 MiB of 2.0 MiB  a card");
  EXPECT_EQ(lines[2], "  CUDA1  [######..................] 512.0 KiB of 2.0 MiB  another");
  EXPECT_EQ(lines[3], "  host   1.0 KiB  CPU");
  EXPECT_EQ(lines[5], "experts  3 banks, 4 of 16 a row, frames CUDA0 4, CUDA1 6 to 9");
  EXPECT_EQ(lines.back(), "    0 75 75 75 ");
}

TEST(TopView, ExpertsThatLieOnSeveralCardsWholeAreNotSaidToBeInOneMemory) {
  const TopLook now = ReadTopLook(OnTwoCards("null", "null"));
  const std::vector<std::string> lines =
      TopLines("u", now, nullptr, 0, {.columns = 100, .lines = 40, .colour = false});
  EXPECT_EQ(lines[5], "experts  3 banks, 4 of 16 a row");
  EXPECT_EQ(lines[6], "every expert has its card: nothing moves");
}

TEST(TopView, LinesFitTheScreen) {
  TopLook now = ReadTopLook(Split(10, 20, 0));
  now.banks.resize(96, now.banks[0]);
  for (const int columns : {12, 40, 80}) {
    const TopScreen screen{.columns = columns, .lines = 9, .colour = false};
    const std::vector<std::string> lines = TopLines("http://somewhere", now, nullptr, 0, screen);
    EXPECT_LE(lines.size(), 9U);
    EXPECT_THAT(lines, Each(testing::ResultOf([](const std::string& line) { return line.size(); },
                                              testing::Le(static_cast<size_t>(columns)))));
  }
}

TEST(TopView, ColoursEndWhereTheyBegin) {
  const std::vector<std::string> lines =
      TopLines("u", ReadTopLook(Split(10, 40, 0)), nullptr, 0, {.columns = 80, .lines = 40});
  EXPECT_EQ(lines.back(), "    0 \x1b[97;48;5;160m99 \x1b[0m\x1b[97;48;5;17m 0 \x1b[0m");
}

TEST(TopView, AServerThatWasStartedAnewHasNoRates) {
  const TopLook before = ReadTopLook(Split(100, 200, 10));
  const TopLook now = ReadTopLook(Split(10, 20, 1));
  const std::vector<std::string> lines =
      TopLines("u", now, &before, 1, {.columns = 120, .lines = 40, .colour = false});
  EXPECT_THAT(lines[0], HasSubstr("0.0 passes/s"));
  EXPECT_THAT(lines[3], HasSubstr("a pass 8.00 ms"));
}

TEST(TopView, JsonHasTheAnswerAndTheRates) {
  const std::string answer = Split(150, 350, 30);
  const TopLook before = ReadTopLook(Split(100, 200, 10));
  const rapidjson::Document line = ParseJson(TopJson(answer, ReadTopLook(answer), &before, 2), "l");
  EXPECT_EQ(line["passes_per_second"].GetDouble(), 25);
  EXPECT_EQ(line["moves_per_second"].GetDouble(), 10);
  EXPECT_EQ(line["hit_rate"].GetDouble(), 0.375);
  EXPECT_EQ(line["residency"]["residency"]["moves"].GetInt(), 30);
  const rapidjson::Document first =
      ParseJson(TopJson(answer, ReadTopLook(answer), nullptr, 0), "l");
  EXPECT_TRUE(first["rows_per_second"].IsNull());
}

TEST(TopView, WhatIsNoAnswerIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"tiers":[],"banks":[1]})", R"({"tiers":1})"}) {
    EXPECT_EQ(test::RefusalOf([&] { ReadTopLook(text); }).kind, ErrorKind::kNoInput) << text;
  }
}

}  // namespace
}  // namespace bloomery::apps
