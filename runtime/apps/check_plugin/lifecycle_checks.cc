// The order of calls: what the ABI allows at any time works at any time, and earlier calls do not
// show in later answers.
#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/apps/check_plugin/seat_text.h"
#include "runtime/base/limits.h"

namespace bloomery::apps::check {
namespace {

constexpr uint64_t kPlenty = limits::kPluginHostBytesMax;

void DestroysWithoutDescribe(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  const plugin::HostModel host_model(model);
  std::string first;
  for (int life = 0; life < 3; ++life) {
    {
      RawInstance unused(plugin, host_model.raw(), kPlenty);
      Expect(unused.created().status == BL_OK, "create refused: " + unused.created().reason);
      unused.Destroy();
      Expect(unused.host().bytes() == 0, "destroyed without describe, " +
                                             std::to_string(unused.host().bytes()) +
                                             " bytes of the host are still held");
    }
    RawInstance described(plugin, host_model.raw(), kPlenty);
    const std::string text = SeatText(described.Describe());
    if (life == 0) first = text;
    const std::string difference = FirstDifference(first, text);
    Expect(difference.empty(),
           "an instance made after others were destroyed describes the model "
           "differently: " +
               difference);
  }
}

void ProbesBetweenCalls(const Subject& subject) {
  BuiltSeat undisturbed(subject);
  const std::string text = SeatText(undisturbed.instance().Describe());
  const std::string graph = undisturbed.Build(7).record;

  BuiltSeat seat(subject);
  const auto probe = [&] {
    bl_claim claim{};
    const Answer answer = AskProbe(seat.plugin(), seat.host_model(), claim);
    Expect(answer.status == BL_OK,
           "probe refuses the model while an instance lives: " + answer.reason);
    const model::ModelFile foreign = BareModel("no-such-architecture");
    const plugin::HostModel foreign_model(foreign);
    Expect(AskProbe(seat.plugin(), foreign_model.raw(), claim).status != BL_OK,
           "probe claims an architecture of nobody while an instance lives");
  };
  probe();
  std::string difference = FirstDifference(text, SeatText(seat.instance().Describe()));
  Expect(difference.empty(), "probing changed what describe says: " + difference);
  probe();
  difference = FirstDifference(graph, seat.Build(7).record);
  Expect(difference.empty(), "probing changed what build makes: " + difference);
}

void BuildsInAnyOrder(const Subject& subject) {
  std::vector<int32_t> counts = {1, 3, 8, 16, 100, 512};
  std::vector<std::string> graphs;
  BuiltSeat seat(subject);
  for (const int32_t rows : counts) graphs.push_back(seat.Build(rows).record);
  Random random(subject.seed);
  for (int round = 0; round < 12; ++round) {
    const size_t i = random.Below(counts.size());
    const BuiltSeat::Result result = seat.Build(counts[i]);
    const std::string when = "build for " + std::to_string(counts[i]) +
                             " rows, after builds for others in another order, ";
    Expect(result.graph.has_value(), when + "is not accepted: " + result.reason);
    const std::string difference = FirstDifference(graphs[i], result.record);
    Expect(difference.empty(), when + "differs: " + difference);
  }
}

}  // namespace

std::vector<Check> LifecycleChecks() {
  return {{"lifecycle.destroys_without_describe", true, DestroysWithoutDescribe},
          {"lifecycle.probes_between_calls", true, ProbesBetweenCalls},
          {"lifecycle.builds_in_any_order", true, BuildsInAnyOrder}};
}

}  // namespace bloomery::apps::check
