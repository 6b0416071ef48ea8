// Reads a model's safetensors folder as hubs hold them: config.json, and one model.safetensors or
// the shards that model.safetensors.index.json names. Names, shapes and ranges are checked before
// use; data is read lazily. Owns the open files. Immutable once opened: any thread may read. Never
// knows what a key or a tensor means.
//
//   const SafetensorsFolder folder(RealFileSystem(), "Some-Model");
//   uint64_t layers = folder.config().GetU64("num_hidden_layers");
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/model/metadata.h"
#include "runtime/model/safetensors.h"

namespace bloomery::model {

struct FolderTensor {
  const SafetensorsFile* file;
  const SafeTensor* tensor;
};

class SafetensorsFolder {
 public:
  // Throws Error(kNoInput) when a file cannot be read, and for a folder without a model;
  // Error(kBadModel) naming file, tensor and what is wrong: a shard that is absent, a tensor that
  // the index and the shards do not place alike, more shards than limits::kModelShardsMax.
  SafetensorsFolder(const FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  // config.json: members of inner objects by dotted keys ("rope_parameters.rope_theta"), arrays of
  // numbers, of bools or of texts as arrays; other arrays and nulls are absent.
  const Metadata& config() const { return config_; }
  std::span<const SafetensorsFile> files() const { return files_; }
  // By name.
  const std::map<std::string_view, FolderTensor>& tensors() const { return tensors_; }
  const FolderTensor* Find(std::string_view name) const;

  // The whole of another file of the folder, or nullopt when it is not there.
  std::optional<std::string> ReadText(const std::string& name, uint64_t bytes_max) const;
  // The same, parsed. Throws Error(kBadModel) naming file and place when it is no JSON object.
  std::optional<rapidjson::Document> ReadJson(const std::string& name) const;

 private:
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  void OpenShards();
  // Adds the tensors of files_.
  void IndexTensors();

  const FileSystem& file_system_;
  std::string path_;
  Metadata config_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, FolderTensor> tensors_;  // views files_, which never changes
};

}  // namespace bloomery::model
