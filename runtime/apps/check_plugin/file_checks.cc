// Files that are almost right: a tensor that is missing, one of another shape, one too many. The
// plugin's description must lead to a refusal that names it.
#include <algorithm>
#include <set>

#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/base/limits.h"

namespace bloomery::apps::check {
namespace {

constexpr size_t kTensorsMax = 24;  // of one model, chosen at random where it has more

using Tensors = std::vector<model::TensorInfo>;

// The model with other tensors; the bytes of those it shares stay.
model::ModelFile With(const model::ModelFile& model, Tensors tensors) {
  const model::Metadata& all = model.metadata();
  model::Metadata metadata(all.source());
  for (size_t i = 0; i < all.size(); ++i) metadata.Add(std::string(all.key(i)), all.value(i));
  return {model.format(),
          std::move(metadata),
          std::move(tensors),
          {model.files().begin(), model.files().end()}};
}

Tensors TensorsOf(const model::ModelFile& model) {
  return {model.tensors().begin(), model.tensors().end()};
}

// Why the plugin or the host refuses the model; empty where a description is accepted.
std::string Refusal(const Subject& subject, const model::ModelFile& model,
                    const std::string& what) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const plugin::HostModel host_model(model);
  RawInstance instance(plugin, host_model.raw(), limits::kPluginHostBytesMax);
  ExpectReasoned(instance.created(), what + ": create");
  if (instance.created().status != BL_OK) return instance.created().reason;
  const bl_seat* seat = nullptr;
  const Answer answer = instance.TryDescribe(&seat);
  ExpectReasoned(answer, what + ": describe");
  if (answer.status != BL_OK) return answer.reason;
  try {
    plugin::CheckDescription(*seat, plugin.name, model, {});
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// Indices of the tensors that the description reads, all or as many as one test looks at.
std::vector<size_t> Chosen(const Subject& subject, const model::ModelFile& model) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const plugin::HostModel host_model(model);
  RawInstance instance(plugin, host_model.raw(), limits::kPluginHostBytesMax);
  const bl_seat& seat = instance.Describe();
  const auto description = plugin::CheckDescription(seat, plugin.name, model, {});
  std::set<size_t> claimed;
  for (const plugin::Weight& weight : description.weights) {
    if (weight.present) claimed.insert(weight.tensor);
  }
  std::vector<size_t> chosen(claimed.begin(), claimed.end());
  Random random(subject.seed);
  for (size_t i = 0; i < chosen.size(); ++i) {
    std::swap(chosen[i], chosen[i + random.Below(chosen.size() - i)]);
  }
  chosen.resize(std::min(chosen.size(), kTensorsMax));
  return chosen;
}

void RefusesAMissingTensor(const Subject& subject) {
  const model::ModelFile model = OpenModel(subject);
  for (const size_t i : Chosen(subject, model)) {
    Tensors tensors = TensorsOf(model);
    const std::string name = tensors[i].name;
    tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(i));
    const std::string what = "without the tensor '" + name + "'";
    const std::string refusal = Refusal(subject, With(model, tensors), what);
    if (!refusal.empty()) {
      Expect(refusal.find(name) != std::string::npos,
             what + " the refusal does not name it: " + refusal);
      continue;
    }
    // Optional, or the plugin does with another one, such as a head that is the embedding.
    BuiltSeat seat(subject, With(model, tensors));
    const BuiltSeat::Result built = seat.Build(7);
    Expect(built.graph.has_value(),
           what + " the model is accepted, and no graph can be built: " + built.reason);
  }
}

void RefusesAMisshapenTensor(const Subject& subject) {
  const model::ModelFile model = OpenModel(subject);
  for (const size_t i : Chosen(subject, model)) {
    Tensors tensors = TensorsOf(model);
    model::TensorInfo& tensor = tensors[i];
    // Half a row, so that the bytes still lie in the file.
    const uint64_t block = model::Info(tensor.type).block_values;
    if (tensor.ne[0] % (2 * block) != 0) continue;
    tensor.ne[0] /= 2;
    tensor.bytes /= 2;
    const std::string what = "with the tensor '" + tensor.name + "' of half its width";
    const std::string refusal = Refusal(subject, With(model, tensors), what);
    Expect(!refusal.empty(), what + " the model is accepted: give its dims in bl_weight.ne");
    const bool names_one = std::ranges::any_of(tensors, [&](const model::TensorInfo& t) {
      return refusal.find(t.name) != std::string::npos;
    });
    Expect(names_one, what + " the refusal names no tensor: " + refusal);
  }
}

void RefusesAnUnknownTensor(const Subject& subject) {
  const model::ModelFile model = OpenModel(subject);
  Random random(subject.seed);
  for (const std::string prefix : {"", "blk.0.", "blk.0.ffn_"}) {
    Tensors tensors = TensorsOf(model);
    model::TensorInfo extra = tensors.front();
    extra.name = prefix + random.Word() + ".weight";
    tensors.push_back(extra);
    const std::string what = "with an unknown tensor '" + extra.name + "'";
    const std::string refusal = Refusal(subject, With(model, tensors), what);
    Expect(!refusal.empty(), what + " the model is accepted: ignore by name what is known");
    Expect(refusal.find(extra.name) != std::string::npos,
           what + " the refusal does not name it: " + refusal);
  }
}

}  // namespace

std::vector<Check> FileChecks() {
  return {{"file.a_missing_tensor_is_refused_by_name", true, RefusesAMissingTensor},
          {"file.a_misshapen_tensor_is_refused_by_name", true, RefusesAMisshapenTensor},
          {"file.an_unknown_tensor_is_refused_by_name", true, RefusesAnUnknownTensor}};
}

}  // namespace bloomery::apps::check
