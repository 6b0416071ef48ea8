#include "runtime/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace bloomery {
namespace {

constexpr size_t kWriteBytesMax = size_t{1} << 30;  // one write call takes at most about 2 GiB

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".partial-" + std::to_string(getpid())) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    temporary_.clear();
    Fail("cannot create it", errno);
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kWriteBytesMax));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("writing at byte " + std::to_string(size_), errno);
    size_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::Commit() {
  if (fsync(fd_) != 0) Fail("making it durable", errno);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0) Fail("closing it", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("giving it its name", errno);
  temporary_.clear();
}

void OutputFile::Fail(const std::string& what, int error_number) const {
  throw Error(ErrorKind::kNoInput, "cannot write '" + path_ + "': " + what + ": " +
                                       std::generic_category().message(error_number));
}

}  // namespace bloomery
