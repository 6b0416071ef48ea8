// One choice of a request, from the logits after its prompt to its end: draws tokens, turns them
// into text, decides which text may go out and when to stop. Knows nothing of slots, passes or
// queues. Built on the submitting thread, then used by the engine's alone. Allocates nothing per
// token beyond the text and ids that leave in events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/request.h"
#include "runtime/engine/timings.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/reasoning_budget.h"
#include "runtime/text/sampling.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::engine {

// Watches the indentation of generated lines (`n_indent`). A line is judged at its first character
// that is no blank; empty lines and the text before the first newline are not judged.
class IndentGuard {
 public:
  explicit IndentGuard(int32_t blanks_min) : blanks_min_(blanks_min) {}

  // How many leading bytes of `text` come before a character that is indented too little; 0 ever
  // after.
  size_t Allowed(std::string_view text);
  bool violated() const { return violated_; }

 private:
  int32_t blanks_min_;  // 0: everything is allowed
  int32_t blanks_ = 0;
  bool in_indent_ = false;
  bool violated_ = false;
};

class Choice {
 public:
  struct Setup {
    std::shared_ptr<const GenerateRequest> request;  // validated
    int32_t index = 0;
    int32_t n_predict = -1;  // with the engine's default applied; -1 is unbounded
    int32_t context = 0;     // tokens a slot can hold
  };

  // Throws Error(kBadRequest) for stop strings that are refused.
  Choice(const text::Tokenizer& tokenizer, Setup setup,
         std::shared_ptr<const text::DryBreakers> breakers);

  // The prompt is evaluated: from here on Step may be called, unless ended() (n_predict 0).
  void Start(int32_t id_slot, const PromptStats& prompt);

  // Draws the next token from its logits, where the budget of reasoning forces none. Throws what
  // Sampler::Sample throws; the choice is then good for nothing.
  void Step(std::span<const float> logits, Clock::TimePoint now);
  // How many of a row's best logits StepBest needs; 0: it needs Step.
  size_t best_needed() const { return sampler_.best_needed(); }
  // False, and nothing has happened, where the grammar allows too few of them: then StepAllowed.
  bool StepBest(std::span<const text::Candidate> best, Clock::TimePoint now);
  void StepAllowed(std::span<const float> logits, Clock::TimePoint now);

  // Of the draft that the last steps followed, so many tokens were verified and accepted.
  void CountDraft(int32_t verified, int32_t accepted);

  bool ended() const { return stop_type_ != StopType::kNone; }
  text::TokenId last_token() const { return last_token_; }
  int32_t predicted() const { return predicted_; }
  int32_t remaining() const { return n_predict_ < 0 ? -1 : n_predict_ - predicted_; }
  bool has_new_line() const { return has_new_line_; }
  Timings timings() const;

  // What may go out now, if anything. Once ended, all that is left.
  std::optional<Text> TakeText();

  // Only once ended.
  Finish MakeFinish(int32_t tokens_held) const;

 private:
  std::string_view Piece(text::TokenId token) const;
  text::Sampled Certain(text::TokenId token) const;
  text::GrammarState* grammar() { return grammar_ ? &*grammar_ : nullptr; }
  void Take(const text::Sampled& sampled, Clock::TimePoint now);
  void AddToken(const text::Sampled& sampled);
  void Release(std::string_view text);
  void Flush();
  StopType DecideStop(Clock::TimePoint now);

  const text::Tokenizer* tokenizer_;
  std::shared_ptr<const GenerateRequest> request_;
  int32_t index_;
  int32_t n_predict_;
  int32_t context_;
  int32_t id_slot_ = -1;
  PromptStats prompt_;

  text::Sampler sampler_;
  std::optional<text::GrammarState> grammar_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
  IndentGuard indent_;
  text::ReasoningBudget reasoning_;

  StopType stop_type_ = StopType::kNone;
  bool truncated_ = false;
  bool has_new_line_ = false;
  bool newest_has_new_line_ = false;  // in what the last token released
  text::TokenId last_token_ = text::kNoToken;
  int32_t predicted_ = 0;
  int32_t drafted_ = 0;
  int32_t accepted_ = 0;
  Clock::TimePoint first_token_at_;
  Clock::TimePoint last_token_at_;

  // Tokens that no event carries yet, and the text they released.
  std::vector<text::TokenId> pending_tokens_;
  std::vector<TokenProbabilities> pending_probabilities_;
  std::string pending_text_;
};

}  // namespace bloomery::engine
