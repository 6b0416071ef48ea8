#include "runtime/text/reasoning_budget.h"

#include <algorithm>
#include <utility>

#include "runtime/base/utf8.h"

namespace bloomery::text {
namespace {

constexpr size_t kCharacterBytesMax = 4;

}  // namespace

ReasoningBudget::ReasoningBudget(ReasoningLimit limit) : limit_(std::move(limit)) {
  if (limit_.tokens < 0 || limit_.ending.empty()) return;
  tail_max_ = std::max(limit_.open.size(), kCharacterBytesMax);
  for (const std::string& close : limit_.closes) tail_max_ = std::max(tail_max_, close.size());
  tail_.reserve(2 * tail_max_);
  state_ = limit_.starts_inside ? State::kInside : State::kOutside;
  Check();
}

std::optional<TokenId> ReasoningBudget::Forced() const {
  if (state_ != State::kForcing) return std::nullopt;
  return limit_.ending[forced_];
}

// Forgets everything up to and including `tag`, if it is there.
bool ReasoningBudget::TakeTag(std::string_view tag) {
  const size_t at = tag.empty() ? std::string::npos : tail_.find(tag);
  if (at == std::string::npos) return false;
  tail_.erase(0, at + tag.size());
  return true;
}

// Forcing waits for a character that is only half there.
void ReasoningBudget::Check() {
  if (state_ != State::kInside) return;
  const bool over = count_ >= limit_.tokens ||
                    (limit_.stop != nullptr && limit_.stop->load(std::memory_order_relaxed));
  if (over && Utf8IncompleteTail(tail_) == 0) {
    state_ = State::kForcing;
    forced_ = 0;
  }
}

void ReasoningBudget::Accept(std::string_view piece) {
  if (state_ == State::kOff) return;
  if (state_ == State::kForcing) {
    if (++forced_ < limit_.ending.size()) return;
    state_ = State::kOutside;
    tail_.clear();
    return;
  }
  tail_ += piece;
  if (state_ == State::kOutside) {
    if (TakeTag(limit_.open)) {
      state_ = State::kInside;
      count_ = 0;
    }
  } else if (std::ranges::any_of(limit_.closes,
                                 [&](const std::string& close) { return TakeTag(close); })) {
    state_ = State::kOutside;
  } else {
    ++count_;
  }
  Check();
  if (tail_.size() > tail_max_) tail_.erase(0, tail_.size() - tail_max_);
}

}  // namespace bloomery::text
