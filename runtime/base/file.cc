#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

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
    for (;;) {
      const ssize_t n = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (n >= 0) return static_cast<size_t>(n);
      if (errno == EINTR) continue;
      error.assign(errno, std::generic_category());
      return 0;
    }
  }

 private:
  FileDescriptor fd_;
  uint64_t size_;
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
