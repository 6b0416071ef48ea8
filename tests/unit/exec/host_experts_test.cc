// The host's part of split banks, with a test in the card's place: what it answers, what it leaves
// alone, and how a pass ends that goes wrong.
#include "runtime/exec/split/host_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>

#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/reference.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using namespace std::chrono_literals;
using model::TensorType;
using test::ToySeat;
using testing::HasSubstr;

constexpr uint32_t kExperts = 6;
constexpr uint32_t kUsed = 3;
constexpr uint64_t kFf = 64;
constexpr uint64_t kWidth = ToySeat::kWidth;
constexpr uint32_t kRingsNoPick = 1;
constexpr uint32_t kRingsPicks = 2;

// Two banks of float experts, of which `frames` are on the card.
struct Split {
  explicit Split(uint32_t frames, SeatOptions options = {}, int32_t rows_max = 16) {
    for (int i = 0; i < 2; ++i) {
      toy.AddBank(kExperts, kUsed, kFf, TensorType::kF32, TensorType::kF32, TensorType::kF32);
      toy.description.banks.back().layer = 10 + i;
    }
    options.threads = 3;
    options.pin = false;
    host = std::make_unique<HostExperts>(toy.Model(), toy.description, options,
                                         std::array{frames, frames}, rows_max);
    memory.resize(HandOffPage::Bytes(toy.description, rows_max) / sizeof(Line) + 1);
    auto* base = reinterpret_cast<std::byte*>(memory.data());
    page = HandOffPage(base, base, toy.description, rows_max);
    host->Bind(page);
  }

  // What the card leaves for `rows` rows whose pick p of row r is (first + r + p) % experts.
  void Write(int32_t rows, int32_t first) const {
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t pick = 0; pick < static_cast<int32_t>(kUsed); ++pick) {
        const int32_t pair = row * static_cast<int32_t>(kUsed) + pick;
        page.ids()[pair] = (first + row + pick) % static_cast<int32_t>(kExperts);
        page.weights()[pair] = 0.125F * static_cast<float>(1 + pair % 5);
      }
      auto* x = reinterpret_cast<float*>(page.input()) + static_cast<size_t>(row) * kWidth;
      for (size_t i = 0; i < kWidth; ++i) x[i] = std::sin(0.1F * static_cast<float>(i + row));
    }
  }

  // Sum of Q over the picks of `row` that `mine` names, column by column.
  std::vector<int64_t> Expected(size_t bank, int32_t row,
                                const std::function<bool(int32_t)>& mine) const {
    const plugin::Bank& described = toy.description.banks[bank];
    const kernels::FormatTraits& format = *kernels::FindFormat(0);
    const auto rows_of = [&](uint32_t weight, int32_t expert, size_t n, size_t k) {
      const auto& values = toy.Values({weight});
      return kernels::WeightRows{
          &format,
          reinterpret_cast<const std::byte*>(values.data() + static_cast<size_t>(expert) * n * k),
          k * sizeof(float), k};
    };
    std::vector<int64_t> sums(kWidth, 0);
    for (size_t pick = 0; pick < kUsed; ++pick) {
      const size_t pair = static_cast<size_t>(row) * kUsed + pick;
      const int32_t expert = page.ids()[pair];
      if (!mine(expert)) continue;
      const int32_t place_row = row;
      std::vector<float> h(kFf);
      kernels::ExpertGateUpArgs args;
      args.gate = rows_of(described.gate, expert, kFf, kWidth);
      args.up = rows_of(described.up, expert, kFf, kWidth);
      args.x = reinterpret_cast<const float*>(page.input());
      args.x_stride = kWidth;
      args.place_rows = &place_row;
      args.places = 1;
      args.h = h.data();
      args.h_stride = kFf;
      kernels::reference::ExpertGateUp(args, 0, 0, kFf);
      std::vector<float> y(kWidth);
      kernels::LinearArgs linear;
      linear.weight = rows_of(described.down, expert, kWidth, kFf);
      linear.x = h.data();
      linear.x_stride = kFf;
      linear.rows = 1;
      linear.y = y.data();
      linear.y_stride = kWidth;
      kernels::reference::Linear(linear, 0, kWidth);
      for (size_t i = 0; i < kWidth; ++i) {
        const float v = page.weights()[pair] * y[i];
        sums[i] += static_cast<int64_t>(std::rint(static_cast<double>(v) * 0x1p32));
      }
    }
    return sums;
  }

  std::vector<int64_t> Sums(int32_t row) const {
    const int64_t* first = page.sums() + static_cast<size_t>(row) * kWidth;
    return {first, first + kWidth};
  }

  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  ToySeat toy;
  std::vector<Line> memory;
  std::unique_ptr<HostExperts> host;
  HandOffPage page;
};

TEST(HostExperts, TheSumsOfItsPicksAreTheReferencesForFewRowsAndPrompts) {
  for (const int32_t frames : {0, 1, 4}) {
    Split split(static_cast<uint32_t>(frames));
    for (const int32_t rows : {1, 2, 8, 9, 16}) {
      SCOPED_TRACE(std::to_string(frames) + " frames, rows " + std::to_string(rows));
      split.host->Begin();
      split.Write(rows, 2);
      EXPECT_TRUE(split.host->Compute(1, rows));
      for (int32_t row = 0; row < rows; ++row) {
        EXPECT_EQ(split.Sums(row), split.Expected(1, row, [&](int32_t expert) {
          return expert >= frames;
        })) << row;
      }
      EXPECT_EQ(split.host->failed_row(), -1);
    }
  }
}

TEST(HostExperts, WithoutAPickOfTheHostNothingIsComputed) {
  Split split(3);
  split.host->Begin();
  split.Write(1, 0);  // experts 0, 1 and 2
  EXPECT_FALSE(split.host->Compute(0, 1));
  EXPECT_EQ(split.host->counts().hand_offs, 0U);
  // The twin of the card's map decides.
  split.host->Map(0)[1] = -1;
  EXPECT_TRUE(split.host->Compute(0, 1));
  EXPECT_EQ(split.Sums(0), split.Expected(0, 0, [](int32_t expert) { return expert == 1; }));
  EXPECT_EQ(split.host->counts().experts, 1U);
}

TEST(HostExperts, TheFramesOfAPassTakeThePlaceOfTheMap) {
  Split split(3);
  split.host->Begin();
  split.Write(9, 0);
  const std::array<int32_t, kExperts> frames = {0, -1, 2, 3, 4, -1};
  EXPECT_TRUE(split.host->Compute(0, 9, true, frames));
  for (int32_t row = 0; row < 9; ++row) {
    EXPECT_EQ(split.Sums(row), split.Expected(0, row, [](int32_t expert) {
      return expert == 1 || expert == 5;
    })) << row;
  }
  EXPECT_EQ(split.host->counts().experts, 2U);
}

TEST(HostExperts, MeasuringLeavesNoTraceInCountsAndSums) {
  Split split(3, {}, 64);
  split.host->Begin();
  const memory::ShareRates rates = split.host->MeasureComputing(1);
  EXPECT_GT(rates.read_us, 0);
  EXPECT_GE(rates.fixed_us, 0);
  EXPECT_GE(rates.row_us, 0);
  EXPECT_GT(rates.HostUs(1000), 0);
  EXPECT_EQ(split.host->counts().experts, 0U);
  EXPECT_EQ(split.host->counts().hand_offs, 0U);
  EXPECT_EQ(split.host->counts().seconds, 0);
  EXPECT_EQ(split.host->Distinct(1), 0U);
  split.Write(9, 2);
  EXPECT_TRUE(split.host->Compute(1, 9));
  EXPECT_EQ(split.Sums(4), split.Expected(1, 4, [](int32_t expert) { return expert >= 3; }));
}

TEST(HostExperts, APassIsServedBankByBankAsTheCardRings) {
  Split split(2);
  const std::vector<uint32_t> banks = {0, 1};
  split.host->Begin();
  std::vector<std::vector<int64_t>> got;
  std::thread card([&] {
    for (const uint32_t bank : banks) {
      split.Write(2, static_cast<int32_t>(bank));
      std::atomic_ref(*split.page.ring(bank)).store(kRingsPicks, std::memory_order_release);
      const std::atomic_ref answer(*split.page.answer(bank));
      while (answer.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      EXPECT_EQ(answer.load(), HandOffPage::kSums);
      got.push_back(split.Sums(1));
    }
  });
  split.host->ServePass(banks, 2, [] { return true; });
  card.join();
  for (const uint32_t bank : banks) {
    split.Write(2, static_cast<int32_t>(bank));
    EXPECT_EQ(got[bank], split.Expected(bank, 1, [](int32_t expert) { return expert >= 2; }));
  }
}

TEST(HostExperts, ARingWithoutPicksIsPassedOver) {
  Split split(2);
  const std::vector<uint32_t> banks = {0, 1};
  split.host->Begin();
  *split.page.ring(0) = kRingsNoPick;
  *split.page.ring(1) = kRingsNoPick;
  split.host->ServePass(banks, 1, [] { return true; });
  EXPECT_EQ(split.host->counts().hand_offs, 0U);
  EXPECT_EQ(*split.page.answer(0), 0U);  // nobody waits for it
}

TEST(HostExperts, ACardThatDoesNotRingIsNamedAndThePageIsDrained) {
  SeatOptions options;
  options.hand_off_deadline = 30ms;
  Split split(2, options);
  const std::vector<uint32_t> banks = {0, 1};
  split.host->Begin();
  *split.page.ring(0) = kRingsNoPick;
  const test::Refusal refusal =
      test::RefusalOf([&] { split.host->ServePass(banks, 1, [] { return true; }); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("layer 11 within 30 ms"));
  EXPECT_EQ(*split.page.answer(0), HandOffPage::kDrained);
  EXPECT_EQ(*split.page.answer(1), HandOffPage::kDrained);
  // A pass that ended by itself is noticed without waiting for the deadline.
  split.host->Begin();
  EXPECT_EQ(*split.page.answer(1), 0U);
  const test::Refusal ended =
      test::RefusalOf([&] { split.host->ServePass(banks, 1, [] { return false; }); });
  EXPECT_THAT(ended.message, HasSubstr("ended before"));
}

TEST(HostExperts, AStallingWorkerEndsThePassInTimeAndTheNextOneComputes) {
  SeatOptions options;
  options.hand_off_deadline = 40ms;
  std::atomic<int> stalls{0};
  const std::thread::id own = std::this_thread::get_id();
  options.split_hooks.host_task = [&](uint32_t) {
    if (std::this_thread::get_id() == own) {
      std::this_thread::sleep_for(2ms);  // so that the workers get tasks, too
    } else if (stalls.exchange(0) != 0) {
      std::this_thread::sleep_for(200ms);
    }
  };
  Split split(0, options);
  split.Write(16, 0);
  split.host->Begin();
  stalls = 1;
  const auto begin = std::chrono::steady_clock::now();
  test::Refusal refusal;
  for (int round = 0; round < 20 && refusal.message.empty(); ++round) {
    split.host->Begin();
    try {
      split.host->Compute(0, 16);
    } catch (const Error& error) {
      refusal = {error.kind(), error.what()};
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 190ms);  // not as long as the worker
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("layer 10 within 40 ms"));
  EXPECT_THAT(test::RefusalOf([&] { split.host->Begin(); }).message, HasSubstr("still at a pass"));
  const auto idle = [&] {
    try {
      split.host->Begin();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  int rounds = 0;
  while (rounds < 100 && !idle()) ++rounds;
  EXPECT_LT(rounds, 100);
  EXPECT_TRUE(split.host->Compute(0, 16));
  EXPECT_EQ(split.Sums(7), split.Expected(0, 7, [](int32_t) { return true; }));
}

TEST(HostExperts, ARowThatFailsIsNamed) {
  Split split(0);
  split.Write(4, 0);
  split.page.weights()[2 * kUsed] = NAN;
  split.page.weights()[3 * kUsed] = 1e30F;
  split.host->Begin();
  EXPECT_TRUE(split.host->Compute(0, 4));
  EXPECT_EQ(split.host->failed_row(), 2);
  split.host->Begin();
  EXPECT_EQ(split.host->failed_row(), -1);
}

TEST(HostExperts, AnExpertThatIsNotThereIsNotReadFrom) {
  Split split(0);
  split.Write(1, 0);
  split.page.ids()[1] = static_cast<int32_t>(kExperts);
  split.host->Begin();
  EXPECT_THAT(test::RefusalOf([&] { split.host->Compute(0, 1); }).message, HasSubstr("expert 6"));
}

TEST(HostExperts, BanksThatCannotBeSplitAreRefusedByName) {
  ToySeat toy;
  toy.AddBank(4, 2, 64, TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ8_0);
  const test::Refusal groups = test::RefusalOf([&] { HostExperts::Check(toy.description); });
  EXPECT_EQ(groups.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(groups.message, HasSubstr("'gate.0'"));
  ToySeat even;
  even.AddBank(4, 2, 64, TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kQ8_0);
  HostExperts::Check(even.description);
}

}  // namespace
}  // namespace bloomery::exec
