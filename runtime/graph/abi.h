// The host's side of the plugin ABI's conventions: structs are made with their size, errors become
// a status and (where there is a sink) a text.
#pragma once

#include <bloomery/base.h>

#include <bloomery/abi.hpp>

#include "runtime/base/error.h"

namespace bloomery::graph {

using sdk::MakeAbi;

// What a plugin's call that ended in an Error of that kind gives back.
inline bl_status StatusOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUnsupported:
      return BL_UNSUPPORTED;
    case ErrorKind::kNoMemory:
      return BL_NO_MEMORY;
    case ErrorKind::kInternal:
      return BL_INTERNAL;
    default:
      return BL_REFUSED;
  }
}

}  // namespace bloomery::graph
