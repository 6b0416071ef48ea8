// What the card's tests and timing programs share: arrays in device memory, and a launch on the
// default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <stdexcept>
#include <vector>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::testing {

inline void Check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

// An array in device memory, filled from a vector or with one byte.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count, int byte = 0) : count_(count) {
    Check(cudaMalloc(&data_, count * sizeof(T) + 256));
    Check(cudaMemset(data_, byte, count * sizeof(T) + 256));
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    Check(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray& operator=(DeviceArray&&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return count_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    Check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

// While one lives, TestLaunch is that of a card with the least shared memory there is from compute
// capability 8.0 on, and without dependent launches.
class LessSharedMemory {
 public:
  LessSharedMemory() { ++Count(); }
  ~LessSharedMemory() { --Count(); }
  LessSharedMemory(const LessSharedMemory&) = delete;
  LessSharedMemory& operator=(const LessSharedMemory&) = delete;
  static int& Count() {
    static int count = 0;
    return count;
  }
};

// Launches that may overlap where the device can do it, as the runtime's do.
inline cuda::Launch TestLaunch() {
  cuda::Launch launch;
  int device = 0;
  int major = 0;
  Check(cudaGetDevice(&device));
  Check(cudaDeviceGetAttribute(&launch.multiprocessors, cudaDevAttrMultiProcessorCount, device));
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (LessSharedMemory::Count() > 0) {
    return launch;
  }
  Check(cudaDeviceGetAttribute(&launch.shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               device));
  launch.dependent = major >= 9;
  return launch;
}

inline void Finish(cudaError_t launched) {
  Check(launched);
  Check(cudaDeviceSynchronize());
}

}  // namespace bloomery::kernels::testing
