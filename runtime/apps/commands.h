// The subcommands of `bloomery`. Each gets its arguments without program and command name and
// returns an exit code; what it throws is printed and becomes one.
#pragma once

#include <string>
#include <vector>

namespace bloomery::apps {

int ChatCommand(const std::vector<std::string>& arguments);
int BenchCommand(const std::vector<std::string>& arguments);
int FixtureCommand(const std::vector<std::string>& arguments);
int PerplexityCommand(const std::vector<std::string>& arguments);
int PullCommand(const std::vector<std::string>& arguments);
int ModelsCommand(const std::vector<std::string>& arguments);
int ResidencySimCommand(const std::vector<std::string>& arguments);
int TopCommand(const std::vector<std::string>& arguments);
int PlanCommand(const std::vector<std::string>& arguments);
int DoctorCommand(const std::vector<std::string>& arguments);
int QuantizeCommand(const std::vector<std::string>& arguments);

}  // namespace bloomery::apps
