#include "runtime/exec/cpu/read_rate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "runtime/memory/host_memory.h"

namespace bloomery::exec {
namespace {

// A piece that a thread claims: long enough that the hardware's prefetcher runs, short enough that
// threads end together.
constexpr uint64_t kPieceBytes = 1 << 20;
constexpr uint64_t kBytesMin = uint64_t{1} << 30;
constexpr uint64_t kBytesMax = uint64_t{4} << 30;
constexpr uint64_t kCacheTimes = 8;

using Vector = uint64_t __attribute__((vector_size(32)));
// Read side by side, as kernels do: one stream alone does not keep a core's reads in flight, and
// experts were read at 1.1 times of what a single one reached (docs/measurements/split.md).
constexpr size_t kStreams = 4;
constexpr size_t kSums = 2;  // of a stream: an addition waits for no other

uint64_t Sum(const std::byte* data) {
  constexpr size_t kStream = kPieceBytes / sizeof(Vector) / kStreams;
  const auto* vectors = reinterpret_cast<const Vector*>(data);
  std::array<Vector, kStreams * kSums> sums{};
  for (size_t i = 0; i < kStream; i += kSums) {
    for (size_t j = 0; j < kStreams * kSums; ++j) {
      sums[j] += vectors[j / kSums * kStream + i + j % kSums];
    }
  }
  uint64_t sum = 0;
  for (const Vector& part : sums) sum += part[0] + part[1] + part[2] + part[3];
  return sum;
}

class ReadStep : public ops::Step {
 public:
  explicit ReadStep(std::span<const std::byte> memory) : memory_(memory) {}
  int32_t Tasks() const override { return static_cast<int32_t>(memory_.size() / kPieceBytes); }
  bl_status Run(int32_t task, ops::Worker* /*worker*/) const override {
    const uint64_t sum = Sum(memory_.data() + static_cast<uint64_t>(task) * kPieceBytes);
    sum_.fetch_add(sum, std::memory_order_relaxed);
    return BL_OK;
  }
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::span<const std::byte> memory_;
  mutable std::atomic<uint64_t> sum_{0};
};

// Pages that were never written all show one page of zeros, which a cache holds.
class WriteStep : public ops::Step {
 public:
  explicit WriteStep(const memory::HostBuffer& buffer) : buffer_(buffer) {}
  int32_t Tasks() const override { return static_cast<int32_t>(buffer_.size() / kPieceBytes); }
  bl_status Run(int32_t task, ops::Worker* /*worker*/) const override {
    std::byte* data = buffer_.data() + static_cast<uint64_t>(task) * kPieceBytes;
    std::fill(data, data + kPieceBytes, std::byte{1});
    return BL_OK;
  }

 private:
  const memory::HostBuffer& buffer_;
};

}  // namespace

uint64_t ReadRateBytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const uint64_t wanted = cache > 0 ? static_cast<uint64_t>(cache) * kCacheTimes : kBytesMin;
  uint64_t bytes = std::clamp(wanted, kBytesMin, kBytesMax);
  if (const auto left = memory::AvailableHostMemory()) bytes = std::min(bytes, left->bytes / 4);
  return bytes;
}

ReadRate::ReadRate(uint64_t bytes)
    : buffer_(std::max(bytes / kPieceBytes, uint64_t{1}) * kPieceBytes,
              "memory to measure the read bandwidth with") {}

double ReadRate::Measure(Pool& pool) {
  if (!written_) pool.Run(WriteStep(buffer_));
  written_ = true;
  return Of({buffer_.data(), buffer_.size()}, pool, &sum_);
}

double ReadRate::Of(std::span<const std::byte> memory, Pool& pool, uint64_t* sum) {
  const size_t skip = reinterpret_cast<uintptr_t>(memory.data()) % sizeof(Vector);
  memory = memory.subspan(std::min(memory.size(), skip == 0 ? 0 : sizeof(Vector) - skip));
  const ReadStep step(memory.first(memory.size() / kPieceBytes * kPieceBytes));
  const auto start = std::chrono::steady_clock::now();
  pool.Run(step);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (sum != nullptr) *sum = step.sum();
  return static_cast<double>(step.Tasks()) * static_cast<double>(kPieceBytes) / time.count();
}

}  // namespace bloomery::exec
