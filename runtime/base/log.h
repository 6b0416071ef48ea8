// Logging is glog, set up once here; include this header for LOG and its relatives and never
// <glog/…> itself. Everything goes to stderr, no files. Lines read
//   I20261129 18:44:31.123456  4711 server.cc:88] message
// and text about a request begins with "[req <id>] ". Programs call InitLogging once at the start
// of main; libraries only log. Never in the pass loop.
#pragma once

#include <glog/logging.h>

#include <string_view>

namespace bloomery {

enum class LogLevel { kInfo, kWarning, kError };  // the least severe that is shown

// Sends log lines of `level` and above to stderr. Once a process, before threads start.
// `program` must outlive the process, as argv[0] does.
void InitLogging(const char* program, LogLevel level);

// "info", "warning" or "error"; throws Error(kUsage) naming the value and the choices otherwise.
LogLevel ParseLogLevel(std::string_view name);

}  // namespace bloomery
