#include "runtime/engine/generation.h"

#include <cassert>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/base/limits.h"

namespace bloomery::engine {
namespace {

void Append(Text& text, Text&& more) {
  text.text += more.text;
  text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
  text.probabilities.insert(text.probabilities.end(),
                            std::make_move_iterator(more.probabilities.begin()),
                            std::make_move_iterator(more.probabilities.end()));
  text.tokens_predicted = more.tokens_predicted;
  text.timings = more.timings;
}

}  // namespace

std::string_view StopTypeName(StopType type) {
  switch (type) {
    case StopType::kNone:
      return "none";
    case StopType::kEos:
      return "eos";
    case StopType::kLimit:
      return "limit";
    case StopType::kWord:
      return "word";
  }
  return "unknown";
}

Generation::Generation(int64_t id_task, GenerateRequest request, Wake wake)
    : id_task_(id_task),
      request_(std::make_shared<const GenerateRequest>(std::move(request))),
      choices_left_(request_->choices),
      wake_(std::move(wake)) {}

std::optional<Event> Generation::TryPop() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  Event event = std::move(queue_.front());
  queue_.pop_front();
  return event;
}

std::optional<Event> Generation::Pop() {
  std::unique_lock lock(mutex_);
  available_.wait(lock, [this] { return !queue_.empty() || choices_left_ == 0; });
  if (queue_.empty()) return std::nullopt;
  Event event = std::move(queue_.front());
  queue_.pop_front();
  return event;
}

bool Generation::ended() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && choices_left_ == 0;
}

void Generation::Push(Event event) {
  bool was_empty = false;
  bool complete = false;
  {
    const std::lock_guard lock(mutex_);
    assert(choices_left_ > 0 && "an event after the end of a stream");
    if (std::holds_alternative<Finish>(event)) --choices_left_;
    if (std::holds_alternative<Failed>(event)) choices_left_ = 0;
    complete = choices_left_ == 0;
    was_empty = queue_.empty();
    if (!Coalesce(event)) queue_.push_back(std::move(event));
  }
  available_.notify_all();
  if (was_empty && wake_) wake_();
  if (complete) wake_ = nullptr;
}

// Joins `event` to one that is queued already, once the queue is at its limit. Within a choice the
// order stays: nothing but Text stands between its first Text and its Finish.
bool Generation::Coalesce(Event& event) {
  if (queue_.size() < limits::kEventsQueuedMax) return false;
  if (std::holds_alternative<Progress>(event) && std::holds_alternative<Progress>(queue_.back())) {
    queue_.back() = std::move(event);
    return true;
  }
  auto* text = std::get_if<Text>(&event);
  if (text == nullptr) return false;
  for (auto queued = queue_.rbegin(); queued != queue_.rend(); ++queued) {
    auto* earlier = std::get_if<Text>(&*queued);
    if (earlier == nullptr || earlier->choice != text->choice) continue;
    Append(*earlier, std::move(*text));
    return true;
  }
  return false;
}

}  // namespace bloomery::engine
