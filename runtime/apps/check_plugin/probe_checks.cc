#include "runtime/apps/check_plugin/check.h"
#include "runtime/apps/check_plugin/watched_model.h"

namespace bloomery::apps::check {
namespace {

Answer Refused(const plugin::LoadedPlugin& plugin, const model::ModelFile& model,
               const std::string& what) {
  const plugin::HostModel host_model(model);
  bl_claim claim{};
  Answer answer = AskProbe(plugin, host_model.raw(), claim);
  ExpectReasoned(answer, "probe of " + what);
  Expect(answer.status != BL_OK, "probe claims " + what);
  return answer;
}

void RefusesAnEmptyModel(const Subject& subject) {
  Refused(plugin::LoadPlugin(subject.path), BareModel(""), "a model without any metadata");
}

void RefusesAForeignArchitecture(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  Refused(plugin, BareModel("no-such-architecture"), "an architecture of nobody");
  // A companion or a longer name must not pass for a claimed one.
  for (const std::string& arch : ReadManifest(subject).architectures) {
    Refused(plugin, BareModel(arch + "-other"), "architecture '" + arch + "-other'");
  }
}

void LeavesNoState(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const Answer first = Refused(plugin, BareModel(""), "an empty model");
  const Answer second = Refused(plugin, BareModel(""), "an empty model, asked again");
  Expect(first.status == second.status && first.reason == second.reason,
         "two probes of one model differ: '" + first.reason + "' and '" + second.reason + "'");
}

void ClaimsTheModel(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  const plugin::HostModel host_model(model);
  bl_claim claims[2];
  for (bl_claim& claim : claims) {
    const Answer answer = AskProbe(plugin, host_model.raw(), claim);
    Expect(answer.status == BL_OK, "probe refuses the model: " + answer.reason);
    Expect(claim.score >= 1 && claim.score <= 100,
           "score " + std::to_string(claim.score) + " is outside 1 … 100");
  }
  Expect(claims[0].score == claims[1].score, "two probes give two scores");
}

void ReadsMetadataOnly(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  const plugin::HostModel host_model(model);
  WatchedModel watched(host_model.raw());
  bl_claim claim{};
  AskProbe(plugin, watched.raw(), claim);
  Expect(watched.small_reads == 0, "probe reads tensor data; it may read metadata only");
}

}  // namespace

std::vector<Check> ProbeChecks() {
  return {{"probe.refuses_an_empty_model", false, RefusesAnEmptyModel},
          {"probe.refuses_a_foreign_architecture", false, RefusesAForeignArchitecture},
          {"probe.leaves_no_state", false, LeavesNoState},
          {"probe.claims_the_model", true, ClaimsTheModel},
          {"probe.reads_metadata_only", true, ReadsMetadataOnly}};
}

}  // namespace bloomery::apps::check
