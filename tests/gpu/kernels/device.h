// What the tests of the card's kernels share: arrays in device memory, a launch on the default
// stream, and a comparison of bits that names the first difference.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
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

// Launches that may overlap where the device can do it, as the runtime's do.
inline cuda::Launch TestLaunch() {
  cuda::Launch launch;
  int device = 0;
  int major = 0;
  Check(cudaGetDevice(&device));
  Check(cudaDeviceGetAttribute(&launch.multiprocessors, cudaDevAttrMultiProcessorCount, device));
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  launch.dependent = major >= 9;
  return launch;
}

inline void Finish(cudaError_t launched) {
  Check(launched);
  Check(cudaDeviceSynchronize());
}

// Equal bits (any NaN equals any other). Names the first difference and how many there are.
inline ::testing::AssertionResult SameBits(std::span<const float> got,
                                           std::span<const float> expected) {
  if (got.size() != expected.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << expected.size();
  }
  std::size_t first = got.size();
  std::size_t differences = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = got[i] != got[i] && expected[i] != expected[i];
    if (!both_nan && std::memcmp(&got[i], &expected[i], sizeof(float)) != 0) {
      first = differences == 0 ? i : first;
      ++differences;
    }
  }
  if (differences == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << differences << " of " << got.size() << " differ, first at " << first << ": got "
         << got[first] << ", expected " << expected[first];
}

template <class T>
::testing::AssertionResult SameValues(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      return ::testing::AssertionFailure()
             << "at " << i << ": got " << +got[i] << ", expected " << +expected[i];
    }
  }
  return got.size() == expected.size() ? ::testing::AssertionSuccess()
                                       : ::testing::AssertionFailure()
                                             << got.size() << " values, expected "
                                             << expected.size();
}

}  // namespace bloomery::kernels::testing
