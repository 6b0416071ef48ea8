#include "runtime/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/output_check.h"

namespace bloomery {
namespace {

constexpr size_t kWriteBytesMax = size_t{1} << 30;  // one write call takes at most about 2 GiB

[[noreturn]] void Refuse(const std::string& path, const std::string& what, int error_number) {
  throw Error(ErrorKind::kNoInput, "cannot write '" + path + "': " + what + ": " +
                                       std::generic_category().message(error_number));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

void OutputFile::RemovePartialFiles(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPartialPrefix)) continue;
    pid_t process = 0;
    const char* const begin = name.data() + kPartialPrefix.size();
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), process);
    if (error != std::errc() || process <= 0 || *end != '-') continue;
    if (kill(process, 0) != 0 && errno == ESRCH) unlink(entry.path().c_str());
  }
}

void CheckOutputFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) Refuse(path, "cannot create it", EISDIR);
  if (access(FolderOf(path).c_str(), W_OK | X_OK) != 0) Refuse(path, "cannot create it", errno);
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  CheckOutputFile(path_);
  const std::string start =
      FolderOf(path_) + "/" + std::string(kPartialPrefix) + std::to_string(getpid()) + "-";
  // Others of this process may be writing in the same folder.
  for (int other = 0; fd_ < 0; ++other) {
    temporary_ = start + std::to_string(other);
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0 && errno != EEXIST) {
      temporary_.clear();
      Fail("cannot create it", errno);
    }
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
  // The name is in the folder, and is durable once that is.
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder may be written to and not read
  const bool durable = fsync(folder) == 0 || errno == EINVAL;  // some file systems have none of it
  const int failed = errno;
  close(folder);
  if (!durable) Fail("making its name durable", failed);
}

void OutputFile::Fail(const std::string& what, int error_number) const {
  Refuse(path_, what, error_number);
}

}  // namespace bloomery
