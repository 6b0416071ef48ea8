// Counts what a thread takes from operator new. A test program that lists allocation_count.cc among
// its sources has its operator new and delete replaced for the whole program, so it is a program of
// its own. Memory taken by malloc itself is not seen.
#pragma once

#include <cstddef>

namespace bloomery::test {

// How often the calling thread has called operator new since it began.
size_t AllocationsOfThisThread();

}  // namespace bloomery::test
