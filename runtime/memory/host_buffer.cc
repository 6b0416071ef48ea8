#include "runtime/memory/host_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace bloomery::memory {

HostBuffer::HostBuffer(uint64_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw Error(ErrorKind::kNoMemory, what + ": the system gives no " + std::to_string(bytes) +
                                          " bytes (" + std::generic_category().message(errno) +
                                          ")");
  }
  data_ = static_cast<std::byte*>(mapped);
  // Large pages spare page walks when weights are streamed; where there are none nothing is lost.
  madvise(mapped, bytes, MADV_HUGEPAGE);
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

}  // namespace bloomery::memory
