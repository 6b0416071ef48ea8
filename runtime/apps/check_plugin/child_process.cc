#include "runtime/apps/check_plugin/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace bloomery::apps::check {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kKeptBytesMax = 64u << 10;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Close(); }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

Pipe MakePipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kInternal, std::string("no pipe: ") + std::strerror(errno));
  }
  // The child's ends must not sit on the numbers they are moved to.
  const int high = ::fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
  ::close(fds[1]);
  if (high < 0) throw Error(ErrorKind::kInternal, std::string("no pipe: ") + std::strerror(errno));
  return {Fd(fds[0]), Fd(high)};
}

pid_t Spawn(std::span<const std::string> command, int report, int output) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, output, 2);
  ::posix_spawn_file_actions_adddup2(&actions, report, kReportFd);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), ::environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(ErrorKind::kInternal, "cannot start " + command[0] + ": " + std::strerror(error));
  }
  return pid;
}

// Reads what is there; closes the pipe at its end.
void Drain(Fd& fd, std::string& into) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
  if (n > 0) {
    const size_t room = kKeptBytesMax - std::min(kKeptBytesMax, into.size());
    into.append(buffer.data(), std::min(static_cast<size_t>(n), room));
  } else if (n == 0 || errno != EINTR) {
    fd.Close();
  }
}

}  // namespace

ChildResult RunChild(std::span<const std::string> command, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  Pipe report = MakePipe();
  Pipe output = MakePipe();
  const pid_t pid = Spawn(command, report.write.get(), output.write.get());
  report.write.Close();
  output.write.Close();

  ChildResult result;
  while (report.read.get() >= 0 || output.read.get() >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    std::array<pollfd, 2> polled = {pollfd{report.read.get(), POLLIN, 0},
                                    pollfd{output.read.get(), POLLIN, 0}};
    ::poll(polled.data(), polled.size(), static_cast<int>(left));
    if (polled[0].revents != 0) Drain(report.read, result.report);
    if (polled[1].revents != 0) Drain(output.read, result.output);
  }
  result.timed_out = report.read.get() >= 0 || output.read.get() >= 0;
  if (result.timed_out) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-pid, SIGKILL);  // what the child may have left behind in its group
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace bloomery::apps::check
