// Counts what a plugin calls of the C library: its imports are redirected, in this process and for
// the rest of its life, to functions that count and pass on. What the plugin links statically is
// seen, too, for it calls the C library through the same imports. For the tests that run in a
// process of their own; one watch a process.
#pragma once

#include <cstdint>
#include <string>

namespace bloomery::apps::check {

// Since the last Reset.
struct ImportCounts {
  uint64_t allocations = 0;    // malloc and its kin
  uint64_t largest_bytes = 0;  // of one allocation
  int64_t held_bytes = 0;      // allocated and not freed, by what the allocator rounds to
  uint64_t maps = 0;           // mmap
  uint64_t locks = 0;          // pthread_mutex_lock, pthread_rwlock_*, sem_wait, …
  std::string outside;         // the first function called that looks outside of the process, or
                               // starts something in it; and what it was asked for, where known
};

class ImportWatch {
 public:
  // `path`: a plugin that is loaded. Throws Failed where its imports cannot be found.
  explicit ImportWatch(const std::string& path);
  void Reset();
  ImportCounts counts() const;
};

}  // namespace bloomery::apps::check
