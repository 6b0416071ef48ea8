// Anonymous host memory of its own mapping: page aligned, zero at first, committed page by page as
// it is touched, so that a generous capacity costs only what is used. Large ones start on a huge
// page and ask for such pages, which spare page walks when weights are streamed. Move only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace bloomery::memory {

class HostBuffer {
 public:
  HostBuffer() = default;
  // `what` names the memory in the refusal. Throws Error(kNoMemory) when the system gives none.
  HostBuffer(uint64_t bytes, const std::string& what);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

  // Bytes that lie on huge pages now, as the system tells; nullopt where it does not.
  std::optional<uint64_t> HugeBytes() const;

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace bloomery::memory
