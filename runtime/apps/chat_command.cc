// bloomery chat: a conversation in the terminal, with a model in this process or with a server.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <thread>

#include "runtime/apps/chat_session.h"
#include "runtime/apps/commands.h"
#include "runtime/apps/hub_models.h"
#include "runtime/apps/program.h"
#include "runtime/apps/recommend.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/base/error.h"
#include "runtime/base/terminal.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

constexpr const char* kHelp =
    "Usage: bloomery chat [-m FILE] [--url URL] [--system TEXT] [flags of bloomery-serve]\n"
    "\n"
    "Talks to a model in this process; without -m to the bundled demo model. With --url it is a\n"
    "client of a running server (http:// or https://), with the server's settings (--api-key gives "
    "its key).\nCtrl-C stops an answer, and at the prompt it leaves; so do /exit and the end of "
    "input. /clear forgets the conversation.\n";

struct ChatFlags {
  std::string url;
  std::string system;
  bool help = false;
  std::vector<std::string> rest;  // for the server's table
};

ChatFlags TakeChatFlags(const std::vector<std::string>& arguments) {
  ChatFlags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "-h" || name == "--help") {
      flags.help = true;
    } else if (name == "--url" || name == "--system") {
      if (i + 1 == arguments.size()) throw Error(ErrorKind::kUsage, name + ": a value is missing");
      (name == "--url" ? flags.url : flags.system) = arguments[++i];
    } else {
      flags.rest.push_back(name);
    }
  }
  return flags;
}

// SIGINT and SIGTERM on a thread of their own: an answer in progress is cancelled, otherwise the
// program is left (the terminal read cannot be woken).
class Interrupts {
 public:
  explicit Interrupts(ChatBackend& backend) : backend_(backend) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Interrupts() {
    // Wakes the thread with a signal of its own kind; `ending_` says that it is not the user's.
    ending_.store(true);
    ::pthread_kill(thread_.native_handle(), SIGINT);
    thread_.join();
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void SetAnswering(bool answering) { answering_.store(answering); }

 private:
  void Run() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    while (true) {
      int signal = 0;
      sigwait(&set, &signal);
      if (ending_.load()) return;
      if (signal == SIGTERM || !answering_.load()) {
        constexpr std::string_view kNewLine = "\n";
        [[maybe_unused]] const auto written =
            ::write(STDOUT_FILENO, kNewLine.data(), kNewLine.size());
        ::_exit(kExitOk);
      }
      backend_.Cancel();
    }
  }

  ChatBackend& backend_;
  std::atomic<bool> answering_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

int Converse(ChatBackend& backend, const std::string& system) {
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  const bool shows = ::isatty(STDOUT_FILENO) != 0;
  std::vector<ChatMessage> messages;
  const auto clear = [&] {
    messages.clear();
    if (!system.empty()) messages.push_back({"system", system});
  };
  clear();
  Interrupts interrupts(backend);
  while (true) {
    if (terminal) std::cout << "> " << std::flush;
    std::string line;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line == "/clear") {
      clear();
      continue;
    }
    if (line.empty()) continue;
    // A word with a slash is a command meant; a path or a sentence goes to the model.
    if (line[0] == '/' && line.find_first_of(" /", 1) == std::string::npos) {
      std::cerr
          << "commands: /clear forgets the conversation, /exit leaves (as Ctrl-C and Ctrl-D)\n";
      continue;
    }
    messages.push_back({"user", line});
    interrupts.SetAnswering(true);
    std::string answer;
    bool came = false;  // something of the answer
    try {
      answer = backend.Ask(messages, [&](const std::string& text) {
        came = true;
        std::cout << (shows ? ForTerminal(text) : text) << std::flush;
      });
    } catch (const Error& error) {
      interrupts.SetAnswering(false);
      if (came) std::cout << std::endl;
      if (!terminal) throw;  // a script wants to know
      std::cerr << ForTerminal(error.what()) << std::endl;
      messages.pop_back();
      continue;
    }
    interrupts.SetAnswering(false);
    std::cout << std::endl;
    messages.push_back({"assistant", answer});
  }
  if (terminal) std::cout << std::endl;
  return kExitOk;
}

}  // namespace

int ChatCommand(const std::vector<std::string>& arguments) {
  const ChatFlags flags = TakeChatFlags(arguments);
  if (flags.help) {
    std::cout << kHelp;
    return kExitOk;
  }
  serve::FlagSources sources = SourcesOf(flags.rest, RealFileSystem());
  serve::ParsedFlags parsed = serve::ParseFlags(sources);
  serve::ServeSettings& settings = parsed.settings;
  ReadNamedFiles(settings, RealFileSystem());
  HoldStopSignals();
  if (!flags.url.empty()) {
    if (!settings.model_path.empty() || !settings.hf_repo.empty()) {
      throw Error(ErrorKind::kUsage, "--url: cannot be given together with a model");
    }
    const auto backend =
        MakeHttpBackend(flags.url, settings.api_keys.empty() ? "" : settings.api_keys.front());
    return Converse(*backend, flags.system);
  }
  const std::string executable = ExecutablePath();
  const auto plugin_path = sources.environment.find("BLOOMERY_PLUGIN_PATH");
  const std::string plugins = plugin_path == sources.environment.end() ? "" : plugin_path->second;
  ResolveModelName(settings, executable, plugins);
  if (!settings.hf_repo.empty()) {
    EventLines none(std::cout, false);
    settings.model_path = GetModel(RequestOf(settings), settings.hf_token, none).path;
  }
  const bool demo = settings.model_path.empty();
  const std::string path = demo ? DemoModelPath(executable) : settings.model_path;
  if (demo) std::cerr << "talking to the bundled demo model (synthetic text only)\n";
  settings.cache_disk.clear();  // a server's, which may be running
  settings.slot_save_path.clear();
  const ServedModel model(settings, path, executable, plugins);
  const auto backend = MakeEngineBackend(model.seat(), settings);
  return Converse(*backend, flags.system);
}

}  // namespace bloomery::apps
