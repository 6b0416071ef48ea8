#include "runtime/apps/hub_models.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>

#include "runtime/apps/program.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

using serve::Json;

constexpr double kBarSeconds = 0.1;
constexpr size_t kBarWidth = 30;

std::string Size(uint64_t bytes) {
  std::array<char, 32> text{};
  const auto value = static_cast<double>(bytes);
  std::snprintf(text.data(), text.size(), value < 1e9 ? "%.1f MB" : "%.2f GB",
                value < 1e9 ? value / 1e6 : value / 1e9);
  return text.data();
}

}  // namespace

HubProgress::HubProgress(std::ostream& out, bool terminal, EventLines& lines, Clock clock)
    : out_(out), terminal_(terminal), lines_(lines), clock_(std::move(clock)) {}

double HubProgress::SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void HubProgress::Show(const hub::HubEvent& event) {
  using Kind = hub::HubEvent::Kind;
  if (event.kind == Kind::kProgress) {
    const double now = clock_();
    if (!std::exchange(begun_, true)) {
      start_ = now;
      shown_ = now;
      first_ = event.have;
      WriteHubEvent(event, lines_);
    }
    const bool bar = terminal_ && !lines_.enabled();
    const double pause = bar ? kBarSeconds : limits::kHubProgressSeconds;
    if (event.have < event.bytes && now - shown_ < pause) return;
    shown_ = now;
    WriteHubEvent(event, lines_);
    return Progress(event.have, event.bytes);
  }
  WriteHubEvent(event, lines_);
  const std::string name = Printable(event.name, 200);
  switch (event.kind) {
    case Kind::kSet:
      return Say(name + ": " + Size(event.bytes) + ", " + Size(event.have) + " of it here");
    case Kind::kFile:
      if (event.state == "cached" || event.state == "fetch") return;
      return Say(name + ": " + event.state +
                 (event.state == "resume" ? " at " + Size(event.have) : ""));
    case Kind::kRetry:
      return Say(name + ": " + event.text + "; trying again at " + Size(event.have));
    case Kind::kWaiting:
      return Say(name + ": another process is fetching it; waiting for that");
    case Kind::kOffline:
      return Say(name + ": from the cache (" + event.text + ")");
    default:
      return;
  }
}

void HubProgress::Progress(uint64_t have, uint64_t of) {
  const double seconds = clock_() - start_;
  const double rate =
      seconds > 0 ? static_cast<double>(have - std::min(first_, have)) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(of - have) / rate : 0;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f MB/s, %.0f s left", rate / 1e6, left);
  const std::string line = Size(have) + " of " + Size(of) + ", " + text.data();
  if (!terminal_) {
    out_ << "fetching: " << line << std::endl;
    return;
  }
  const double share = of == 0 ? 1 : static_cast<double>(have) / static_cast<double>(of);
  const auto filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
  out_ << "\rfetching [" << std::string(filled, '#') << std::string(kBarWidth - filled, ' ') << "] "
       << line << "   " << std::flush;
  on_bar_ = true;
  if (have >= of) {
    out_ << '\n';
    on_bar_ = false;
  }
}

void HubProgress::Say(const std::string& text) {
  if (std::exchange(on_bar_, false)) out_ << '\n';
  out_ << text << std::endl;
}

hub::ModelRequest RequestOf(const serve::ServeSettings& settings) {
  return {.reference = hub::ParseReference(settings.hf_repo),
          .file = settings.hf_file,
          .offline = settings.offline};
}

hub::Model GetModel(const hub::ModelRequest& request, const std::string& token, EventLines& lines,
                    const std::function<void(const std::string&)>& tell) {
  const hub::HubOptions options = hub::OptionsFrom(Environment(), token);
  if (!options.warning.empty()) LOG(WARNING) << options.warning;
  HubProgress progress(std::cerr, ::isatty(STDERR_FILENO) != 0, lines);
  std::chrono::steady_clock::time_point told{};
  return hub::Get(request, options, [&](const hub::HubEvent& event) {
    progress.Show(event);
    const auto now = std::chrono::steady_clock::now();
    if (!tell || event.bytes == 0 || now - told < std::chrono::seconds(1)) return;
    told = now;
    tell("fetching: " + Size(event.have) + " of " + Size(event.bytes));
  });
}

void PrintCache(std::ostream& out, bool json) {
  const hub::Cache cache(hub::CacheRoot(Environment()));
  Json list = Json::Array();
  for (const hub::CachedSet& cached : cache.List()) {
    if (cached.set.files.empty()) {
      list.Append(Json::Object({{"repo", cached.repo}, {"part_bytes", cached.part_bytes}}));
      if (!json) out << cached.repo << "  " << Size(cached.part_bytes) << " of a download\n";
      continue;
    }
    const std::string& first = cached.set.files.front().path;
    const std::string path = cache.PathOf(cached.repo, first);
    list.Append(Json::Object({{"repo", cached.repo},
                              {"set", cached.set.name},
                              {"bytes", cached.set.Bytes()},
                              {"files", static_cast<uint64_t>(cached.set.files.size())},
                              {"complete", cached.set.Complete()},
                              {"path", path}}));
    if (json) continue;
    out << cached.repo << "  " << Printable(first, 200) << "  " << Size(cached.set.Bytes())
        << (cached.set.Complete() ? "" : "  (shards missing)") << '\n';
  }
  if (!json && list.Text() == "[]") {
    out << "no models in " << Printable(cache.root(), 300)
        << "; bloomery pull OWNER/NAME gets one\n";
  }
  if (json)
    out << Json::Object({{"root", cache.root()}, {"models", std::move(list)}}).Text() << '\n';
}

}  // namespace bloomery::apps
