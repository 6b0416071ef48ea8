#include "tests/support/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {
thread_local size_t allocations = 0;
}  // namespace

// Not inlined: the compiler would take malloc and free for a mismatched pair.
// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is operator new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace bloomery::test {

size_t AllocationsOfThisThread() { return allocations; }

}  // namespace bloomery::test
