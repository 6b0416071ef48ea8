// bloomery: one program, several commands. A command is one line in the table.
#include <iomanip>
#include <iostream>

#include "runtime/apps/check_plugin/check_plugin.h"
#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/serve/dialect.h"

namespace bloomery::apps {
namespace {

struct Command {
  std::string_view name;
  std::string_view help;
  int (*run)(const std::vector<std::string>& arguments);
};

int CheckPluginCommand(const std::vector<std::string>& arguments) {
  const std::vector<std::string> self{"/proc/self/exe", "check-plugin"};
  return CheckPluginMain(self, arguments, std::cout, std::cerr);
}

constexpr Command kCommands[] = {
    {"chat", "talk to a model in the terminal", ChatCommand},
    {"pull", "get a model from a hub into the cache", PullCommand},
    {"models", "list the models of the cache, or remove one", ModelsCommand},
    {"plan", "say where a model would lie, whether it fits, and how fast it should be",
     PlanCommand},
    {"doctor", "say what this machine has and what is wrong, and measure it", DoctorCommand},
    {"bench", "measure the speed of prompts and single tokens", BenchCommand},
    {"fixture", "write a model of real shapes and random weights", FixtureCommand},
    {"perplexity", "score ids or a text, and compare with saved predictions", PerplexityCommand},
    {"quantize", "write a model again in another type", QuantizeCommand},
    {"residency-sim", "compare residency policies on a routing trace", ResidencySimCommand},
    {"top", "watch a server: memory, experts, moves, time by cause", TopCommand},
    {"check-plugin", "test a plugin against the SDK's contract", CheckPluginCommand},
};

void PrintHelp(std::ostream& out) {
  out << "Usage: bloomery COMMAND [arguments]; bloomery COMMAND --help says more\n\n";
  for (const Command& command : kCommands) {
    out << "  " << std::left << std::setw(14) << command.name << command.help << '\n';
  }
}

int Main(int argc, char** argv) {
  InitLogging(argv[0], LogLevel::kWarning);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty() || arguments[0] == "-h" || arguments[0] == "--help" ||
      arguments[0] == "help") {
    PrintHelp(arguments.empty() ? std::cerr : std::cout);
    return arguments.empty() ? kExitUsage : kExitOk;
  }
  if (arguments[0] == "--version" || arguments[0] == "version") {
    std::cout << serve::BuildName() << '\n';
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    if (command.name == arguments[0]) {
      return command.run({arguments.begin() + 1, arguments.end()});
    }
  }
  throw Error(ErrorKind::kUsage,
              "unknown command '" + Printable(arguments[0]) + "'; --help lists the known ones");
}

}  // namespace
}  // namespace bloomery::apps

int main(int argc, char** argv) {
  return bloomery::apps::RunProgram("bloomery", [&] { return bloomery::apps::Main(argc, argv); });
}
