#include "runtime/serve/http_lane.h"

#include <algorithm>
#include <utility>

namespace bloomery::serve::internal {

void Lane::Start(size_t least, size_t most) {
  const std::lock_guard lock(mutex_);
  least_ = allowed_ = least;
  most_ = std::max(least, most);
  stopping_ = false;
  while (threads_.size() < least_) AddThread();
}

void Lane::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  queue_.push_back(std::move(work));
  changed_.notify_one();
  if (!looking_ && queue_.size() + running_ > allowed_) Look();
}

size_t Lane::allowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

void Lane::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    timer_.cancel();
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void Lane::AddThread() {
  threads_.emplace_back([this] { Work(); });
}

void Lane::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return queue_.empty() ? stopping_ : running_ < allowed_; });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    work();
    work = nullptr;  // what it holds may be large
    lock.lock();
    --running_;
    ++ended_;
    if (queue_.empty()) allowed_ = std::max(least_, running_);
    // Where it is the last and the lane stops, those that found no room to run must hear of it.
    if (stopping_) changed_.notify_all();
  }
}

// Under the mutex: looks in a while whether what runs now has made headway.
void Lane::Look() {
  looking_ = true;
  ended_before_ = ended_;
  timer_.expires_after(kPatience);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) OnTimer();
  });
}

void Lane::OnTimer() {
  const std::lock_guard lock(mutex_);
  looking_ = false;
  if (stopping_ || queue_.empty()) return;
  if (ended_ == ended_before_ && running_ >= allowed_ && allowed_ < most_) {
    ++allowed_;
    if (threads_.size() < allowed_) AddThread();
    changed_.notify_one();
  }
  Look();
}

}  // namespace bloomery::serve::internal
