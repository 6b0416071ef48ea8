// The promises of the numeric rule over whole passes: a row's logits have the same bits however its
// prompt is cut into passes, whatever else is in them, and whichever kernels run.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <map>

#include "kernels-common/cpu/fp_environment.h"
#include "kernels-common/cpu/isa.h"
#include "tests/oracle/compare.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/safetensors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bloomery::test {
namespace {

struct Case {
  const char* name;
  std::string model;
  bl_dtype kv_type;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

exec::SeatOptions Options(const Case& c, const std::string& kernels, int32_t slots = 1) {
  return {.slots = slots,
          .slot_context = 512,
          .rows_max = 512,
          .threads = 1,  // ThreadsDoNotChangeBits has more
          .pin = false,
          .k_type = c.kv_type,
          .v_type = c.kv_type,
          .kernels = kernels};
}

std::vector<int32_t> LongPrompt() {
  const Safetensors golden(SourceDir() + "/tests/data/mini/qwen3moe/golden.safetensors");
  return golden.Get("long.ids").ints;  // both models share the vocabulary
}

void ExpectSameBits(const Logits& a, const Logits& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t row = 0; row < a.size(); ++row) {
    ASSERT_EQ(std::memcmp(a[row].data(), b[row].data(), a[row].size() * sizeof(float)), 0)
        << what << ", row " << row;
  }
}

// Slot 0's logits while three other slots run other prompts in the same passes.
Logits BesideThreeOthers(exec::Seat& seat, const std::vector<int32_t>& ids) {
  const std::vector<int32_t> rows_a_pass = {3, 1, 5, 2};
  std::vector<int32_t> lengths = {0, 0, 0, 0};
  const auto length = static_cast<int32_t>(ids.size());
  Logits logits;
  while (lengths[0] < length) {
    std::vector<exec::PassRow> rows;
    for (const int32_t slot : {2, 0, 3, 1}) {
      auto& at = lengths[static_cast<size_t>(slot)];
      for (int32_t i = 0; i < rows_a_pass[static_cast<size_t>(slot)] && at < length; ++i, ++at) {
        // The others read the prompt from another place on.
        const int32_t token = ids[static_cast<size_t>((at + slot * 71) % length)];
        rows.push_back({.slot = slot, .index = at, .token = token, .logits = true});
      }
    }
    seat.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].slot != 0) continue;
      const std::span<const float> row = seat.Logits(static_cast<int32_t>(i));
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

class Bits : public testing::TestWithParam<Case> {};

TEST_P(Bits, OneRowAtATimeEqualsBatchesAloneEqualsBesideOthersOnEveryInstructionSet) {
  const Case& c = GetParam();
  const std::vector<int32_t> ids = LongPrompt();
  Logits first;
  std::map<std::string, std::vector<int32_t>> batches = {{"avx2", {1, 7, 32, 512}},
                                                         {"scalar", {7, 512}}};  // slow
  for (const kernels::Isa isa : kernels::AvailableIsas()) {
    if (isa >= kernels::Isa::kAvx512Vnni) batches[kernels::IsaName(isa)] = {1, 7, 32, 512};
  }
  for (const auto& [kernels, sizes] : batches) {
    LoadedSeat alone = LoadThroughPlugin(c.model, Options(c, kernels));
    for (const int32_t batch : sizes) {
      alone.seat->Cut(0, 0);
      const Logits logits = RunAll(*alone.seat, ids, batch);
      if (first.empty()) first = logits;
      ExpectSameBits(first, logits, kernels + ", batches of " + std::to_string(batch));
    }
    LoadedSeat shared = LoadThroughPlugin(c.model, Options(c, kernels, 4));
    ExpectSameBits(first, BesideThreeOthers(*shared.seat, ids), kernels + ", beside three others");
  }
}

TEST_P(Bits, ReferenceKernelsGiveTheSameBits) {
  const Case& c = GetParam();
  std::vector<int32_t> ids = LongPrompt();
  ids.resize(150);  // past one window of 128 keys
  LoadedSeat fast = LoadThroughPlugin(c.model, Options(c, "auto"));
  LoadedSeat reference = LoadThroughPlugin(c.model, Options(c, "reference"));
  ExpectSameBits(RunAll(*reference.seat, ids, 64), RunAll(*fast.seat, ids, 64), "reference");
}

INSTANTIATE_TEST_SUITE_P(Models, Bits,
                         testing::Values(Case{"MiniF32", MiniPath(), BL_F32},
                                         Case{"MiniF16", MiniPath(), BL_F16},
                                         Case{"MiniQ8", MiniPath(), BL_Q8_0},
                                         Case{"SeedlingF32", SeedlingPath(), BL_F32},
                                         Case{"SeedlingF16", SeedlingPath(), BL_F16},
                                         Case{"SeedlingQ8", SeedlingPath(), BL_Q8_0}),
                         [](const testing::TestParamInfo<Case>& c) {
                           return std::string(c.param.name);
                         });

TEST(PassBits, ThreadsDoNotChangeBits) {
  const Case c = {"", SeedlingPath(), BL_F16};
  const std::vector<int32_t> ids = LongPrompt();
  Logits first;
  for (const int32_t threads : {1, 2, 5}) {
    exec::SeatOptions options = Options(c, "auto");
    options.threads = threads;
    LoadedSeat loaded = LoadThroughPlugin(c.model, options);
    const Logits logits = RunAll(*loaded.seat, ids, 128);
    if (first.empty()) first = logits;
    ExpectSameBits(first, logits, std::to_string(threads) + " threads");
  }
}

TEST(PassBits, APoisonedFloatingPointEnvironmentDoesNotReachAPassAndIsGivenBack) {
  const Case c = {"", SeedlingPath(), BL_F16};
  const std::vector<int32_t> ids = LongPrompt();
  LoadedSeat loaded = LoadThroughPlugin(c.model, Options(c, "auto"));
  const Logits clean = RunAll(*loaded.seat, ids, 64);
  loaded.seat->Cut(0, 0);
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);  // flush to zero, denormals are zero
#endif
  const Logits poisoned = RunAll(*loaded.seat, ids, 64);
  const bool still_poisoned = std::fegetround() == FE_UPWARD;
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() & ~0x8040U);
#endif
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(still_poisoned);
  EXPECT_TRUE(kernels::FpEnvironmentIsDefault());
  ExpectSameBits(clean, poisoned, "poisoned");
}

TEST(PassBits, CutAndCopiedSlotsContinueAsIfNothingHadHappened) {
  const Case c = {"", MiniPath(), BL_Q8_0};
  const std::vector<int32_t> ids = LongPrompt();
  const std::span<const int32_t> all(ids);
  LoadedSeat loaded = LoadThroughPlugin(c.model, Options(c, "auto", 2));
  exec::Seat& seat = *loaded.seat;
  const Logits clean = RunAll(seat, ids, 32);
  // Back to 200 rows, another 20 tokens, back again: the rest of the prompt as before.
  seat.Cut(0, 200);
  for (int32_t i = 0; i < 20; ++i) {
    const exec::PassRow row = {.slot = 0, .index = 200 + i, .token = 5, .logits = true};
    seat.Run({&row, 1});
  }
  seat.Cut(0, 200);
  seat.CopySlot(0, 1, 150);
  EXPECT_EQ(seat.Length(1), 150);
  for (const auto& [slot, from] : {std::pair{0, 200}, std::pair{1, 150}}) {
    std::vector<exec::PassRow> rows;
    for (auto i = static_cast<size_t>(from); i < ids.size(); ++i) {
      rows.push_back(
          {.slot = slot, .index = static_cast<int32_t>(i), .token = ids[i], .logits = true});
    }
    seat.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row = seat.Logits(static_cast<int32_t>(i));
      const std::vector<float>& expected = clean[static_cast<size_t>(from) + i];
      ASSERT_EQ(std::memcmp(row.data(), expected.data(), row.size_bytes()), 0)
          << "slot " << slot << ", row " << from + static_cast<int32_t>(i);
    }
  }
}

}  // namespace
}  // namespace bloomery::test
