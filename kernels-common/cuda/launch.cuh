// Inside CUDA sources: the one way to start a kernel, and its device side. A kernel that Start
// launches calls WaitForInputs() before its first read of anything that an earlier kernel writes
// (weights may be read before), and AllowNext() once its remaining work may share the card with the
// next kernel's beginning. Both do nothing where the launch is not dependent.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

__device__ __forceinline__ void WaitForInputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void AllowNext() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Enqueues kernel<<<grid, block, shared_bytes>>>(arguments...). More than 48 KiB of dynamic shared
// memory need AllowShared first, once a device.
template <class... Parameters, class... Arguments>
cudaError_t Start(const Launch& launch, dim3 grid, dim3 block, std::size_t shared_bytes,
                  void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = launch.dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// The kernel runs with as much of the multiprocessor's memory as shared memory as there is. Two
// kernels in a row of which one is cut otherwise do not overlap, and the change costs 2 to 3 us
// (measured on an H200): every kernel of a decode pass asks for this.
template <class... Parameters>
cudaError_t PreferShared(void (*kernel)(Parameters...)) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// Allows `bytes` of dynamic shared memory, or what the device has for the kernel where that is
// less.
template <class... Parameters>
cudaError_t AllowShared(void (*kernel)(Parameters...), std::size_t bytes) {
  int device = 0;
  int most = 0;
  cudaFuncAttributes attributes = {};
  cudaError_t status = PreferShared(kernel);
  if (status == cudaSuccess) {
    status = cudaGetDevice(&device);
  }
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status == cudaSuccess) {
    status = cudaFuncGetAttributes(&attributes, kernel);
  }
  if (status != cudaSuccess) {
    return status;
  }
  const std::size_t offered = static_cast<std::size_t>(most) - attributes.sharedSizeBytes;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes < offered ? bytes : offered));
}

}  // namespace bloomery::kernels::cuda
