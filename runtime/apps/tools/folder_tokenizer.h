// The tokenizer of a model folder as a model file's keys: tokenizer.json's byte-level BPE, the ids
// that tokenizer_config.json or config.json name, and the chat template. A pure function of the
// folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/metadata.h"
#include "runtime/model/safetensors_folder.h"

namespace bloomery::apps {

// `tokenizer.ggml.*` and `tokenizer.chat_template`; `pre` names the pre-tokenizer. Ids below
// `vocabulary` that the tokenizer lacks are unused tokens. Throws Error(kNoInput) when there is no
// tokenizer.json; Error(kBadModel) naming file and field: an id beyond the vocabulary or given
// twice, a merge that is no pair, a special token that is none; Error(kUnsupported) for a tokenizer
// of another kind.
std::vector<std::pair<std::string, model::MetadataValue>> TokenizerKeys(
    const model::SafetensorsFolder& folder, const std::string& pre, uint64_t vocabulary);

}  // namespace bloomery::apps
