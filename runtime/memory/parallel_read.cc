#include "runtime/memory/parallel_read.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace bloomery::memory {
namespace {

// Stretches cut into reads, and how far they have come. Shared by the threads of one ReadAll.
class Reads {
 public:
  explicit Reads(std::span<const ReadStretch> stretches) {
    for (const ReadStretch& stretch : stretches) Cut(stretch);
  }

  size_t count() const { return reads_.size(); }
  uint64_t total() const { return total_; }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  uint64_t direct() const { return direct_.load(std::memory_order_relaxed); }

  // Does the next read; false when there is none, or one has failed.
  bool Next() {
    if (failed_.load(std::memory_order_relaxed)) return false;
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= reads_.size()) return false;
    try {
      const ReadStretch& read = reads_[i];
      direct_.fetch_add(read.file->ReadOnceAt(read.offset, read.to), std::memory_order_relaxed);
      done_.fetch_add(read.to.size(), std::memory_order_relaxed);
      return true;
    } catch (...) {
      Fail(std::current_exception());
      return false;
    }
  }

  // No read begins any more; the first failure stays.
  void Fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    failed_.store(true);
  }

  // After all threads have ended.
  void Rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void Cut(ReadStretch stretch) {
    total_ += stretch.to.size();
    while (!stretch.to.empty()) {
      const auto address = reinterpret_cast<uintptr_t>(stretch.to.data());
      const uint64_t bytes = std::min<uint64_t>(
          stretch.to.size(), limits::kLoadReadBytes - address % limits::kLoadReadBytes);
      reads_.push_back({stretch.file, stretch.offset, stretch.to.first(bytes)});
      stretch.offset += bytes;
      stretch.to = stretch.to.subspan(bytes);
    }
  }

  std::vector<ReadStretch> reads_;
  uint64_t total_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> direct_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

ReadReport ReadAll(std::span<const ReadStretch> stretches,
                   const std::function<void(uint64_t, uint64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  Reads reads(stretches);
  {
    std::vector<std::jthread> threads;  // beside this one
    try {
      const auto most = static_cast<size_t>(limits::kLoadReadsMax);
      for (size_t i = 1; i < std::min(reads.count(), most); ++i) {
        threads.emplace_back([&reads] {
          while (reads.Next()) {
          }
        });
      }
    } catch (const std::system_error& error) {
      // This thread alone reads everything, too.
      LOG(WARNING) << "the system gives no more than " << threads.size()
                   << " threads to read with: " << error.what();
    }
    try {
      while (reads.Next()) {
        if (progress && reads.done() < reads.total()) progress(reads.done(), reads.total());
      }
    } catch (...) {
      reads.Fail(std::current_exception());
    }
  }
  reads.Rethrow();
  if (progress) progress(reads.total(), reads.total());
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return {.bytes = reads.total(), .direct_bytes = reads.direct(), .seconds = time.count()};
}

}  // namespace bloomery::memory
