#include "runtime/exec/pass_inputs.h"

#include <bloomery/graph.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace bloomery::exec {
namespace {

TEST(PassInputs, ASegmentReadsTheLaneOfItsLengthAndItsLastRowWritesAnother) {
  memory::Lanes lanes(3, 2);
  lanes.Set(2, lanes.Claim(2, 0), 5);
  PassInputs inputs(8);
  const std::vector<PassRow> rows = {
      {.slot = 2, .index = 5}, {.slot = 2, .index = 6}, {.slot = 0, .index = 0}};
  inputs.Set(rows, &lanes);
  const bl_rows& seen = inputs.rows();
  EXPECT_EQ(seen.lane_in[0], lanes.Holding(2, 5));
  EXPECT_EQ(seen.lane_out[0], -1);
  EXPECT_GE(seen.lane_out[1], 0);
  EXPECT_NE(seen.lane_out[1], seen.lane_in[0]);
  EXPECT_EQ(seen.lane_in[2], -1);  // the initial state
  EXPECT_GE(seen.lane_out[2], 0);
  const std::vector<PassRow> lost = {{.slot = 1, .index = 4}};
  EXPECT_THROW(inputs.Set(lost, &lanes), Error);
}

TEST(PassInputs, RowsSegmentsAndLogitRowsFollowThePass) {
  PassInputs inputs(8);
  const std::vector<PassRow> rows = {{.slot = 2, .index = 5, .token = 11, .logits = false},
                                     {.slot = 2, .index = 6, .token = 12, .logits = true},
                                     {.slot = 0, .index = 0, .token = 13, .logits = true}};
  inputs.Set(rows);
  const bl_rows& seen = inputs.rows();
  EXPECT_EQ(seen.capacity, 8);
  EXPECT_EQ(*seen.live, 3);
  EXPECT_EQ(*inputs.live(BL_DOMAIN_LOGIT_ROWS), 2);
  EXPECT_EQ(inputs.logit_map()[0], 1);
  EXPECT_EQ(inputs.logit_map()[1], 2);
  EXPECT_EQ(seen.slot[1], 2);
  EXPECT_EQ(seen.index[1], 6);
  EXPECT_EQ(seen.pos[3][1], 6);
  EXPECT_EQ(seen.embed_row[0], -1);
  EXPECT_EQ(seen.lane_in[0], -1);
  ASSERT_EQ(*seen.n_segments, 2);
  EXPECT_EQ(seen.segments[0].slot, 2);
  EXPECT_EQ(seen.segments[0].rows, 2);
  EXPECT_EQ(seen.segments[0].index0, 5);
  EXPECT_EQ(seen.segments[1].row0, 2);
  EXPECT_EQ(seen.segments[1].rows, 1);
  EXPECT_EQ(inputs.field(BL_FIELD_TOKEN)[2], 13);
  EXPECT_EQ(inputs.field(BL_FIELD_POS)[4], 6);
  inputs.Set({rows.data() + 2, 1});
  EXPECT_EQ(*seen.live, 1);
  EXPECT_EQ(*seen.n_segments, 1);
}

}  // namespace
}  // namespace bloomery::exec
