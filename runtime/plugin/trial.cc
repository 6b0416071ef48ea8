#include "runtime/plugin/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/log.h"
#include "runtime/plugin/host_model.h"
#include "runtime/plugin/library.h"
#include "runtime/plugin/select.h"

namespace bloomery::plugin {
namespace {

using Clock = std::chrono::steady_clock;

// What the child leaves for its parent. Calls are named by literals, which lie at one address in
// both.
struct Shared {
  ForeignCall call;
  bool done = false;
};

class SharedPage {
 public:
  SharedPage() {
    void* p =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw Error(ErrorKind::kNoMemory, "no memory to try a plugin");
    shared_ = new (p) Shared();  // NOLINT(cppcoreguidelines-owning-memory): placed, not taken
  }
  ~SharedPage() { ::munmap(shared_, sizeof(Shared)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Shared* operator->() { return shared_; }
  Shared& operator*() { return *shared_; }

 private:
  Shared* shared_;
};

// The child's part. Locks that other threads of the parent held stay held here for ever: nothing is
// logged, and memory is glibc's, which a fork leaves usable.
[[noreturn]] void TryInChild(const std::string& path, const model::ModelFile& model,
                             const TrialOptions& options, Shared& shared) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  FLAGS_minloglevel = google::NUM_SEVERITIES;
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  ForeignCallNote::WriteTo(&shared.call);
  try {
    const LoadedPlugin plugin = LoadPlugin(path);
    const HostModel host_model(model);
    Probe(plugin, host_model.raw());
    Instance instance(plugin, model, {});
    if (options.build) options.build(instance);
  } catch (...) {
    // Refused: the same calls in the parent are to say so. An exception that crossed the ABI in a
    // call is an Error by now, and one in a constructor of the library ends the process.
    shared.done = true;
  }
  shared.done = true;
  ::_exit(0);
}

// Waits until `pid` has ended or the deadline has come; true where it has ended.
bool EndsWithin(pid_t pid, std::chrono::milliseconds limit, int& status) {
  const auto deadline = Clock::now() + limit;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  bool ended = false;
  while (!ended) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || fd < 0) break;
    pollfd polled = {fd, POLLIN, 0};
    ended = ::poll(&polled, 1, static_cast<int>(left)) > 0;
  }
  if (fd >= 0) ::close(fd);
  if (!ended) ::kill(pid, SIGKILL);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

}  // namespace

void TryPlugin(const std::string& path, const model::ModelFile& model,
               const TrialOptions& options) {
  SharedPage shared;
  const pid_t pid = ::fork();
  if (pid == 0) TryInChild(path, model, options, *shared);
  if (pid < 0) {
    throw Error(
        ErrorKind::kNoMemory,
        "plugin " + path + ": cannot be tried in a process of its own: " + std::strerror(errno));
  }
  int status = 0;
  const bool ended = EndsWithin(pid, options.limit, status);
  if (shared->done) return;
  const std::string call = shared->call.call == nullptr ? "between calls" : shared->call.call;
  std::string what;
  if (!ended) {
    what = "did not return within " + std::to_string(options.limit.count() / 1000) + " s";
  } else if (WIFSIGNALED(status)) {
    what = std::string("crashed: ") + ::sigdescr_np(WTERMSIG(status));
  } else {
    what = "ended the process with code " + std::to_string(WEXITSTATUS(status));
  }
  throw Error(ErrorKind::kBadModel, "plugin " + path + ", " + call + ": " + what +
                                        ", tried in a process of its own; the plugin is broken");
}

}  // namespace bloomery::plugin
