// bloomery plan: the dry run of a server's start, with the server's flags.
#include <algorithm>
#include <iostream>
#include <utility>

#include "runtime/apps/commands.h"
#include "runtime/apps/dry_run.h"
#include "runtime/apps/program.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::apps {
namespace {

constexpr const char* kHelp =
    "Usage: bloomery plan FILE [flags of bloomery-serve] [--json]\n"
    "\n"
    "Prints where the model would lie and every term of the memory it takes, whether it fits, and\n"
    "how fast it should be by the rates that bloomery doctor measured. Reads no weights. Ends as "
    "a\n"
    "start of the server would: 0 where it fits, 78 where it does not. The flags are those of\n"
    "docs/serving.md: -c, -np, --place, -ngl, --n-cpu-moe, --card-budget, --host-budget, ...\n";

}  // namespace

int PlanCommand(const std::vector<std::string>& arguments) {
  const bool help = std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "-h" || word == "--help"; });
  if (arguments.empty() || help) {
    (arguments.empty() ? std::cerr : std::cout) << kHelp;
    return arguments.empty() ? kExitUsage : kExitOk;
  }
  // The plan of a model, not of an address: another server may have the usual one.
  std::vector<std::string> words{"--port", "0"};
  if (!arguments[0].starts_with("-")) words.emplace_back("-m");
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.emplace_back("--dry-run");
  serve::ParsedFlags parsed = serve::ParseFlags(SourcesOf(words, RealFileSystem()));
  if (parsed.action != serve::FlagAction::kServe) {
    throw Error(ErrorKind::kUsage, "only flags that a model is served with have a plan",
                "bloomery plan --help");
  }
  for (const std::string& warning : parsed.warnings) LOG(WARNING) << warning;
  const auto environment = Environment();
  const auto plugin_path = environment.find("BLOOMERY_PLUGIN_PATH");
  const Installation installation{ExecutablePath(),
                                  plugin_path == environment.end() ? "" : plugin_path->second};
  return DryRun(std::move(parsed), installation, std::cout, "bloomery plan");
}

}  // namespace bloomery::apps
