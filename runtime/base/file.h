// Files behind an interface, so that tests can make them fail, tear and delay. A FileSystem opens
// read-only Files; a File gives exact positioned reads and, where it can, read-only mappings.
// Files are immutable handles: any thread may read at any time. Bytes that are wanted once can come
// past the system's page cache. Nothing here writes, caches or retries beyond completing short
// reads.
//
//   auto file = RealFileSystem().Open("model.gguf");
//   file->ReadAt(0, std::as_writable_bytes(std::span(header)));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>

namespace bloomery {

// A read-only view of file bytes in memory; the bytes live as long as this object. The file must
// not be cut while it is mapped: the kernel answers a touch past the new end with SIGBUS.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

class File {
 public:
  virtual ~File() = default;

  // As given to Open, for messages.
  const std::string& path() const { return path_; }

  // Bytes of the file when it was opened.
  virtual uint64_t size() const = 0;

  // Fills `out` with the bytes at [offset, offset + out.size()). Short reads are completed.
  // Throws Error(kNoInput) naming path, offset and count on a failed read and at the file's end.
  void ReadAt(uint64_t offset, std::span<std::byte> out) const;

  // Like ReadAt, for bytes that nobody reads a second time: what the page cache holds is copied
  // from it, the rest comes past it, from the device into `out`, where the file system can do that
  // and offset and address are multiples of kDirectAlignment; else through the cache. Returns the
  // bytes that came past it.
  uint64_t ReadOnceAt(uint64_t offset, std::span<std::byte> out) const;
  static constexpr uint64_t kDirectAlignment = 4096;  // covers every sector size in use

  // Maps [offset, offset + length), which must lie inside the file and not be empty; any offset
  // is fine. Returns null where this file cannot be mapped: read instead.
  virtual std::unique_ptr<Mapping> Map(uint64_t offset, uint64_t length) const = 0;

 protected:
  explicit File(std::string path) : path_(std::move(path)) {}

  // One read: how many of out's bytes were filled, possibly fewer than asked, 0 at the file's end.
  // Sets `error` and returns 0 when it fails. `out` is never empty.
  virtual size_t ReadSome(uint64_t offset, std::span<std::byte> out,
                          std::error_code& error) const = 0;

  // One read past the page cache; offset, address and length are multiples of kDirectAlignment. As
  // ReadSome, and the error operation_not_supported where this file has no such reads.
  virtual size_t ReadSomeDirect(uint64_t offset, std::span<std::byte> out,
                                std::error_code& error) const;

  // True when the page cache is known to hold all of [offset, offset + length).
  virtual bool Cached(uint64_t offset, uint64_t length) const;

  // Lets a wrapping File forward to another File's ReadSome.
  static size_t ReadSomeOf(const File& file, uint64_t offset, std::span<std::byte> out,
                           std::error_code& error) {
    return file.ReadSome(offset, out, error);
  }
  static size_t ReadSomeDirectOf(const File& file, uint64_t offset, std::span<std::byte> out,
                                 std::error_code& error) {
    return file.ReadSomeDirect(offset, out, error);
  }

 private:
  std::string path_;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a regular file for reading. Throws Error(kNoInput) naming the path and the reason.
  virtual std::shared_ptr<const File> Open(const std::string& path) const = 0;

  // True when Open would find something at `path`; says nothing about permissions.
  virtual bool Exists(const std::string& path) const = 0;
};

// The operating system's files: pread and mmap. Stateless; one shared instance.
const FileSystem& RealFileSystem();

// A File over bytes in memory that the caller keeps alive: for tests and fuzzing, and for data
// that is already here. `path` only names it in messages. Map gives a view without copying.
std::shared_ptr<const File> MakeMemoryFile(std::string path, std::span<const std::byte> bytes);

// The whole file as a string. Throws Error(kNoInput) as Open and ReadAt do, and
// Error(kNoMemory) when it is larger than `bytes_max`.
std::string ReadWholeFile(const FileSystem& files, const std::string& path, uint64_t bytes_max);

}  // namespace bloomery
