#include "runtime/memory/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

MemoryPlan ThreeTerms(uint64_t budget, std::optional<HostLimit> available = std::nullopt) {
  MemoryPlan plan(budget, std::move(available));
  plan.Add("weights", 3 << 20);
  plan.Add("planes k", 1 << 20);
  plan.Add("scratch", 512);
  return plan;
}

TEST(MemoryPlan, TheLineHasEveryTermAndTheTotal) {
  EXPECT_EQ(ThreeTerms(0).Line(),
            "host plan: weights 3.0 MiB + planes k 1.0 MiB + scratch 512 B = 4.0 MiB");
  EXPECT_EQ(
      ThreeTerms(uint64_t{5} << 30).Line(),
      "host plan: weights 3.0 MiB + planes k 1.0 MiB + scratch 512 B = 4.0 MiB of a budget of "
      "5.0 GiB");
}

TEST(MemoryPlan, ExactlyTheBudgetFitsAndOneByteLessIsRefusedNamingEveryTerm) {
  const uint64_t total = (4 << 20) + 512;
  EXPECT_EQ(ThreeTerms(0).total(), total);
  ThreeTerms(0).Check();
  ThreeTerms(total).Check();
  const test::Refusal refusal = test::RefusalOf([&] { ThreeTerms(total - 1).Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  for (const char* part :
       {"weights 3.0 MiB", "planes k 1.0 MiB", "scratch 512 B", "4.0 MiB of a", "does not fit"}) {
    EXPECT_THAT(refusal.message, testing::HasSubstr(part));
  }
}

TEST(MemoryPlan, WithoutABudgetWhatTheMachineHasIsTheLimitAndABudgetOverridesIt) {
  const uint64_t total = (4 << 20) + 512;
  ThreeTerms(0, HostLimit{total, "MemAvailable"}).Check();
  const HostLimit less{total - 1, "control group /jobs"};
  const test::Refusal refusal = test::RefusalOf([&] { ThreeTerms(0, less).Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  for (const char* part :
       {"weights 3.0 MiB", "planes k 1.0 MiB", "scratch 512 B",
        "= 4.0 MiB of 4.0 MiB available (control group /jobs)", "override with --host-budget"}) {
    EXPECT_THAT(refusal.message, testing::HasSubstr(part));
  }
  ThreeTerms(total, less).Check();
}

TEST(MemoryPlan, MappedFilesAreNamedAndNotCounted) {
  MemoryPlan plan(1 << 20);
  plan.AddMapped("weights", uint64_t{5} << 30);
  plan.Add("planes k", 1 << 20);
  plan.Check();
  EXPECT_EQ(plan.Line(),
            "host plan: planes k 1.0 MiB = 1.0 MiB of a budget of 1.0 MiB; beside it weights "
            "5.0 GiB mapped, held as page cache");
}

TEST(MemoryPlan, ATotalBeyond64BitsIsRefused) {
  MemoryPlan plan(0);
  plan.Add("a", UINT64_MAX);
  plan.Add("b", 1);
  EXPECT_EQ(test::RefusalOf([&] { static_cast<void>(plan.total()); }).kind, ErrorKind::kNoMemory);
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{1} << 40), "1.0 TiB");
}

}  // namespace
}  // namespace bloomery::memory
