#include "runtime/model/safetensors_folder.h"

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/json_metadata.h"

namespace bloomery::model {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Where the index says each tensor lies.
std::map<std::string, std::string> WeightMap(const rapidjson::Document& index,
                                             const std::string& path) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorKind::kBadModel, path + ": " + problem);
  };
  const rapidjson::Value* map = FindNonNull(index, "weight_map");
  if (map == nullptr || !map->IsObject()) refuse("no object 'weight_map'");
  std::map<std::string, std::string> places;
  for (const auto& member : map->GetObject()) {
    const std::string name(member.name.GetString(), member.name.GetStringLength());
    if (!member.value.IsString()) refuse("the place of '" + Printable(name) + "' is no text");
    const std::string file(member.value.GetString(), member.value.GetStringLength());
    // A name that leads out of the folder is no shard of it.
    if (file.empty() || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos) {
      refuse("the place of '" + Printable(name) + "', '" + Printable(file) +
             "', is no file of this folder");
    }
    if (!places.emplace(name, file).second) refuse("'" + Printable(name) + "' is there twice");
  }
  return places;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const FileSystem& files, const std::string& path)
    : file_system_(files), path_(path), config_(PathOf(kConfig)) {
  const std::optional<rapidjson::Document> config = ReadJson(kConfig);
  if (!config) {
    throw Error(ErrorKind::kNoInput,
                "'" + Printable(path) + "' holds no " + kConfig + ": no model folder");
  }
  config_ = MetadataOfJson(*config, PathOf(kConfig));
  OpenShards();
  IndexTensors();
}

const FolderTensor* SafetensorsFolder::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::optional<std::string> SafetensorsFolder::ReadText(const std::string& name,
                                                       uint64_t bytes_max) const {
  if (!file_system_.Exists(PathOf(name))) return std::nullopt;
  return ReadWholeFile(file_system_, PathOf(name), bytes_max);
}

std::optional<rapidjson::Document> SafetensorsFolder::ReadJson(const std::string& name) const {
  const std::optional<std::string> text = ReadText(name, limits::kMetadataBytesMax);
  if (!text) return std::nullopt;
  rapidjson::Document document = ParseJson(*text, PathOf(name),
                                           {.kind = ErrorKind::kBadModel,
                                            .bytes_max = limits::kMetadataBytesMax,
                                            .nodes_max = limits::kSafetensorsNodesMax,
                                            .keep_repeated = true});
  if (!document.IsObject()) {
    throw Error(ErrorKind::kBadModel, PathOf(name) + ": not a JSON object");
  }
  return document;
}

void SafetensorsFolder::OpenShards() {
  const std::optional<rapidjson::Document> index = ReadJson(kIndex);
  if (!index) {
    if (!file_system_.Exists(PathOf(kSingle))) {
      throw Error(ErrorKind::kNoInput,
                  "'" + Printable(path_) + "' holds neither " + kSingle + " nor " + kIndex);
    }
    files_.emplace_back(file_system_, PathOf(kSingle));
    return;
  }
  const std::map<std::string, std::string> places = WeightMap(*index, PathOf(kIndex));
  std::set<std::string> names;
  for (const auto& [tensor, file] : places) names.insert(file);
  if (names.size() > limits::kModelShardsMax) {
    throw Error(ErrorKind::kBadModel, PathOf(kIndex) + ": " + std::to_string(names.size()) +
                                          " shards, at most " +
                                          std::to_string(limits::kModelShardsMax) + " are read");
  }
  for (const std::string& name : names) {
    if (!file_system_.Exists(PathOf(name))) {
      throw Error(ErrorKind::kBadModel, PathOf(kIndex) + ": the shard '" + Printable(name) +
                                            "' is not in the folder; download it");
    }
    files_.emplace_back(file_system_, PathOf(name));
  }
  // Both ways: what the index promises is there, and no shard holds what it does not name.
  std::map<std::string_view, const SafetensorsFile*> found;
  for (const SafetensorsFile& file : files_) {
    for (const SafeTensor& tensor : file.tensors()) {
      const auto place = places.find(tensor.name);
      if (place == places.end() || PathOf(place->second) != file.path()) {
        throw Error(ErrorKind::kBadModel, file.path() + ": tensor '" + Printable(tensor.name) +
                                              "' is not placed here by " + kIndex);
      }
      found.emplace(tensor.name, &file);
    }
  }
  for (const auto& [tensor, file] : places) {
    if (!found.contains(tensor)) {
      throw Error(ErrorKind::kBadModel, PathOf(file) + ": no tensor '" + Printable(tensor) +
                                            "', which " + kIndex + " places here");
    }
  }
}

void SafetensorsFolder::IndexTensors() {
  for (const SafetensorsFile& file : files_) {
    for (const SafeTensor& tensor : file.tensors()) {
      tensors_.emplace(tensor.name, FolderTensor{&file, &tensor});
    }
  }
}

}  // namespace bloomery::model
