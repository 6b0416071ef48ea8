#include "runtime/plugin/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

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
    Instance instance(plugin, model, options.instance);
    if (options.build) options.build(instance);
  } catch (...) {
    // Refused: the same calls in the parent are to say so. An exception that crossed the ABI in a
    // call is an Error by now, and one in a constructor of the library ends the process.
    shared.done = true;
  }
  shared.done = true;
  ::_exit(0);
}

// A pipe whose writing end the child alone holds: its reading end says when the child has closed
// it, which is when it ends.
class Lifeline {
 public:
  Lifeline() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) ends_ = {-1, -1};
  }
  ~Lifeline() {
    Close(0);
    Close(1);
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  bool made() const { return ends_[0] >= 0; }
  void LeaveToChild() { Close(1); }
  void WaitUntil(Clock::time_point deadline) const {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd polled = {ends_[0], POLLIN, 0};
      if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) > 0) return;
    }
  }

 private:
  void Close(size_t end) {
    if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
  }
  std::array<int, 2> ends_{};
};

// How the child ended; nullopt where it had to be killed. A plugin may have closed the pipe and
// gone on, so that what it says is looked at again, a thousand times a second.
std::optional<int> Await(pid_t pid, const Lifeline& lifeline, Clock::time_point deadline) {
  lifeline.WaitUntil(deadline);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

// A real-time signal has no description.
std::string SignalText(int number) {
  const char* text = ::sigdescr_np(number);
  return text == nullptr ? "signal " + std::to_string(number) : text;
}

}  // namespace

void TryPlugin(const std::string& path, const model::ModelFile& model,
               const TrialOptions& options) {
  SharedPage shared;
  Lifeline lifeline;
  const pid_t pid = lifeline.made() ? ::fork() : -1;
  if (pid == 0) TryInChild(path, model, options, *shared);
  if (pid < 0) {
    LOG(WARNING) << "plugin " << path
                 << " is loaded untried, for there is no process to try it in: "
                 << std::strerror(errno);
    return;
  }
  lifeline.LeaveToChild();
  const std::optional<int> status = Await(pid, lifeline, Clock::now() + options.limit);
  if (shared->done) return;
  const std::string call = shared->call.call == nullptr ? "between calls" : shared->call.call;
  std::string what;
  if (!status) {
    what = "did not return within " + std::to_string(options.limit.count() / 1000) + " s";
  } else if (WIFSIGNALED(*status)) {
    what = "crashed: " + SignalText(WTERMSIG(*status));
  } else {
    what = "ended the process with code " + std::to_string(WEXITSTATUS(*status));
  }
  throw Error(ErrorKind::kBadModel, "plugin " + path + ", " + call + ": " + what +
                                        ", tried in a process of its own; the plugin is broken");
}

}  // namespace bloomery::plugin
