// The machine a measurement ran on, as the system describes it. Read once, when asked.
#pragma once

#include <cstdint>
#include <string>

namespace bloomery::apps {

struct Machine {
  std::string cpu;    // model name; "unknown" where the system does not say
  int32_t cores = 0;  // physical cores this process may run on
  double load = 0;    // runnable threads, mean of the last minute
};

Machine DescribeMachine();

}  // namespace bloomery::apps
