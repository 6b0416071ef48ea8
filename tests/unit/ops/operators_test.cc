#include "runtime/ops/operators.h"

#include <bloomery/operators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bloomery::ops {
namespace {

TEST(Operators, TheStandardSetIsTheOneOfTheSdkHeader) {
  std::vector<std::string> names;
  for (const graph::OperatorSchema& schema : StandardOperators()) {
    EXPECT_EQ(schema.version, 1U);
    EXPECT_NE(schema.infer, nullptr);
    names.emplace_back(schema.name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         BL_OP_EMBED, BL_OP_LINEAR, BL_OP_RMS_NORM, BL_OP_RESHAPE, BL_OP_ADD,
                         BL_OP_MUL, BL_OP_ROPE, BL_OP_APPEND, BL_OP_ATTENTION, BL_OP_ROUTER,
                         BL_OP_ROUTED_EXPERTS, BL_OP_SELECT_ROWS, BL_OP_HEAD));
}

TEST(Operators, AnotherVersionIsNamed) {
  const Operators operators;
  uint32_t other = 0;
  EXPECT_EQ(operators.Find("linear", 3, &other), nullptr);
  EXPECT_EQ(other, 1U);
  other = 0;
  EXPECT_EQ(operators.Find("nothing", 1, &other), nullptr);
  EXPECT_EQ(other, 0U);
}

}  // namespace
}  // namespace bloomery::ops
