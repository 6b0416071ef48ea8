// The pass loop allocates nothing: every call of malloc and its like in the process, on any thread,
// is counted while real passes run. Not part of sanitizer builds, which bring an allocator of their
// own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "tests/oracle/seat_fixture.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> calls{0};
void Count() {
  if (counting.load(std::memory_order_relaxed)) calls.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// glibc's own entry points: the names below replace malloc for the whole program.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* p, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(size_t n, size_t bytes) {
  Count();
  return __libc_calloc(n, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* p, size_t bytes) {
  Count();
  return __libc_realloc(p, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
}

namespace bloomery::test {
namespace {

int AllocationsDuring(const std::function<void()>& body) {
  calls = 0;
  counting = true;
  body();
  counting = false;
  return calls;
}

TEST(Allocation, TheCounterSeesAnAllocation) {
  EXPECT_GE(AllocationsDuring([] {
              std::vector<int> v(1000, 1);
              v[3] = 2;
            }),
            1);
}

TEST(Allocation, PassesOfEverySizeAllocateNothingOnAnyThread) {
  LoadedSeat loaded = LoadThroughPlugin(
      SeedlingPath(),
      {.slots = 3, .slot_context = 640, .rows_max = 512, .threads = 3, .pin = false});
  exec::Seat& seat = *loaded.seat;
  std::vector<exec::PassRow> rows;
  rows.reserve(512);
  int32_t length = 0;
  for (const int32_t count : {1, 2, 3, 8, 9, 40, 512, 1, 1, 1, 4}) {
    rows.clear();
    for (int32_t i = 0; i < count; ++i, ++length) {
      rows.push_back(
          {.slot = 1, .index = length, .token = (length * 13) % 2012, .logits = i + 1 == count});
    }
    EXPECT_EQ(AllocationsDuring([&] { seat.Run(rows); }), 0) << "a pass of " << count << " rows";
  }
  EXPECT_EQ(AllocationsDuring([&] {
              seat.CopySlot(1, 2, 300);
              seat.Cut(1, 100);
              static_cast<void>(seat.Logits(0));
            }),
            0);
}

}  // namespace
}  // namespace bloomery::test
