#include "runtime/memory/host_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace bloomery::memory {
namespace {

// Of x86-64 and of aarch64 with pages of 4 KiB.
constexpr uint64_t kHugePage = uint64_t{2} << 20;

void* MapAnonymous(uint64_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
}

// Mapped on a huge page's boundary: address space is asked for generously and its ends given back.
void* MapAligned(uint64_t bytes) {
  void* mapped = MapAnonymous(bytes + kHugePage);
  if (mapped == MAP_FAILED) return mapped;
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const uint64_t skip = (kHugePage - address % kHugePage) % kHugePage;
  auto* begin = static_cast<std::byte*>(mapped) + skip;
  if (skip > 0) munmap(mapped, skip);
  const uint64_t page = 4096;
  const uint64_t end = (bytes + page - 1) / page * page;
  if (kHugePage - skip + bytes > end) munmap(begin + end, kHugePage - skip + bytes - end);
  return begin;
}

}  // namespace

HostBuffer::HostBuffer(uint64_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes == 0) return;
  const bool large = bytes >= kHugePage && bytes < UINT64_MAX - kHugePage;
  void* mapped = large ? MapAligned(bytes) : MapAnonymous(bytes);
  if (mapped == MAP_FAILED) {
    throw Error(ErrorKind::kNoMemory, what + ": the system gives no " + std::to_string(bytes) +
                                          " bytes (" + std::generic_category().message(errno) +
                                          ")");
  }
  data_ = static_cast<std::byte*>(mapped);
  // Where there are none nothing is lost; HugeBytes says what was got.
  if (large) madvise(mapped, bytes, MADV_HUGEPAGE);
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

// /proc/self/smaps: "begin-end rw-p …" opens a mapping, "AnonHugePages: N kB" is among its lines.
// The kernel may have cut ours into several or joined it with a neighbour; a mapping counts with at
// most its common part.
std::optional<uint64_t> HostBuffer::HugeBytes() const {
  std::ifstream maps("/proc/self/smaps");
  if (!maps) return std::nullopt;
  const auto first = reinterpret_cast<uintptr_t>(data_);
  uint64_t common = 0;
  uint64_t huge = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      const uint64_t from = std::max<uint64_t>(begin, first);
      const uint64_t to = std::min<uint64_t>(end, first + bytes_);
      common = to > from ? to - from : 0;
    } else if (common > 0 && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kib) == 1) {
      huge += std::min(kib * 1024, common);
    }
  }
  return huge;
}

}  // namespace bloomery::memory
