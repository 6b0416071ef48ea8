// The planes that reports of check-plugin name, against the order in which seats hand out state.
#include "runtime/apps/check_plugin/plane_names.h"

#include <gtest/gtest.h>

namespace bloomery::apps::check {
namespace {

plugin::Plane PlaneOf(const std::string& name, bl_plane_rule rule, uint64_t width) {
  plugin::Plane plane;
  plane.name = name;
  plane.layer = 0;
  plane.rule = rule;
  plane.type = BL_F32;
  plane.width = width;
  plane.window = rule == BL_PLANE_RING ? 4 : 0;
  return plane;
}

// Of every rule two planes, mixed.
plugin::Description Mixed() {
  plugin::Description description;
  description.planes = {
      PlaneOf("ring2", BL_PLANE_RING, 2),     PlaneOf("append1", BL_PLANE_APPEND, 1),
      PlaneOf("fixed4", BL_PLANE_FIXED, 4),   PlaneOf("ring1", BL_PLANE_RING, 1),
      PlaneOf("append2", BL_PLANE_APPEND, 2), PlaneOf("fixed1", BL_PLANE_FIXED, 1)};
  return description;
}

TEST(PlaneNames, ACheckpointHoldsAllFixedPlanesBeforeTheRings) {
  const plugin::Description mixed = Mixed();
  const auto at = [&](uint64_t byte) { return PlaneOfCheckpointAt(mixed, byte); };
  // Lanes of 16 and 4 bytes; three rows of 8 and of 4 bytes.
  EXPECT_EQ(at(0), "plane 'fixed4' of layer 0");
  EXPECT_EQ(at(15), "plane 'fixed4' of layer 0");
  EXPECT_EQ(at(16), "plane 'fixed1' of layer 0");
  EXPECT_EQ(at(20), "plane 'ring2' of layer 0");
  EXPECT_EQ(at(43), "plane 'ring2' of layer 0");
  EXPECT_EQ(at(44), "plane 'ring1' of layer 0");
  EXPECT_EQ(at(55), "plane 'ring1' of layer 0");
  EXPECT_EQ(at(56), "a plane");
}

TEST(PlaneNames, RowsAreOfTheAppendPlanes) {
  const plugin::Description mixed = Mixed();
  EXPECT_EQ(PlaneOfRowsAt(mixed, 5, 19), "plane 'append1' of layer 0");
  EXPECT_EQ(PlaneOfRowsAt(mixed, 5, 20), "plane 'append2' of layer 0");
  EXPECT_EQ(PlaneOfRowsAt(mixed, 5, 60), "a plane");
}

}  // namespace
}  // namespace bloomery::apps::check
