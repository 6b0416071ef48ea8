// Reads GGUF version 2 and 3, little endian, one file or a split set, into a ModelFile. Nothing in
// a file is believed: counts, lengths, offsets and products are checked before they are used, and
// memory for metadata is limited and counted before it is taken. Tensor data is not read here.
//
// A split set is opened by its first file, "<prefix>-00001-of-0000N.gguf"; the others are looked
// for beside it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/model/inventory.h"

namespace bloomery::model {

struct GgufOptions {
  // For keys, values, tensor names and their bookkeeping, all files of a set together.
  uint64_t metadata_bytes_max = limits::kMetadataBytesMax;
};

// Opens and checks a model. Throws Error(kBadModel) naming the path, the key or tensor and the byte
// offset of what is wrong; Error(kNoMemory) when metadata goes past the limit; Error(kNoInput) when
// a file is missing or cannot be read.
ModelFile OpenGguf(const FileSystem& files, const std::string& path,
                   const GgufOptions& options = {});

}  // namespace bloomery::model
