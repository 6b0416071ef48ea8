// One thread for what waits on a disk, so that passes do not: jobs run on it in order, urgent ones
// first, and what is to be done about their results comes back to the thread that owns the worker.
// Owns the thread and both queues. Jobs and completions must not throw.
//
//   worker.Post([file] { auto rows = Read(file); return [=] { Take(rows); }; });
//   … worker.RunCompletions();   // each time `wake` was called, on the owner's thread
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bloomery::state {

class IoWorker {
 public:
  using Completion = std::function<void()>;
  using Job = std::function<Completion()>;  // may return an empty completion

  // `wake` is called on the worker's thread when there is a completion; it must not block for long.
  explicit IoWorker(std::function<void()> wake);
  // Finishes what was posted; completions that nobody ran are dropped.
  ~IoWorker();
  IoWorker(const IoWorker&) = delete;
  IoWorker& operator=(const IoWorker&) = delete;

  void Post(Job job, bool urgent = false);
  bool HasCompletions() const;
  void RunCompletions();
  // Waits until no job is left, at most for `time`; returns whether that is so.
  bool Drain(std::chrono::milliseconds time);

 private:
  void Main();

  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::deque<Job> jobs_;
  std::vector<Completion> completions_;
  bool running_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bloomery::state
