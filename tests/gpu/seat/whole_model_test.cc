// A whole model of tens of layers on a card against the same file on the CPU. The file is the one
// that $BLOOMERY_TEST_MODEL names; run.sh gives the fixture of Qwen3-30B-A3B's shapes that it
// benches. Any model does that card and host both hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

using Rows = std::vector<std::vector<float>>;

// Past a window of 128 keys, and a prompt that the tables speak of.
constexpr int32_t kDecoded = 150;
constexpr int32_t kPrompt = 512;

exec::SeatOptions Options(const char* device, bl_dtype kv_type) {
  return {.slots = 1,
          .slot_context = 1024,
          .rows_max = 512,
          .threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
          .pin = false,
          .k_type = kv_type,
          .v_type = kv_type,
          .device = device};
}

// Any ids that every vocabulary has, without a pattern.
std::vector<int32_t> Ids() {
  std::vector<int32_t> ids;
  uint32_t state = 2026;
  for (int32_t i = 0; i < kPrompt; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((state >> 8U) % 900) + 3);
  }
  return ids;
}

void ExpectSameBits(const Rows& got, const Rows& expected) {
  ASSERT_EQ(got.size(), expected.size());
  const auto bits = [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  size_t differ = 0;
  size_t first = 0;
  for (size_t row = got.size(); row-- > 0;) {
    if (std::ranges::equal(got[row], expected[row], bits)) continue;
    ++differ;
    first = row;
  }
  EXPECT_EQ(differ, 0U) << "rows that differ, the first is " << first;
  std::printf("%zu rows of %zu logits, %zu differ\n", got.size(), got[0].size(), differ);
}

// Kullback-Leibler divergence of the second row's distribution from the first's.
double Divergence(std::span<const float> from, std::span<const float> to) {
  const auto log_sum = [](std::span<const float> row) {
    const double most = *std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - most);
    return most + std::log(sum);
  };
  const double a = log_sum(from);
  const double b = log_sum(to);
  double sum = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double p = static_cast<double>(from[i]) - a;
    sum += std::exp(p) * (p - (static_cast<double>(to[i]) - b));
  }
  return sum;
}

struct Distance {
  double divergence = 0;  // mean over rows
  double worst = 0;       // of two logits
  size_t same_best = 0;
};

Distance Between(const Rows& from, const Rows& to, const char* what) {
  Distance distance;
  for (size_t row = 0; row < from.size(); ++row) {
    distance.divergence += Divergence(from[row], to[row]) / static_cast<double>(from.size());
    distance.same_best += Argmax(from[row]) == Argmax(to[row]) ? 1 : 0;
    for (size_t i = 0; i < from[row].size(); ++i) {
      const double difference = std::fabs(static_cast<double>(from[row][i] - to[row][i]));
      if (!(difference <= distance.worst)) distance.worst = difference;  // NaN counts
    }
  }
  std::printf("%s: divergence %.3g, same best %zu of %zu, worst difference %.3g\n", what,
              distance.divergence, distance.same_best, from.size(), distance.worst);
  return distance;
}

class CardWholeModel : public PlacedTest {
 protected:
  void SetUp() override {
    const char* path = std::getenv("BLOOMERY_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "BLOOMERY_TEST_MODEL names no file";
    path_ = path;
  }
  LoadedSeat Load(const char* device, bl_dtype kv_type) const {
    return LoadThroughPlugin(path_, Options(device, kv_type));
  }
  Rows Prompt(const char* device, bl_dtype kv_type) const {
    const LoadedSeat seat = Load(device, kv_type);
    return RunAll(*seat.seat, ids_, kPrompt);
  }

  std::string path_;
  std::vector<int32_t> ids_ = Ids();
};

INSTANTIATE_TEST_SUITE_P(OneCard, CardWholeModel, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardWholeModel, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardWholeModel, DecodeHasTheBitsOfTheCpuInOneLaunchAndInSix) {
  const std::span<const int32_t> ids = std::span(ids_).first(kDecoded);
  // On the CPU every row has the same bits in a prompt and alone, so one pass tells all.
  const Rows expected = [&] {
    const LoadedSeat cpu = Load("cpu", BL_F16);
    return RunAll(*cpu.seat, ids, kDecoded);
  }();
  const LoadedSeat card = LoadThroughPlugin(path_, Placed(Options("CUDA0", BL_F16)));
  // Passes of one row have one launch for all layers where card and model allow it, those of more
  // rows six a layer.
  for (const int32_t batch : {1, 2, 8}) {
    card.seat->Cut(0, 0);
    const uint64_t before = card.seat->counters().dispatches;
    const Rows got = RunAll(*card.seat, ids, batch);
    const uint64_t passes = static_cast<uint64_t>((kDecoded + batch - 1) / batch);
    std::printf(
        "%d rows a pass, of %llu launches: ", batch,
        static_cast<unsigned long long>((card.seat->counters().dispatches - before) / passes));
    ExpectSameBits(got, expected);
  }
}

// Of the measured shape 0, 4, 8 and 16 GiB of frames, and all: alone, and beside three other slots,
// while experts stay, or move with every pass and are reset in the middle.
TEST_P(CardWholeModel, ASplitHasTheBitsOfTheCpuForAnyFramesWhileExpertsMove) {
  constexpr int32_t kAlone = 24;
  constexpr int32_t kTogether = 10;
  constexpr int32_t kSlots = 4;
  const auto ids_of = [&](int32_t slot, int32_t count) {
    return std::span(ids_).subspan(static_cast<size_t>(slot) * 50, static_cast<size_t>(count));
  };
  Rows alone;
  std::vector<Rows> apart;
  int32_t experts = 0;
  {
    const LoadedSeat cpu = Load("cpu", BL_F16);
    alone = RunAll(*cpu.seat, ids_of(0, kAlone), kAlone);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      cpu.seat->Cut(0, 0);
      apart.push_back(RunAll(*cpu.seat, ids_of(slot, kTogether), kTogether));
    }
    experts = static_cast<int32_t>(cpu.seat->ReadResidency().banks.at(0).experts);
  }
  using enum memory::ResidencyKind;
  struct Case {
    int32_t frames;
    memory::ResidencyKind kind;
  };
  for (const Case& of : {Case{0, kOff}, Case{experts / 4, kOff}, Case{experts / 4, kLru},
                         Case{experts / 2, kLru}, Case{experts - 2, kLru}, Case{experts, kOff}}) {
    std::printf("%d frames, %s: ", of.frames, std::string(memory::NameOf(of.kind)).c_str());
    SCOPED_TRACE(of.frames);
    exec::SeatOptions options = Placed(Options("CUDA0", BL_F16));
    options.slots = kSlots;
    options.card_frames = of.frames;
    options.residency.kind = of.kind;
    const LoadedSeat card = LoadThroughPlugin(path_, options);
    ExpectSameBits(RunAll(*card.seat, ids_of(0, kAlone), 1), alone);
    const bool split = card.seat->ReadResidencyStatus().policy.has_value();
    if (split) card.seat->RequestResidencyReset();
    card.seat->Cut(0, 0);
    std::vector<Rows> together(kSlots);
    for (int32_t index = 0; index < kTogether; ++index) {
      if (split && index == kTogether / 2) card.seat->RequestResidencyReset();
      std::vector<exec::PassRow> rows;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        rows.push_back({.slot = slot,
                        .index = index,
                        .token = ids_of(slot, kTogether)[static_cast<size_t>(index)],
                        .logits = true});
      }
      card.seat->Run(rows);
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        const std::span<const float> logits = card.seat->Logits(slot);
        together[static_cast<size_t>(slot)].emplace_back(logits.begin(), logits.end());
      }
    }
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      std::printf("  slot %d of four: ", slot);
      ExpectSameBits(together[static_cast<size_t>(slot)], apart[static_cast<size_t>(slot)]);
    }
    if (of.kind == kLru) {
      EXPECT_GT(card.seat->ReadResidencyStatus().counters.moves, 100U);
    }
  }
}

// Attention of prompts rounds its operands to f16 where planes are f16. A model's answer to such
// roundings depends on the model (one of random weights picks other experts at once), so the
// measure is what the CPU's own numbers do when planes change from f16 to f32, which is rounding of
// the same size; with f32 planes the card's operands keep twice the bits.
TEST_F(CardWholeModel, APromptIsAsNearToTheCpuAsPlanesOfTwoPrecisionsAreToEachOther) {
  const Rows half = Prompt("cpu", BL_F16);
  const Rows single = Prompt("cpu", BL_F32);
  const Distance planes = Between(half, single, "CPU, f16 planes and f32 planes");
  const Distance card = Between(half, Prompt("CUDA0", BL_F16), "f16 planes, CPU and card");
  const Distance precise = Between(single, Prompt("CUDA0", BL_F32), "f32 planes, CPU and card");
  EXPECT_LT(card.divergence, 2 * planes.divergence);
  EXPECT_LT(precise.divergence, planes.divergence);
  EXPECT_GT(2 * card.same_best, planes.same_best);
}

}  // namespace
}  // namespace bloomery::test
