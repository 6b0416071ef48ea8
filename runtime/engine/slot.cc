#include "runtime/engine/slot.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

namespace bloomery::engine {

Slot::Slot(int32_t id, int32_t context) : id_(id), context_(context) {
  tokens_.reserve(static_cast<size_t>(context));
}

int32_t Slot::prompt_left() const {
  assert(state_ == SlotState::kPrompt);
  return static_cast<int32_t>(request().prompt.size()) - length();
}

PromptStats Slot::prompt_stats(Clock::TimePoint now) const {
  PromptStats stats = prompt_;
  if (state_ == SlotState::kPrompt) {
    stats.ms = std::max(0.0, std::chrono::duration<double, std::milli>(now - started_at_).count());
  }
  return stats;
}

void Slot::Take(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
                Clock::TimePoint now) {
  assert(idle() && generation != nullptr && choice != nullptr);
  generation_ = std::move(generation);
  choice_ = std::move(choice);
  started_at_ = now;
  id_task_ = generation_->id_task();
  last_request_ = generation_->request();
  prompt_ = {};
  has_new_line_ = false;
}

void Slot::StartPrompt(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
                       int32_t kept, Clock::TimePoint now) {
  Take(std::move(generation), std::move(choice), now);
  assert(kept == length() && kept < static_cast<int32_t>(request().prompt.size()));
  state_ = SlotState::kPrompt;
  prompt_.cached = kept;
  reported_ = kept;
}

void Slot::AwaitPrompt(std::shared_ptr<Generation> generation, std::unique_ptr<Choice> choice,
                       Clock::TimePoint now) {
  Take(std::move(generation), std::move(choice), now);
  state_ = SlotState::kAwaiting;
}

bool Slot::AdvancePrompt(int32_t rows, int32_t batch_rows) {
  assert(rows >= 1 && rows <= prompt_left());
  const auto next = request().prompt.begin() + length();
  tokens_.insert(tokens_.end(), next, next + rows);
  prompt_.evaluated += rows;
  const bool report = length() - reported_ >= batch_rows || prompt_left() == 0;
  if (report) reported_ = length();
  return report;
}

void Slot::StartGenerating(Clock::TimePoint now) {
  if (state_ == SlotState::kAwaiting) {
    const std::vector<text::TokenId>& prompt = request().prompt;
    tokens_.assign(prompt.begin(), prompt.end());
    prompt_ = {.cached = length()};
  } else {
    assert(state_ == SlotState::kPrompt && prompt_left() == 0);
    prompt_ = prompt_stats(now);
  }
  state_ = SlotState::kGenerating;
  choice_->Start(id_, prompt_);
}

void Slot::AddGenerated() {
  assert(state_ == SlotState::kGenerating && length() < context_);
  tokens_.push_back(choice_->last_token());
}

void Slot::CutTo(int32_t length) {
  assert(length >= 0 && length <= this->length());
  tokens_.resize(static_cast<size_t>(length));
}

void Slot::Append(std::span<const text::TokenId> tokens) {
  assert(idle() && tokens_.size() + tokens.size() <= static_cast<size_t>(context_));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Slot::Release(uint64_t use) {
  assert(!idle() && use > last_used_);
  has_new_line_ = choice_->has_new_line();
  state_ = SlotState::kIdle;
  last_used_ = use;
  generation_.reset();
  choice_.reset();
}

void Slot::Describe(SlotInfo& info) const {
  info.id = id_;
  info.n_ctx = context_;
  info.is_processing = !idle();
  info.n_tokens = length();
  if (info.id_task != id_task_) {
    info.id_task = id_task_;
    info.request = last_request_;
  }
  info.n_prompt_tokens =
      last_request_ == nullptr ? 0 : static_cast<int32_t>(last_request_->prompt.size());
  info.n_prompt_tokens_processed = prompt_.evaluated;
  info.n_prompt_tokens_cache = prompt_.cached;
  info.has_next_token = !idle() && !choice_->ended();
  info.has_new_line = idle() ? has_new_line_ : choice_->has_new_line();
  info.n_remain = idle() ? -1 : choice_->remaining();
  info.n_decoded = idle() ? 0 : choice_->predicted();
}

int32_t CommonPrefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  const size_t length = std::min(a.size(), b.size());
  const auto end =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin());
  return static_cast<int32_t>(end.first - a.begin());
}

}  // namespace bloomery::engine
