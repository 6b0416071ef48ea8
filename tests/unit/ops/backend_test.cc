#include "runtime/ops/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels-common/cpu/isa.h"
#include "tests/support/refusal.h"

namespace bloomery::ops {
namespace {

TEST(Backend, NamesSelectAndAutoIsTheBestThere) {
  EXPECT_EQ(FindBackend("reference").name, "reference");
  EXPECT_EQ(FindBackend("scalar").name, "scalar");
  EXPECT_EQ(FindBackend("auto").name, kernels::IsaName(kernels::DetectIsa()));
}

TEST(Backend, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const test::Refusal refusal = test::RefusalOf([] { FindBackend("neon"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(
      refusal.message,
      testing::AllOf(testing::HasSubstr("'neon'"),
                     testing::HasSubstr("auto, scalar, avx2, avx512vnni, amx or reference")));
}

TEST(Backend, EveryBackendHasEveryKernel) {
  for (const char* name : {"reference", "scalar", "auto"}) {
    const Backend& b = FindBackend(name);
    EXPECT_TRUE(b.quantise_rows && b.linear_scratch && b.linear && b.rms_norm && b.rope && b.add &&
                b.embed && b.attention_scratch && b.attention && b.append && b.route &&
                b.gate_up_scratch && b.gate_up && b.pick_sum)
        << name;
  }
}

}  // namespace
}  // namespace bloomery::ops
