#include "runtime/memory/predict.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace bloomery::memory {
namespace {

// Within a share of what was measured.
#define EXPECT_WITHIN(share, measured, predicted) \
  EXPECT_NEAR((predicted) / (measured), 1.0, share) << (predicted)

// Qwen3-30B-A3B's shapes in Q4_K_M, as docs/measurements/card.md has them: 48 layers of 128
// experts, 8 used, 2,048 wide and 768 inside; 1.92 GB a token; 2.72 G multiply-adds of a row.
SeatWork Thirty() {
  SeatWork work;
  work.layers = 48;
  const uint64_t expert_macs = uint64_t{3} * 2048 * 768;
  const uint64_t expert_bytes = 2'856'960;  // mean of Q4_K and Q6_K down
  for (int i = 0; i < 48; ++i) {
    work.banks.push_back({.experts = 128, .used = 8, .bytes = expert_bytes, .macs = expert_macs});
  }
  work.dense_bytes = 1'920'000'000 - 48 * 8 * expert_bytes;
  work.dense_macs = 2'720'000'000 - 48 * 8 * expert_macs;
  work.context_row_bytes = 98'304;
  return work;
}

Placement Placed(Place place, uint32_t frames, int32_t ubatch = 512) {
  Placement placement;
  placement.place = place;
  placement.device = place == Place::kHost ? "host" : "CUDA0";
  placement.rows_max = ubatch;
  placement.experts.assign(48, 128);
  placement.frames.assign(48, frames);
  if (place == Place::kHost) return placement;
  PlacedStage& stage = placement.stages.emplace_back();
  stage.device = "CUDA0";
  stage.layers = {0, 48};
  for (uint32_t bank = 0; bank < 48; ++bank) stage.banks.push_back(bank);
  return placement;
}

MachineRates H200() {
  return {.host_read = 104e9,
          .host_macs = 2.1e12,
          .experts = {.bytes = 2'856'960,
                      .dispatch_us = 40,
                      .expert_us = 22,
                      .read_us = 25,
                      .fixed_us = 26,
                      .row_us = 2.2},
          .cards = {{.id = "CUDA0",
                     .read = 4.2e12,
                     .to_card = 55e9,
                     .from_card = 55e9,
                     .hand_off = 3e-6,
                     .multiprocessors = 132}}};
}

TEST(Predict, AWholeModelOnACardIsWithin15PerCentOfWhatWasMeasured) {
  const Placement whole = Placed(Place::kCard, 128);
  EXPECT_WITHIN(0.15, 907, Predict(whole, Thirty(), H200(), 64).decode);
  EXPECT_WITHIN(0.15, 685, Predict(whole, Thirty(), H200(), 4096).decode);
  EXPECT_WITHIN(0.15, 20164, Predict(whole, Thirty(), H200(), 0).prompt);
  EXPECT_WITHIN(0.15, 28620, Predict(Placed(Place::kCard, 128, 4096), Thirty(), H200(), 0).prompt);
}

TEST(Predict, AModelOnTheHostIsWithin15PerCentOfWhatWasMeasured) {
  const Prediction host = Predict(Placed(Place::kHost, 0), Thirty(), H200(), 64);
  // 60.4 and 589 t/s of 104 GB/s with AMX, of a file with a small vocabulary: 1.67 GB a token.
  SeatWork work = Thirty();
  work.dense_bytes -= 250'000'000;
  EXPECT_WITHIN(0.15, 60.4, Predict(Placed(Place::kHost, 0), work, H200(), 64).decode);
  EXPECT_WITHIN(0.15, 589, host.prompt);
  EXPECT_EQ(host.decode_by, "the host");
}

TEST(Predict, ASplitWaitsForWhatTheHostComputes) {
  // All experts on the host: a layer 8 * 22 us, 40 of the dispatch and 3 of the hand-off; the
  // card's 823 MB 0.196 ms, 48 * 24.7 us and 80 us.
  const Prediction none = Predict(Placed(Place::kSplit, 0), Thirty(), H200(), 0);
  EXPECT_NEAR(1000 / none.decode, 48 * 0.219 + 0.196 + 1.186 + 0.080, 0.002);
  EXPECT_EQ(none.decode_by, "the host's experts");
  // Half of them: 4 * 22, and of 256 layers 255 have a pick of the host's.
  const Prediction half = Predict(Placed(Place::kSplit, 64), Thirty(), H200(), 0);
  EXPECT_NEAR(1000 / half.decode, 48 * (0.088 + 0.043 * 255 / 256) + 0.196 + 1.186 + 0.080, 0.002);
  // An expert of twice the bytes takes the host twice as long; a dispatch is one.
  MachineRates smaller = H200();
  smaller.experts.bytes /= 2;
  EXPECT_NEAR(1000 / Predict(Placed(Place::kSplit, 0), Thirty(), smaller, 0).decode,
              48 * (0.219 + 0.176) + 0.196 + 1.186 + 0.080, 0.002);
  double last = none.decode;
  double last_prompt = none.prompt;
  for (const uint32_t frames : {32U, 64U, 96U, 127U}) {
    const Prediction here = Predict(Placed(Place::kSplit, frames), Thirty(), H200(), 0);
    EXPECT_GT(here.decode, last) << frames;
    EXPECT_GT(here.prompt, last_prompt) << frames;
    last = here.decode;
    last_prompt = here.prompt;
  }
  EXPECT_EQ(Predict(Placed(Place::kSplit, 128), Thirty(), H200(), 0).decode_by, "the card");
}

// One bank of 128 experts, 43 with frames, and a card that takes no time: 85 experts of 32 rows
// each, which take the link 50 us and the host 20 + 32 * 2.5 = 100. 100 us go to waiting for picks.
struct OneBank {
  SeatWork work = {{}, 1, {{.experts = 128, .used = 8, .bytes = 2'750'000, .macs = 0}}, {}};
  MachineRates rates{
      .host_read = 1,
      .experts = {.bytes = 2'750'000,
                  .dispatch_us = 1,
                  .expert_us = 1,
                  .read_us = 25,
                  .fixed_us = 20,
                  .row_us = 2.5},
      .cards = {{.id = "CUDA0", .read = 1e20, .to_card = 55e9, .multiprocessors = 132}}};

  Prediction Of(uint32_t frames, int32_t rows, int32_t rows_max = 0) const {
    Placement placement = Placed(Place::kSplit, frames, std::max(rows, rows_max));
    placement.experts.resize(1);
    placement.frames.resize(1);
    placement.stages[0].layers = {0, 1};
    placement.stages[0].banks = {0};
    return Predict(placement, work, rates, 0, rows);
  }
  // Beside what goes to waiting for picks.
  double Us(uint32_t frames, int32_t rows) const {
    return 1e6 * rows / Of(frames, rows).prompt - 100;
  }
};

TEST(Predict, APromptIsSharedBetweenLinkAndHost) {
  OneBank bank;
  // 57 over the link, 2,850 us, of which 42 have set out before; 28 by the host, 2,800.
  EXPECT_NEAR(bank.Us(43, 512), 2850, 1);
  EXPECT_EQ(bank.Of(43, 512).prompt_by, "the link");
  // Both are slower when both are at work: the link by 55 / 44, the host to 28 * 150 us.
  bank.rates.cards[0].to_card_beside = 44e9;
  EXPECT_NEAR(bank.Us(43, 512), 57 * 62.5, 1);
  bank.rates.experts.beside_link = 1.5;
  EXPECT_NEAR(bank.Us(43, 512), 28 * 150, 1);
  EXPECT_EQ(bank.Of(43, 512).prompt_by, "the host's experts");
}

TEST(Predict, APromptWaitsForTheHostsSumsOrDoesWithoutThem) {
  OneBank bank;
  bank.work.banks[0].width = 6'875;  // 55,000 bytes of sums a row, 1 us
  EXPECT_NEAR(bank.Us(43, 512), 2850 + 512, 1);
  bank.work.banks[0].width = 13'750;  // twice 1,024 us more than the 4,250 of all over the link
  EXPECT_NEAR(bank.Us(43, 512), 85 * 50, 1);
}

TEST(Predict, ThePartOfTheCardIsTimeForTheLink) {
  OneBank bank;
  // The dense part takes the card 1 ms, in which 20 of the 42 experts that set out before have
  // come; the link is at the others for 1,100 us more, and 43 are left: 21 over the link end at
  // 2,150 us, 22 by the host at 2,200.
  bank.work.dense_macs = static_cast<uint64_t>(416e9 * 132 / 512 / 1000);
  EXPECT_NEAR(bank.Us(43, 512), 1000 + 2200, 1);
}

TEST(Predict, APassOfFewRowsHasNoPlacesForExpertsThatCome) {
  const OneBank bank;
  // Of 64 rows 126 experts have 4.07 each: in whole rows 4, 20 + 4 * 2.5 us.
  EXPECT_NEAR(bank.Us(0, 64), 126 * 30, 1);
  // A seat of longer passes has places: 47 over the link take 2,350 us, 79 by the host 2,370.
  EXPECT_NEAR(1e6 * 64 / bank.Of(0, 64, 512).prompt - 100, 2370, 1);
}

// The whole model's work in its 48 layers, alike, and a head behind them.
SeatWork ByLayer(uint64_t head_bytes) {
  SeatWork work = Thirty();
  // The sums divide by 48 after this.
  work.dense_bytes = 48 * uint64_t{17'000'000} + head_bytes;
  work.dense_macs = 48 * uint64_t{18'000'000};
  work.of_layers.resize(48);
  for (DenseWork& layer : work.of_layers) {
    layer.dense_bytes = 17'000'000;
    layer.dense_macs = 18'000'000;
    layer.context_row_bytes = 2048;
  }
  return work;
}

// Cut into layers [0, 32) on CUDA0 and [32, 48) on CUDA1.
Placement OnTwo(Place place, uint32_t frames_first, uint32_t frames_second) {
  Placement placement = Placed(place, frames_first);
  placement.device = "CUDA0,CUDA1";
  PlacedStage& second = placement.stages.emplace_back();
  PlacedStage& first = placement.stages.front();
  second.device = "CUDA1";
  first.layers = {0, 32};
  second.layers = {32, 48};
  second.banks.assign(first.banks.begin() + 32, first.banks.end());
  first.banks.resize(32);
  for (const uint32_t bank : second.banks) placement.frames[bank] = frames_second;
  return placement;
}

// The second card reads at half the first one's rate, over half its link.
MachineRates TwoCards() {
  MachineRates rates = H200();
  rates.cards.push_back(rates.cards[0]);
  rates.cards[1].id = "CUDA1";
  rates.cards[1].read /= 2;
  rates.cards[1].to_card /= 2;
  rates.cards[1].hand_off = 5e-6;
  rates.cards[1].multiprocessors = 66;
  return rates;
}

TEST(Predict, EachStageOfADecodeStepIsByItsOwnCard) {
  const SeatWork work = ByLayer(420'000'000);
  const Prediction whole = Predict(OnTwo(Place::kCard, 128, 128), work, TwoCards(), 0);
  // A layer's 17 MB and 8 experts of 2.857 MB: 39.856 MB, 9.489 us of 4.2 TB/s, 18.979 of 2.1; the
  // head's 420 MB on the second card 200 us; 11.7 us a layer, 80 a pass, 25 from card to card.
  EXPECT_NEAR(1e6 / whole.decode, 32 * 9.4894 + 16 * 18.9789 + 200 + 48 * 11.7 + 80 + 25, 0.05);
  EXPECT_EQ(whole.decode_by, "the card");
  // 1,000 rows of 2 KiB a layer, at 0.27 of each card's rate.
  const Prediction deep = Predict(OnTwo(Place::kCard, 128, 128), work, TwoCards(), 1000);
  EXPECT_NEAR(1e6 / deep.decode - 1e6 / whole.decode,
              32 * 2.048 / (4.2 * 0.27) + 16 * 2.048 / (2.1 * 0.27), 0.01);
  // Experts of the second card's layers with the host: 8 * 22 us, 40 and 5 of its hand-off; those
  // of the first are on the card, 22.857 MB a layer. Layers of a split take 24.7 us.
  const Prediction split = Predict(OnTwo(Place::kSplit, 128, 0), work, TwoCards(), 0);
  EXPECT_NEAR(1e6 / split.decode,
              32 * 9.4894 + 16 * (17 / 2.1 + 176 + 40 + 5) + 200 + 48 * 24.7 + 80 + 25, 0.05);
}

TEST(Predict, CardsThatAreAlikeArePredictedAsOneButForTheCrossing) {
  const SeatWork work = ByLayer(420'000'000);
  MachineRates rates = H200();
  rates.cards.push_back(rates.cards[0]);
  rates.cards[1].id = "CUDA1";
  for (const uint32_t frames : {128U, 40U}) {
    const Place place = frames == 128 ? Place::kCard : Place::kSplit;
    const Prediction one = Predict(Placed(place, frames), work, rates, 4096);
    const Prediction two = Predict(OnTwo(place, frames, frames), work, rates, 4096);
    EXPECT_NEAR(1e6 / two.decode - 1e6 / one.decode, 25, 0.001);
    EXPECT_NEAR(512e6 / two.prompt - 512e6 / one.prompt, 25, 0.001);
    EXPECT_EQ(two.decode_by, one.decode_by);
    EXPECT_EQ(two.prompt_by, one.prompt_by);
  }
}

TEST(Predict, StagesOfAPromptFollowEachOther) {
  const SeatWork work = ByLayer(0);
  // 512 rows of a layer: 18 M dense and 8 times 4.71859 M multiply-adds, computed at 416 G for each
  // multiprocessor: 132, and 66. Bytes take less.
  const double layer_us = 512e6 * (18e6 + 8 * 4'718'592.0) / 416e9 / 132;
  EXPECT_NEAR(512e6 / Predict(OnTwo(Place::kCard, 128, 128), work, TwoCards(), 0).prompt,
              32 * layer_us + 16 * 2 * layer_us + 25, 0.5);
}

// Both stages take 32 layers' time for a part of 512 rows: the second part ends so much behind the
// first.
TEST(Predict, PartsOfAPassOverlapOnSeveralCards) {
  const SeatWork work = ByLayer(0);
  const double stage_us = 32 * 512e6 * (18e6 + 8 * 4'718'592.0) / 416e9 / 132;
  Placement placement = OnTwo(Place::kCard, 128, 128);
  placement.batch_rows = 2048;
  EXPECT_NEAR(2048e6 / Predict(placement, work, TwoCards(), 0).prompt, (2 + 3) * stage_us + 25, 1);
  EXPECT_NEAR(1024e6 / Predict(placement, work, TwoCards(), 0, 1024).prompt,
              (2 + 1) * stage_us + 25, 1);
  EXPECT_NEAR(512e6 / Predict(placement, work, TwoCards(), 0, 512).prompt, 2 * stage_us + 25, 1);
  // No more than a pass has.
  EXPECT_EQ(Predict(placement, work, TwoCards(), 0, 8192).prompt,
            Predict(placement, work, TwoCards(), 0).prompt);
}

TEST(Predict, EveryCardOfAPlacementMustBeMeasured) {
  const SeatWork work = ByLayer(0);
  const Placement whole = OnTwo(Place::kCard, 128, 128);
  MachineRates rates = TwoCards();
  rates.cards[1].multiprocessors = 0;
  EXPECT_EQ(Predict(whole, work, rates, 0).prompt, 0);
  EXPECT_GT(Predict(whole, work, rates, 0).decode, 0);
  rates = TwoCards();
  rates.cards[1].read = 0;
  EXPECT_EQ(Predict(whole, work, rates, 0).decode, 0);
  EXPECT_EQ(PredictionLine(Predict(whole, work, H200(), 0), 0), "");
  // The link of a card whose experts are all there is not asked.
  rates = TwoCards();
  rates.cards[1].to_card = 0;
  EXPECT_GT(Predict(OnTwo(Place::kSplit, 4, 128), work, rates, 0).prompt, 0);
  EXPECT_EQ(Predict(OnTwo(Place::kSplit, 128, 4), work, rates, 0).prompt, 0);
}

TEST(Predict, WhatIsNotMeasuredIsNotPredicted) {
  MachineRates rates = H200();
  rates.host_macs = 0;
  const Prediction host = Predict(Placed(Place::kHost, 0), Thirty(), rates, 0);
  EXPECT_GT(host.decode, 0);
  EXPECT_EQ(host.prompt, 0);
  rates.experts = {};  // as rates have it that were kept before experts were measured
  EXPECT_EQ(Predict(Placed(Place::kSplit, 4), Thirty(), rates, 0).prompt, 0);
  EXPECT_EQ(Predict(Placed(Place::kSplit, 4), Thirty(), rates, 0).decode, 0);
  EXPECT_GT(Predict(Placed(Place::kCard, 128), Thirty(), rates, 0).decode, 0);
  rates.cards.clear();
  EXPECT_EQ(PredictionLine(Predict(Placed(Place::kCard, 128), Thirty(), rates, 0), 0), "");
}

TEST(Predict, TheLineSaysRatesDepthAndWhatTheyWaitFor) {
  EXPECT_EQ(
      PredictionLine(
          {.decode = 65.54, .decode_by = "the host", .prompt = 1234.5, .prompt_by = "the card"},
          4096),
      "predicted: decode 65.5 tok/s at depth 4096 (by the host), prompt 1234 tok/s (by the "
      "card)");
  EXPECT_EQ(PredictionLine({.decode = 800, .decode_by = "the card"}, 0),
            "predicted: decode 800 tok/s at depth 0 (by the card)");
}

}  // namespace
}  // namespace bloomery::memory
