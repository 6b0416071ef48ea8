// bloomery-serve: flags, listen, load, serve, stop.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/apps/program.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/output_file.h"
#include "runtime/exec/card_loading.h"
#include "runtime/serve/dialect.h"
#include "runtime/serve/grammar_fields.h"
#include "runtime/serve/server.h"

namespace bloomery::apps {
namespace {

constexpr const char* kProgram = "bloomery-serve";

LogLevel LevelOf(int level) {
  if (level <= 0) return LogLevel::kError;
  return level == 1 ? LogLevel::kWarning : LogLevel::kInfo;
}

// How long clients get to read why the engine failed, before the process ends.
constexpr std::chrono::seconds kFailureLingerTime{2};
// How often a healthy server looks whether its engine still is.
constexpr std::chrono::seconds kHealthPeriod{1};

// Takes the stop signals on a thread of its own. While the model loads, the first one ends the
// process at once: loading cannot be interrupted, and nothing is in progress yet.
class StopWatch {
 public:
  StopWatch() {
    std::thread([state = state_] {
      WaitForStop();
      std::lock_guard lock(state->mutex);
      if (!state->loaded) ::_exit(kExitOk);
      state->stopped = true;
      state->changed.notify_all();
    }).detach();
  }

  void Loaded() {
    std::lock_guard lock(state_->mutex);
    state_->loaded = true;
  }
  // True once a signal came; false when `time` passed before.
  bool StoppedWithin(std::chrono::seconds time) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, time, [this] { return state_->stopped; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool loaded = false;
    bool stopped = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // shared with the thread
};

void CheckSlotFolder(const std::string& folder) {
  std::error_code error;
  if (folder.empty()) return;
  if (!std::filesystem::is_directory(folder, error)) {
    throw Error(ErrorKind::kUsage, "--slot-save-path: there is no folder '" + folder + "'");
  }
  OutputFile::RemovePartialFiles(folder);  // of servers that were killed
}

int Serve(serve::ServeSettings settings, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) LOG(WARNING) << warning;
  if (settings.list_devices) {
    for (const std::string& line : exec::CardLines()) std::cout << line << '\n';
    return kExitOk;
  }
  const FileSystem& files = RealFileSystem();
  ReadNamedFiles(settings, files);
  const std::string executable = ExecutablePath();
  const bool demo = settings.model_path.empty();
  const std::string path = demo ? DemoModelPath(executable) : settings.model_path;
  files.Open(path);  // a wrong path is known before anything listens
  CheckSlotFolder(settings.slot_save_path);

  StopWatch stop;
  serve::Server server(settings);
  // The way of a signal, which the stop watch takes.
  // A second one would end the process at once, so a second request sends none.
  server.OnShutdown([asked = std::make_shared<std::atomic<bool>>(false)] {
    if (!asked->exchange(true)) ::kill(::getpid(), SIGTERM);
  });
  const auto environment = Environment();
  const auto plugin_path = environment.find("BLOOMERY_PLUGIN_PATH");
  const ServedModel model(settings, path, executable,
                          plugin_path == environment.end() ? "" : plugin_path->second);
  stop.Loaded();  // before the first request can be in progress: from here a signal drains
  serve::CheckGrammarDefault(settings, model.seat());
  server.SetReady(model.seat());

  if (demo) {
    std::cout << "serving the bundled demo model: 22 million parameters trained on synthetic text, "
                 "to try the server with; give a model of your own with -m FILE\n";
  }
  std::string urls;
  for (const std::string& url : server.urls()) urls += " " + url;
  std::cout << "listening on" << urls << std::endl;
  const engine::Engine& engine = *model.seat().engine;
  while (!stop.StoppedWithin(kHealthPeriod)) {
    if (!engine.failure()) continue;
    LOG(ERROR) << "the engine has failed: " << *engine.failure();
    stop.StoppedWithin(kFailureLingerTime);
    break;
  }
  LOG(INFO) << "stopping";
  server.Stop(std::chrono::seconds(limits::kDrainSecondsMax));
  return engine.failure() ? kExitEngine : kExitOk;
}

int Main(int argc, char** argv) {
  HoldStopSignals();
  const serve::ParsedFlags parsed =
      serve::ParseFlags(SourcesOf({argv + 1, argv + argc}, RealFileSystem()));
  switch (parsed.action) {
    case serve::FlagAction::kHelp:
      std::cout << serve::FlagsHelp();
      return kExitOk;
    case serve::FlagAction::kVersion:
      std::cout << serve::BuildName() << '\n';
      return kExitOk;
    case serve::FlagAction::kHelpMarkdown:
      std::cout << serve::FlagsMarkdown();
      return kExitOk;
    case serve::FlagAction::kServe:
      break;
  }
  InitLogging(argv[0], LevelOf(parsed.settings.log_level));
  return Serve(parsed.settings, parsed.warnings);
}

}  // namespace
}  // namespace bloomery::apps

int main(int argc, char** argv) {
  return bloomery::apps::RunProgram(bloomery::apps::kProgram,
                                    [&] { return bloomery::apps::Main(argc, argv); });
}
