// A plugin's binary in the process. Opened with all symbols resolved and local, and kept until the
// process ends: kernels and graphs point into it. Loading calls nothing of the plugin; the version
// gate is passed before any other field of its table is believed.
#pragma once

#include <bloomery/plugin.h>

#include <string>

#include "runtime/plugin/manifest.h"

namespace bloomery::plugin {

struct LoadedPlugin {
  const bl_plugin* table = nullptr;  // constant, for the process's life
  std::string path;
  std::string name;
  std::string version;
  Version version_parts;
};

// Whether a host of `host` may run a plugin of `plugin`: majors equal, minors equal while the major
// is 0, the host's minor at least the plugin's from 1.0 on.
bool AbiFits(bl_abi host, bl_abi plugin);

// "<path>: built for plugin ABI 0.2, this host has 0.1: …what to do".
std::string AbiRefusal(const std::string& path, bl_abi plugin);

// Throws Error(kBadModel) naming the path and: the loader's reason, the missing or wrong symbol,
// both ABI versions, or the member of the table that is absent.
LoadedPlugin LoadPlugin(const std::string& path);

}  // namespace bloomery::plugin
