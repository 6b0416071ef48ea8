// bloomery-serve: flags, listen, load, serve, stop.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/apps/agent_json.h"
#include "runtime/apps/dry_run.h"
#include "runtime/apps/folder/folder_model.h"
#include "runtime/apps/hub_models.h"
#include "runtime/apps/program.h"
#include "runtime/apps/recommend.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/apps/service_manager.h"
#include "runtime/base/log.h"
#include "runtime/base/log_event.h"
#include "runtime/base/output_file.h"
#include "runtime/base/terminal.h"
#include "runtime/base/utf8.h"
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
  bool StoppedWithin(std::chrono::milliseconds time) {
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

// Progress and plans of a load as event lines; the last placement is kept for a refusal.
class LoadEvents {
 public:
  // `logs`: progress goes into the log, too.
  LoadEvents(EventLines& lines, ServiceManager& manager, bool logs,
             std::optional<memory::Placement>& planned)
      : lines_(lines), manager_(manager), logs_(logs), planned_(planned) {}

  LoadWatch Watch() {
    LoadWatch watch;
    watch.planned = [this](const PlannedModel& planned) {
      planned_ = planned.placement;
      lines_.Write("plan", {{"plans", PlansJson(planned.placement)},
                            {"slots", planned.options.slots},
                            {"n_ctx", planned.options.slot_context}});
    };
    if (lines_.enabled() || manager_.present() || logs_) {
      watch.progress = [this](uint64_t done, uint64_t total) { Progress(done, total); };
    }
    return watch;
  }

 private:
  void Progress(uint64_t done, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (done < total && now - told_ < std::chrono::seconds(1)) return;
    told_ = now;
    lines_.Write("load", {{"phase", "weights"}, {"done", done}, {"total", total}});
    if (logs_) LogEvent("load", "", {{"done_bytes", done}, {"total_bytes", total}});
    manager_.Starting("loading: " + memory::FormatBytes(done) + " of " +
                      memory::FormatBytes(total));
  }

  EventLines& lines_;
  ServiceManager& manager_;
  bool logs_;
  std::optional<memory::Placement>& planned_;
  std::chrono::steady_clock::time_point told_{};
};

void SayReady(const serve::Server& server, const serve::Seat& seat, bool demo, EventLines& lines) {
  if (lines.enabled()) {
    serve::Json urls = serve::Json::Array();
    for (const std::string& url : server.urls()) urls.Append(url);
    const exec::SeatLimits& limits = seat.engine->limits();
    lines.Write("ready", {{"url", server.urls().front()},
                          {"urls", std::move(urls)},
                          {"model", seat.model.name},
                          {"n_ctx", limits.slot_context},
                          {"slots", limits.slots},
                          {"pid", int64_t{::getpid()}}});
    return;
  }
  if (demo) {
    std::cout << "serving the bundled demo model: 22 million parameters trained on synthetic text, "
                 "to try the server with; give a model of your own with -m FILE\n";
  }
  std::string urls;
  for (const std::string& url : server.urls()) urls += " " + url;
  std::cout << "listening on" << urls << std::endl;
}

// `planned`: the last placement, for a refusal.
int Serve(serve::ServeSettings settings, const Installation& installation, EventLines& lines,
          std::optional<memory::Placement>& planned) {
  StopWatch stop;
  ServiceManager manager(Environment());
  if (!settings.hf_repo.empty()) {
    const auto tell = [&](const std::string& status) { manager.Starting(status); };
    settings.model_path = GetModel(RequestOf(settings), settings.hf_token, lines, tell).path;
  }
  const bool demo = settings.model_path.empty();
  const std::string path = demo ? DemoModelPath(installation.executable) : settings.model_path;
  CheckModelPath(path);  // a wrong path is known before anything listens
  CheckNamedPlaces(settings);
  if (!settings.slot_save_path.empty()) {
    OutputFile::RemovePartialFiles(settings.slot_save_path);  // of servers that were killed
  }
  RaiseDescriptorLimit();

  std::optional<ServedModel> model;  // outlives the server, whose threads use it to the end
  serve::Server server(settings);
  // The way of a signal, which the stop watch takes.
  // A second one would end the process at once, so a second request sends none.
  server.OnShutdown([asked = std::make_shared<std::atomic<bool>>(false)] {
    if (!asked->exchange(true)) ::kill(::getpid(), SIGTERM);
  });
  LoadEvents events(lines, manager, settings.log_jsonl, planned);
  model.emplace(settings, path, installation.executable, installation.plugin_path_variable,
                events.Watch());
  const serve::Seat& seat = model->seat();
  stop.Loaded();  // before the first request can be in progress: from here a signal drains
  serve::CheckGrammarDefault(settings, seat);
  server.SetReady(seat);
  SayReady(server, seat, demo, lines);
  manager.Ready("serving " + seat.model.name + " at " + server.urls().front());
  engine::Engine& engine = *seat.engine;
  Watchdog watchdog(manager);
  while (!stop.StoppedWithin(watchdog.Period(kHealthPeriod))) {
    watchdog.Look(engine.Beat());
    if (!engine.failure()) continue;
    LOG(ERROR) << "the engine has failed: " << *engine.failure();
    lines.Write("error", ErrorFields(Error(ErrorKind::kInternal, *engine.failure()), kExitEngine));
    stop.StoppedWithin(kFailureLingerTime);
    break;
  }
  LOG(INFO) << "stopping";
  const std::chrono::seconds drain(settings.drain_s);
  manager.Stopping(drain);
  // Answers in progress may take longer than the watchdog's time.
  const std::future<void> stopping =
      std::async(std::launch::async, [&server, drain] { server.Stop(drain); });
  while (stopping.wait_for(watchdog.Period(kHealthPeriod)) != std::future_status::ready) {
    watchdog.Look(engine.Beat());
  }
  return engine.failure() ? kExitEngine : kExitOk;
}

// What is printed and done, without a model.
bool RunsNoServer(const serve::ParsedFlags& parsed, const Installation& installation) {
  const serve::ServeSettings& settings = parsed.settings;
  if (settings.list_devices) {
    for (const std::string& line : exec::CardLines()) std::cout << line << '\n';
    return true;
  }
  if (settings.cache_list) {
    PrintCache(std::cout, settings.json);
    return true;
  }
  if (settings.recommend) {
    Recommend(settings, installation.executable, installation.plugin_path_variable, std::cout);
    return true;
  }
  return false;
}

int Start(serve::ParsedFlags parsed, EventLines& lines, std::optional<memory::Placement>& planned) {
  const auto environment = Environment();
  const auto plugin_path = environment.find("BLOOMERY_PLUGIN_PATH");
  const Installation installation{ExecutablePath(),
                                  plugin_path == environment.end() ? "" : plugin_path->second};
  if (RunsNoServer(parsed, installation)) return kExitOk;
  for (const std::string& warning : parsed.warnings) LOG(WARNING) << warning;
  if (parsed.settings.dry_run) return DryRun(std::move(parsed), installation, std::cout);
  ReadNamedFiles(parsed.settings, RealFileSystem());
  ResolveModelName(parsed.settings, installation.executable, installation.plugin_path_variable);
  return Serve(parsed.settings, installation, lines, planned);
}

std::optional<int> RunAction(serve::FlagAction action) {
  switch (action) {
    case serve::FlagAction::kHelp:
      std::cout << serve::FlagsHelp();
      return kExitOk;
    case serve::FlagAction::kVersion:
      std::cout << serve::BuildName() << '\n';
      return kExitOk;
    case serve::FlagAction::kHelpMarkdown:
      std::cout << serve::FlagsMarkdown();
      return kExitOk;
    case serve::FlagAction::kMan:
      std::cout << serve::FlagsManual();
      return kExitOk;
    case serve::FlagAction::kServe:
      return std::nullopt;
    default:
      std::cout << serve::FlagsCompletion(action);
      return kExitOk;
  }
}

// Whether stdout is for a program, before flags can be trusted: a refused flag is told there, too.
bool WantsJson(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

int Main(int argc, char** argv) {
  HoldStopSignals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::optional<EventLines> lines;
  lines.emplace(std::cout, WantsJson(arguments));
  std::optional<memory::Placement> planned;
  bool json_log = false;
  try {
    const serve::ParsedFlags parsed = serve::ParseFlags(SourcesOf(arguments, RealFileSystem()));
    if (const auto code = RunAction(parsed.action)) return *code;
    const serve::ServeSettings& settings = parsed.settings;
    const bool serves =
        !settings.recommend && !settings.dry_run && !settings.list_devices && !settings.cache_list;
    lines.emplace(std::cout, settings.json && serves);
    if (settings.log_jsonl) {
      InitJsonLogging(argv[0], LevelOf(settings.log_level));
    } else {
      InitLogging(argv[0], LevelOf(settings.log_level));
    }
    json_log = settings.log_jsonl;
    serve::Json shown = serve::Json::Array();
    for (const std::string& word : serve::WithoutSecrets(arguments)) shown.Append(word);
    lines->Write("start", {{"version", serve::BuildName()},
                           {"pid", int64_t{::getpid()}},
                           {"argv", std::move(shown)}});
    return Start(parsed, *lines, planned);
  } catch (const std::exception& error) {
    const ExitCode code =
        CodeOf(error, planned ? planned->Plans() : std::vector<memory::MemoryPlan>());
    if (json_log) {
      LOG(ERROR) << error.what() << "\nnext: " << NextCommand(error, code);
    } else {
      std::cerr << kProgram << ": " << ForTerminal(error.what()) << '\n'
                << kProgram << ": next: " << ForTerminal(NextCommand(error, code)) << std::endl;
    }
    auto fields = ErrorFields(error, code);
    if (code == kExitPlan || code == kExitBusy) {
      fields.emplace_back("terms", planned ? PlansJson(*planned) : serve::Json::Array());
    }
    lines->Write("error", std::move(fields));
    return code;
  }
}

}  // namespace
}  // namespace bloomery::apps

int main(int argc, char** argv) {
  return bloomery::apps::RunProgram(bloomery::apps::kProgram,
                                    [&] { return bloomery::apps::Main(argc, argv); });
}
