#include "runtime/base/foreign_call.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace bloomery {
namespace {

// A plugin brings an unwinder of its own. What it throws across the ABI meets our handlers all the
// same, but these ask our unwinder, which ends the process unless it has thrown before: its tables
// are filled then.
[[maybe_unused]] const bool unwinder_is_ready = [] {
  try {
    throw true;
  } catch (bool thrown) {
    return thrown;
  }
}();

// A sanitizer has handlers of its own, with more to say.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizersTell = true;
#else
constexpr bool kSanitizersTell = false;
#endif

struct Places {
  ForeignCall own;
  ForeignCall* at = &own;
};

Places& Here() {
  thread_local Places places;
  return places;
}

// For a handler, which is given nothing of ours; set once.
const char* program_name = "bloomery";

// Pieces of one line, written at once: other threads may write, too, and nothing may allocate.
void WriteLine(std::initializer_list<const char*> pieces) {
  std::array<char, 1024> line{};
  size_t size = 0;
  for (const char* piece : pieces) {
    const size_t n = std::min(std::strlen(piece), line.size() - 1 - size);
    std::memcpy(line.data() + size, piece, n);
    size += n;
  }
  line[size++] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), size);
}

const char* NameOf(int number) {
  const char* name = ::sigdescr_np(number);
  return name == nullptr ? "a signal" : name;
}

void OnCrash(int number) {
  const ForeignCall call = ForeignCallNote::Current();
  if (call.call == nullptr) {
    WriteLine({program_name, ": ended by: ", NameOf(number)});
  } else {
    WriteLine({program_name, ": ended by: ", NameOf(number), ", in the call ", call.call,
               " of plugin ", call.owner, ": the plugin is broken"});
  }
  ::raise(number);  // the handler is gone: the default action, with its core file
}

void OnExit() {
  const ForeignCall call = ForeignCallNote::Current();
  if (call.call == nullptr) return;
  WriteLine({program_name, ": the call ", call.call, " of plugin ", call.owner,
             " ended the process: the plugin is broken"});
  ::_exit(1);
}

}  // namespace

ForeignCall* ForeignCallNote::Place() { return Here().at; }

void ForeignCallNote::WriteTo(ForeignCall* place) { Here().at = place; }

void TellHowProcessEnds(const char* program) {
  program_name = program;
  std::atexit(OnExit);
  if (kSanitizersTell) return;
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction action{};
    action.sa_handler = OnCrash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace bloomery
