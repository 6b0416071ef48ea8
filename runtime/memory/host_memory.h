// How much host memory this process may still take: the machine's MemAvailable and the room left
// in every control group above the process (v2 or v1), the smallest of them. Reads the kernel's
// files anew on each call; owns nothing, any thread. It does not reserve anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace bloomery::memory {

// What a plan is held against.
struct HostLimit {
  uint64_t bytes = 0;
  std::string source;  // which number it is: "MemAvailable", "control group /jobs/7"
};

// The text of a file of the kernel, or nullopt when it cannot be read.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// Files of the running system, at most 64 KiB of each.
std::optional<std::string> ReadSystemText(const std::string& path);

// nullopt where no number can be had. Pages of files that the kernel gives back under pressure
// count as free in a control group, as they do in MemAvailable.
std::optional<HostLimit> AvailableHostMemory(const ReadText& read = ReadSystemText);

// All of the machine's memory in bytes (MemTotal); 0 where it is not told.
uint64_t MachineMemory(const ReadText& read = ReadSystemText);

}  // namespace bloomery::memory
