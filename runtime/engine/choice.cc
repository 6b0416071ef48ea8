#include "runtime/engine/choice.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace bloomery::engine {
namespace {

double Milliseconds(Clock::Duration duration) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(duration).count());
}

// A probability of 0 has no finite logarithm; the lowest float stands for it, as in
// llama-server.
double Finite(double value) {
  return std::isfinite(value) ? value : static_cast<double>(std::numeric_limits<float>::lowest());
}

text::SamplingParams ParamsOfChoice(const text::SamplingParams& params, int32_t index) {
  text::SamplingParams own = params;
  own.seed += static_cast<uint32_t>(index);
  if (own.seed == text::kRandomSeed) own.seed = 0;  // the sum must not ask for a random one
  return own;
}

}  // namespace

size_t IndentGuard::Allowed(std::string_view text) {
  if (violated_) return 0;
  if (blanks_min_ <= 0) return text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      in_indent_ = true;
      blanks_ = 0;
    } else if (in_indent_ && (c == ' ' || c == '\t')) {
      ++blanks_;
    } else if (in_indent_) {
      in_indent_ = false;
      violated_ = blanks_ < blanks_min_;
      if (violated_) return i;
    }
  }
  return text.size();
}

Choice::Choice(const text::Tokenizer& tokenizer, Setup setup,
               std::shared_ptr<const text::DryBreakers> breakers)
    : tokenizer_(&tokenizer),
      request_(std::move(setup.request)),
      index_(setup.index),
      n_predict_(setup.n_predict),
      context_(setup.context),
      sampler_(ParamsOfChoice(request_->sampling, setup.index),
               {.vocabulary_size = tokenizer.size(), .context = static_cast<size_t>(setup.context)},
               std::move(breakers)),
      detokenizer_(tokenizer),
      stops_(request_->stop),
      indent_(request_->n_indent),
      reasoning_(request_->reasoning) {
  sampler_.AcceptPrompt(request_->prompt);
  if (request_->grammar) grammar_.emplace(request_->grammar);
}

void Choice::Start(int32_t id_slot, const PromptStats& prompt) {
  assert(id_slot_ < 0 && "a choice starts once");
  id_slot_ = id_slot;
  prompt_ = prompt;
  if (n_predict_ == 0) stop_type_ = StopType::kLimit;
}

void Choice::Step(std::span<const float> logits, Clock::TimePoint now) {
  assert(id_slot_ >= 0 && !ended());
  const auto forced = reasoning_.Forced();
  Take(forced ? Certain(*forced) : sampler_.Sample(logits, grammar()), now);
}

bool Choice::StepBest(std::span<const text::Candidate> best, Clock::TimePoint now) {
  assert(id_slot_ >= 0 && !ended());
  const auto forced = reasoning_.Forced();
  const text::Sampled sampled = forced ? Certain(*forced) : sampler_.SampleBest(best, grammar());
  if (sampled.token == text::kNoToken) return false;
  Take(sampled, now);
  return true;
}

void Choice::StepAllowed(std::span<const float> logits, Clock::TimePoint now) {
  assert(id_slot_ >= 0 && !ended() && grammar_);
  Take(sampler_.SampleAllowed(logits, *grammar_), now);
}

// A token that no draw decided, as certain as it can be.
text::Sampled Choice::Certain(text::TokenId token) const {
  return {.token = token, .value = request_->sampling.post_sampling_probs ? 1.0 : 0.0, .top = {}};
}

void Choice::Take(const text::Sampled& sampled, Clock::TimePoint now) {
  AddToken(sampled);
  sampler_.Accept(sampled.token);
  // What closes a span of thinking may be no part of a grammar that knows nothing of thinking: it
  // then goes on behind it.
  const bool forced = reasoning_.Forced() == sampled.token;
  if (grammar_ && !grammar_->Accept(sampled.token) && !forced) {
    throw Error(ErrorKind::kInternal, "a token was drawn that the grammar does not allow");
  }
  reasoning_.Accept(tokenizer_->Piece(sampled.token, text::SpecialText::kShown));
  last_token_at_ = now;
  if (predicted_ == 1) first_token_at_ = now;
  Release(stops_.Next(detokenizer_.Next(Piece(last_token_))));
  stop_type_ = DecideStop(now);
  if (ended()) Flush();
}

std::string_view Choice::Piece(text::TokenId token) const {
  const bool shown =
      request_->show_special ||
      std::ranges::find(request_->preserved_tokens, token) != request_->preserved_tokens.end();
  return tokenizer_->Piece(token, shown ? text::SpecialText::kShown : text::SpecialText::kHidden);
}

void Choice::AddToken(const text::Sampled& sampled) {
  last_token_ = sampled.token;
  ++predicted_;
  pending_tokens_.push_back(sampled.token);
  newest_has_new_line_ = false;
  if (request_->sampling.n_probs <= 0) return;
  TokenProbabilities& entry = pending_probabilities_.emplace_back();
  entry.token = sampled.token;
  entry.value = Finite(sampled.value);
  entry.top.reserve(sampled.top.size());
  for (const text::TokenProbability& alternative : sampled.top) {
    entry.top.push_back(
        {.token = alternative.token,
         .text = std::string(tokenizer_->Piece(alternative.token, text::SpecialText::kShown)),
         .value = Finite(alternative.value)});
  }
}

void Choice::Release(std::string_view text) {
  text = text.substr(0, indent_.Allowed(text));
  pending_text_ += text;
  newest_has_new_line_ = newest_has_new_line_ || text.find('\n') != std::string_view::npos;
  has_new_line_ = has_new_line_ || newest_has_new_line_;
  if (!pending_probabilities_.empty()) pending_probabilities_.back().text += text;
}

// What was held for a character or a stop string that never came.
void Choice::Flush() {
  if (stops_.found()) return;
  Release(stops_.Next(detokenizer_.Finish()));
  if (!stops_.found()) Release(stops_.Finish());
}

// In this order, and a later reason stands in place of an earlier one, except that a budget that
// ends with a stop string does not hide it (as llama-server has it).
StopType Choice::DecideStop(Clock::TimePoint now) {
  StopType type = StopType::kNone;
  if (stops_.found()) type = StopType::kWord;
  if (prompt_.total() + predicted_ >= context_) {
    type = StopType::kLimit;
    truncated_ = true;
  }
  if (type == StopType::kNone && n_predict_ >= 0 && predicted_ >= n_predict_) {
    type = StopType::kLimit;
  }
  if (indent_.violated()) type = StopType::kLimit;
  if (request_->t_max_predict_ms > 0 && newest_has_new_line_ &&
      Milliseconds(now - first_token_at_) > static_cast<double>(request_->t_max_predict_ms)) {
    type = StopType::kLimit;
  }
  if (tokenizer_->IsEog(last_token_)) type = StopType::kEos;
  // The output is whole, and no token that says so can be drawn.
  const bool no_end = request_->sampling.ignore_eos || tokenizer_->eog().empty();
  if (grammar_ && no_end && grammar_->exhausted()) type = StopType::kEos;
  return type;
}

void Choice::CountDraft(int32_t verified, int32_t accepted) {
  drafted_ += verified;
  accepted_ += accepted;
}

Timings Choice::timings() const {
  Timings timings =
      MakeTimings(prompt_, predicted_, Milliseconds(last_token_at_ - first_token_at_));
  timings.draft_n = drafted_;
  timings.draft_n_accepted = accepted_;
  return timings;
}

std::optional<Text> Choice::TakeText() {
  if (ended() ? pending_tokens_.empty() : pending_text_.empty()) return std::nullopt;
  Text text;
  text.choice = index_;
  text.id_slot = id_slot_;
  text.text = pending_text_;
  text.tokens = pending_tokens_;
  text.probabilities = std::move(pending_probabilities_);
  text.tokens_evaluated = prompt_.total();
  text.tokens_predicted = predicted_;
  text.timings = timings();
  // Copied and cleared, so that the next tokens find their room.
  pending_text_.clear();
  pending_tokens_.clear();
  pending_probabilities_.clear();
  return text;
}

Finish Choice::MakeFinish(int32_t tokens_held) const {
  assert(ended());
  return {
      .choice = index_,
      .id_slot = id_slot_,
      .stop_type = stop_type_,
      .stopping_word = std::string(stops_.found().value_or("")),
      .truncated = truncated_,
      .has_new_line = has_new_line_,
      .tokens_evaluated = prompt_.total(),
      .tokens_predicted = predicted_,
      .tokens_cached = tokens_held,
      .timings = timings(),
  };
}

}  // namespace bloomery::engine
