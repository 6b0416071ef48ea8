#include "runtime/serve/infill_prompt.h"

#include <algorithm>
#include <string>

#include "runtime/serve/chat_body.h"

namespace bloomery::serve {
namespace {

using Tokens = std::vector<text::TokenId>;

// What stands where the client gives no name.
constexpr std::string_view kProjectLine = "project\n";
constexpr std::string_view kFileLine = "file\n";
constexpr std::string_view kExtraName = "extra";
// Between files, for vocabularies without a token for it.
constexpr std::string_view kSnippetLine = "\n\n--- snippet ---\n\n";
// The suffix's own token and the one that asks for the middle.
constexpr int64_t kSuffixTokens = 2;

void RequireTokens(const text::SpecialIds& ids) {
  std::string missing;
  const auto look = [&](text::TokenId id, std::string_view name) {
    if (id != text::kNoToken) return;
    missing += missing.empty() ? "" : ", ";
    missing += name;
  };
  look(ids.fim_prefix, "prefix");
  look(ids.fim_suffix, "suffix");
  look(ids.fim_middle, "middle");
  if (missing.empty()) return;
  throw Error(ErrorKind::kUnsupported,
              "infill: the model's vocabulary has no fill-in-the-middle token for: " + missing);
}

std::string Required(const Fields& body, std::string_view name) {
  auto text = body.String(name);
  if (!text) RefuseField(name, "is required");
  return std::move(*text);
}

void Append(Tokens& tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

void KeepLast(Tokens& tokens, int64_t count) {
  const auto kept = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (tokens.size() > kept) tokens.erase(tokens.begin(), tokens.end() - static_cast<long>(kept));
}

void KeepFirst(Tokens& tokens, int64_t count) {
  const auto kept = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (tokens.size() > kept) tokens.resize(kept);
}

// The other files, each behind a line with its name.
Tokens ExtraTokens(const Fields& body, const text::Tokenizer& tokenizer) {
  const text::SpecialIds& ids = tokenizer.special_ids();
  Tokens tokens;
  if (ids.fim_repo != text::kNoToken) {
    tokens.push_back(ids.fim_repo);
    Append(tokens, tokenizer.Tokenise(kProjectLine));
  }
  const bool separated = ids.fim_separator != text::kNoToken;
  if (const rapidjson::Value* extras = body.Array("input_extra")) {
    for (rapidjson::SizeType i = 0; i < extras->Size(); ++i) {
      const std::string place = PlaceOf("input_extra", i);
      const rapidjson::Value& extra = (*extras)[i];
      if (!extra.IsObject()) RefuseField(place, "expected an object");
      const std::string_view text = StringMember(extra, "text", place, true);
      const std::string_view name = StringMember(extra, "filename", place, false);
      if (separated) {
        tokens.push_back(ids.fim_separator);
        Append(tokens, tokenizer.Tokenise(std::string(name.empty() ? kExtraName : name) + "\n"));
      } else {
        Append(tokens, tokenizer.Tokenise(kSnippetLine));
      }
      Append(tokens, tokenizer.Tokenise(text));
    }
  }
  if (separated) {
    tokens.push_back(ids.fim_separator);
    Append(tokens, tokenizer.Tokenise(kFileLine));
  }
  return tokens;
}

}  // namespace

std::vector<text::TokenId> InfillPrompt(const Fields& body, const text::Tokenizer& tokenizer,
                                        const InfillLimits& limits) {
  const text::SpecialIds& ids = tokenizer.special_ids();
  RequireTokens(ids);
  Tokens prefix = tokenizer.Tokenise(Required(body, "input_prefix"));
  // Only their fronts can come to use.
  Tokens suffix = tokenizer.Tokenise(Required(body, "input_suffix"),
                                     {.tokens_max = static_cast<size_t>(limits.batch)});
  const Tokens prompt = tokenizer.Tokenise(body.String("prompt").value_or(""),
                                           {.tokens_max = static_cast<size_t>(limits.context)});
  Tokens extra = ExtraTokens(body, tokenizer);

  // A slot smaller than a batch still needs room for the answer.
  const int64_t batch = std::min(limits.batch, limits.context - limits.context / 4);
  const auto prompt_size = static_cast<int64_t>(prompt.size());
  KeepLast(prefix, batch / 4 * 3);
  KeepFirst(suffix, batch / 4 - kSuffixTokens - prompt_size);
  KeepLast(extra, limits.context - limits.batch - 2 * std::max<int64_t>(limits.n_predict, 0));

  prefix.insert(prefix.begin(), ids.fim_prefix);
  Append(prefix, prompt);
  suffix.insert(suffix.begin(), ids.fim_suffix);
  Tokens tokens;
  if (tokenizer.add_bos() && ids.bos != text::kNoToken) tokens.push_back(ids.bos);
  Append(tokens, extra);
  Append(tokens, limits.suffix_first ? suffix : prefix);
  Append(tokens, limits.suffix_first ? prefix : suffix);
  tokens.push_back(ids.fim_middle);
  return tokens;
}

}  // namespace bloomery::serve
