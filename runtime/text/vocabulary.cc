#include "runtime/text/vocabulary.h"

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/model/metadata.h"

namespace bloomery::text {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

std::vector<std::string> Strings(const model::Metadata& metadata, const std::string& key) {
  const model::MetadataArray& array = metadata.GetStringArray(key);
  std::vector<std::string> strings;
  strings.reserve(array.size());
  for (uint64_t i = 0; i < array.size(); ++i) strings.emplace_back(array.String(i));
  return strings;
}

TokenId ToTokenId(int64_t value, const std::string& key) {
  // Some writers store an id that is not there as -1, in 32 bits signed or not.
  if (value == -1 || value == int64_t{UINT32_MAX}) return kNoToken;
  if (value < 0 || value > INT32_MAX) {
    throw Error(ErrorKind::kBadModel, key + ": " + std::to_string(value) + " is not a token id");
  }
  return static_cast<TokenId>(value);
}

}  // namespace

VocabularyData ReadVocabulary(const model::Metadata& metadata) {
  VocabularyData data;
  data.model = metadata.GetString(Key("model"));
  data.pre = metadata.FindString(Key("pre")).value_or("");
  data.tokens = Strings(metadata, Key("tokens"));
  if (metadata.Has(Key("token_type"))) {
    const std::string key = Key("token_type");
    for (const int64_t type : metadata.GetI64Array(key)) {
      if (type < INT32_MIN || type > INT32_MAX) {
        throw Error(ErrorKind::kBadModel, key + "[" + std::to_string(data.token_types.size()) +
                                              "]: " + std::to_string(type) + " is no token type");
      }
      data.token_types.push_back(static_cast<int32_t>(type));
    }
  }
  if (metadata.Has(Key("merges"))) data.merges = Strings(metadata, Key("merges"));
  for (const auto& [name, field] : kSpecialIdKeys) {
    const std::string key = Key(name);
    if (const auto value = metadata.FindI64(key)) data.ids.*field = ToTokenId(*value, key);
  }
  data.add_bos = metadata.FindBool(Key("add_bos_token"));
  data.add_eos = metadata.FindBool(Key("add_eos_token"));
  return data;
}

}  // namespace bloomery::text
