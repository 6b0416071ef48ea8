// What this program was built from and with, for rows of measurements. Constants.
#pragma once

#include <string_view>

namespace bloomery::apps {

struct BuildInfo {
  std::string_view version;   // "0.1.0"
  std::string_view commit;    // of the source tree, "-dirty" appended; "unknown" without git
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view flags;     // of the build type and of every target
};

BuildInfo Build();

}  // namespace bloomery::apps
