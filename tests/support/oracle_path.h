// Where the large oracle set is: $BLOOMERY_ORACLES, or shared/oracles beside the source tree. Empty
// when it is not there; a test that needs it then skips and stands in tests/skips.txt.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace bloomery::test {

inline std::string OraclePath() {
  const char* given = std::getenv("BLOOMERY_ORACLES");
  const std::string path =
      given != nullptr && *given != '\0' ? given : BLOOMERY_SOURCE_DIR "/../shared/oracles";
  return std::filesystem::is_directory(path + "/models") ? path : "";
}

}  // namespace bloomery::test
