// Models of a hub for the programs: from settings to a path, with what happens shown on the way,
// as a bar on a terminal, a line now and then in a log, or event lines for programs. Blocks until
// the model is here.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "runtime/apps/agent_json.h"
#include "runtime/hub/hub.h"
#include "runtime/serve/settings.h"

namespace bloomery::apps {

// Shows a hub's events. A terminal's bar is rewritten ten times a second; a log and event lines
// get progress every limits::kHubProgressSeconds.
class HubProgress {
 public:
  using Clock = std::function<double()>;  // seconds, forward only

  HubProgress(std::ostream& out, bool terminal, EventLines& lines, Clock clock = SteadySeconds);

  void Show(const hub::HubEvent& event);

 private:
  static double SteadySeconds();
  void Progress(uint64_t have, uint64_t of);
  void Say(const std::string& text);

  std::ostream& out_;
  bool terminal_;
  EventLines& lines_;
  Clock clock_;
  double start_ = 0;
  double shown_ = 0;
  uint64_t first_ = 0;  // bytes here when fetching began
  bool begun_ = false;
  bool on_bar_ = false;  // the terminal's line is a bar, not ended yet
};

hub::ModelRequest RequestOf(const serve::ServeSettings& settings);

// Gets the model and shows how, on stderr and in `lines`. `tell`, where given, hears each second
// how far it is, in a few words.
hub::Model GetModel(const hub::ModelRequest& request, const std::string& token, EventLines& lines,
                    const std::function<void(const std::string&)>& tell = {});

// Prints the cache as `bloomery models list` does.
void PrintCache(std::ostream& out, bool json);

}  // namespace bloomery::apps
