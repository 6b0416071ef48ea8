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
                         BL_OP_MUL, BL_OP_SCALE, BL_OP_ROPE, BL_OP_APPEND, BL_OP_ATTENTION,
                         BL_OP_ROUTER, BL_OP_ROUTED_EXPERTS, BL_OP_SELECT_ROWS, BL_OP_HEAD,
                         BL_OP_SLICE, BL_OP_GATE, BL_OP_L2_NORM, BL_OP_SHORT_CONV, BL_OP_DELTA_RULE,
                         BL_OP_CONCAT, BL_OP_PREVIOUS, BL_OP_RECALL, BL_OP_KEEP));
}

TEST(Operators, EveryStandardOperatorPromisesEqualBits) {
  for (const graph::OperatorSchema& schema : StandardOperators()) {
    EXPECT_EQ(schema.numeric_class, BL_EXACT) << schema.name;
  }
}

TEST(Operators, APluginsOperatorPromisesWhatItsWeakestKernelKeeps) {
  bl_kernel kernels[3] = {};
  bl_op op{};
  op.name = "p.scale";
  op.kernels = kernels;
  for (const bl_numeric_class weakest : {BL_EXACT, BL_ROW_STABLE, BL_BAND}) {
    kernels[1].numeric_class = weakest;
    for (op.n_kernels = 0; op.n_kernels <= 3; ++op.n_kernels) {
      EXPECT_EQ(graph::SchemaOf(op).numeric_class, op.n_kernels > 1 ? weakest : BL_EXACT);
    }
  }
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
