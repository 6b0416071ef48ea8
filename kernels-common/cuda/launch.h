// How kernels of the card are launched: a stream, and whether a launch may start while the one
// before it in the stream still runs (programmatic dependent launch). Launch functions of the
// topics' cuda/ folders take a Launch and raw device pointers, enqueue, and return; they never
// synchronise, allocate, or touch the default stream, so all of them can be captured into a graph.
// Host code without CUDA's compiler may include this header.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace bloomery::kernels::cuda {

struct Launch {
  cudaStream_t stream = nullptr;
  std::int32_t multiprocessors = 1;
  // Kernels start early and wait (cudaGridDependencySynchronize) before they read what others
  // wrote. Only where the device has it (compute capability 9.0 and up).
  bool dependent = false;
  // Most shared memory a block may have on the device (cudaDevAttrMaxSharedMemoryPerBlockOptin);
  // launch functions cut their work by it. What every device of compute capability 8.0 and up has.
  std::int32_t shared_bytes_max = 99 * 1024;
};

// Dynamic shared memory for a kernel that would like `wanted` bytes at most and declares up to
// `own` itself.
inline std::size_t SharedLimit(const Launch& launch, std::size_t wanted, std::size_t own) {
  const std::size_t most = static_cast<std::size_t>(launch.shared_bytes_max) - own;
  return wanted < most ? wanted : most;
}

}  // namespace bloomery::kernels::cuda
