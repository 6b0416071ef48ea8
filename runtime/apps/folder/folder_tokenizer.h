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

// A pre-tokenizer by its name in model files: the one of tokenizers whose split pattern holds the
// text `has`; "": of all.
struct PreRule {
  std::string pre;
  std::string has;
};

// What belongs to a model, beside what its folder says.
struct TokenizerFacts {
  std::vector<PreRule> pre;  // the first that holds counts
  std::string inner;  // the object of config.json that may hold the model's own keys; "": none
  uint64_t vocabulary = 0;
};

// `tokenizer.ggml.*` and `tokenizer.chat_template`. Ids below
// the vocabulary that the tokenizer lacks are unused tokens. Throws Error(kNoInput) when there is
// no tokenizer.json; Error(kBadModel) naming file and field: an id beyond the vocabulary or given
// twice, a merge that is no pair, a special token that is none; Error(kUnsupported) for a tokenizer
// of another kind and for one whose pattern no rule of `facts` is for.
std::vector<std::pair<std::string, model::MetadataValue>> TokenizerKeys(
    const model::SafetensorsFolder& folder, const TokenizerFacts& facts);

}  // namespace bloomery::apps
