#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace bloomery {
namespace {

std::string Reason(int error_number) { return std::generic_category().message(error_number); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class MemoryMapping final : public Mapping {
 public:
  MemoryMapping(void* base, size_t mapped, size_t skip)
      : base_(base), mapped_(mapped), skip_(skip) {}
  MemoryMapping(const MemoryMapping&) = delete;
  MemoryMapping& operator=(const MemoryMapping&) = delete;
  ~MemoryMapping() override { munmap(base_, mapped_); }

  std::span<const std::byte> bytes() const override {
    return std::span(static_cast<const std::byte*>(base_), mapped_).subspan(skip_);
  }

 private:
  void* base_;     // page aligned
  size_t mapped_;  // from base_ to the end of what was asked
  size_t skip_;    // bytes of the first page before what was asked
};

// The bytes that one read gave; sets `error` and returns 0 when it failed.
size_t ReadDescriptor(int fd, uint64_t offset, std::span<std::byte> out, std::error_code& error) {
  for (;;) {
    const ssize_t n = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EINTR) continue;
    error.assign(errno, std::generic_category());
    return 0;
  }
}

class RealFile final : public File {
 public:
  RealFile(std::string path, FileDescriptor fd, uint64_t size)
      : File(std::move(path)), fd_(std::move(fd)), size_(size) {}

  uint64_t size() const override { return size_; }

  std::unique_ptr<Mapping> Map(uint64_t offset, uint64_t length) const override {
    if (length == 0 || offset > size_ || length > size_ - offset) return nullptr;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t skip = offset % page;
    void* base = mmap(nullptr, length + skip, PROT_READ, MAP_PRIVATE, fd_.get(),
                      static_cast<off_t>(offset - skip));
    if (base == MAP_FAILED) return nullptr;
    return std::make_unique<MemoryMapping>(base, length + skip, skip);
  }

 protected:
  size_t ReadSome(uint64_t offset, std::span<std::byte> out,
                  std::error_code& error) const override {
    return ReadDescriptor(fd_.get(), offset, out, error);
  }

  size_t ReadSomeDirect(uint64_t offset, std::span<std::byte> out,
                        std::error_code& error) const override {
    // The same file, not whatever the path names by now.
    std::call_once(direct_once_, [this] {
      const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
      direct_.emplace(open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    });
    if (direct_->get() < 0) {
      error = std::make_error_code(std::errc::operation_not_supported);
      return 0;
    }
    return ReadDescriptor(direct_->get(), offset, out, error);
  }

  bool Cached(uint64_t offset, uint64_t length) const override {
    // One mapping for all questions, never touched: making one for each would hold up threads that
    // fault pages in.
    std::call_once(probe_once_, [this] { probe_ = Map(0, size_); });
    if (probe_ == nullptr || offset > size_ || length > size_ - offset) return false;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t skip = offset % page;
    std::vector<unsigned char> pages((skip + length + page - 1) / page);
    // mincore only looks, but asks for a pointer to bytes that may be written.
    auto* base = const_cast<std::byte*>(probe_->bytes().data()) + (offset - skip);
    if (mincore(base, skip + length, pages.data()) != 0) return false;
    return std::ranges::all_of(pages, [](unsigned char held) { return (held & 1U) != 0; });
  }

 private:
  FileDescriptor fd_;
  uint64_t size_;
  mutable std::once_flag probe_once_;
  mutable std::unique_ptr<Mapping> probe_;  // of the whole file, to ask what is cached
  mutable std::once_flag direct_once_;
  mutable std::optional<FileDescriptor> direct_;  // -1 where direct reads cannot be had
};

class RealFiles final : public FileSystem {
 public:
  std::shared_ptr<const File> Open(const std::string& path) const override {
    // O_NONBLOCK: a FIFO given by mistake is refused below instead of waiting for a writer.
    FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) {
      throw Error(ErrorKind::kNoInput, "cannot open '" + path + "': " + Reason(errno));
    }
    struct stat info = {};
    if (fstat(fd.get(), &info) != 0) {
      throw Error(ErrorKind::kNoInput, "cannot stat '" + path + "': " + Reason(errno));
    }
    if (!S_ISREG(info.st_mode)) {
      throw Error(ErrorKind::kNoInput, "cannot open '" + path + "': it is not a regular file");
    }
    return std::make_shared<RealFile>(path, std::move(fd), static_cast<uint64_t>(info.st_size));
  }

  bool Exists(const std::string& path) const override {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  }
};

class MemoryView final : public Mapping {
 public:
  explicit MemoryView(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

class MemoryFile final : public File {
 public:
  MemoryFile(std::string path, std::span<const std::byte> bytes)
      : File(std::move(path)), bytes_(bytes) {}

  uint64_t size() const override { return bytes_.size(); }

  std::unique_ptr<Mapping> Map(uint64_t offset, uint64_t length) const override {
    if (length == 0 || offset > bytes_.size() || length > bytes_.size() - offset) return nullptr;
    return std::make_unique<MemoryView>(bytes_.subspan(offset, length));
  }

 protected:
  size_t ReadSome(uint64_t offset, std::span<std::byte> out, std::error_code&) const override {
    if (offset >= bytes_.size()) return 0;
    const size_t n = std::min<uint64_t>(out.size(), bytes_.size() - offset);
    std::memcpy(out.data(), bytes_.data() + offset, n);
    return n;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

void File::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  const auto where = [&](size_t done) {
    return "'" + path_ + "': reading " + std::to_string(out.size()) + " bytes at byte " +
           std::to_string(offset) +
           (done == 0 ? "" : ", after " + std::to_string(done) + " of them");
  };
  size_t done = 0;
  while (done < out.size()) {
    std::error_code error;
    const size_t n = ReadSome(offset + done, out.subspan(done), error);
    if (error) throw Error(ErrorKind::kNoInput, where(done) + ": " + error.message());
    if (n == 0) throw Error(ErrorKind::kNoInput, where(done) + ": the file ends there");
    done += n;
  }
}

uint64_t File::ReadOnceAt(uint64_t offset, std::span<std::byte> out) const {
  const auto address = reinterpret_cast<uintptr_t>(out.data());
  uint64_t done = 0;
  if (offset % kDirectAlignment == 0 && address % kDirectAlignment == 0 &&
      out.size() >= kDirectAlignment && !Cached(offset, out.size())) {
    while (out.size() - done >= kDirectAlignment && done % kDirectAlignment == 0) {
      const uint64_t whole = (out.size() - done) / kDirectAlignment * kDirectAlignment;
      std::error_code error;
      const size_t n = ReadSomeDirect(offset + done, out.subspan(done, whole), error);
      // A file system may refuse direct reads as a whole, or only this one's alignment.
      if (error == std::errc::operation_not_supported || error == std::errc::invalid_argument) {
        break;
      }
      if (error) {
        throw Error(ErrorKind::kNoInput, "'" + path_ + "': reading " + std::to_string(whole) +
                                             " bytes at byte " + std::to_string(offset + done) +
                                             " past the page cache: " + error.message());
      }
      if (n == 0) break;  // the file's end: ReadAt says what is missing
      done += n;
    }
  }
  if (done < out.size()) ReadAt(offset + done, out.subspan(done));
  return done;
}

size_t File::ReadSomeDirect(uint64_t /*offset*/, std::span<std::byte> /*out*/,
                            std::error_code& error) const {
  error = std::make_error_code(std::errc::operation_not_supported);
  return 0;
}

bool File::Cached(uint64_t /*offset*/, uint64_t /*length*/) const { return false; }

const FileSystem& RealFileSystem() {
  static const RealFiles files;
  return files;
}

std::shared_ptr<const File> MakeMemoryFile(std::string path, std::span<const std::byte> bytes) {
  return std::make_shared<MemoryFile>(std::move(path), bytes);
}

std::string ReadWholeFile(const FileSystem& files, const std::string& path, uint64_t bytes_max) {
  const std::shared_ptr<const File> file = files.Open(path);
  if (file->size() > bytes_max) {
    throw Error(ErrorKind::kNoInput, "'" + path + "' has " + std::to_string(file->size()) +
                                         " bytes, at most " + std::to_string(bytes_max) +
                                         " are read");
  }
  std::string text(file->size(), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace bloomery
