#include "runtime/memory/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <vector>

namespace bloomery::memory {
namespace {

constexpr size_t kTextBytesMax = 64 << 10;

// Version 1's way to say "no limit" is a number near 2^63, rounded down to a page.
constexpr uint64_t kNoLimitFrom = uint64_t{1} << 62;

// Which files say what, in the two versions of control groups.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* used;
  const char* reclaimable;  // a line of memory.stat
};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};

std::optional<uint64_t> NumberAtStart(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The number behind `name` at the start of one of the text's lines.
std::optional<uint64_t> NumberAfter(const std::optional<std::string>& text, std::string_view name) {
  if (!text) return std::nullopt;
  for (const std::string_view line : Lines(*text)) {
    if (line.starts_with(name)) return NumberAtStart(line.substr(name.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> MachineBytes(const ReadText& read, std::string_view name) {
  const auto kib = NumberAfter(read("/proc/meminfo"), name);
  if (!kib || *kib > UINT64_MAX / 1024) return std::nullopt;
  return *kib * 1024;
}

// Room left in the group in folder `path` under the mount.
std::optional<uint64_t> GroupBytes(const ReadText& read, const GroupFiles& files,
                                   const std::string& path) {
  const std::string folder = files.mount + path + "/";
  const auto number = [&](const char* name) -> std::optional<uint64_t> {
    const auto text = read(folder + name);
    return text ? NumberAtStart(*text) : std::nullopt;  // "max" is no number: no limit
  };
  const auto limit = number(files.limit);
  const auto used = number(files.used);
  if (!limit || !used || *limit >= kNoLimitFrom) return std::nullopt;
  const std::string name = std::string(files.reclaimable) + " ";
  const uint64_t cached = NumberAfter(read(folder + "memory.stat"), name).value_or(0);
  const uint64_t kept = *used - std::min(*used, cached);
  return *limit - std::min(*limit, kept);
}

// The process's group of that version, "" for the root; nullopt when there is none.
std::optional<std::string> GroupPath(const std::string& groups, bool version_2) {
  for (const std::string_view line : Lines(groups)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    bool fits = version_2 && controllers.empty();
    if (!version_2) {
      const std::string list = "," + std::string(controllers) + ",";
      fits = list.find(",memory,") != std::string::npos;
    }
    if (!fits) continue;
    const std::string path(line.substr(second + 1));
    return path == "/" ? "" : path;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ReadSystemText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kTextBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

uint64_t MachineMemory(const ReadText& read) { return MachineBytes(read, "MemTotal:").value_or(0); }

std::optional<HostLimit> AvailableHostMemory(const ReadText& read) {
  std::optional<HostLimit> least;
  const auto take = [&](std::optional<uint64_t> bytes, const std::string& source) {
    if (bytes && (!least || *bytes < least->bytes)) least = {*bytes, source};
  };
  take(MachineBytes(read, "MemAvailable:"), "MemAvailable");
  const std::string groups = read("/proc/self/cgroup").value_or("");
  for (const bool version_2 : {true, false}) {
    auto path = GroupPath(groups, version_2);
    if (!path) continue;
    // A limit of any group above holds as well. In a container the path may be one of the host's
    // that is not seen here; the mount's root is then the container's own group.
    while (true) {
      take(GroupBytes(read, version_2 ? kVersion2 : kVersion1, *path),
           "control group " + (path->empty() ? "/" : *path));
      if (path->empty()) break;
      const size_t slash = path->rfind('/');
      path->resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return least;
}

}  // namespace bloomery::memory
