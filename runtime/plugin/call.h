// One call into a plugin: its status, the reason it gave, and what that means to the host. A plugin
// that throws across the ABI is caught where the platform allows it. Values only.
#pragma once

#include <bloomery/base.h>

#include <string>

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/utf8.h"

namespace bloomery::plugin {

// Collects what a plugin says through a sink or bl_host.fail: the last reason counts.
struct Reason {
  bl_status status = BL_OK;
  std::string text;

  void Set(bl_status said, const char* words) {
    status = said;
    text = words == nullptr ? "" : Printable(words, 1024);
  }
};

// A sink that writes into `reason`, which must outlive it.
inline bl_sink SinkInto(Reason& reason) {
  return {sizeof(bl_sink), 0, &reason, [](void* self, bl_status status, const char* text) {
            static_cast<Reason*>(self)->Set(status, text);
          }};
}

inline ErrorKind KindOf(bl_status status) {
  switch (status) {
    case BL_REFUSED:
    case BL_BAD_DATA:
      return ErrorKind::kBadModel;
    case BL_UNSUPPORTED:
      return ErrorKind::kUnsupported;
    case BL_NO_MEMORY:
      return ErrorKind::kNoMemory;
    default:
      return ErrorKind::kInternal;
  }
}

// Calls `function` and throws an Error that names the plugin, the call and the reason when it
// fails.
template <class Function>
void CallPlugin(const std::string& plugin, const char* call, Reason& reason, Function&& function) {
  reason = {};
  bl_status status = BL_INTERNAL;
  try {
    const ForeignCallNote note(plugin.c_str(), call);
    status = function();
  } catch (...) {
    throw Error(ErrorKind::kInternal,
                "plugin " + plugin + ", " + call +
                    ": threw an exception across the ABI; the plugin is broken");
  }
  if (status == BL_OK) return;
  throw Error(KindOf(status),
              "plugin " + plugin + ", " + call + ": " +
                  (reason.text.empty()
                       ? "failed with status " + std::to_string(status) + " and gave no reason"
                       : reason.text));
}

}  // namespace bloomery::plugin
