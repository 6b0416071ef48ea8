#include "runtime/apps/program.h"

#include <sys/resource.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/terminal.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/grammar_fields.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace bloomery::apps {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

std::vector<std::string> SettingsFiles(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> paths{"/etc/bloomery/serve.ini"};
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (const std::string config = value("XDG_CONFIG_HOME"); !config.empty()) {
    paths.push_back(config + "/bloomery/serve.ini");
  } else if (const std::string home = value("HOME"); !home.empty()) {
    paths.push_back(home + "/.config/bloomery/serve.ini");
  }
  return paths;
}

// A file that a flag names, without the byte order mark that some editors put before it.
std::string ReadNamedFile(const FileSystem& files, const std::string& flag,
                          const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  try {
    std::string text = ReadWholeFile(files, path, limits::kNamedFileBytesMax);
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    return text;
  } catch (const Error& error) {
    throw Error(error.kind(), flag + ": " + error.what(), kFlagsHelp);
  }
}

}  // namespace

int RunProgram(const char* program, const std::function<int()>& body) {
  TellHowProcessEnds(program);
  try {
    return body();
  } catch (const std::exception& error) {
    std::cerr << program << ": " << ForTerminal(error.what()) << std::endl;
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && !known->next().empty()) {
      std::cerr << program << ": next: " << ForTerminal(known->next()) << std::endl;
    }
    return ExitCodeOf(error);
  }
}

std::string ExecutablePath() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string DemoModelPath(const std::string& executable) {
  const auto folder = std::filesystem::path(executable).parent_path().parent_path();
  return (folder / "share/bloomery/models/seedling-Q4_K_M.gguf").string();
}

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

serve::FlagSources SourcesOf(std::vector<std::string> arguments, const FileSystem& files) {
  serve::FlagSources sources;
  sources.arguments = std::move(arguments);
  sources.environment = Environment();
  const std::string config = serve::ConfigPath(sources);
  if (!config.empty()) {
    sources.settings = {{config, ReadNamedFile(files, "--config", config)}};
    return sources;
  }
  for (const std::string& path : SettingsFiles(sources.environment)) {
    if (!files.Exists(path)) continue;
    sources.settings.push_back({path, ReadNamedFile(files, "settings", path)});
  }
  return sources;
}

void ReadNamedFiles(serve::ServeSettings& settings, const FileSystem& files) {
  if (!settings.api_key_file.empty()) {
    std::istringstream lines(ReadNamedFile(files, "--api-key-file", settings.api_key_file));
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty() && line.front() != '#') settings.api_keys.push_back(line);
    }
    // Without a key nobody is asked for one: a file of none must not open the server.
    if (settings.api_keys.empty()) {
      throw Error(ErrorKind::kUsage, "--api-key-file " + Printable(settings.api_key_file) +
                                         ": holds no key; empty lines and lines with # are none");
    }
  }
  if (!settings.chat_template_file.empty()) {
    settings.chat_template =
        ReadNamedFile(files, "--chat-template-file", settings.chat_template_file);
    if (settings.chat_template.empty()) {
      throw Error(
          ErrorKind::kUsage,
          "--chat-template-file " + Printable(settings.chat_template_file) + ": the file is empty");
    }
  }
  if (!settings.grammar_file.empty()) {
    settings.grammar = ReadNamedFile(files, "--grammar-file", settings.grammar_file);
  }
  if (!settings.ssl_cert_file.empty()) {
    settings.ssl_certificates = ReadNamedFile(files, "--ssl-cert-file", settings.ssl_cert_file);
    settings.ssl_key = ReadNamedFile(files, "--ssl-key-file", settings.ssl_key_file);
  }
  if (!settings.ui_config_file.empty()) {
    settings.ui_config = ReadNamedFile(files, "--ui-config-file", settings.ui_config_file);
    if (!ParseJson(settings.ui_config, "--ui-config-file", {.kind = ErrorKind::kUsage})
             .IsObject()) {
      throw Error(ErrorKind::kUsage, "--ui-config-file: expected a JSON object");
    }
  }
  if (!settings.json_schema_file.empty()) {
    settings.json_schema = ReadNamedFile(files, "--json-schema-file", settings.json_schema_file);
  }
  serve::FixGrammarDefault(settings);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void HoldStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

int WaitForStop() {
  const sigset_t set = StopSignals();
  int signal = 0;
  sigwait(&set, &signal);
  // The stop takes a while; the second signal does not wait for it. What comes at once is the first
  // again: some send it to a process and to its group (timeout does).
  std::thread([set] {
    constexpr std::chrono::milliseconds kSame{100};
    const auto until = std::chrono::steady_clock::now() + kSame;
    for (auto left = kSame; left.count() > 0;
         left = std::chrono::duration_cast<std::chrono::milliseconds>(
             until - std::chrono::steady_clock::now())) {
      const timespec time{.tv_sec = 0, .tv_nsec = static_cast<int64_t>(left.count()) * 1'000'000};
      sigtimedwait(&set, nullptr, &time);
    }
    int second = 0;
    sigwait(&set, &second);
    constexpr std::string_view kText = "second signal: leaving at once\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(kExitFail);
  }).detach();
  return signal;
}

}  // namespace bloomery::apps
