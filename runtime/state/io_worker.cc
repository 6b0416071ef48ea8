#include "runtime/state/io_worker.h"

#include <utility>

namespace bloomery::state {

IoWorker::IoWorker(std::function<void()> wake)
    : wake_(std::move(wake)), thread_([this] { Main(); }) {}

IoWorker::~IoWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void IoWorker::Post(Job job, bool urgent) {
  {
    const std::lock_guard lock(mutex_);
    if (urgent) {
      jobs_.push_front(std::move(job));
    } else {
      jobs_.push_back(std::move(job));
    }
  }
  work_.notify_one();
}

bool IoWorker::HasCompletions() const {
  const std::lock_guard lock(mutex_);
  return !completions_.empty();
}

void IoWorker::RunCompletions() {
  std::vector<Completion> completions;
  {
    const std::lock_guard lock(mutex_);
    completions.swap(completions_);
  }
  for (const Completion& completion : completions) completion();
}

bool IoWorker::Drain(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, time, [this] { return jobs_.empty() && !running_; });
}

void IoWorker::Main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    running_ = true;
    lock.unlock();
    Completion completion = job();
    const bool wakes = completion != nullptr;
    lock.lock();
    if (wakes) completions_.push_back(std::move(completion));
    running_ = false;
    if (jobs_.empty()) idle_.notify_all();
    if (!wakes) continue;
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace bloomery::state
