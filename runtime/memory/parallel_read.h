// Reads many stretches of files into memory with several reads in flight, so that a drive works at
// its depth: threads of its own, each with one read at a time. Owns nothing but those threads,
// which end with the call. It retries nothing and keeps no bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/file.h"

namespace bloomery::memory {

// Bytes [offset, offset + to.size()) of `file`, and where they go. Offsets and addresses that are
// multiples of File::kDirectAlignment can be read past the page cache.
struct ReadStretch {
  const File* file = nullptr;
  uint64_t offset = 0;
  std::span<std::byte> to;
};

// What a load took.
struct ReadReport {
  uint64_t bytes = 0;
  uint64_t direct_bytes = 0;  // past the page cache
  double seconds = 0;
};

// Reads all stretches, cut where `to` crosses a multiple of limits::kLoadReadBytes, at most
// limits::kLoadReadsMax at a time. `progress(done, total)` is called by the calling thread now and
// then, `done` growing, and with the total at the end. The first failed read's Error, or what
// `progress` throws, ends the reading and is thrown when no read is in flight any more; what was
// read until then stays in place.
ReadReport ReadAll(std::span<const ReadStretch> stretches,
                   const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace bloomery::memory
