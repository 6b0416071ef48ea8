#include "runtime/apps/tools/machine.h"

#include <cstdlib>
#include <fstream>

#include "runtime/exec/cpu/pool.h"

namespace bloomery::apps {
namespace {

// "AMD EPYC" of the first line "model name : AMD EPYC".
std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

}  // namespace

Machine DescribeMachine() {
  Machine machine{.cpu = CpuName(), .cores = static_cast<int32_t>(exec::PhysicalCores().size())};
  if (getloadavg(&machine.load, 1) != 1) machine.load = 0;
  return machine;
}

}  // namespace bloomery::apps
