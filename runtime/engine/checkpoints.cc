#include "runtime/engine/checkpoints.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::engine {
namespace {

// Whether `front` is how `tokens` begin.
bool Begins(const std::vector<text::TokenId>& front, std::span<const text::TokenId> tokens) {
  return front.size() <= tokens.size() && std::equal(front.begin(), front.end(), tokens.begin());
}

// Which stretch below the newest one a checkpoint `back` positions before it lies in.
int32_t Stretch(int32_t back) {
  return std::bit_width(static_cast<uint32_t>(back / Checkpoints::kEvery));
}

}  // namespace

Checkpoints::Checkpoints(exec::PassRunner& runner, uint64_t bytes_max)
    : runner_(runner), state_bytes_(runner.CheckpointBytes()), bytes_max_(bytes_max) {}

int32_t Checkpoints::RowsUntilDue(int32_t length, int32_t prompt) const {
  const int32_t left = prompt - length;
  if (!on()) return left;
  const int32_t next = kEvery - length % kEvery;
  const int32_t back = prompt - kBack - length;
  return std::min({left, next, back >= kBack ? back : left});
}

bool Checkpoints::Due(int32_t length, int32_t prompt) const {
  return on() && length > 0 && (length % kEvery == 0 || length == prompt - kBack);
}

bool Checkpoints::Touch(std::span<const text::TokenId> tokens) {
  const auto same = std::ranges::find_if(held_, [&](const CheckpointPtr& each) {
    return each->tokens.size() == tokens.size() && Begins(each->tokens, tokens);
  });
  if (same == held_.end()) return false;
  held_.splice(held_.begin(), held_, same);
  return true;
}

bool Checkpoints::MakeRoom(uint64_t bytes) {
  if (bytes > bytes_max_) return false;
  while (!held_.empty() && bytes_ + bytes > bytes_max_) Drop(std::prev(held_.end()));
  return true;
}

void Checkpoints::Put(CheckpointPtr checkpoint) {
  if (Touch(checkpoint->tokens) || !MakeRoom(checkpoint->bytes())) return;
  bytes_ += checkpoint->bytes();
  held_.push_front(std::move(checkpoint));
}

void Checkpoints::Take(int32_t slot, std::span<const text::TokenId> tokens) {
  if (!on() || tokens.empty()) return;
  if (Touch(tokens)) return;
  const uint64_t bytes = tokens.size_bytes() + state_bytes_;
  try {
    if (!MakeRoom(bytes)) return;
    auto made = std::make_shared<Checkpoint>();
    made->tokens.assign(tokens.begin(), tokens.end());
    made->state.resize(state_bytes_);
    runner_.ReadCheckpoint(slot, made->state);
    Thin(*made);
    held_.push_front(std::move(made));
    bytes_ += bytes;
  } catch (const Error& error) {
    LOG(WARNING) << "slot " << slot << ": its state behind " << tokens.size()
                 << " tokens cannot be kept: " << error.what();
  } catch (const std::bad_alloc&) {
    LOG(WARNING) << "slot " << slot << ": there is no memory for a copy of its state";
  }
}

// Of those before `newest` in its conversation, one a stretch stays: the one at the roundest
// position, so that the same ones stay as the conversation grows.
void Checkpoints::Thin(const Checkpoint& newest) {
  constexpr int32_t kStretches = 32;
  std::vector<std::list<CheckpointPtr>::iterator> kept(kStretches, held_.end());
  const auto roundness = [](const CheckpointPtr& each) {
    return std::countr_zero(static_cast<uint32_t>(each->length()));
  };
  for (auto each = held_.begin(); each != held_.end();) {
    const auto at = each++;
    if (!Begins((*at)->tokens, newest.tokens)) continue;
    const int32_t back = newest.length() - (*at)->length();
    if (back < kEvery) continue;
    auto& rival = kept[static_cast<size_t>(Stretch(back))];
    if (rival == held_.end()) {
      rival = at;
      continue;
    }
    const auto loser = roundness(*at) > roundness(*rival) ? std::exchange(rival, at) : at;
    Drop(loser);
  }
}

void Checkpoints::Drop(Held::const_iterator at) {
  bytes_ -= (*at)->bytes();
  held_.erase(at);
}

Checkpoints::Held::const_iterator Checkpoints::Find(std::span<const text::TokenId> tokens) const {
  auto best = held_.end();
  for (auto each = held_.begin(); each != held_.end(); ++each) {
    if (best != held_.end() && (*each)->length() <= (*best)->length()) continue;
    if (Begins((*each)->tokens, tokens)) best = each;
  }
  return best;
}

CheckpointPtr Checkpoints::Longest(std::span<const text::TokenId> tokens) {
  const auto best = Find(tokens);
  if (best == held_.end()) return nullptr;
  held_.splice(held_.begin(), held_, best);
  return *best;
}

int32_t Checkpoints::LongestLength(std::span<const text::TokenId> tokens) const {
  const auto best = Find(tokens);
  return best == held_.end() ? 0 : (*best)->length();
}

std::vector<CheckpointPtr> Checkpoints::Of(std::span<const text::TokenId> tokens) const {
  std::vector<CheckpointPtr> all;
  std::ranges::copy_if(held_, std::back_inserter(all),
                       [&](const CheckpointPtr& each) { return Begins(each->tokens, tokens); });
  std::ranges::sort(all, {}, [](const CheckpointPtr& each) { return each->length(); });
  return all;
}

void Checkpoints::Forget(std::span<const text::TokenId> tokens, int32_t shared) {
  for (auto each = held_.cbegin(); each != held_.cend();) {
    const auto at = each++;
    if ((*at)->length() > shared && Begins((*at)->tokens, tokens)) Drop(at);
  }
}

}  // namespace bloomery::engine
