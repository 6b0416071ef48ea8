// Threads beside the HTTP pool that run the handlers of requests with a body, in the order of their
// coming: parsing, rendering and tokenising take from microseconds to seconds, in which no thread
// of the pool shall be missing. Owns its threads. A few run at once; where those make no headway
// for a while, one more joins them, so that slow ones keep nobody waiting for long, and once all is
// done they are few again. Internal to the HTTP core.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bloomery::serve::internal {

class Lane {
 public:
  // Handlers end well within this (those of 64 KiB of text take 3 to 30 ms,
  // docs/measurements/serving.md); what takes longer is one that others must not wait for.
  static constexpr std::chrono::milliseconds kPatience{20};

  // The timer that looks for headway runs on `pool`, which never runs a handler.
  explicit Lane(boost::asio::io_context& pool) : timer_(pool) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs `least` at once, where that is not enough up to `most`. Once.
  void Start(size_t least, size_t most);
  // Any thread. Dropped once the lane is stopping: it would never run.
  void Post(std::function<void()> work);
  size_t allowed() const;  // that may run at once, for now
  // After all that was posted.
  void Stop();

 private:
  void AddThread();
  void Work();
  void Look();
  void OnTimer();

  boost::asio::steady_timer timer_;  // guarded by mutex_, as all below
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  size_t least_ = 0;
  size_t most_ = 0;
  size_t allowed_ = 0;
  size_t running_ = 0;
  uint64_t ended_ = 0;
  uint64_t ended_before_ = 0;  // at the last look
  bool looking_ = false;       // the timer runs
  bool stopping_ = true;       // before the start, too
};

}  // namespace bloomery::serve::internal
