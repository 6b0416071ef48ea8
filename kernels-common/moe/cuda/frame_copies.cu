#include "kernels-common/moe/cuda/frame_copies.h"

#include "kernels-common/cuda/launch.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // loads of a thread in flight
// Blocks of a matrix: few, since the card is at a prompt meanwhile.
constexpr unsigned kBlocks = 4;

template <class T>
__device__ void Copy(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  const auto* in = reinterpret_cast<const T*>(from);
  auto* out = reinterpret_cast<T*>(to);
  const std::uint64_t count = bytes / sizeof(T);
  const std::uint64_t step = std::uint64_t{gridDim.x} * kThreads;
  std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * step < count; i += kUnroll * step) {
    T words[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) words[u] = in[i + u * step];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) out[i + u * step] = words[u];
  }
  for (; i < count; i += step) out[i] = in[i];
}

// A matrix of an expert for each y. Overwrites frames; 16 bytes at a time where all are such.
__global__ void __launch_bounds__(kThreads)
    CopyFramesKernel(const __grid_constant__ FrameCopies copies) {
  WaitForInputs();
  const unsigned expert = blockIdx.y / 3;
  const unsigned matrix = blockIdx.y % 3;
  const std::uint64_t bytes = copies.bytes[matrix];
  const std::byte* const from =
      copies.from[matrix] + static_cast<std::uint64_t>(copies.place[expert]) * bytes;
  std::byte* const to =
      copies.to[matrix] + static_cast<std::uint64_t>(copies.frame[expert]) * bytes;
  const bool even = (reinterpret_cast<std::uintptr_t>(from) % sizeof(uint4) == 0) &&
                    (reinterpret_cast<std::uintptr_t>(to) % sizeof(uint4) == 0) &&
                    bytes % sizeof(uint4) == 0;
  if (even) {
    Copy<uint4>(from, to, bytes);
  } else {
    Copy<unsigned char>(from, to, bytes);
  }
}

}  // namespace

cudaError_t CopyFrames(const Launch& launch, const FrameCopies& copies) {
  if (copies.count == 0) return cudaSuccess;
  const dim3 grid(kBlocks, static_cast<unsigned>(3 * copies.count));
  return Start(launch, grid, dim3(kThreads), 0, CopyFramesKernel, copies);
}

}  // namespace bloomery::kernels::cuda
