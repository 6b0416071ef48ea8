// Every code a program of ours ends with: the one owner of numbers and names. docs/agents.md and
// docs/serving.md show this table, and a test holds them against it.
#pragma once

#include <exception>
#include <span>
#include <string_view>

namespace bloomery::apps {

enum ExitCode : int {
  kExitOk = 0,
  kExitFail = 1,
  kExitNoEngine = 2,
  kExitUsage = 64,
  kExitBadModel = 65,
  kExitNoInput = 66,
  kExitDevice = 69,
  kExitEngine = 70,
  kExitBind = 71,
  kExitDownload = 74,
  kExitBusy = 75,
  kExitPlan = 78,
};

struct ExitRow {
  ExitCode code;
  std::string_view name;  // in error events: stable
  std::string_view when;
  std::string_view next;  // the command to run then, where the refusal names no better one
};

std::span<const ExitRow> ExitRows();
const ExitRow& ExitRowOf(ExitCode code);

ExitCode ExitCodeOf(const std::exception& error);

}  // namespace bloomery::apps
