// The JSON file beside a plugin's binary, which says what the plugin may serve before anything is
// loaded. It only shortlists: the plugin's probe decides. Values only.
//
//   {"name": "toy", "version": "0.1.0", "abi": "0.1", "architectures": ["toy"],
//    "gpu_architectures": [], "licence": "MIT"}
#pragma once

#include <bloomery/base.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::plugin {

// "1.2.3", ordered by its numbers.
struct Version {
  std::array<uint32_t, 3> part = {};
  auto operator<=>(const Version&) const = default;
};

// Three decimal numbers joined by dots, or nullopt.
std::optional<Version> ParseVersion(std::string_view text);

struct Manifest {
  std::string name;     // lower-case letters, digits, '_' and '-'; its operators are "<name>.…"
  std::string version;  // three numbers: "0.1.0"
  Version version_parts;
  bl_abi abi = {};                             // "0.1"
  std::vector<std::string> architectures;      // strings of model files it may claim; at least one
  std::vector<std::string> gpu_architectures;  // "sm_90a" …; may be absent or empty
  std::string licence;                         // SPDX expression
};

// Throws Error(kBadModel) naming `path` and the field: absent, of another type, empty, too long,
// malformed, unknown or given twice.
Manifest ParseManifest(std::string_view json, const std::string& path);

}  // namespace bloomery::plugin
