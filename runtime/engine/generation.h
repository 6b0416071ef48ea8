// A running request as its consumer holds it: cancel it, take its events. Shared between the
// consumer and the engine; every public method may be called from any thread. The engine never
// waits for a consumer: when a reader is slow, new text joins the last piece that is still queued,
// so that a stream cannot grow beyond what its context holds.
//
//   auto generation = engine.Submit(std::move(request), wake);
//   while (auto event = generation->TryPop()) { … }   // each time `wake` was called
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/engine/request.h"

namespace bloomery::engine {

class Generation {
 public:
  // Called on the engine's thread when an event became available to a consumer that had taken all:
  // pop until empty each time. Must not block, throw, or call the engine. Released after the last
  // event, so it may hold the consumer.
  using Wake = std::function<void()>;

  // For the engine, which owns the other end; consumers get theirs from Engine::Submit.
  Generation(int64_t id_task, GenerateRequest request, Wake wake);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  int64_t id_task() const { return id_task_; }
  // As validated: with the seed in use and the bans of ignore_eos.
  const std::shared_ptr<const GenerateRequest>& request() const { return request_; }

  // Ends the request before the next pass: its slots are freed and keep their tokens, and the
  // stream ends with Failed kCancelled (unless it ended before). A consumer that leaves must call
  // this.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // The next event, or nothing: not yet, or none any more (see ended()).
  std::optional<Event> TryPop();
  // Waits for the next event; nothing once the stream has ended. Not for the engine's thread.
  std::optional<Event> Pop();
  // The last event was taken.
  bool ended() const;

  // The engine's end. Begin, Progress, Text, one Finish a choice, or Failed; nothing may follow the
  // last of them.
  void Push(Event event);

 private:
  bool Coalesce(Event& event);

  const int64_t id_task_;
  const std::shared_ptr<const GenerateRequest> request_;
  std::atomic<bool> cancelled_{false};

  mutable std::mutex mutex_;
  std::condition_variable available_;
  std::deque<Event> queue_;
  int32_t choices_left_;  // Finish events still to be pushed; 0 once the stream is complete
  Wake wake_;
};

}  // namespace bloomery::engine
