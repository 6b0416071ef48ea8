#include <algorithm>

#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/apps/check_plugin/seat_text.h"

namespace bloomery::apps::check {
namespace {

// Odd counts and buckets of both ends.
constexpr int32_t kRowCounts[] = {1, 2, 7, 8, 512};
constexpr int kFailuresMax = 200;  // of one graph; spread evenly where it has more calls

void IsAcceptedForEveryRowCount(const Subject& subject) {
  BuiltSeat seat(subject);
  for (const int32_t rows : kRowCounts) seat.BuildGraph(rows);
}

void IsDeterministic(const Subject& subject) {
  BuiltSeat seat(subject);
  BuiltSeat other(subject);
  for (const int32_t rows : kRowCounts) {
    const std::string first = seat.Build(rows).record;
    const std::string again = FirstDifference(first, seat.Build(rows).record);
    const std::string where = "for " + std::to_string(rows) + " rows: ";
    Expect(again.empty(), "two builds differ " + where + again);
    const std::string elsewhere = FirstDifference(first, other.Build(rows).record);
    Expect(elsewhere.empty(), "two instances build differently " + where + elsewhere);
  }
}

void ExportsLogits(const Subject& subject) {
  BuiltSeat seat(subject);
  for (const int32_t rows : kRowCounts) {
    const graph::Graph graph = seat.BuildGraph(rows);
    const graph::ValueId logits = graph.FindExport("logits");
    Expect(logits != 0, "the main entry exports no 'logits'");
    const graph::Shape& shape = graph.value(logits).shape;
    Expect(shape.dtype == BL_F32 && shape.domain == BL_DOMAIN_LOGIT_ROWS &&
               static_cast<uint64_t>(shape.width()) == seat.description().vocabulary,
           "'logits' is " + graph::ToString(shape) + ", expected f32 [" +
               std::to_string(seat.description().vocabulary) + ", logit rows]");
  }
}

void PassesFailuresOn(const Subject& subject) {
  BuiltSeat seat(subject);
  const int calls = seat.Build(7).calls;
  Expect(calls > 0, "build makes no call");
  const int step = std::max(1, calls / kFailuresMax);
  for (int call = 0; call < calls; call += step) {
    const BuiltSeat::Result result = seat.Build(7, call);
    Expect(result.status != BL_OK, "build returned BL_OK although the builder's call " +
                                       std::to_string(call) + " of " + std::to_string(calls) +
                                       " failed");
  }
  Expect(seat.Build(7).graph.has_value(), "a failed build broke the next one");
}

// A plane that nothing writes is read as garbage; one that nothing reads is memory for nothing.
void UsesEveryPlane(const Subject& subject) {
  BuiltSeat seat(subject);
  const graph::Graph graph = seat.BuildGraph(7);
  const auto& planes = seat.description().planes;
  std::vector<int> uses(planes.size(), 0);
  for (const graph::Node& node : graph.nodes) {
    for (const graph::PlaneUse& use : node.planes) uses[use.plane] |= use.access;
  }
  for (size_t i = 0; i < planes.size(); ++i) {
    Expect(uses[i] == BL_READ_WRITE, "plane " + std::to_string(i) + " '" + planes[i].name +
                                         "' is not both written and read by the main entry");
  }
}

}  // namespace

std::vector<Check> BuildChecks() {
  return {{"build.is_accepted_for_every_row_count", true, IsAcceptedForEveryRowCount},
          {"build.is_deterministic", true, IsDeterministic},
          {"build.exports_logits", true, ExportsLogits},
          {"build.passes_failures_on", true, PassesFailuresOn},
          {"build.uses_every_plane", true, UsesEveryPlane}};
}

}  // namespace bloomery::apps::check
