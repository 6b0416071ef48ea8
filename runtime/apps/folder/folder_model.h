// Opens a model from wherever it lies: a model file, the first of a split set, or a safetensors
// folder, which then looks to everyone like a model file whose bytes are worked out as they are
// read. Owns what it opens. Immutable once opened: any thread may read. Never keeps tensor data,
// never knows a model's names: a plugin's folder map does (folder_map.h).
//
//   const model::ModelFile model = OpenModelAt("Some-Model", discovery);
#pragma once

#include <string>

#include "runtime/model/inventory.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// Error of the one or the other: gguf.h, or safetensors_folder.h, folder_map.h and folder_source.h.
model::ModelFile OpenModelAt(const std::string& path, const plugin::Discovery& discovery);

// Error(kNoInput) where there is neither a file nor a folder with a config.json.
void CheckModelPath(const std::string& path);

}  // namespace bloomery::apps
