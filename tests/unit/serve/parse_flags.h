// What the parser of flags makes of a command line, in tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/serve/flags.h"

namespace bloomery::serve {

inline ParsedFlags Parse(std::vector<std::string> arguments,
                         std::map<std::string, std::string> environment = {},
                         std::string ini = "") {
  FlagSources sources;
  sources.arguments = std::move(arguments);
  sources.environment = std::move(environment);
  sources.settings = {{"serve.ini", std::move(ini)}};
  return ParseFlags(sources);
}

// The refusal, or "" when there is none.
inline std::string Refusal(std::vector<std::string> arguments,
                           std::map<std::string, std::string> environment = {},
                           std::string ini = "") {
  try {
    Parse(std::move(arguments), std::move(environment), std::move(ini));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

}  // namespace bloomery::serve
