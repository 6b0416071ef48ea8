#include "runtime/base/log.h"

#include <string>

#include "runtime/base/error.h"

namespace bloomery {

void InitLogging(const char* program, LogLevel level) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = static_cast<int>(level);
  google::InitGoogleLogging(program);
}

LogLevel ParseLogLevel(std::string_view name) {
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  throw Error(ErrorKind::kUsage,
              "log level '" + std::string(name) + "' is not one of info, warning, error");
}

}  // namespace bloomery
