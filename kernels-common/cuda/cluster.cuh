// Inside CUDA sources: clusters of blocks (compute capability 9.0), which run at the same time and
// may write to each other's shared memory: what all of them need each makes a part of, for all.
//
// Order: ClusterArrive at a kernel's beginning and ClusterWait before the first store to another
// block (it may not have started); after the last one again both, then what others stored is there.
// No block may end before the others' last stores to it, which the second wait sees to.
#pragma once

#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/launch.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kClusterMost = 8;  // what every such device has

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ int ClusterSize() {
  int size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return size;
}
__device__ __forceinline__ int ClusterRank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
  return rank;
}

// By all threads of all blocks.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `address` of this block's shared memory lies in that of block `rank`.
__device__ __forceinline__ std::uint32_t InBlock(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ void StoreInBlock(std::uint32_t there, const uint4& value) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreInBlock(std::uint32_t there, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

#endif

// As Start, in clusters of `cluster` blocks, which divides the grid.
template <class... Parameters, class... Arguments>
cudaError_t StartClusters(const Launch& launch, unsigned cluster, dim3 grid, dim3 block,
                          std::size_t shared_bytes, void (*kernel)(Parameters...),
                          Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = launch.dependent ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// The cluster of 8, 4, 2 blocks or 1 with which most of `blocks` run at once (the largest such
// that divides them): how many multiprocessors share a cluster differs from card to card.
template <class... Parameters>
unsigned ClusterFor(unsigned blocks, dim3 block, std::size_t shared_bytes,
                    void (*kernel)(Parameters...)) {
  unsigned best = 1;
  unsigned most = 0;
  for (unsigned cluster = kClusterMost; cluster > 1; cluster /= 2) {
    if (blocks % cluster != 0) continue;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    const unsigned at_once = static_cast<unsigned>(clusters) * cluster;
    const unsigned running = at_once < blocks ? at_once : blocks;
    if (running > most) {
      most = running;
      best = cluster;
    }
  }
  return best;
}

}  // namespace bloomery::kernels::cuda
