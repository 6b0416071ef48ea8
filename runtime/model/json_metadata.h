// A JSON object as Metadata, so that a model folder's config is asked the same way as a model
// file's keys: members of inner objects get dotted keys. A pure function.
#pragma once

#include <string>

#include "runtime/base/json.h"
#include "runtime/model/metadata.h"

namespace bloomery::model {

// Whole numbers become u64 (negative: i64), others f64. Arrays of one kind of number, of bools or
// of texts become arrays (numbers of several kinds: f64; empty: u64); null, and arrays of anything
// else, become nothing. Throws Error(kBadModel) naming `source` and the key that is there twice.
Metadata MetadataOfJson(const rapidjson::Value& object, const std::string& source);

}  // namespace bloomery::model
