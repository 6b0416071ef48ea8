// `bloomery check-plugin PATH [--model FILE] [--json] [--filter TEXT] [--time-limit SECONDS]
// [--in-process] [--list]`: the conformance test of a plugin. Each test runs in a process of its
// own under a time limit, so that a plugin that crashes, hangs, prints or exits fails one test and
// no more. Tests that need a model of the plugin's architecture are skipped, and counted, without
// --model.
#pragma once

#include <ostream>
#include <span>
#include <string>

namespace bloomery::apps {

// `self` is the command that comes back here with more arguments, e.g. {"/proc/self/exe",
// "check-plugin"}. Returns the exit code: 0 when no test failed, 1 when one did, 64 on a bad
// command line (said on `err`).
int CheckPluginMain(std::span<const std::string> self, std::span<const std::string> args,
                    std::ostream& out, std::ostream& err);

}  // namespace bloomery::apps
