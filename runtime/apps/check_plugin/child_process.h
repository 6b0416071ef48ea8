// Runs a command in a process group of its own, under a time limit, and keeps what it wrote. The
// child reports through file descriptor kReportFd. One call at a time.
#pragma once

#include <chrono>
#include <span>
#include <string>

namespace bloomery::apps::check {

inline constexpr int kReportFd = 3;

struct ChildResult {
  bool timed_out = false;
  int signal = 0;     // that ended it, or 0
  int exit_code = 0;  // where no signal did
  std::string report;
  std::string output;  // stdout and stderr, at most 64 KiB of them
};

// Throws Error(kInternal) when no process can be started. The child and what it started are killed
// at the limit.
ChildResult RunChild(std::span<const std::string> command, std::chrono::milliseconds limit);

}  // namespace bloomery::apps::check
