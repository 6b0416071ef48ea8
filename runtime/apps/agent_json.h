// The lines that --json writes to stdout, for programs that start the server (docs/agents.md): one
// object each, flushed, with `event` first and `t_ms` since the start. The last one is `ready` or
// `error`. Any thread. Owns nothing but its clock.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/apps/exit_codes.h"
#include "runtime/hub/hub.h"
#include "runtime/memory/placement.h"
#include "runtime/serve/json_value.h"

namespace bloomery::apps {

class EventLines {
 public:
  // Writes nothing where `enabled` is false.
  EventLines(std::ostream& out, bool enabled);

  bool enabled() const { return enabled_; }
  void Write(std::string_view event, std::vector<serve::Json::Member> fields);

 private:
  std::ostream& out_;
  bool enabled_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
};

// The host's plan: {"device": "host", "free", "need", "fits", "terms": {name: bytes}, "mapped":
// {…}}.
serve::Json HostPlanJson(const memory::MemoryPlan& plan);
// A stage's: {"device": "card", "id": "CUDA0", "layers": [first, end], "free", …}.
serve::Json StageJson(const memory::PlacedStage& stage);
// A list of them: the stages', then the host's.
serve::Json PlansJson(const memory::Placement& placement);

// name, code, message, next: of an error event or document.
std::vector<serve::Json::Member> ErrorFields(const std::exception& error, ExitCode code);
// What to run after an error: its own words, else its code's.
std::string NextCommand(const std::exception& error, ExitCode code);

// A hub's event as the lines hf_set, hf_file, hf_progress, hf_done, hf_retry, hf_wait, hf_offline.
void WriteHubEvent(const hub::HubEvent& event, EventLines& lines);

}  // namespace bloomery::apps
