#include "runtime/model/draft_file.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

constexpr std::string_view kArchitecture = "general.architecture";

[[noreturn]] void Refuse(const ModelFile& model, const ModelFile& draft, const std::string& why) {
  throw Error(ErrorKind::kBadModel,
              draft.path() + ": it is no draft of " + model.path() + ": " + why);
}

// Whether `longer` begins with the elements of `front`.
bool Begins(const MetadataArray& front, const MetadataArray& longer) {
  if (front.element_kind() != longer.element_kind() || front.size() > longer.size()) return false;
  const bool strings = front.element_kind() == ValueKind::kString;
  for (uint64_t i = 0; i < front.size(); ++i) {
    if (strings ? front.String(i) != longer.String(i) : front.At(i) != longer.At(i)) return false;
  }
  return true;
}

// What the two files say under one of the architecture's keys; null where they contradict.
const MetadataValue* Joined(std::string_view key, const MetadataValue& model,
                            const MetadataValue& draft) {
  if (key.ends_with(".block_count") || key.ends_with(".nextn_predict_layers")) return &draft;
  const auto* ours = std::get_if<MetadataArray>(&model.data);
  const auto* theirs = std::get_if<MetadataArray>(&draft.data);
  if (ours != nullptr && theirs != nullptr) return Begins(*ours, *theirs) ? &draft : nullptr;
  return model.kind == draft.kind && model.data == draft.data ? &model : nullptr;
}

Metadata Join(const ModelFile& model, const ModelFile& draft) {
  const Metadata& ours = model.metadata();
  const Metadata& theirs = draft.metadata();
  const std::string_view architecture = ours.GetString(kArchitecture);
  if (theirs.GetString(kArchitecture) != architecture) {
    Refuse(model, draft,
           "its architecture is '" + Printable(theirs.GetString(kArchitecture)) + "', not '" +
               Printable(architecture) + "'");
  }
  const std::string own = std::string(architecture) + ".";
  Metadata joined(ours.source());
  for (size_t i = 0; i < ours.size(); ++i) {
    const std::string_view key = ours.key(i);
    const MetadataValue* value = &ours.value(i);
    const MetadataValue* other = key.starts_with(own) ? theirs.Find(key) : nullptr;
    if (other != nullptr) value = Joined(key, *value, *other);
    if (value == nullptr) {
      Refuse(model, draft, "metadata key '" + Printable(key) + "' is another there");
    }
    joined.Add(std::string(key), *value);
  }
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (!theirs.key(i).starts_with(own)) continue;
    joined.Add(std::string(theirs.key(i)), theirs.value(i));  // where it is not there yet
  }
  return joined;
}

}  // namespace

ModelFile WithDraftFile(ModelFile model, const ModelFile& draft) {
  Metadata metadata = Join(model, draft);
  std::vector<TensorInfo> tensors(model.tensors().begin(), model.tensors().end());
  const auto first = static_cast<uint32_t>(model.files().size());
  for (const TensorInfo& tensor : draft.tensors()) {
    if (model.FindTensorIndex(tensor.name)) continue;
    tensors.push_back(tensor);
    tensors.back().file += first;
  }
  if (tensors.size() == model.tensors().size()) {
    Refuse(model, draft, "it holds no tensor that the model's file lacks");
  }
  std::vector<std::shared_ptr<const File>> files(model.files().begin(), model.files().end());
  files.insert(files.end(), draft.files().begin(), draft.files().end());
  return {model.format(), std::move(metadata), std::move(tensors), std::move(files)};
}

}  // namespace bloomery::model
