#include "runtime/memory/ring_read.h"

#include <algorithm>
#include <cassert>
#include <deque>

#include "runtime/base/limits.h"

namespace bloomery::memory {
namespace {

using Clock = std::chrono::steady_clock;

// How long a reader polls for room before it sleeps: longer than a link of 16 lanes takes for the
// stretches that are on their way, so that a reader of a warm file never sleeps.
constexpr std::chrono::microseconds kPoll{1000};

}  // namespace

void PlaceInRing(std::span<RingStretch> stretches, uint64_t ring_bytes, size_t most) {
  std::deque<size_t> there;  // oldest first
  uint64_t head = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    RingStretch& stretch = stretches[i];
    const uint64_t bytes = RingBytes(stretch.bytes);
    assert(bytes <= ring_bytes);
    if (head + bytes > ring_bytes) head = 0;
    const auto overlaps = [&](size_t other) {
      const RingStretch& old = stretches[other];
      return old.at < head + bytes && head < old.at + RingBytes(old.bytes);
    };
    while (there.size() >= most || std::ranges::any_of(there, overlaps)) there.pop_front();
    stretch.at = head;
    stretch.after = there.empty() ? i : there.front();
    there.push_back(i);
    head += bytes;
  }
}

RingReader::RingReader(std::span<const RingStretch> stretches, std::span<std::byte> ring)
    : stretches_(stretches), ring_(ring), left_(stretches.size()) {
  for (size_t i = 0; i < stretches.size(); ++i) {
    for (uint64_t begin = 0; begin < stretches[i].bytes; begin += limits::kLoadReadBytes) {
      parts_.push_back({i, begin, std::min(limits::kLoadReadBytes, stretches[i].bytes - begin)});
      left_[i].fetch_add(1, std::memory_order_relaxed);
    }
  }
  const size_t most = std::min(parts_.size(), static_cast<size_t>(limits::kLoadReadsMax));
  try {
    for (size_t i = 0; i < most; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {  // those that run would wait for ever
    Stop(nullptr);
    throw;
  }
}

RingReader::~RingReader() { Stop(nullptr); }

bool RingReader::Ready(size_t i) const {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  return left_[i].load(std::memory_order_acquire) == 0;
}

void RingReader::Await(size_t i, std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, most, [&] { return failed_.load() || left_[i].load() == 0; });
}

void RingReader::Free(size_t count) {
  {
    const std::lock_guard lock(mutex_);
    freed_.store(count, std::memory_order_release);
  }
  room_.notify_all();  // nobody sleeps there but where taking is slower than kPoll
}

void RingReader::Run() {
  try {
    for (;;) {
      const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= parts_.size() || !AwaitRoom(stretches_[parts_[i].stretch].after)) return;
      Read(parts_[i]);
    }
  } catch (...) {
    Stop(std::current_exception());
  }
}

void RingReader::Read(const Part& part) {
  const RingStretch& stretch = stretches_[part.stretch];
  direct_.fetch_add(stretch.file->ReadOnceAt(stretch.offset + part.begin,
                                             ring_.subspan(stretch.at + part.begin, part.bytes)),
                    std::memory_order_relaxed);
  if (left_[part.stretch].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const std::lock_guard lock(mutex_);
  }  // a taker between its look and its sleep would miss it
  arrived_.notify_one();
}

bool RingReader::AwaitRoom(size_t after) {
  const auto known = [&] {
    return freed_.load(std::memory_order_acquire) >= after ||
           stopped_.load(std::memory_order_relaxed);
  };
  if (!known()) {
    const Clock::time_point until = Clock::now() + kPoll;
    while (!known() && Clock::now() < until) std::this_thread::yield();
  }
  if (!known()) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, known);
  }
  return !stopped_.load(std::memory_order_relaxed);
}

void RingReader::Stop(const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex_);
    stopped_.store(true, std::memory_order_relaxed);
    if (failure && !failure_) {
      failure_ = failure;
      failed_.store(true, std::memory_order_release);
    }
  }
  arrived_.notify_all();
  room_.notify_all();
}

}  // namespace bloomery::memory
