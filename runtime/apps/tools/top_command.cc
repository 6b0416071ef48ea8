// bloomery top: looks at a server again and again.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>

#include "runtime/apps/commands.h"
#include "runtime/apps/http_address.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/top_view.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/http_client.h"

namespace bloomery::apps {
namespace {

using Clock = std::chrono::steady_clock;

class Server {
 public:
  Server(const std::string& url, std::string key)
      : url_(ParseServerUrl(url)), key_(std::move(key)), client_({.environment = Roots()}) {
    url_.target += "/residency";
  }

  std::string Ask() {
    try {
      return Get();
    } catch (const hub::NetworkError& error) {
      throw Error(error.kind(), error.what(), kStartServer);
    }
  }

 private:
  // No proxy stands before a server of one's own.
  static std::map<std::string, std::string> Roots() {
    std::map<std::string, std::string> roots;
    const auto environment = Environment();
    if (const auto file = environment.find("SSL_CERT_FILE"); file != environment.end()) {
      roots.insert(*file);
    }
    return roots;
  }

  std::string Get() {
    std::string body;
    const hub::HttpAnswer answer = client_.Get(
        {.url = url_, .token = key_}, [](const hub::HttpAnswer&) {},
        [&](std::span<const std::byte> piece) {
          if (body.size() + piece.size() > limits::kAnswerBytesMax) {
            throw Error(ErrorKind::kNoInput, "the server's answer does not end");
          }
          body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        });
    if (answer.status == 200) return body;
    throw Error(ErrorKind::kNoInput, url_.Text() + " answered " + std::to_string(answer.status) +
                                         ": " + Printable(answer.error, 300));
  }

  hub::Url url_;
  std::string key_;
  hub::HttpClient client_;
};

// The terminal while the view is on it: keys without return, another page, signals as reads.
class Terminal {
 public:
  Terminal() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGWINCH}) ::sigaddset(&signals, signal);
    ::sigprocmask(SIG_BLOCK, &signals, &signals_before_);
    signals_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  ~Terminal() {
    std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    if (signals_ >= 0) ::close(signals_);
    ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static TopScreen Screen() {
    TopScreen screen;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
      screen.columns = size.ws_col;
      screen.lines = size.ws_row;
    }
    return screen;
  }

  enum class Woken { kTime, kSize, kEnd };
  // Until `time` has passed, the size has changed, or q or a signal says that it is enough.
  Woken Wait(std::chrono::milliseconds time) {
    const Clock::time_point until = Clock::now() + time;
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0) return Woken::kTime;
      std::array<pollfd, 2> ready{{{signals_, POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
      if (::poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) continue;
      if (ready[0].revents != 0) {
        signalfd_siginfo info{};
        if (::read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
        return info.ssi_signo == SIGWINCH ? Woken::kSize : Woken::kEnd;
      }
      if (ready[1].revents != 0) {
        char key = 0;
        if (::read(STDIN_FILENO, &key, 1) <= 0) {
          keys_ = false;  // nobody types there any more
          continue;
        }
        if (key == 'q' || key == 'Q') return Woken::kEnd;
      }
    }
  }

 private:
  int signals_ = -1;
  bool keys_ = false;
  termios before_{};
  sigset_t signals_before_{};
};

struct Flags {
  std::string url = "http://127.0.0.1:8080";
  std::string key;
  double interval = 1;
  std::string once;
  std::string json;
};

struct Look {
  std::string answer;
  TopLook look = {};
  Clock::time_point when = {};
};

Look Take(Server& server) {
  Look taken{.answer = server.Ask(), .when = Clock::now()};
  taken.look = ReadTopLook(taken.answer);
  return taken;
}

double Between(const Look& now, const std::optional<Look>& before) {
  return before ? std::chrono::duration<double>(now.when - before->when).count() : 0;
}

void Print(const Flags& flags, const Look& now, const std::optional<Look>& before,
           const TopScreen& screen) {
  const TopLook* const old = before ? &before->look : nullptr;
  if (!flags.json.empty()) {
    std::cout << TopJson(now.answer, now.look, old, Between(now, before)) << std::endl;
    return;
  }
  for (const std::string& line : TopLines(flags.url, now.look, old, Between(now, before), screen)) {
    std::cout << line << '\n';
  }
  std::cout << std::flush;
}

// Redraws over what is there, so that nothing flickers; a server that does not answer is waited
// for.
void Watch(const Flags& flags, Server& server) {
  const auto interval = std::chrono::milliseconds(static_cast<int64_t>(flags.interval * 1000));
  Terminal terminal;
  std::optional<Look> before;
  std::optional<Look> now;
  std::string trouble;
  Terminal::Woken woken = Terminal::Woken::kTime;
  while (woken != Terminal::Woken::kEnd) {
    if (woken == Terminal::Woken::kTime) {
      try {
        Look next = Take(server);
        before = std::move(now);
        now = std::move(next);
        trouble.clear();
      } catch (const Error& error) {
        trouble = Printable(error.what(), 300);
      }
    }
    TopScreen screen = Terminal::Screen();
    screen.lines = std::max(1, screen.lines - 1);
    std::string page = "\x1b[H";
    if (now) {
      for (const std::string& line :
           TopLines(flags.url, now->look, before ? &before->look : nullptr, Between(*now, before),
                    screen)) {
        page += line + "\x1b[K\r\n";
      }
    }
    page += (trouble.empty() ? "q ends" : trouble).substr(0, static_cast<size_t>(screen.columns));
    std::cout << page << "\x1b[K\x1b[J" << std::flush;
    woken = terminal.Wait(interval);
  }
}

}  // namespace

int TopCommand(const std::vector<std::string>& argv) {
  Flags flags;
  Arguments arguments("bloomery top",
                      "Watches a server: memory by tier, hits and moves of experts, the time of a\n"
                      "pass by what it was about. q ends it.");
  arguments.Text({"--url"}, "URL", "the server", &flags.url)
      .Text({"--api-key"}, "KEY", "shown to the server", &flags.key)
      .Real({"--interval"}, "S", "seconds between two looks", 0.1, 3600, &flags.interval)
      .Switch({"--once"}, "one look, printed as it is", "yes", &flags.once)
      .Switch({"--json"}, "a JSON object a look, a line each", "yes", &flags.json);
  if (!arguments.Parse(argv)) return kExitOk;
  Server server(flags.url, flags.key);
  const bool tty = ::isatty(STDOUT_FILENO) != 0;
  TopScreen screen = tty ? Terminal::Screen() : TopScreen{.columns = 100, .lines = 1000};
  screen.lines = 1000;  // printed lines scroll
  screen.colour = tty && Environment().count("NO_COLOR") == 0;
  if (flags.once.empty() && flags.json.empty() && tty) {
    Watch(flags, server);
    return kExitOk;
  }
  std::optional<Look> before;
  while (true) {
    Look now = Take(server);
    Print(flags, now, before, screen);
    if (!flags.once.empty()) return kExitOk;
    before = std::move(now);
    ::poll(nullptr, 0, static_cast<int>(flags.interval * 1000));
  }
}

}  // namespace bloomery::apps
