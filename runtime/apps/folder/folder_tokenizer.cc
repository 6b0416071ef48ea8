#include "runtime/apps/folder/folder_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_writer.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::apps {
namespace {

using model::MetadataValue;
using rapidjson::Value;
using text::TokenType;

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";

std::string Text(const Value& value) { return {value.GetString(), value.GetStringLength()}; }

// One file of the folder, for messages.
struct Place {
  std::string path;
  [[noreturn]] void Refuse(const std::string& problem,
                           ErrorKind kind = ErrorKind::kBadModel) const {
    throw Error(kind, path + ": " + problem);
  }
};

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::map<std::string, uint64_t> ids;
};

bool IsTrue(const Value& object, const char* name) {
  const Value* value = FindNonNull(object, name);
  return value != nullptr && value->IsBool() && value->GetBool();
}

const Value& Bpe(const rapidjson::Document& tokenizer, const Place& place) {
  const Value* model = FindNonNull(tokenizer, "model");
  if (model == nullptr || !model->IsObject()) place.Refuse("no object 'model'");
  const Value* type = FindNonNull(*model, "type");
  if (type == nullptr || !type->IsString() || Text(*type) != "BPE" ||
      IsTrue(*model, "byte_fallback") || IsTrue(*model, "ignore_merges")) {
    place.Refuse("only plain byte-level BPE ('model.type' BPE) is converted",
                 ErrorKind::kUnsupported);
  }
  return *model;
}

class TokenReader {
 public:
  TokenReader(const Place& place, uint64_t vocabulary) : place_(place), filled_(vocabulary) {
    tokens_.texts.resize(vocabulary);
    tokens_.types.assign(vocabulary, static_cast<int32_t>(TokenType::kUnused));
  }

  void ReadVocabulary(const Value& model) {
    const Value* vocab = FindNonNull(model, "vocab");
    if (vocab == nullptr || !vocab->IsObject()) place_.Refuse("no object 'model.vocab'");
    for (const auto& member : vocab->GetObject()) {
      Put(Text(member.name), member.value, TokenType::kNormal);
    }
  }

  // Markers in pipes are control tokens whatever the file says of them; the other ones that it does
  // not call special stay visible in the output.
  void ReadAdded(const rapidjson::Document& tokenizer) {
    const Value* added = FindNonNull(tokenizer, "added_tokens");
    if (added == nullptr) return;
    if (!added->IsArray()) place_.Refuse("'added_tokens' is no array");
    for (const Value& item : added->GetArray()) {
      const Value* content = item.IsObject() ? FindNonNull(item, "content") : nullptr;
      const Value* id = item.IsObject() ? FindNonNull(item, "id") : nullptr;
      if (content == nullptr || !content->IsString() || id == nullptr) {
        place_.Refuse("an added token has no 'id' or no text 'content'");
      }
      const std::string text = Text(*content);
      const bool control =
          IsTrue(item, "special") || (text.starts_with("<|") && text.ends_with("|>"));
      Put(text, *id, control ? TokenType::kControl : TokenType::kUserDefined);
    }
  }

  Tokens Finish() {
    for (size_t i = 0; i < tokens_.texts.size(); ++i) {
      if (filled_[i]) continue;
      tokens_.texts[i] = "[PAD" + std::to_string(i) + "]";
    }
    return std::move(tokens_);
  }

 private:
  void Put(const std::string& text, const Value& id, TokenType type) {
    if (!id.IsUint64() || id.GetUint64() >= filled_.size()) {
      place_.Refuse("the id of '" + Printable(text) + "' is not below the vocabulary of " +
                    std::to_string(filled_.size()));
    }
    const uint64_t i = id.GetUint64();
    if (filled_[i] && tokens_.texts[i] != text) {
      place_.Refuse("id " + std::to_string(i) + " is both '" + Printable(tokens_.texts[i]) +
                    "' and '" + Printable(text) + "'");
    }
    const auto [known, added] = tokens_.ids.emplace(text, i);
    if (!added && known->second != i) {
      place_.Refuse("'" + Printable(text) + "' has the ids " + std::to_string(known->second) +
                    " and " + std::to_string(i));
    }
    filled_[i] = true;
    tokens_.texts[i] = text;
    tokens_.types[i] = static_cast<int32_t>(type);
  }

  const Place& place_;
  std::vector<bool> filled_;
  Tokens tokens_;
};

// "a b" or ["a", "b"], as older and newer files have them.
std::vector<std::string> Merges(const Value& model, const Place& place) {
  const Value* list = FindNonNull(model, "merges");
  if (list == nullptr || !list->IsArray()) place.Refuse("no array 'model.merges'");
  std::vector<std::string> merges;
  for (const Value& item : list->GetArray()) {
    std::string merge;
    if (item.IsString()) {
      merge = Text(item);
    } else if (item.IsArray() && item.Size() == 2 && item[0].IsString() && item[1].IsString()) {
      merge = Text(item[0]) + " " + Text(item[1]);
    }
    const size_t space = merge.find(' ');
    if (space == 0 || space == std::string::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos) {
      place.Refuse("merge " + std::to_string(merges.size()) + " is no pair of texts");
    }
    merges.push_back(std::move(merge));
  }
  return merges;
}

// All split patterns of the pre-tokenizer, whatever they are nested in. Recursive: ParseJson has
// limited the depth.
void AddPatterns(const Value& value, std::string& patterns) {
  if (value.IsArray()) {
    for (const Value& item : value.GetArray()) AddPatterns(item, patterns);
  } else if (value.IsObject()) {
    for (const auto& member : value.GetObject()) {
      if (Text(member.name) == "Regex" && member.value.IsString()) {
        patterns += Text(member.value) + "\n";
      } else {
        AddPatterns(member.value, patterns);
      }
    }
  }
}

const std::string& PreTokenizer(const rapidjson::Document& tokenizer,
                                const std::vector<PreRule>& rules, const Place& place) {
  std::string patterns;
  const Value* pre = FindNonNull(tokenizer, "pre_tokenizer");
  if (pre != nullptr) AddPatterns(*pre, patterns);
  for (const PreRule& rule : rules) {
    if (patterns.find(rule.has) != std::string::npos) return rule.pre;
  }
  place.Refuse(
      "its 'pre_tokenizer' splits text in a way that the plugin's folder map does not know",
      ErrorKind::kUnsupported);
}

struct SpecialName {
  const char* name;  // "<name>_token" and "<name>_token_id" of the configs
  const char* key;
};
constexpr std::array kSpecials{SpecialName{"bos", "bos"}, SpecialName{"eos", "eos"},
                               SpecialName{"unk", "unknown"}, SpecialName{"pad", "padding"}};

// The id of a special token: by its text in tokenizer_config.json, else by number in config.json,
// where a list begins with the main one.
std::optional<uint64_t> SpecialId(const model::SafetensorsFolder& folder,
                                  const std::optional<rapidjson::Document>& config,
                                  const std::string& name, const std::string& inner,
                                  const Tokens& tokens) {
  const Value* entry = config ? FindNonNull(*config, name + "_token") : nullptr;
  if (entry != nullptr && entry->IsObject()) entry = FindNonNull(*entry, "content");
  if (entry != nullptr && entry->IsString()) {
    const auto found = tokens.ids.find(Text(*entry));
    if (found == tokens.ids.end()) {
      Place{folder.path() + "/" + kTokenizerConfig}.Refuse(
          "'" + name + "_token', '" + Printable(Text(*entry)) + "', is no token");
    }
    return found->second;
  }
  std::string key = name + "_token_id";
  const std::string inside = inner + "." + key;
  if (folder.config().Has(inside)) key = inside;
  const MetadataValue* value = folder.config().Find(key);
  if (value == nullptr) return std::nullopt;
  uint64_t id = 0;
  if (value->kind == model::ValueKind::kArray) {
    const std::vector<uint64_t> ids = folder.config().GetU64Array(key);
    if (ids.empty()) return std::nullopt;
    id = ids.front();
  } else {
    id = folder.config().GetU64(key);
  }
  if (id >= tokens.texts.size()) {
    Place{folder.config().source()}.Refuse("key '" + key + "' is " + std::to_string(id) +
                                           ", beyond the vocabulary");
  }
  return id;
}

// chat_template.jinja, or what tokenizer_config.json has: a text, or several by name.
std::optional<std::string> ChatTemplate(const model::SafetensorsFolder& folder,
                                        const std::optional<rapidjson::Document>& config) {
  if (auto text = folder.ReadText(kTemplate, limits::kJinjaSourceBytesMax)) return text;
  const Value* entry = config ? FindNonNull(*config, "chat_template") : nullptr;
  if (entry == nullptr) return std::nullopt;
  if (entry->IsString()) return Text(*entry);
  if (entry->IsArray()) {
    for (const Value& item : entry->GetArray()) {
      const Value* name = item.IsObject() ? FindNonNull(item, "name") : nullptr;
      const Value* body = item.IsObject() ? FindNonNull(item, "template") : nullptr;
      if (name != nullptr && name->IsString() && Text(*name) == "default" && body != nullptr &&
          body->IsString()) {
        return Text(*body);
      }
    }
  }
  Place{folder.path() + "/" + kTokenizerConfig}.Refuse(
      "'chat_template' is neither a text nor a list with a 'default'");
}

}  // namespace

std::vector<std::pair<std::string, MetadataValue>> TokenizerKeys(
    const model::SafetensorsFolder& folder, const TokenizerFacts& facts) {
  const Place place{folder.path() + "/" + kTokenizer};
  const std::optional<rapidjson::Document> tokenizer = folder.ReadJson(kTokenizer);
  if (!tokenizer) place.Refuse("not there; it holds the vocabulary", ErrorKind::kNoInput);
  const std::optional<rapidjson::Document> config = folder.ReadJson(kTokenizerConfig);
  const Value& bpe = Bpe(*tokenizer, place);
  TokenReader reader(place, facts.vocabulary);
  reader.ReadVocabulary(bpe);
  reader.ReadAdded(*tokenizer);
  const Tokens tokens = reader.Finish();

  std::vector<std::pair<std::string, MetadataValue>> keys;
  const auto add = [&](const std::string& key, MetadataValue value) {
    keys.emplace_back("tokenizer." + key, std::move(value));
  };
  add("ggml.model", model::StringValue("gpt2"));
  add("ggml.pre", model::StringValue(PreTokenizer(*tokenizer, facts.pre, place)));
  add("ggml.tokens", model::StringArrayValue(tokens.texts));
  add("ggml.token_type", model::I32ArrayValue(tokens.types));
  add("ggml.merges", model::StringArrayValue(Merges(bpe, place)));
  for (const SpecialName& special : kSpecials) {
    const std::optional<uint64_t> id = SpecialId(folder, config, special.name, facts.inner, tokens);
    if (id) {
      add("ggml." + std::string(special.key) + "_token_id",
          model::U32Value(static_cast<uint32_t>(*id)));
    }
  }
  const Value* add_bos = config ? FindNonNull(*config, "add_bos_token") : nullptr;
  if (add_bos != nullptr && add_bos->IsBool()) {
    add("ggml.add_bos_token", model::BoolValue(add_bos->GetBool()));
  }
  if (auto text = ChatTemplate(folder, config)) {
    add("chat_template", model::StringValue(std::move(*text)));
  }
  return keys;
}

}  // namespace bloomery::apps
