#include "runtime/base/error.h"

namespace bloomery {

std::string_view ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kBadModel:
      return "bad_model";
    case ErrorKind::kNoInput:
      return "no_input";
    case ErrorKind::kBadRequest:
      return "bad_request";
    case ErrorKind::kContextFull:
      return "context_full";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kUnavailable:
      return "unavailable";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kNoMemory:
      return "no_memory";
    case ErrorKind::kDownload:
      return "download";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace bloomery
