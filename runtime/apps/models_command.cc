// bloomery pull, and bloomery models: the cache of models without a server.
#include <iostream>

#include "runtime/apps/agent_json.h"
#include "runtime/apps/commands.h"
#include "runtime/apps/hub_models.h"
#include "runtime/apps/program.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

constexpr const char* kPullHelp =
    "Usage: bloomery pull OWNER/NAME[:QUANT] [--hf-file FILE] [--offline] [--json]\n"
    "\n"
    "Gets a model from the hub that HF_ENDPOINT names into the cache and prints its path. A token\n"
    "for gated models comes from HF_TOKEN. --json writes one event a line to stdout\n"
    "(docs/agents.md). What was cut goes on where it stopped.\n";

constexpr const char* kModelsHelp =
    "Usage: bloomery models list [--json]\n"
    "       bloomery models rm OWNER/NAME[:QUANT]\n"
    "\n"
    "The cache is $BLOOMERY_CACHE, else ~/.cache/bloomery/hf.\n";

struct PullFlags {
  hub::ModelRequest request;
  bool json = false;
  bool help = false;
};

PullFlags TakePullFlags(const std::vector<std::string>& arguments) {
  PullFlags flags;
  bool named = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-h" || word == "--help") {
      flags.help = true;
      return flags;
    }
    if (word == "--json") {
      flags.json = true;
    } else if (word == "--offline") {
      flags.request.offline = true;
    } else if (word == "--hf-file" || word == "-hff") {
      if (i + 1 == arguments.size()) throw Error(ErrorKind::kUsage, word + ": a value is missing");
      flags.request.file = arguments[++i];
    } else if (word.starts_with("-") || named) {
      throw Error(ErrorKind::kUsage,
                  "'" + Printable(word) + "': unexpected; one OWNER/NAME[:QUANT] is expected",
                  "bloomery pull --help");
    } else {
      flags.request.reference = hub::ParseReference(word);
      named = true;
    }
  }
  if (!named) {
    throw Error(ErrorKind::kUsage, "which model? OWNER/NAME[:QUANT] is expected",
                "bloomery pull --help");
  }
  return flags;
}

}  // namespace

int PullCommand(const std::vector<std::string>& arguments) {
  bool json = false;
  for (const std::string& word : arguments) json = json || word == "--json";
  EventLines lines(std::cout, json);
  try {
    const PullFlags flags = TakePullFlags(arguments);
    if (flags.help) {
      std::cout << kPullHelp;
      return kExitOk;
    }
    const hub::Model model = GetModel(flags.request, "", lines);
    if (json) {
      lines.Write("ready", {{"path", model.path}, {"bytes", model.bytes}});
    } else {
      std::cout << model.path << '\n';
    }
    return kExitOk;
  } catch (const std::exception& error) {
    lines.Write("error", ErrorFields(error, ExitCodeOf(error)));
    throw;
  }
}

int ModelsCommand(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "--help" : arguments[0];
  if (verb == "-h" || verb == "--help") {
    std::cout << kModelsHelp;
    return arguments.empty() ? kExitUsage : kExitOk;
  }
  const bool json = arguments.size() == 2 && arguments[1] == "--json";
  if (verb == "list" && (arguments.size() == 1 || json)) {
    PrintCache(std::cout, json);
    return kExitOk;
  }
  if (verb == "rm" && arguments.size() == 2) {
    const hub::Cache cache(hub::CacheRoot(Environment()));
    const uint64_t freed = cache.Remove(hub::ParseReference(arguments[1]));
    std::cout << "removed " << arguments[1] << ": " << memory::FormatBytes(freed) << '\n';
    return kExitOk;
  }
  throw Error(ErrorKind::kUsage, "expected `list` or `rm OWNER/NAME[:QUANT]`",
              "bloomery models --help");
}

}  // namespace bloomery::apps
