#include "kernels-common/cpu/fp_environment.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "tests/unit/kernels-common/support.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace bloomery::kernels {
namespace {

using testing::HashBits;
using testing::LinearCase;

std::uint64_t SmallLinearHash() {
  LinearCase small(*FindFormat(0), 300, 5, 3, 21);
  for (float& x : small.x) {
    x *= 0x1p-125F;  // products and sums in the denormal range
  }
  std::vector<float> y;
  cpu::Linear(DetectIsa(), small.Args(y), 0, 5, small.scratch.span());
  return HashBits(y);
}

TEST(FpEnvironment, ARoundingModeSetBeforeAPassIsSeenAndGuarded) {
  const std::uint64_t clean = SmallLinearHash();
  ASSERT_TRUE(FpEnvironmentIsDefault());
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  EXPECT_FALSE(FpEnvironmentIsDefault());
  EXPECT_NE(SmallLinearHash(), clean);
  {
    const ScopedFpEnvironment guard;
    EXPECT_TRUE(FpEnvironmentIsDefault());
    EXPECT_EQ(SmallLinearHash(), clean);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

#if defined(__x86_64__)
TEST(FpEnvironment, FlushedDenormalsSetBeforeAPassAreSeenAndGuarded) {
  const std::uint64_t clean = SmallLinearHash();
  const unsigned saved = _mm_getcsr();
  for (const unsigned poison : {0x8000U, 0x0040U}) {  // FTZ, DAZ
    _mm_setcsr(saved | poison);
    EXPECT_FALSE(FpEnvironmentIsDefault());
    const std::uint64_t poisoned = SmallLinearHash();
    std::uint64_t guarded = 0;
    {
      const ScopedFpEnvironment guard;
      guarded = SmallLinearHash();
    }
    EXPECT_EQ(_mm_getcsr() & 0x8040U, poison);
    _mm_setcsr(saved);
    EXPECT_NE(poisoned, clean);
    EXPECT_EQ(guarded, clean);
  }
}
#endif

}  // namespace
}  // namespace bloomery::kernels
