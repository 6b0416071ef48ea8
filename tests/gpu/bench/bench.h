// Timing of the card's kernels: a registry of named benchmarks and one way to measure a launch.
//
// A launch is repeated inside a captured graph, as the runtime does it (dependent launches keep
// their edges); the graph is replayed several times and the fastest replay counts. A benchmark that
// reads weights rotates over enough copies that the L2 cache (60 MB) does not hold them.
#pragma once

#include <functional>
#include <string>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::bench {

// What one repetition does: bytes that must come from device memory, and operations (a multiply and
// an add count as two).
struct Work {
  double bytes = 0;
  double operations = 0;
};

// Enqueues repetition i.
using Repetition = std::function<cudaError_t(const cuda::Launch& launch, int i)>;

// Measures `repetitions` of a launch and prints one line: name, us a repetition, GB/s and TOPS with
// their shares of what the card can do (kBytesBound, kOperationsBound).
void Measure(const std::string& name, const Work& work, int repetitions,
             const Repetition& repetition);

// An H200: 4.8 TB/s of memory by its data sheet, and 1,979 TOPS of dense int8.
inline constexpr double kBytesBound = 4.8e12;
inline constexpr double kOperationsBound = 1.979e15;

// Adds a benchmark to the program: `static const Registered r("name", Function);`. --filter chooses
// those whose name holds it.
class Registered {
 public:
  Registered(std::string name, std::function<void()> run);
};

}  // namespace bloomery::kernels::bench
