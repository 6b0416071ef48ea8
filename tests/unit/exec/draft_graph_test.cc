// What the step of a draft may touch.
#include "runtime/exec/draft_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/exec/seat.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using test::Refusal;
using test::RefusalOf;
using test::ToySeat;
using testing::AllOf;
using testing::HasSubstr;

// A seat whose draft hands a state on through a plane of a class, or appends to one of a rule.
class DraftGraphTest : public testing::Test {
 protected:
  DraftGraphTest() {
    toy_.description.entries = {{.name = "main"}, {.name = "guess", .kind = BL_ENTRY_DRAFT_STEP}};
    toy_.description.draft_entry = 1;
  }

  sdk::Plane Plane(const std::string& name, bl_plane_rule rule, bl_plane_class plane_class) {
    const sdk::Plane plane = toy_.AddPlane(name, ToySeat::kWidth);
    plugin::Plane& made = toy_.description.planes.back();
    made.rule = rule;
    made.plane_class = plane_class;
    if (rule == BL_PLANE_RING) made.window = 8;
    return plane;
  }

  std::unique_ptr<Seat> Load(const std::function<void(sdk::Graph&, sdk::Value)>& touch) {
    toy_.draft = [&, touch](sdk::Graph& g) {
      const sdk::Value x = g.Embed(g.Tokens(), toy_.table);
      touch(g, x);
      g.Export("logits", g.Head(g.SelectRows(x), toy_.table));
    };
    return toy_.Load(
        [&](sdk::Graph& g) {
          g.Export("logits", g.Head(g.SelectRows(g.Embed(g.Tokens(), toy_.table)), toy_.table));
        },
        {.slots = 2, .slot_context = 40, .rows_max = 8, .window_rows = 4, .drafts = true});
  }
  Refusal Refused(const std::function<void(sdk::Graph&, sdk::Value)>& touch) {
    return RefusalOf([&] { Load(touch); });
  }

  ToySeat toy_;
};

TEST_F(DraftGraphTest, AStateThatIsNoTapIsRefusedByNameReadOrWritten) {
  const sdk::Plane state = Plane("conv_state", BL_PLANE_FIXED, BL_CLASS_RECURRENT);
  const auto named = AllOf(HasSubstr("plugin 'toy': entry 'guess' of kind DRAFT_STEP"),
                           HasSubstr("plane 'conv_state' is a state"));
  const Refusal kept = Refused([&](sdk::Graph& g, sdk::Value x) { g.Keep(x, state); });
  EXPECT_EQ(kept.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(kept.message, AllOf(named, HasSubstr("operator keep/1")));
  const Refusal previous = Refused([&](sdk::Graph& g, sdk::Value x) { g.Previous(x, state); });
  EXPECT_EQ(previous.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(previous.message, AllOf(named, HasSubstr("operator previous/1")));
  const Refusal recalled =
      Refused([&](sdk::Graph& g, sdk::Value) { g.Export("layer.0.out", g.Recall(state)); });
  EXPECT_EQ(recalled.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(recalled.message, AllOf(named, HasSubstr("operator recall/1")));
}

TEST_F(DraftGraphTest, ARingIsRefusedByName) {
  const sdk::Plane ring = Plane("near", BL_PLANE_RING, BL_CLASS_K);
  const Refusal refusal = Refused([&](sdk::Graph& g, sdk::Value x) { g.Append(x, ring); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("plugin 'toy': entry 'guess' of kind DRAFT_STEP"),
                    HasSubstr("operator append/1"), HasSubstr("plane 'near' is a ring")));
}

TEST_F(DraftGraphTest, TapsAndAppendPlanesAreItsOwn) {
  const sdk::Plane tap = Plane("tap", BL_PLANE_FIXED, BL_CLASS_TAP);
  const sdk::Plane rows = Plane("rows", BL_PLANE_APPEND, BL_CLASS_K);
  // States that it leaves alone are no matter.
  Plane("conv_state", BL_PLANE_FIXED, BL_CLASS_RECURRENT);
  const std::unique_ptr<Seat> seat = Load([&](sdk::Graph& g, sdk::Value x) {
    g.Append(x, rows);
    g.Keep(x, tap);
  });
  EXPECT_TRUE(seat->limits().drafts);
}

}  // namespace
}  // namespace bloomery::exec
