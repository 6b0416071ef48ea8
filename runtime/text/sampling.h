// Sampling: from a row of logits to a token. SamplingParams holds a request's settings as
// docs/serving.md lists them; a Sampler runs them for one sequence. A Sampler owns its random
// streams, its history and its buffers, and is used by one thread at a time; a copy draws the same
// tokens from here on. The same parameters, seed and logits give the same tokens on every machine.
// All buffers are made at construction: Sample and Accept allocate nothing (a copy's buffers grow
// on its first draws).
//
//   text::SamplingParams params;  params.seed = 42;
//   params.Validate();
//   text::Sampler sampler(params, {.vocabulary_size = 151936, .context = 4096});
//   sampler.AcceptPrompt(prompt_ids);
//   int32_t token = sampler.Sample(logits).token;  sampler.Accept(token);
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/candidates.h"
#include "runtime/text/grammar/grammar.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::text {

class Tokenizer;

// One stage of the chain. The order of a request's list is the order they run in.
enum class SamplerStage {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
  kAdaptiveP,  // takes the place of the draw, wherever it is listed
};

// Canonical name of a stage ("typ_p"), as /props and generation_settings show it.
std::string_view SamplerStageName(SamplerStage stage);

struct SamplerList {
  std::vector<SamplerStage> stages;
  std::vector<std::string> unknown;  // names nobody knows: skipped, for the caller to log
};

// The `samplers` field as an array of names (also kebab-case, without underscore, and the aliases
// nucleus, temp, typ, typical) or as a string of letters. Throws Error(kBadRequest, "Field
// 'samplers': …") for a sampler that is known but not offered here (infill), and above
// limits::kSamplersMax entries.
SamplerList ParseSamplerNames(std::span<const std::string> names);
SamplerList ParseSamplerLetters(std::string_view letters);

inline constexpr uint32_t kRandomSeed = 0xFFFFFFFFu;  // the field's -1: a new seed for the request

struct LogitBias {
  TokenId token;
  float bias;  // -infinity bans; +infinity is refused
};

// Field names, defaults and meaning: docs/serving.md. Doubles, so that what a client sent is what
// generation_settings shows.
struct SamplingParams {
  double temperature = 0.8;  // 0: argmax after bias, penalties and DRY
  double dynatemp_range = 0.0;
  double dynatemp_exponent = 1.0;
  int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double typical_p = 1.0;
  double top_n_sigma = -1.0;
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double repeat_penalty = 1.0;
  int64_t repeat_last_n = 64;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double dry_multiplier = 0.0;
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = 64;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  int64_t mirostat = 0;
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  double adaptive_target = -1.0;  // below 0: adaptive_p draws as the chain does without it
  double adaptive_decay = 0.9;
  uint32_t seed = kRandomSeed;
  int64_t n_probs = 0;
  bool post_sampling_probs = false;
  int64_t min_keep = 0;
  bool ignore_eos = false;
  std::vector<LogitBias> logit_bias;  // ids outside the vocabulary are ignored
  std::vector<SamplerStage> samplers = {
      SamplerStage::kPenalties, SamplerStage::kDry,      SamplerStage::kTopNSigma,
      SamplerStage::kTopK,      SamplerStage::kTypicalP, SamplerStage::kTopP,
      SamplerStage::kMinP,      SamplerStage::kXtc,      SamplerStage::kTemperature};

  // Pulls clamped fields into their range and throws Error(kBadRequest, "Field '<name>': …") for
  // the first field outside a hard range. A Sampler expects validated parameters.
  void Validate();

  // With ignore_eos: appends a ban of every end-of-generation token to logit_bias, which is where
  // generation_settings shows it. Otherwise nothing.
  void BanEog(std::span<const TokenId> eog);
};

// Where DRY must not look across: for each breaker string, the tokens that contain it, and the
// tokens whose end begins it followed by the tokens of the rest. Immutable; share one among
// sequences with the same strings. Building scans the vocabulary (some milliseconds), so make it
// only when params.dry_multiplier is not 0.
class DryBreakers {
 public:
  DryBreakers() = default;  // none
  DryBreakers(const Tokenizer& tokenizer, std::span<const std::string> strings);

  // Tokens that complete a breaker by themselves.
  bool IsBreaker(TokenId token) const;

  // `newest_first[at]` begins a breaker that is complete within newest_first[0..at]: the number of
  // tokens after it of the longest such, else -1.
  int64_t TailLength(std::span<const TokenId> newest_first, size_t at) const;

 private:
  struct Sequence {
    TokenId head;
    std::vector<TokenId> tail;
    auto operator<=>(const Sequence&) const = default;
  };
  std::vector<Sequence> sequences_;  // ascending by head, then tail
};

// A uniform stream in [0, 1) with 53 random bits a draw: mt19937, two outputs a draw, the same on
// every platform.
class UniformStream {
 public:
  explicit UniformStream(uint32_t seed) : engine_(seed) {}
  double Next();

 private:
  std::mt19937 engine_;
};

struct TokenProbability {
  TokenId token;
  double value;  // natural log of the probability; with post_sampling_probs the probability
};

// A drawn token, and with n_probs > 0 its value and the alternatives, best first, ties to the lower
// id. `top` is valid until the Sampler's next call.
struct Sampled {
  TokenId token = kNoToken;
  double value = 0.0;
  std::span<const TokenProbability> top;
};

class Sampler {
 public:
  struct Shape {
    size_t vocabulary_size = 0;
    size_t context = 0;  // tokens a sequence can hold: bounds the history kept
  };

  // `params` must be validated. A random seed is drawn here. `breakers` may be null (no breakers).
  Sampler(SamplingParams params, Shape shape,
          std::shared_ptr<const DryBreakers> breakers = nullptr);

  // Draws from one row, `logits[vocabulary_size]`, which is not changed. Consumes one uniform of
  // the main stream unless greedy (and one of XTC's own where XTC is on). Throws Error(kInternal)
  // for a row without a distribution (+infinity, nothing above -infinity; NaN where probabilities
  // are asked) and Error(kBadRequest) when the biases left no token.
  // With a grammar, a token that it does not allow is drawn again, from the allowed ones alone and
  // through the whole chain; Error(kBadRequest) where there are none. The grammar's own Accept is
  // the caller's.
  Sampled Sample(std::span<const float> logits, GrammarState* grammar = nullptr);
  // Only the second draw: after a SampleBest that gave no token.
  Sampled SampleAllowed(std::span<const float> logits, GrammarState& grammar);

  // Adds a token to the history that penalties and DRY look at: the prompt first, then what Sample
  // gave (or what was forced instead of it).
  void Accept(TokenId token);
  void AcceptPrompt(std::span<const TokenId> tokens);

  // So many of a row's best logits are all that a draw looks at: the argmax of a greedy choice, the
  // first cut of a chain that begins with top-k, and as many more as biases lower. 0: a draw needs
  // the whole row.
  size_t best_needed() const { return best_needed_; }
  // As Sample, from the best of a row: at least best_needed() of them (or all there are), best
  // first with ties to the lower id. The same token as from the whole row. Where the grammar
  // refuses it and allows too few of the best to draw again, the token is kNoToken: SampleAllowed
  // then gives it, from the whole row.
  Sampled SampleBest(std::span<const Candidate> best, GrammarState* grammar = nullptr);

  uint32_t seed() const { return seed_; }  // the one in use, also where the request said random

 private:
  void CheckRow(std::span<const float> logits) const;
  size_t BestNeeded() const;
  size_t LookedAt() const;
  std::span<const Candidate> Lowered(std::span<const Candidate> best);
  Sampled Try(std::span<const float> logits, const TokenMask* mask);
  Sampled TryBest(std::span<const Candidate> best);
  size_t ChainThenDraw(Sampled& sampled);
  void ApplyBias();
  void RunChain();
  void RunStage(SamplerStage stage);
  void Penalties();
  void Dry();
  void DryMatches(size_t reach);
  size_t DryReach() const;
  template <class Edit>
  void ChangeTouched(Edit edit);
  void TopNSigma();
  void TopK();
  void TypicalP();
  void TopP();
  void MinP();
  void Xtc();
  void Temperature();
  double DynamicTemperature();
  void Mirostat1();
  void Mirostat2();
  size_t Draw();
  void Adapt();
  TokenId Greedy();
  void ReportRaw(std::span<const float> logits, Sampled& sampled);
  void ReportSurvivors(size_t chosen, Sampled& sampled);

  void LoadWindow(int64_t tokens);
  bool PenaltiesOn() const;
  bool DryOn() const;
  bool Listed(SamplerStage stage) const;

  SamplingParams params_;
  Shape shape_;
  std::shared_ptr<const DryBreakers> breakers_;
  uint32_t seed_;
  UniformStream uniform_;
  UniformStream xtc_uniform_;
  double mirostat_mu_;
  // Of adaptive_p: the probabilities of the tokens so far, weighted less the older they are.
  double adaptive_sum_ = 0.0;
  double adaptive_weight_ = 0.0;
  Candidate adaptive_drawn_{0.0f, kNoToken};  // the newest draw, its probability as the logit
  bool greedy_;
  size_t best_needed_ = 0;

  // The last tokens accepted: a ring, the oldest at history_next_ once it is full.
  std::vector<TokenId> history_;
  size_t history_max_;
  size_t history_next_ = 0;

  Candidates candidates_;
  // Scratch of single stages, empty or zero between them.
  std::vector<TokenId> window_;   // the newest tokens, newest first
  std::vector<TokenId> touched_;  // the distinct ones whose weight_ is not 0
  std::vector<int32_t> weight_;   // by token: a count, or a match's length + 1
  std::vector<size_t> match_;
  std::vector<std::pair<double, size_t>> typicality_;
  std::vector<size_t> places_;
  std::vector<Candidate> best_;
  std::vector<Candidate> allowed_;
  std::vector<Candidate> lowered_;  // the best of a row with its biases
  std::vector<double> adapted_;
  std::vector<TokenProbability> top_;
};

}  // namespace bloomery::text
