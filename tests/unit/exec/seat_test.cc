#include "runtime/exec/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using test::ToySeat;
using testing::HasSubstr;

// Logits of a token: its table row times every table row.
ToySeat::Build TableSquared(const ToySeat& toy) {
  return [&toy](sdk::Graph& g) {
    g.Export("logits", g.Head(g.SelectRows(g.Embed(g.Tokens(), toy.table)), toy.table));
  };
}

SeatOptions Small() { return {.slots = 2, .slot_context = 40, .rows_max = 20}; }

TEST(RowBuckets, OneToEightThenDoublingAndTheUbatchLast) {
  EXPECT_THAT(RowBuckets(512),
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512));
  EXPECT_THAT(RowBuckets(20), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 20));
  EXPECT_THAT(RowBuckets(3), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(RowBuckets(1), testing::ElementsAre(1));
}

TEST(Seat, LogitsOfTheAskedRowsAreThoseOfTheDefinition) {
  ToySeat toy;
  const std::unique_ptr<Seat> seat = toy.Load(TableSquared(toy), Small());
  const std::vector<float>& table = toy.Values(toy.table);
  for (const int32_t count : {1, 3, 9, 20}) {
    seat->Cut(1, 0);
    std::vector<PassRow> rows;
    rows.reserve(20);
    for (int32_t i = 0; i < count; ++i) rows.push_back({1, i, (i * 5) % 24, i % 2 == 0});
    seat->Run(rows);
    int32_t asked = 0;
    for (int32_t i = 0; i < count; i += 2) {
      const std::span<const float> logits = seat->Logits(asked++);
      ASSERT_EQ(logits.size(), 24U);
      for (size_t v = 0; v < 24; ++v) {
        double sum = 0;
        for (size_t k = 0; k < 256; ++k) {
          sum += double{table[v * 256 + k]} * table[static_cast<size_t>((i * 5) % 24) * 256 + k];
        }
        ASSERT_NEAR(logits[v], sum, 1e-4);
      }
    }
    EXPECT_EQ(test::RefusalOf([&] { static_cast<void>(seat->Logits(asked)); }).kind,
              ErrorKind::kInternal);
  }
}

TEST(Seat, LogitsThatAreAReshapeOfTheHeadsAreThose) {
  ToySeat toy;
  const std::unique_ptr<Seat> plain = toy.Load(TableSquared(toy), Small());
  ToySeat other;
  const std::unique_ptr<Seat> reshaped = other.Load(
      [&](sdk::Graph& g) {
        const sdk::Value logits =
            g.Head(g.SelectRows(g.Embed(g.Tokens(), other.table)), other.table);
        g.Export("logits", g.Reshape(logits, {ToySeat::kVocabulary}));
      },
      Small());
  const PassRow row = {0, 0, 3, true};
  plain->Run({&row, 1});
  reshaped->Run({&row, 1});
  EXPECT_THAT(reshaped->Logits(0), testing::ElementsAreArray(plain->Logits(0)));
}

TEST(Seat, APassWithoutLogitRowsRuns) {
  ToySeat toy;
  const std::unique_ptr<Seat> seat = toy.Load(TableSquared(toy), Small());
  const PassRow row = {0, 0, 3, false};
  seat->Run({&row, 1});
  EXPECT_EQ(seat->Length(0), 1);
  EXPECT_EQ(test::RefusalOf([&] { static_cast<void>(seat->Logits(0)); }).kind,
            ErrorKind::kInternal);
}

// Where the head would compute more, the room of further rows would no longer be as it was mapped.
TEST(Seat, TheHeadComputesTheAskedRowsOnly) {
  ToySeat toy;
  const std::unique_ptr<Seat> seat = toy.Load(TableSquared(toy), Small());
  std::vector<PassRow> rows;
  rows.reserve(20);
  for (int32_t i = 0; i < 20; ++i) rows.push_back({0, i, 1 + i, i == 11});
  seat->Run(rows);
  const std::span<const float> all(seat->Logits(0).data(), 20U * 24U);
  EXPECT_THAT(all.first(24), testing::Contains(testing::Ne(0.0F)));
  EXPECT_THAT(all.subspan(24), testing::Each(0.0F));
}

TEST(Seat, RowsThatBreakTheContractAreRefusedByRow) {
  ToySeat toy;
  const std::unique_ptr<Seat> seat = toy.Load(TableSquared(toy), Small());
  const auto refused = [&](std::vector<PassRow> rows) {
    const test::Refusal refusal = test::RefusalOf([&] { seat->Run(rows); });
    EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
    EXPECT_EQ(seat->Length(0) + seat->Length(1), 0);
    return refusal.message;
  };
  EXPECT_THAT(refused({}), HasSubstr("a pass of 0 rows"));
  EXPECT_THAT(refused(std::vector<PassRow>(21)), HasSubstr("a pass of 21 rows"));
  EXPECT_THAT(refused({{2, 0, 0, true}}), HasSubstr("row 0: there is no slot 2"));
  EXPECT_THAT(refused({{0, 0, 24, true}}), HasSubstr("token 24 is outside the vocabulary of 24"));
  EXPECT_THAT(refused({{0, 0, -1, true}}), HasSubstr("token -1"));
  EXPECT_THAT(refused({{0, 1, 0, true}}), HasSubstr("index 1 in slot 0, where 0 of 40 comes next"));
  EXPECT_THAT(refused({{0, 0, 0, true}, {0, 2, 0, true}}), HasSubstr("row 1: index 2"));
  EXPECT_THAT(refused({{0, 0, 0, true}, {1, 0, 0, true}, {0, 0, 0, true}}),
              HasSubstr("row 2: the rows of its slot are not contiguous"));
}

TEST(Seat, ASlotIsFullAtItsContextAndNotBefore) {
  ToySeat toy;
  const std::unique_ptr<Seat> seat = toy.Load(TableSquared(toy), Small());
  for (int32_t i = 0; i < 40; ++i) {
    const PassRow row = {0, i, 1, true};
    seat->Run({&row, 1});
  }
  EXPECT_EQ(seat->Keepable(0, 100), 40);
  EXPECT_EQ(seat->Keepable(0, 17), 17);
  const PassRow past = {0, 40, 1, true};
  EXPECT_THAT(test::RefusalOf([&] { seat->Run({&past, 1}); }).message, HasSubstr("40 of 40"));
  seat->Cut(0, 39);
  const PassRow last = {0, 39, 1, true};
  seat->Run({&last, 1});
  EXPECT_EQ(seat->Length(0), 40);
}

TEST(Seat, AValueThatIsNotFiniteEndsThePassNamingOperatorLayerRowAndSlot) {
  ToySeat poisoned;
  // Token 5 makes the router's logits infinite.
  const sdk::Weight table = poisoned.Add("bad", {256, 24}, model::TensorType::kF32, [](size_t i) {
    return i / 256 == 5 ? std::numeric_limits<float>::max() : ToySeat::Wave(i);
  });
  const sdk::Weight router = poisoned.Add("router", {256, 4});
  const sdk::Bank bank = poisoned.AddBank(4, 2, 256, model::TensorType::kF32,
                                          model::TensorType::kF32, model::TensorType::kF32);
  const std::unique_ptr<Seat> seat = poisoned.Load(
      [&](sdk::Graph& g) {
        g.Layer(3);
        const sdk::Value x = g.Embed(g.Tokens(), table);
        const sdk::Value y = g.RoutedExperts(x, g.Router(x, router, {.used = 2}), x, bank);
        g.Export("logits", g.Head(g.SelectRows(y), poisoned.table));
      },
      Small());
  const std::vector<PassRow> bad = {{1, 0, 1, true}, {1, 1, 2, true}, {0, 0, 5, true}};
  const test::Refusal refusal = test::RefusalOf([&] { seat->Run(bad); });
  EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
  EXPECT_THAT(refusal.message,
              HasSubstr("operator router, layer 3, row 2 (slot 0, position 0): a value is not "
                        "finite"));
  EXPECT_EQ(seat->Length(1), 0);
  EXPECT_EQ(test::RefusalOf([&] { static_cast<void>(seat->Logits(0)); }).kind,
            ErrorKind::kInternal);
  const std::vector<PassRow> good = {{1, 0, 1, true}, {1, 1, 2, true}};
  seat->Run(good);
  EXPECT_EQ(seat->Length(1), 2);
}

TEST(Seat, ASmallTensorThatHoldsNoNumberIsRefusedWhenItIsLoaded) {
  ToySeat poisoned;
  poisoned.Add("norm", {256}, model::TensorType::kF32,
               [](size_t i) { return i == 7 ? std::numeric_limits<float>::quiet_NaN() : 1.0F; });
  const test::Refusal refusal =
      test::RefusalOf([&] { poisoned.Load(TableSquared(poisoned), Small()); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("tensor 'norm' of"));
  EXPECT_THAT(refusal.message, HasSubstr("value 7 of 256 is NaN or infinite"));
}

TEST(Seat, OptionsOutOfRangeAreRefusedByName) {
  ToySeat toy;
  const auto refused = [&](SeatOptions options) {
    const test::Refusal refusal = test::RefusalOf([&] { toy.Load(TableSquared(toy), options); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
    return refusal.message;
  };
  EXPECT_THAT(refused({.slots = 0}), HasSubstr("the number of slots is 0"));
  EXPECT_THAT(refused({.slots = limits::kSlotsMax + 1}), HasSubstr("must be from 1 to 64"));
  EXPECT_THAT(refused({.rows_max = limits::kUbatchRowsMax + 1}), HasSubstr("from 1 to 16384"));
  toy.Load(TableSquared(toy),
           {.slots = limits::kSlotsMax, .slot_context = 8, .rows_max = limits::kUbatchRowsMax});
  EXPECT_THAT(refused({.slot_context = (1 << 20) + 1}), HasSubstr("the context of a slot"));
  EXPECT_THAT(refused({.rows_max = 0}), HasSubstr("the ubatch is 0"));
  EXPECT_THAT(refused({.threads = 513}), HasSubstr("the number of threads is 513"));
  EXPECT_THAT(refused({.kernels = "mmx"}), HasSubstr("unknown kernels 'mmx'"));
}

TEST(Seat, ABudgetIsKeptExactlyOrRefusedNamingEveryTermBeforeAnythingIsLoaded) {
  ToySeat toy;
  toy.AddPlane("k.0", 64);
  SeatOptions options = Small();
  const uint64_t total = toy.Load(TableSquared(toy), options)->HostPlan().total();
  options.host_budget = total;
  toy.Load(TableSquared(toy), options);
  options.host_budget = total - 1;
  options.progress = [](uint64_t, uint64_t) { ADD_FAILURE() << "weights were read"; };
  const test::Refusal refusal = test::RefusalOf([&] { toy.Load(TableSquared(toy), options); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  for (const char* term :
       {"weights", "planes k", "pass buffers", "logits", "scratch of 2 threads"}) {
    EXPECT_THAT(refusal.message, HasSubstr(term));
  }
}

TEST(Seat, WithoutABudgetWhatTheMachineHasIsTheLimit) {
  ToySeat toy;
  toy.AddPlane("k.0", 64);
  SeatOptions options = Small();
  const uint64_t total = toy.Load(TableSquared(toy), options)->HostPlan().total();
  options.available = [&] { return memory::HostLimit{total, "MemAvailable"}; };
  toy.Load(TableSquared(toy), options);
  options.available = [&] { return memory::HostLimit{total - 1, "MemAvailable"}; };
  const test::Refusal refusal = test::RefusalOf([&] { toy.Load(TableSquared(toy), options); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, HasSubstr("override with --host-budget"));
  options.host_budget = total;
  toy.Load(TableSquared(toy), options);
}

TEST(Seat, AutoReadsWeightsWhereThePlanFitsAndMapsThemWhereItDoesNot) {
  ToySeat toy;
  SeatOptions options = Small();
  const uint64_t total = toy.Load(TableSquared(toy), options)->HostPlan().total();
  options.weight_source = memory::WeightSource::kAuto;
  options.host_budget = total;
  auto seat = toy.Load(TableSquared(toy), options);
  EXPECT_EQ(seat->weight_source(), memory::WeightSource::kRead);
  EXPECT_EQ(seat->HostPlan().total(), total);
  options.host_budget = total - 1;
  seat = toy.Load(TableSquared(toy), options);
  EXPECT_EQ(seat->weight_source(), memory::WeightSource::kMap);
  EXPECT_THAT(seat->HostPlan().Line(), HasSubstr("mapped"));
  EXPECT_THAT(seat->LoadLine(), HasSubstr("mapped"));
  options.host_budget = 1;  // what is left without the weights does not fit, either
  EXPECT_EQ(test::RefusalOf([&] { toy.Load(TableSquared(toy), options); }).kind,
            ErrorKind::kNoMemory);
}

TEST(Seat, AGraphThatThePluginRefusesOrMisshapesIsReportedWithTheBuildersReason) {
  ToySeat toy;
  EXPECT_THAT(test::RefusalOf([&] {
                toy.Load([&](sdk::Graph& g) { g.Linear(g.Tokens(), toy.table); }, Small());
              }).message,
              HasSubstr("operator linear/1: input 'x' is I32 [1, 1 rows]"));
  EXPECT_THAT(test::RefusalOf([&] {
                toy.Load([&](sdk::Graph& g) { g.Embed(g.Tokens(), toy.table); }, Small());
              }).message,
              HasSubstr("exports no 'logits'"));
  EXPECT_THAT(test::RefusalOf([&] {
                toy.Load([&](sdk::Graph& g) { g.Export("logits", g.Embed(g.Tokens(), toy.table)); },
                         Small());
              }).message,
              HasSubstr("exports 'logits' as F32 [256, 1 rows], must be F32 [24, logit rows]"));
}

TEST(Seat, ATypeForPlanesWithoutKernelsIsRefused) {
  ToySeat toy;
  const sdk::Plane k = toy.AddPlane("k.0", 256, BL_BF16);
  EXPECT_EQ(test::RefusalOf([&] {
              toy.Load(
                  [&](sdk::Graph& g) {
                    const sdk::Value x = g.Embed(g.Tokens(), toy.table);
                    g.Append(x, k);
                    g.Export("logits", g.Head(g.SelectRows(x), toy.table));
                  },
                  Small());
            }).kind,
            ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace bloomery::exec
