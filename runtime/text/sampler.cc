#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/sampling.h"

namespace bloomery::text {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// The exponent at which a power of `base` leaves float's range: ln(FLT_MAX) = 88.72.
constexpr double kLnFloatMax = 88.72;

uint32_t ChooseSeed(uint32_t wanted) {
  return wanted == kRandomSeed ? static_cast<uint32_t>(std::random_device()()) : wanted;
}

// A computed logit as a float that is no +infinity: only a ban takes a token out of play.
float ToLogit(double value) {
  if (value < -kFloatMax) return kBanned;
  return static_cast<float>(std::min(value, kFloatMax));
}

[[noreturn]] void ThrowNothingLeft() {
  throw Error(
      ErrorKind::kBadRequest,
      "no token can be drawn: the grammar, logit_bias and the penalties together took every "
      "token out of play");
}

void CheckBest(const Candidate& best) {
  if (best.logit == std::numeric_limits<float>::infinity()) {
    throw Error(ErrorKind::kInternal,
                "the model gave an infinite logit for token " + std::to_string(best.token));
  }
}

}  // namespace

double UniformStream::Next() {
  // The upper 27 and 26 bits of two outputs make the 53 of a double.
  const auto high = static_cast<uint64_t>(engine_()) >> 5;
  const auto low = static_cast<uint64_t>(engine_()) >> 6;
  return static_cast<double>(high << 26 | low) * 0x1p-53;
}

Sampler::Sampler(SamplingParams params, Shape shape, std::shared_ptr<const DryBreakers> breakers)
    : params_(std::move(params)),
      shape_(shape),
      breakers_(std::move(breakers)),
      seed_(ChooseSeed(params_.seed)),
      uniform_(seed_),
      xtc_uniform_(seed_),
      mirostat_mu_(2.0 * params_.mirostat_tau),
      candidates_(shape.vocabulary_size) {
  const bool penalties = PenaltiesOn() && Listed(SamplerStage::kPenalties);
  const bool dry = DryOn() && Listed(SamplerStage::kDry);
  greedy_ = params_.temperature <= 0.0;
  best_needed_ = BestNeeded();
  const auto wanted = static_cast<size_t>(
      std::max(penalties ? params_.repeat_last_n : 0, dry ? params_.dry_penalty_last_n : 0));
  history_max_ = std::min(wanted, shape.context);
  history_.reserve(history_max_);
  window_.reserve(history_max_);
  touched_.reserve(history_max_);
  match_.reserve(dry ? history_max_ : 0);
  weight_.resize(history_max_ > 0 ? shape.vocabulary_size : 0);
  typicality_.reserve(shape.vocabulary_size);
  places_.reserve(shape.vocabulary_size);
  const size_t probs = std::min(static_cast<size_t>(params_.n_probs), shape.vocabulary_size);
  allowed_.reserve(best_needed_ > 0 ? limits::kBestLogits : 0);
  lowered_.reserve(best_needed_ > 0 && !params_.logit_bias.empty() ? limits::kBestLogits : 0);
  if (Listed(SamplerStage::kAdaptiveP)) adapted_.reserve(shape.vocabulary_size);
  // As if tokens of just the target had been drawn for ever.
  adaptive_weight_ = 1.0 / (1.0 - params_.adaptive_decay);
  adaptive_sum_ = params_.adaptive_target * adaptive_weight_;
  best_.reserve(params_.post_sampling_probs ? shape.vocabulary_size : 2 * probs);
  top_.reserve(probs);
}

size_t Sampler::BestNeeded() const {
  const size_t looked_at = LookedAt();
  if (looked_at == 0 || params_.logit_bias.empty()) return looked_at;
  // Biases that only lower push no more tokens out of the best than there are of them, and none
  // into them that is not among so many more.
  std::vector<TokenId> lowered;
  for (const LogitBias& entry : params_.logit_bias) {
    if (entry.token < 0 || static_cast<size_t>(entry.token) >= shape_.vocabulary_size) continue;
    if (!(entry.bias <= 0.0f)) return 0;
    lowered.push_back(entry.token);
  }
  std::sort(lowered.begin(), lowered.end());
  lowered.erase(std::unique(lowered.begin(), lowered.end()), lowered.end());
  return looked_at + lowered.size();
}

// So many of the best of a row, its biases applied, are all that a draw looks at; 0: all of it.
size_t Sampler::LookedAt() const {
  const bool raw_probabilities = params_.n_probs > 0 && !params_.post_sampling_probs;
  if (raw_probabilities || params_.mirostat != 0) return 0;
  const bool edits = (PenaltiesOn() && Listed(SamplerStage::kPenalties)) ||
                     (DryOn() && Listed(SamplerStage::kDry));
  if (edits) return 0;
  if (greedy_) return params_.n_probs == 0 ? 1 : 0;
  for (const SamplerStage stage : params_.samplers) {
    const bool off = stage == SamplerStage::kPenalties || stage == SamplerStage::kDry ||
                     (stage == SamplerStage::kTopNSigma && params_.top_n_sigma <= 0.0);
    if (off) continue;
    return stage == SamplerStage::kTopK && params_.top_k > 0 ? static_cast<size_t>(params_.top_k)
                                                             : 0;
  }
  return 0;
}

bool Sampler::Listed(SamplerStage stage) const {
  const auto& list = params_.samplers;
  return params_.mirostat == 0 && std::find(list.begin(), list.end(), stage) != list.end();
}

bool Sampler::PenaltiesOn() const {
  return params_.repeat_last_n > 0 &&
         (params_.repeat_penalty != 1.0 || params_.frequency_penalty != 0.0 ||
          params_.presence_penalty != 0.0);
}

bool Sampler::DryOn() const {
  return params_.dry_multiplier != 0.0 && params_.dry_penalty_last_n > 0;
}

void Sampler::Accept(TokenId token) {
  if (adaptive_drawn_.token == token && token != kNoToken) {
    adaptive_sum_ = adaptive_drawn_.logit + params_.adaptive_decay * adaptive_sum_;
    adaptive_weight_ = 1.0 + params_.adaptive_decay * adaptive_weight_;
  }
  adaptive_drawn_.token = kNoToken;
  if (history_max_ == 0) return;
  if (history_.size() < history_max_) {
    history_.push_back(token);
    return;
  }
  history_[history_next_] = token;
  history_next_ = (history_next_ + 1) % history_max_;
}

void Sampler::AcceptPrompt(std::span<const TokenId> tokens) {
  if (tokens.size() > history_max_) tokens = tokens.last(history_max_);
  for (const TokenId token : tokens) Accept(token);
}

// The last `tokens` of the history, newest first.
void Sampler::LoadWindow(int64_t tokens) {
  const size_t count = std::min(static_cast<size_t>(tokens), history_.size());
  window_.clear();
  for (size_t i = 1; i <= count; ++i) {
    window_.push_back(history_[(history_next_ + history_.size() - i) % history_.size()]);
  }
}

Sampled Sampler::Sample(std::span<const float> logits, GrammarState* grammar) {
  if (logits.size() != shape_.vocabulary_size) {
    throw Error(ErrorKind::kInternal, "a row of " + std::to_string(logits.size()) +
                                          " logits for a vocabulary of " +
                                          std::to_string(shape_.vocabulary_size));
  }
  CheckRow(logits);
  const double mu = mirostat_mu_;
  const Sampled sampled = Try(logits, nullptr);
  if (grammar == nullptr || grammar->Allows(sampled.token)) return sampled;
  mirostat_mu_ = mu;
  return SampleAllowed(logits, *grammar);
}

Sampled Sampler::SampleAllowed(std::span<const float> logits, GrammarState& grammar) {
  // A lazy grammar that has not begun refuses tokens one by one, as they are drawn.
  constexpr int kRefusalsMax = 64;
  for (int refusals = 0; refusals < kRefusalsMax; ++refusals) {
    const double mu = mirostat_mu_;
    const Sampled sampled = Try(logits, &grammar.Mask());
    if (grammar.Allows(sampled.token)) return sampled;
    mirostat_mu_ = mu;
  }
  ThrowNothingLeft();
}

Sampled Sampler::Try(std::span<const float> logits, const TokenMask* mask) {
  candidates_.Load(logits);
  ApplyBias();
  if (mask != nullptr) candidates_.KeepAllowed(*mask);
  Sampled sampled;
  size_t chosen = 0;
  if (greedy_) {
    sampled.token = Greedy();
  } else {
    chosen = ChainThenDraw(sampled);
  }
  if (params_.n_probs == 0) return sampled;
  if (params_.post_sampling_probs) {
    ReportSurvivors(chosen, sampled);
  } else {
    ReportRaw(logits, sampled);
  }
  return sampled;
}

size_t Sampler::ChainThenDraw(Sampled& sampled) {
  RunChain();
  const size_t chosen = Draw();
  sampled.token = candidates_.list()[chosen].token;
  return chosen;
}

Sampled Sampler::SampleBest(std::span<const Candidate> best, GrammarState* grammar) {
  assert(best_needed_ > 0);
  // The best of the row is here: what CheckRow looks for in whole rows shows in it.
  if (best.empty() || !(best.front().logit > -std::numeric_limits<float>::infinity())) {
    throw Error(ErrorKind::kInternal, "the model gave a row without a finite logit");
  }
  CheckBest(best.front());
  Sampled sampled = TryBest(best);
  if (grammar == nullptr || grammar->Allows(sampled.token)) return sampled;
  allowed_.clear();
  // One more than a chain's cut keeps: of just as many the whole row's draw makes no cut, and
  // looks at them in another order.
  const size_t wanted = best_needed_ + (greedy_ ? 0 : 1);
  for (size_t i = 0; grammar->constrains() && i < best.size(); ++i) {
    if (allowed_.size() + (best.size() - i) < wanted) break;
    if (grammar->Allows(best[i].token)) allowed_.push_back(best[i]);
    if (allowed_.size() == wanted) return TryBest(allowed_);
  }
  sampled.token = kNoToken;
  return sampled;
}

// The best of a row with its biases, best first again.
std::span<const Candidate> Sampler::Lowered(std::span<const Candidate> best) {
  lowered_.assign(best.begin(), best.end());
  for (const LogitBias& entry : params_.logit_bias) {
    for (Candidate& candidate : lowered_) {
      if (candidate.token != entry.token) continue;
      candidate.logit = ToLogit(static_cast<double>(candidate.logit) + entry.bias);
      break;
    }
  }
  std::sort(lowered_.begin(), lowered_.end(), Better);
  return lowered_;
}

Sampled Sampler::TryBest(std::span<const Candidate> best) {
  Sampled sampled;
  if (!params_.logit_bias.empty()) best = Lowered(best);
  if (greedy_) {
    if (!(best.front().logit > kBanned)) ThrowNothingLeft();
    sampled.token = best.front().token;
    return sampled;
  }
  candidates_.LoadBest(best);
  const size_t chosen = ChainThenDraw(sampled);
  if (params_.n_probs > 0) ReportSurvivors(chosen, sampled);
  return sampled;
}

void Sampler::CheckRow(std::span<const float> logits) const {
  const TokenId best = ArgMax(logits);
  if (best < 0) {
    throw Error(ErrorKind::kInternal, "the model gave a row without a finite logit");
  }
  CheckBest({logits[static_cast<size_t>(best)], best});
}

void Sampler::ApplyBias() {
  if (params_.logit_bias.empty()) return;
  const std::span<float> row = candidates_.EditRow();
  for (const LogitBias& entry : params_.logit_bias) {
    if (entry.token < 0 || static_cast<size_t>(entry.token) >= row.size()) continue;
    float& logit = row[static_cast<size_t>(entry.token)];
    logit = ToLogit(static_cast<double>(logit) + entry.bias);
  }
}

// Only what can move the argmax runs: bias (done), penalties and DRY.
TokenId Sampler::Greedy() {
  for (const SamplerStage stage : params_.samplers) {
    if (stage == SamplerStage::kPenalties || stage == SamplerStage::kDry) {
      if (Listed(stage)) RunStage(stage);
    }
  }
  if (candidates_.dense()) {
    const TokenId best = ArgMax(candidates_.row());
    if (best < 0) ThrowNothingLeft();
    return best;
  }
  candidates_.KeepBest(1);
  if (candidates_.size() == 0) ThrowNothingLeft();
  const Candidate best = candidates_.list().front();
  if (!(best.logit > kBanned)) ThrowNothingLeft();
  return best.token;
}

void Sampler::RunChain() {
  if (params_.mirostat == 0) {
    for (const SamplerStage stage : params_.samplers) RunStage(stage);
    return;
  }
  Temperature();
  if (params_.mirostat == 1) {
    Mirostat1();
  } else {
    Mirostat2();
  }
}

void Sampler::RunStage(SamplerStage stage) {
  struct Row {
    SamplerStage stage;
    void (Sampler::*run)();
  };
  if (stage == SamplerStage::kAdaptiveP) return;  // Draw looks at it
  static constexpr std::array<Row, 9> kStages = {
      {{SamplerStage::kPenalties, &Sampler::Penalties},
       {SamplerStage::kDry, &Sampler::Dry},
       {SamplerStage::kTopNSigma, &Sampler::TopNSigma},
       {SamplerStage::kTopK, &Sampler::TopK},
       {SamplerStage::kTypicalP, &Sampler::TypicalP},
       {SamplerStage::kTopP, &Sampler::TopP},
       {SamplerStage::kMinP, &Sampler::MinP},
       {SamplerStage::kXtc, &Sampler::Xtc},
       {SamplerStage::kTemperature, &Sampler::Temperature}}};
  for (const Row& row : kStages) {
    if (row.stage == stage) return (this->*row.run)();
  }
}

// Gives the logit of each token of touched_ as `edit(logit, weight of the token)`, and leaves the
// scratch as the next stage wants it.
template <class Edit>
void Sampler::ChangeTouched(Edit edit) {
  candidates_.ChangeLogits(
      touched_, [this](TokenId token) { return weight_[static_cast<size_t>(token)] != 0; },
      [&](TokenId token, float logit) {
        return ToLogit(edit(logit, weight_[static_cast<size_t>(token)]));
      });
  for (const TokenId token : touched_) weight_[static_cast<size_t>(token)] = 0;
  touched_.clear();
}

void Sampler::Penalties() {
  if (!PenaltiesOn()) return;
  LoadWindow(params_.repeat_last_n);
  for (const TokenId token : window_) {
    if (token < 0 || static_cast<size_t>(token) >= weight_.size()) continue;
    if (weight_[static_cast<size_t>(token)]++ == 0) touched_.push_back(token);
  }
  ChangeTouched([this](float logit, int32_t count) {
    const double repeat = params_.repeat_penalty;
    const double scaled = logit <= 0.0f ? logit * repeat : logit / repeat;
    return scaled - count * params_.frequency_penalty - params_.presence_penalty;
  });
}

// How many of the newest tokens a repetition may reach over: up to the newest breaker.
size_t Sampler::DryReach() const {
  if (!breakers_) return window_.size();
  for (size_t at = 0; at < window_.size(); ++at) {
    const int64_t tail = breakers_->TailLength(window_, at);
    if (tail >= 0) return at - static_cast<size_t>(tail);
  }
  return window_.size();
}

// match_[j]: how many tokens back from place j equal those back from the newest (the Z function of
// the window, newest first), at most `reach`.
void Sampler::DryMatches(size_t reach) {
  const size_t count = window_.size();
  match_.assign(count, 0);
  size_t left = 0;
  size_t right = 0;  // [left, right) is the match that ends furthest
  for (size_t j = 1; j < count; ++j) {
    size_t length = j < right ? std::min(right - j, match_[j - left]) : 0;
    while (j + length < count && window_[length] == window_[j + length]) ++length;
    match_[j] = length;
    if (j + length > right) {
      left = j;
      right = j + length;
    }
  }
  for (size_t& length : match_) length = std::min(length, reach);
}

void Sampler::Dry() {
  if (!DryOn()) return;
  LoadWindow(params_.dry_penalty_last_n);
  const auto allowed = static_cast<size_t>(params_.dry_allowed_length);
  if (window_.size() <= allowed) return;
  const size_t reach = DryReach();
  if (reach < allowed) return;
  DryMatches(reach);
  for (size_t j = 1; j < window_.size(); ++j) {
    const TokenId followed = window_[j - 1];
    if (match_[j] < allowed || followed < 0) continue;
    if (static_cast<size_t>(followed) >= weight_.size()) continue;
    if (breakers_ && breakers_->IsBreaker(followed)) continue;
    int32_t& weight = weight_[static_cast<size_t>(followed)];
    if (weight == 0) touched_.push_back(followed);
    weight = std::max(weight, static_cast<int32_t>(match_[j]) + 1);
  }
  const double ln_base = std::log(params_.dry_base);
  const double exponent_max = ln_base > 1e-6 ? std::floor(kLnFloatMax / ln_base) : kFloatMax;
  ChangeTouched([&](float logit, int32_t weight) {
    const double length = weight - 1;
    const double exponent = std::min(length - static_cast<double>(allowed), exponent_max);
    return logit - params_.dry_multiplier * std::pow(params_.dry_base, exponent);
  });
}

void Sampler::TopNSigma() {
  if (params_.top_n_sigma <= 0.0 || candidates_.size() <= 1) return;
  if (!candidates_.dense()) candidates_.Settle();
  double count = 0.0;
  double sum = 0.0;
  candidates_.ForEachLogit([&](float logit) {
    count += 1.0;
    sum += logit;
  });
  const double mean = sum / count;
  double squares = 0.0;
  candidates_.ForEachLogit([&](float logit) { squares += (logit - mean) * (logit - mean); });
  const double sigma = std::sqrt(squares / count);
  candidates_.KeepAbove(candidates_.MaxLogit() - params_.top_n_sigma * sigma);
}

void Sampler::TopK() {
  if (params_.top_k > 0) candidates_.KeepBest(static_cast<size_t>(params_.top_k));
}

void Sampler::TypicalP() {
  if (params_.typical_p >= 1.0) return;
  candidates_.MakeList();
  const std::span<const double> weights = candidates_.Weights();
  const double sum = candidates_.WeightSum();
  double entropy = 0.0;
  for (const double weight : weights) {
    const double p = weight / sum;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  typicality_.clear();
  for (size_t place = 0; place < weights.size(); ++place) {
    const double surprise = -std::log(weights[place] / sum);
    typicality_.emplace_back(std::abs(surprise - entropy), place);
  }
  std::sort(typicality_.begin(), typicality_.end());
  places_.clear();
  double mass = 0.0;
  for (const auto& [distance, place] : typicality_) {
    places_.push_back(place);
    mass += weights[place] / sum;
    if (mass > params_.typical_p && places_.size() >= static_cast<size_t>(params_.min_keep)) break;
  }
  std::sort(places_.begin(), places_.end());
  candidates_.KeepPlaces(places_);
}

void Sampler::TopP() {
  if (params_.top_p >= 1.0) return;
  candidates_.MakeList();
  candidates_.Weights();
  const double sum = candidates_.WeightSum();
  const double highest = candidates_.MaxLogit();
  const size_t size = candidates_.size();
  double mass = 0.0;
  size_t sorted = 0;
  for (size_t i = 0; i < size; ++i) {
    if (i == sorted) {
      sorted = std::min(size, std::max<size_t>(256, 2 * sorted));  // most rows need few
      candidates_.SortFirst(sorted);
    }
    mass += std::exp(candidates_.list()[i].logit - highest) / sum;
    if (mass >= params_.top_p && i + 1 >= static_cast<size_t>(params_.min_keep)) {
      candidates_.KeepBest(i + 1);
      return;
    }
  }
}

void Sampler::MinP() {
  if (params_.min_p <= 0.0) return;
  const double floor = candidates_.MaxLogit() + std::log(params_.min_p);
  size_t above = 0;
  candidates_.ForEachLogit([&](float logit) { above += logit >= floor ? 1 : 0; });
  const auto least = static_cast<size_t>(std::max<int64_t>(params_.min_keep, 1));
  if (above >= least) {
    candidates_.KeepAbove(floor);
  } else {
    candidates_.KeepBest(least);
  }
}

void Sampler::Xtc() {
  if (params_.xtc_probability <= 0.0 || params_.xtc_threshold > 0.5) return;
  const bool exclude = xtc_uniform_.Next() < params_.xtc_probability;
  if (!exclude || candidates_.size() < 2) return;
  candidates_.MakeList();
  candidates_.Weights();
  const double sum = candidates_.WeightSum();
  candidates_.SortFirst(kAll);
  const std::span<const Candidate> list = candidates_.list();
  const double highest = candidates_.MaxLogit();
  size_t probable = 0;
  while (probable < list.size() &&
         std::exp(list[probable].logit - highest) / sum >= params_.xtc_threshold) {
    ++probable;
  }
  if (probable < 2) return;
  // All probable tokens but the last of them go.
  const size_t last = probable - 1;
  if (list.size() - last >= static_cast<size_t>(params_.min_keep)) candidates_.DropFirst(last);
}

double Sampler::DynamicTemperature() {
  const double low = std::max(0.0, params_.temperature - params_.dynatemp_range);
  const double high = params_.temperature + params_.dynatemp_range;
  const std::span<const double> weights = candidates_.Weights();
  const double sum = candidates_.WeightSum();
  double entropy = 0.0;
  for (const double weight : weights) {
    const double p = weight / sum;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  const double share = entropy / std::log(static_cast<double>(weights.size()));
  return low + (high - low) * std::pow(share, params_.dynatemp_exponent);
}

void Sampler::Temperature() {
  candidates_.MakeList();
  if (candidates_.size() <= 1) return;
  const bool dynamic = params_.dynatemp_range > 0.0 && params_.mirostat == 0;
  const double temperature = dynamic ? DynamicTemperature() : params_.temperature;
  // Also where dividing would leave float's range: the limit of small temperatures is the best.
  double largest = 0.0;
  candidates_.ForEachLogit(
      [&](float logit) { largest = std::max(largest, std::abs(double{logit})); });
  if (!(temperature > 0.0) || largest / temperature > kFloatMax) {
    candidates_.KeepBest(1);
  } else {
    candidates_.Divide(temperature);
  }
}

// Mirostat 1 (Basu et al. 2020): estimates the exponent s of a Zipf law from the ratios of the most
// probable tokens, and from it the top-k whose surprise is mu.
void Sampler::Mirostat1() {
  constexpr size_t kRatios = 100;
  candidates_.MakeList();
  candidates_.SortFirst(kAll);
  const std::span<const Candidate> list = candidates_.list();
  double products = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i + 1 < std::min(kRatios, list.size()); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = double{list[i].logit} - double{list[i + 1].logit};  // ln of the ratio
    products += t * b;
    squares += t * t;
  }
  if (squares == 0.0) return;
  const double s = products / squares;
  const double epsilon = s - 1.0;
  const double vocabulary = static_cast<double>(shape_.vocabulary_size);
  const double k =
      std::pow(epsilon * std::exp2(mirostat_mu_) / (1.0 - std::pow(vocabulary, -epsilon)), 1.0 / s);
  // Not a number where s is 1 or 0: no cut. Beyond the list: no cut either.
  if (k < static_cast<double>(list.size())) {
    candidates_.KeepBest(static_cast<size_t>(std::max(1.0, k)));
  }
}

// Mirostat 2: cuts every token more surprising than mu.
void Sampler::Mirostat2() {
  candidates_.MakeList();
  candidates_.Weights();
  // -log2(e^(logit - highest) / sum) <= mu, solved for the logit.
  const double floor =
      candidates_.MaxLogit() + std::log(candidates_.WeightSum()) - mirostat_mu_ * std::numbers::ln2;
  if (floor <= candidates_.MaxLogit()) {
    candidates_.KeepAbove(floor);
  } else {
    candidates_.KeepBest(1);
  }
}

// The place of the drawn token in the settled list: the first whose running sum reaches u times the
// whole.
size_t Sampler::Draw() {
  candidates_.MakeList();
  const double uniform = uniform_.Next();
  if (candidates_.size() == 0) ThrowNothingLeft();
  std::span<const double> weights = candidates_.Weights();
  double sum = candidates_.WeightSum();
  const bool adaptive = params_.adaptive_target >= 0.0 && Listed(SamplerStage::kAdaptiveP);
  if (adaptive) {
    Adapt();
    weights = adapted_;
    sum = 0.0;
    for (const double weight : weights) sum += weight;
  }
  const double target = uniform * sum;
  size_t chosen = 0;
  double running = 0.0;
  for (size_t place = 0; place < weights.size(); ++place) {
    if (weights[place] <= 0.0) continue;
    chosen = place;
    running += weights[place];
    if (running >= target) break;
  }
  if (adaptive) {
    const double probability = candidates_.Weights()[chosen] / candidates_.WeightSum();
    adaptive_drawn_ = {static_cast<float>(probability), candidates_.list()[chosen].token};
  }
  if (params_.mirostat != 0) {
    const double surprise = -std::log2(weights[chosen] / candidates_.WeightSum());
    mirostat_mu_ -= params_.mirostat_eta * (surprise - params_.mirostat_tau);
  }
  return chosen;
}

// adapted_: weights that are highest for tokens whose probability is near the target, the target
// moved to where the average of the tokens so far comes back to it. The shape (a peak of 5, falling
// with the distance d in units of 0.3 as 10 d^2 / (1 + d)) is llama-server's.
void Sampler::Adapt() {
  constexpr double kPeak = 5.0;
  constexpr double kSharpness = 10.0;
  constexpr double kWidth = 0.3;
  const std::span<const double> weights = candidates_.Weights();
  const double sum = candidates_.WeightSum();
  const double average = adaptive_sum_ / adaptive_weight_;
  const double target = std::clamp(2.0 * params_.adaptive_target - average, 0.0, 1.0);
  adapted_.clear();
  for (const double weight : weights) {
    const double distance = std::abs(weight / sum - target) / kWidth;
    adapted_.push_back(std::exp(kPeak - kSharpness * distance * distance / (1.0 + distance)));
  }
}

// Log-probabilities over the whole vocabulary, before bias and chain.
void Sampler::ReportRaw(std::span<const float> logits, Sampled& sampled) {
  const double highest = logits[static_cast<size_t>(ArgMax(logits))];
  double sum = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id])) {
      throw Error(ErrorKind::kInternal,
                  "the model's row has no distribution: token " + std::to_string(id) + " is NaN");
    }
    sum += std::exp(logits[id] - highest);
  }
  const double normaliser = highest + std::log(sum);
  sampled.value = logits[static_cast<size_t>(sampled.token)] - normaliser;
  SelectBest(logits, std::min(static_cast<size_t>(params_.n_probs), logits.size()), best_);
  top_.clear();
  for (const Candidate& candidate : best_) {
    top_.push_back({candidate.token, candidate.logit - normaliser});
  }
  sampled.top = top_;
}

// Probabilities of what the chain left, without those that are zero.
void Sampler::ReportSurvivors(size_t chosen, Sampled& sampled) {
  top_.clear();
  if (greedy_) {
    sampled.value = 1.0;
    top_.push_back({sampled.token, 1.0});
    sampled.top = top_;
    return;
  }
  const std::span<const double> weights = candidates_.Weights();
  const double sum = candidates_.WeightSum();
  sampled.value = weights[chosen] / sum;
  const double highest = candidates_.MaxLogit();
  best_.assign(candidates_.list().begin(), candidates_.list().end());
  const size_t count = std::min(static_cast<size_t>(params_.n_probs), best_.size());
  std::partial_sort(best_.begin(), best_.begin() + static_cast<ptrdiff_t>(count), best_.end(),
                    Better);
  for (size_t i = 0; i < count; ++i) {
    const double p = std::exp(best_[i].logit - highest) / sum;
    if (p > 0.0) top_.push_back({best_[i].token, p});
  }
  sampled.top = top_;
}

}  // namespace bloomery::text
