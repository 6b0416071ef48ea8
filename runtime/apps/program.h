// What every program of the bundle shares: exit codes, the way from a failure to one, where the
// executable and its data lie, the settings files, and the stop signals.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/apps/exit_codes.h"
#include "runtime/base/file.h"
#include "runtime/serve/flags.h"

namespace bloomery::apps {

// What to run next where a flag's value is wrong.
inline constexpr const char* kFlagsHelp = "bloomery-serve --help";

// Runs a program's body; prints a failure as "<program>: <message>" to stderr, on a line of its own
// the command to run next where the error knows one, and gives its code.
int RunProgram(const char* program, const std::function<int()>& body);

// The running executable's path, links resolved.
std::string ExecutablePath();
// Of the bundled demo model: ../share/bloomery/models beside the executable's folder.
std::string DemoModelPath(const std::string& executable);

// The process's environment.
std::map<std::string, std::string> Environment();

// argv, environment and settings file (the one --config names, else the system's and the user's) as
// sources for ParseFlags. Error(kNoInput) when --config names a file that cannot be read.
serve::FlagSources SourcesOf(std::vector<std::string> arguments, const FileSystem& files);

// Reads what flags name into what they stand for: keys, certificate, template, grammar, page
// settings.
void ReadNamedFiles(serve::ServeSettings& settings, const FileSystem& files);

// Lets the process have as many descriptors as it may: a server's connections are many, and 1024 is
// a common soft limit. What cannot be raised stays.
void RaiseDescriptorLimit();

// Blocks SIGINT and SIGTERM in this thread and those made by it later: call first in main. They are
// then taken by WaitForStop.
void HoldStopSignals();
// Waits for the first SIGINT or SIGTERM and returns it. From then on another one ends the process
// with code 1 at once.
int WaitForStop();

}  // namespace bloomery::apps
