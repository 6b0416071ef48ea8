#include "runtime/apps/exit_codes.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/plugin/select.h"
#include "runtime/serve/http_server.h"

namespace bloomery::apps {
namespace {

constexpr std::array<ExitRow, 12> kRows{{
    {kExitOk, "ok", "orderly stop, `--help`, `--version`, `--recommend`, a dry run that fits", ""},
    {kExitFail, "fail", "a second signal; anything unnamed", "bloomery-serve --help"},
    {kExitNoEngine, "no_engine", "there is no plugin at all", "bloomery-serve --recommend"},
    {kExitUsage, "usage",
     "a bad flag, variable or key; `--chat-template-kwargs` that no request could be read with",
     "bloomery-serve --help"},
    {kExitBadModel, "bad_model", "the model, its template or its plugin is not usable",
     "bloomery-serve --recommend"},
    {kExitNoInput, "no_input",
     "a file cannot be read, or one that a flag names is larger than 4 MiB",
     "bloomery models list"},
    {kExitDevice, "no_device",
     "a card that was asked for, or its driver: there is none, the driver is too old for this "
     "build, the card's compute capability is below 8.0 or not in this build, or the card fails",
     "bloomery-serve --device none"},
    {kExitEngine, "engine", "the engine failed while serving", "bloomery-serve --dry-run --json"},
    {kExitBind, "bind", "the address cannot be bound", "bloomery-serve --port 0"},
    {kExitDownload, "download",
     "the hub, or the server of `--url`, cannot be reached, refuses, or sends what it does not "
     "list, and nothing checked "
     "stands in",
     "bloomery models list"},
    {kExitBusy, "busy", "the plan would fit the host's memory, but others hold too much of it now",
     "bloomery-serve --dry-run --json"},
    {kExitPlan, "plan",
     "the plan does not fit the host's or a card's memory, or another process took that memory "
     "before it was loaded: with each term, and for a card with a line for each process that holds "
     "some of it",
     "bloomery-serve --recommend"},
}};

}  // namespace

std::span<const ExitRow> ExitRows() { return kRows; }

const ExitRow& ExitRowOf(ExitCode code) {
  return *std::find_if(kRows.begin(), kRows.end(),
                       [&](const ExitRow& row) { return row.code == code; });
}

ExitCode ExitCodeOf(const std::exception& error) {
  if (dynamic_cast<const serve::BindError*>(&error) != nullptr) return kExitBind;
  if (dynamic_cast<const plugin::NoPluginError*>(&error) != nullptr) return kExitNoEngine;
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) return kExitFail;
  switch (known->kind()) {
    case ErrorKind::kUsage:
      return kExitUsage;
    case ErrorKind::kBadModel:
    case ErrorKind::kUnsupported:
      return kExitBadModel;
    case ErrorKind::kNoInput:
      return kExitNoInput;
    case ErrorKind::kDevice:
      return kExitDevice;
    case ErrorKind::kDownload:
      return kExitDownload;
    case ErrorKind::kNoMemory:
      return kExitPlan;
    default:
      return kExitFail;
  }
}

}  // namespace bloomery::apps
