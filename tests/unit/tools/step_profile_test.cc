#include "runtime/apps/tools/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bloomery::apps {
namespace {

using testing::HasSubstr;

TEST(StepProfile, StepsOfOnePlaceInTheirLayersAreOneRowAndTheLongestComesFirst) {
  StepProfile profile;
  for (int pass = 0; pass < 2; ++pass) {
    profile.StepDone({.op = "embed", .first = true, .tasks = 1, .seconds = 1e-6});
    for (int layer = 0; layer < 3; ++layer) {
      profile.StepDone({.op = "linear", .layer = layer, .tasks = 4, .seconds = 2e-6});
      profile.StepDone(
          {.op = "linear", .layer = layer, .tasks = 8, .seconds = 6e-6, .wait_seconds = 3e-6});
    }
  }
  // 2 of embed, 12 and 36 of the linears: 50 µs.
  EXPECT_THAT(profile.Table(), HasSubstr("|---|---|---|---|---|---|\n"
                                         "| linear 2 | 6 | 8.0 | 6.0 | 72.0 % | 50 % |\n"
                                         "| linear 1 | 6 | 4.0 | 2.0 | 24.0 % | 0 % |\n"
                                         "| embed 1 | 2 | 1.0 | 1.0 | 4.0 % | 0 % |\n"));
  profile.Clear();
  EXPECT_THAT(profile.Table(), testing::Not(HasSubstr("linear")));
}

// A pass of one layer that starts anew in the layer the last one ended in.
TEST(StepProfile, APassStartsItsLayersAnew) {
  StepProfile profile;
  for (int pass = 0; pass < 2; ++pass) {
    profile.StepDone({.op = "linear", .layer = 0, .first = true, .tasks = 1, .seconds = 1e-6});
  }
  EXPECT_THAT(profile.Table(), HasSubstr("| linear 1 | 2 |"));
}

}  // namespace
}  // namespace bloomery::apps
