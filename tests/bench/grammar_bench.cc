// What constrained output costs a token: a vocabulary of 151,936 tokens with the lengths and
// letters of real ones, JSON and a schema, from the cold mask to the step of a token that fits.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/grammar/json_schema.h"
#include "runtime/text/sampling.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::text {
namespace {

constexpr size_t kTokens = 151'936;

// All bytes, then words with and without a blank before them, marks, digits, and characters of two
// and three bytes, whole and cut, in about the shares of public vocabularies.
VocabularyData Vocabulary() {
  VocabularyData data;
  data.pre = "qwen2";
  const auto spell = [](std::string_view bytes) {
    std::string out;
    for (const char c : bytes) AppendUtf8(SpellByte(static_cast<uint8_t>(c)), out);
    return out;
  };
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(spell(std::string(1, static_cast<char>(byte))));
  }
  std::unordered_set<std::string> seen(data.tokens.begin(), data.tokens.end());
  std::mt19937 engine(1);
  const auto random = [&engine] { return static_cast<uint32_t>(engine()); };
  static constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";
  static constexpr std::string_view kMarks = "\"\\{}[]():;,.<>/=+-*_#!?'\n\t ";
  while (data.tokens.size() + 1 < kTokens) {
    std::string text;
    const uint32_t kind = random() % 100;
    const uint32_t length = 2 + (random() % 4 + random() % 4 + random() % 5);
    if (kind < 70) {
      if (random() % 2 == 0) text += ' ';
      for (uint32_t i = 0; i < length; ++i) {
        text += kLetters[(random() % 26) * (random() % 26) / 26];
      }
      if (random() % 4 == 0) text[text[0] == ' ' ? 1 : 0] ^= 0x20;
    } else if (kind < 80) {
      for (uint32_t i = 0; i < 2 + length % 3; ++i) text += kMarks[random() % kMarks.size()];
    } else {
      for (uint32_t i = 0; i < 1 + length % 3; ++i) {
        const char32_t base = kind < 90 ? 0x4E00 + random() % 0x5000 : 0x400 + random() % 0x300;
        AppendUtf8(base, text);
      }
      if (random() % 5 == 0) text.pop_back();
    }
    std::string spelled = spell(text);
    if (seen.insert(spelled).second) data.tokens.push_back(std::move(spelled));
  }
  data.token_types.assign(data.tokens.size(), static_cast<int32_t>(TokenType::kNormal));
  data.tokens.emplace_back("<|im_end|>");
  data.token_types.push_back(static_cast<int32_t>(TokenType::kControl));
  data.ids.eos = static_cast<TokenId>(data.tokens.size() - 1);
  return data;
}

const Tokenizer& TheTokenizer() {
  static const Tokenizer tokenizer{Vocabulary()};
  return tokenizer;
}

GrammarCompiler& TheCompiler() {
  static GrammarCompiler compiler(TheTokenizer());
  return compiler;
}

constexpr const char* kDocument =
    R"({"name": "a person of some kind", "age": 41, "tags": ["one", "two", "three"], "address": {"street": "somewhere 12", "lines": [{"a": 1.5}, {"b": null}]}, "note": "text \n with an escape and much else that goes on for a while, as notes do"})";

// The document as tokens, the longest that fits first.
std::vector<TokenId> Tokens(std::string_view text) {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    for (size_t length = std::min<size_t>(text.size(), 16); length > 0; --length) {
      const TokenId id = TheTokenizer().Find(text.substr(0, length));
      if (id == kNoToken) continue;
      ids.push_back(id);
      text.remove_prefix(length);
      break;
    }
  }
  return ids;
}

std::string WithSalt(const std::string& gbnf, int64_t salt) {
  return gbnf + "# " + std::to_string(salt) + "\n";
}

void CompileJson(benchmark::State& state) {
  const std::string gbnf = JsonSchemaToGbnf("{}");
  TheCompiler().FromGbnf(gbnf);
  int64_t salt = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(TheCompiler().FromGbnf(WithSalt(gbnf, ++salt)));
  }
}
BENCHMARK(CompileJson)->Unit(benchmark::kMicrosecond);

// The mask where a new grammar meets a place for the first time.
void ColdMask(benchmark::State& state, const char* before) {
  const std::string gbnf = JsonSchemaToGbnf("{}");
  int64_t salt = 1'000'000;
  size_t allowed = 0;
  for (auto _ : state) {
    state.PauseTiming();
    GrammarState place(TheCompiler().FromGbnf(WithSalt(gbnf, ++salt)));
    place.AcceptText(before);
    state.ResumeTiming();
    allowed = place.Mask().allowed;
  }
  state.counters["allowed"] = static_cast<double>(allowed);
}
BENCHMARK_CAPTURE(ColdMask, begin, "")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ColdMask, in_a_string, "{\"a\": \"")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ColdMask, before_a_value, "{\"a\":")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ColdMask, in_a_number, "{\"a\":12")->Unit(benchmark::kMicrosecond);

void WarmMask(benchmark::State& state) {
  GrammarState place(TheCompiler().FromJsonSchema("{}"));
  place.AcceptText("{\"a\": \"");
  for (auto _ : state) benchmark::DoNotOptimize(place.Mask().allowed);
}
BENCHMARK(WarmMask)->Unit(benchmark::kNanosecond);

// A token that fits is only tested and taken: the usual case.
void TokenThatFits(benchmark::State& state) {
  const auto grammar = TheCompiler().FromJsonSchema("{}");
  const std::vector<TokenId> ids = Tokens(kDocument);
  for (auto _ : state) {
    GrammarState place(grammar);
    for (const TokenId id : ids) {
      if (!place.Allows(id) || !place.Accept(id)) state.SkipWithError("refused");
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}
BENCHMARK(TokenThatFits)->Unit(benchmark::kMicrosecond);

// A whole document over rows of noise whose best token is the document's three times of four, and
// one the grammar refuses at the fourth: drawing with a grammar beside drawing without.
void Draws(benchmark::State& state, bool constrained) {
  const auto grammar = TheCompiler().FromJsonSchema("{}");
  const std::vector<TokenId> ids = Tokens(kDocument);
  SamplingParams params;
  params.temperature = 0;
  params.Validate();
  std::vector<float> row(TheTokenizer().size());
  UniformStream uniform(3);
  for (float& logit : row) logit = static_cast<float>(uniform.Next());
  const TokenId refused = TheTokenizer().Find("}") == kNoToken ? 0 : TheTokenizer().Find("\x01");
  Sampler sampler(params, {.vocabulary_size = row.size(), .context = 4096});
  for (auto _ : state) {
    GrammarState place(grammar);
    size_t n = 0;
    for (const TokenId id : ids) {
      row[static_cast<size_t>(id)] += 5.0f;
      if (++n % 4 == 0) row[static_cast<size_t>(refused)] += 9.0f;
      const TokenId token = sampler.Sample(row, constrained ? &place : nullptr).token;
      if (constrained && (token != id || !place.Accept(token)))
        state.SkipWithError("another token");
      if (n % 4 == 0) row[static_cast<size_t>(refused)] -= 9.0f;
      row[static_cast<size_t>(id)] -= 5.0f;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}
BENCHMARK_CAPTURE(Draws, free, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Draws, constrained, true)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace bloomery::text
