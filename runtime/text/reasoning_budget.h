// Limits how many tokens a model may think: follows an answer's tokens, counts those inside a span
// of reasoning, and when the budget is used up says which tokens come next, until the span is
// closed. Works on the tokens' text, so that a tag may be any number of tokens. One object a
// choice; no locks; allocates nothing per token.
//
//   if (auto forced = budget.Forced()) take *forced; else draw one;
//   budget.Accept(piece);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace bloomery::text {

struct ReasoningLimit {
  int32_t tokens = -1;                // of one span; -1: no limit; 0: a span closes where it opens
  bool starts_inside = false;         // the prompt ends inside a span
  std::string open{};                 // opens a span; "": none opens but the prompt's
  std::vector<std::string> closes{};  // any of them closes it
  std::vector<TokenId> ending{};      // what is forced at the limit: a message, then a closing tag
  // Set by another thread: spans end at once from then on. Null: nobody sets it.
  std::shared_ptr<std::atomic<bool>> stop{};
};

class ReasoningBudget {
 public:
  explicit ReasoningBudget(ReasoningLimit limit);

  // The token that must come next, if the budget says so.
  std::optional<TokenId> Forced() const;
  // A token came, drawn or forced; `piece` is its text, control tokens' too.
  void Accept(std::string_view piece);

 private:
  enum class State { kOff, kOutside, kInside, kForcing };
  bool TakeTag(std::string_view tag);
  void Check();

  ReasoningLimit limit_;
  State state_ = State::kOff;
  std::string tail_;     // of the text, as much as may begin a tag
  size_t tail_max_ = 0;  // bytes
  int32_t count_ = 0;    // tokens inside the span
  size_t forced_ = 0;    // tokens of the ending that came
};

}  // namespace bloomery::text
