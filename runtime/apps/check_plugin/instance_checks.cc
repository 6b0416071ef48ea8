#include "runtime/apps/check_plugin/check.h"
#include "runtime/apps/check_plugin/seat_text.h"
#include "runtime/apps/check_plugin/watched_model.h"
#include "runtime/base/limits.h"
#include "runtime/plugin/description.h"

namespace bloomery::apps::check {
namespace {

constexpr uint64_t kPlenty = limits::kPluginHostBytesMax;

// What most of these tests start with.
struct Stage {
  explicit Stage(const Subject& subject)
      : plugin(plugin::LoadPlugin(subject.path)), model(OpenModel(subject)), host_model(model) {}
  plugin::LoadedPlugin plugin;
  model::ModelFile model;
  plugin::HostModel host_model;
};

void RefusesAModelWithoutKeys(const Subject& subject) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  for (const std::string& arch : ReadManifest(subject).architectures) {
    const model::ModelFile model = BareModel(arch);
    const plugin::HostModel host_model(model);
    RawInstance instance(plugin, host_model.raw(), kPlenty);
    ExpectReasoned(instance.created(), "create");
    Expect(instance.created().status != BL_OK,
           "create accepts a model of architecture '" + arch + "' that has no keys and no tensors");
  }
}

void SurvivesEachMissingKey(const Subject& subject) {
  Stage stage(subject);
  const model::Metadata& metadata = stage.model.metadata();
  for (size_t i = 0; i < metadata.size(); ++i) {
    WatchedModel model(stage.host_model.raw());
    model.hidden_key = std::string(metadata.key(i));
    const std::string call = "without the key '" + model.hidden_key + "', ";
    RawInstance instance(stage.plugin, model.raw(), kPlenty);
    ExpectReasoned(instance.created(), call + "create");
    if (instance.created().status != BL_OK) continue;
    const bl_seat* seat = nullptr;
    ExpectReasoned(instance.TryDescribe(&seat), call + "describe");
  }
}

void ReportsWhenTheHostGivesNoMemory(const Subject& subject) {
  Stage stage(subject);
  RawInstance instance(stage.plugin, stage.host_model.raw(), 0);
  ExpectReasoned(instance.created(), "create, with a host that gives no memory,");
  if (instance.created().status == BL_OK) {
    throw NotApplicable("the plugin takes no memory of the host");
  }
  Expect(instance.created().status == BL_NO_MEMORY,
         "create fails with status " + std::to_string(instance.created().status) +
             " where the host gives no memory; BL_NO_MEMORY is meant for that");
}

void ReturnsItsMemory(const Subject& subject) {
  Stage stage(subject);
  RawInstance instance(stage.plugin, stage.host_model.raw(), kPlenty);
  instance.Describe();
  instance.Destroy();
  Expect(instance.host().bytes() == 0, "after destroy " + std::to_string(instance.host().bytes()) +
                                           " bytes of the host are still held");
}

void DescribesTheSameEachTime(const Subject& subject) {
  Stage stage(subject);
  RawInstance instance(stage.plugin, stage.host_model.raw(), kPlenty);
  const bl_seat* first = &instance.Describe();
  const std::string text = SeatText(*first);
  const bl_seat* second = &instance.Describe();
  Expect(first == second, "describe gives another pointer on its second call");
  const std::string difference = FirstDifference(text, SeatText(*second));
  Expect(difference.empty(), "describe gives another content on its second call: " + difference);
}

void DescribesWhatTheFileHolds(const Subject& subject) {
  Stage stage(subject);
  RawInstance instance(stage.plugin, stage.host_model.raw(), kPlenty);
  plugin::CheckDescription(instance.Describe(), stage.plugin.name, stage.model, {});
}

void TwoLiveApart(const Subject& subject) {
  Stage stage(subject);
  for (const bool first_goes_first : {true, false}) {
    RawInstance a(stage.plugin, stage.host_model.raw(), kPlenty);
    RawInstance b(stage.plugin, stage.host_model.raw(), kPlenty);
    const std::string text = SeatText(a.Describe());
    const std::string difference = FirstDifference(text, SeatText(b.Describe()));
    Expect(a.raw() != b.raw(), "two instances have one handle");
    Expect(difference.empty(), "two instances describe the model differently: " + difference);
    RawInstance& gone = first_goes_first ? a : b;
    RawInstance& left = first_goes_first ? b : a;
    gone.Destroy();
    Expect(FirstDifference(text, SeatText(left.Describe())).empty(),
           "destroying one instance changed the other");
  }
}

}  // namespace

std::vector<Check> InstanceChecks() {
  return {{"create.refuses_a_model_without_keys", false, RefusesAModelWithoutKeys},
          {"create.survives_each_missing_key", true, SurvivesEachMissingKey},
          {"create.reports_when_memory_is_refused", true, ReportsWhenTheHostGivesNoMemory},
          {"describe.is_stable", true, DescribesTheSameEachTime},
          {"describe.fits_the_file", true, DescribesWhatTheFileHolds},
          {"instance.two_live_apart", true, TwoLiveApart},
          {"instance.returns_its_memory", true, ReturnsItsMemory}};
}

}  // namespace bloomery::apps::check
