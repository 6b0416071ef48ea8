// What a start of the server would come to, without one: finds the model, reads its headers, makes
// the plan, and says so in a document (docs/agents.md) or a few lines. Reads no weights, fetches
// none, and ends with the code that the start would end with. Runs on the calling thread.
#pragma once

#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "runtime/apps/agent_json.h"
#include "runtime/apps/exit_codes.h"
#include "runtime/hub/hub.h"
#include "runtime/memory/plan.h"
#include "runtime/serve/flags.h"

namespace bloomery::apps {

// Where programs and plugins lie.
struct Installation {
  std::string executable;
  std::string plugin_path_variable;
};

// The code for a refusal after `plans` (the last ones made): kExitBusy where a plan of the host
// would fit the machine were others not holding its memory; else the error's own.
ExitCode CodeOf(const std::exception& error, std::span<const memory::MemoryPlan> plans);

// What a start is refused for that neither a model nor an address is needed to see: folders and
// files that its flags name and it reads or writes later. Makes and changes nothing. A start asks
// it, too, so that both end alike.
void CheckNamedPlaces(const serve::ServeSettings& settings);

// As ParseFlags gave them: files are read and names resolved here. What is refused is told on
// stderr in the name of `program`.
ExitCode DryRun(serve::ParsedFlags parsed, const Installation& installation, std::ostream& out,
                const std::string& program = "bloomery-serve");

}  // namespace bloomery::apps
