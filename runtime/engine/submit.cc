// Submit: every check of a request, and all of its set-up that takes time, on the caller's thread.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/engine/loop.h"

namespace bloomery::engine {
namespace {

// "Field 'name': value is below min" and the like.
void CheckRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw Error(
      ErrorKind::kBadRequest,
      "Field '" + std::string(field) + "': " + std::to_string(value) +
          (value < min ? " is below " + std::to_string(min) : " is above " + std::to_string(max)));
}

void CheckPrompt(const std::vector<text::TokenId>& prompt, const text::Tokenizer& tokenizer,
                 int32_t context) {
  if (prompt.empty()) {
    throw Error(ErrorKind::kBadRequest, "Field 'prompt': has no tokens; send at least one");
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (tokenizer.Contains(prompt[i])) continue;
    throw Error(ErrorKind::kBadRequest, "Field 'prompt': token " + std::to_string(prompt[i]) +
                                            " at position " + std::to_string(i) +
                                            " is outside the vocabulary of " +
                                            std::to_string(tokenizer.size()));
  }
  if (prompt.size() >= static_cast<size_t>(context)) {
    throw ContextError(prompt.size(), context);
  }
}

void CheckFields(const GenerateRequest& request, int32_t slots) {
  constexpr int64_t kNoMax = INT64_MAX;
  CheckRange("n_predict", request.n_predict, -1, kNoMax);
  CheckRange("n_cmpl", request.choices, 1, slots);
  CheckRange("n_indent", request.n_indent, 0, kNoMax);
  CheckRange("t_max_predict_ms", request.t_max_predict_ms, -1, kNoMax);
  CheckRange("n_keep", request.n_keep, -1, kNoMax);
  CheckRange("n_discard", request.n_discard, 0, kNoMax);
}

}  // namespace

ContextError::ContextError(size_t n_prompt_tokens, int32_t n_ctx, Counted counted)
    : Error(ErrorKind::kContextFull,
            std::string("the prompt has ") + (counted == Counted::kAtLeast ? "at least " : "") +
                std::to_string(n_prompt_tokens) +
                " tokens, which does not fit the slot's context of " + std::to_string(n_ctx) +
                " tokens; shorten it, or start the server with a larger context"),
      n_prompt_tokens_(static_cast<int32_t>(std::min<size_t>(n_prompt_tokens, INT32_MAX))),
      n_ctx_(n_ctx) {}

QueueFullError::QueueFullError(size_t waiting, int32_t retry_after_s)
    : Error(ErrorKind::kUnavailable, "the queue is full: " + std::to_string(waiting) +
                                         " requests are waiting; try again in " +
                                         std::to_string(retry_after_s) + " s"),
      retry_after_s_(retry_after_s) {}

std::shared_ptr<Generation> Engine::Loop::Submit(GenerateRequest request, Generation::Wake wake) {
  {
    const std::lock_guard lock(mutex_);
    CheckAccepting();
  }
  Task task = MakeTask(std::move(request), std::move(wake));
  std::shared_ptr<Generation> generation = task.generation;
  {
    const std::lock_guard lock(mutex_);
    CheckAccepting();  // again: the set-up took a while
    incoming_.push_back(std::move(task));
    ++queued_;
    published_metrics_.requests_waiting = static_cast<int32_t>(queued_);
  }
  work_.notify_one();
  return generation;
}

void Engine::Loop::CheckAccepting() const {
  if (failure_) {
    throw Error(ErrorKind::kUnavailable, "the engine has failed: " + *failure_);
  }
  if (stopping_) throw Error(ErrorKind::kUnavailable, "the server is stopping");
  if (queued_ < static_cast<size_t>(options_.queue_max)) return;
  const double seconds = service_seconds_ * static_cast<double>(queued_) / (2.0 * limits_.slots);
  throw QueueFullError(queued_, std::clamp(static_cast<int32_t>(std::ceil(std::min(seconds, 1e6))),
                                           1, limits::kRetryAfterSecondsMax));
}

Engine::Loop::Task Engine::Loop::MakeTask(GenerateRequest request, Generation::Wake wake) {
  CheckPrompt(request.prompt, tokenizer_, limits_.slot_context);
  CheckFields(request, limits_.slots);
  text::SamplingParams& sampling = request.sampling;
  sampling.Validate();
  sampling.BanEog(tokenizer_.eog());
  if (sampling.seed == text::kRandomSeed) sampling.seed = std::random_device{}() >> 1;
  std::shared_ptr<const text::DryBreakers> breakers;
  if (sampling.dry_multiplier != 0) {
    breakers =
        std::make_shared<const text::DryBreakers>(tokenizer_, sampling.dry_sequence_breakers);
  }

  Task task;
  int64_t id_task = 0;
  {
    const std::lock_guard lock(mutex_);
    id_task = next_id_task_++;
  }
  task.generation = std::make_shared<Generation>(id_task, std::move(request), std::move(wake));
  const std::shared_ptr<const GenerateRequest>& kept = task.generation->request();
  for (int32_t i = 0; i < kept->choices; ++i) {
    task.choices.push_back(std::make_unique<Choice>(
        tokenizer_,
        Choice::Setup{.request = kept,
                      .index = i,
                      .n_predict = kept->n_predict >= 0 ? kept->n_predict : options_.n_predict,
                      .context = limits_.slot_context},
        breakers));
  }
  return task;
}

}  // namespace bloomery::engine
