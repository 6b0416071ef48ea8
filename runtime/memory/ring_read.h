// Reads stretches of files, in order, through a ring of memory that is smaller than all of them:
// threads of its own read ahead as far as there is room, whoever takes the bytes says when a
// stretch's place is free again. Owns those threads, which end with it; stretches and ring are the
// caller's. One thread takes and frees. Readers and taker poll a while before they sleep, because
// on a virtual machine waking a thread can cost more than reading what it waits for.
//
//   PlaceInRing(stretches, ring.size(), 64);
//   RingReader reader(stretches, ring);
//   while (!reader.Ready(0)) reader.Await(0, std::chrono::microseconds(500));
//   …what is at stretches[0].at of the ring…
//   reader.Free(1);
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/file.h"

namespace bloomery::memory {

// Bytes [offset, offset + bytes) of a file. Where offsets are multiples of File::kDirectAlignment
// they can come past the page cache.
struct RingStretch {
  const File* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;   // from the ring's first byte; a multiple of File::kDirectAlignment
  size_t after = 0;  // so many stretches before it must be free before it is read
};

// What a stretch takes of the ring.
constexpr uint64_t RingBytes(uint64_t bytes) {
  return (bytes + File::kDirectAlignment - 1) / File::kDirectAlignment * File::kDirectAlignment;
}

// Gives each stretch, in order, its place in a ring of `ring_bytes`, at most `most` of them there
// at a time. None may need more than the ring.
void PlaceInRing(std::span<RingStretch> stretches, uint64_t ring_bytes, size_t most);

class RingReader {
 public:
  // Begins to read. A stretch is read in parts of limits::kLoadReadBytes, up to
  // limits::kLoadReadsMax at a time.
  RingReader(std::span<const RingStretch> stretches, std::span<std::byte> ring);
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;
  // Waits for reads in flight.
  ~RingReader();

  // True where all of stretch `i` is there. Throws the first failed read's Error.
  bool Ready(size_t i) const;
  // Returns when stretch `i` is there, reading has failed, or `most` has passed.
  void Await(size_t i, std::chrono::microseconds most);
  // The places of the first `count` stretches may be written again.
  void Free(size_t count);

  // So far past the page cache.
  uint64_t direct_bytes() const { return direct_.load(std::memory_order_relaxed); }

 private:
  struct Part {
    size_t stretch = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };

  void Run();
  void Read(const Part& part);
  // False where reading has been stopped.
  bool AwaitRoom(size_t after);
  void Stop(const std::exception_ptr& failure);

  std::span<const RingStretch> stretches_;
  std::span<std::byte> ring_;
  std::vector<Part> parts_;
  std::vector<std::atomic<uint32_t>> left_;  // by stretch: parts not yet there
  std::atomic<size_t> next_{0};
  std::atomic<size_t> freed_{0};
  std::atomic<uint64_t> direct_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable arrived_;  // the taker waits
  std::condition_variable room_;     // readers wait
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace bloomery::memory
