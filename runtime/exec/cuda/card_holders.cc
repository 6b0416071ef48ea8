#include "runtime/exec/cuda/card_holders.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace bloomery::exec {
namespace {

// What is used of the library, as its documentation has it: results, and one process of a list.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ULL;

struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

using Device = struct OpaqueDevice*;
using ListProcesses = int(Device, unsigned*, Process*);

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <class Function>
Function* Find(void* library, const char* name) {
  static_assert(std::is_function_v<Function>);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// Adds those that `list` tells of. The list may grow between asking for its length and reading it.
bool AddProcesses(ListProcesses* list, Device device, std::vector<Process>* all) {
  constexpr int kTries = 3;
  constexpr unsigned kMore = 16;
  unsigned count = 0;
  int status = list(device, &count, nullptr);
  for (int i = 0; i < kTries && status == kInsufficientSize; ++i) {
    std::vector<Process> some(count + kMore);
    count = static_cast<unsigned>(some.size());
    status = list(device, &count, some.data());
    if (status == kSuccess) {
      some.resize(std::min<size_t>(count, some.size()));
      all->insert(all->end(), some.begin(), some.end());
    }
  }
  return status == kSuccess;
}

std::string NameOf(int (*name_of)(unsigned, char*, unsigned), unsigned pid) {
  std::array<char, 256> name{};
  if (name_of == nullptr || name_of(pid, name.data(), name.size()) != kSuccess) return "?";
  name.back() = '\0';
  const std::string path = name.data();
  const std::string program = path.substr(path.rfind('/') + 1);
  return program.empty() ? "?" : program;
}

// "12,345".
std::string Grouped(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

CardHolders Untold(const std::string& why) { return {.list = {}, .untold = why}; }

}  // namespace

std::string CardHolders::Lines() const {
  if (!untold.empty()) return "\n  who holds its memory is not known: " + untold;
  if (list.empty()) return "\n  no other process that this one may see holds its memory";
  std::string lines;
  for (const CardHolder& holder : list) {
    lines +=
        "\n  held by pid " + std::to_string(holder.pid) + " (" + holder.name + "): " +
        (holder.bytes ? Grouped(*holder.bytes >> 20) + " MiB" : "the driver does not say how much");
  }
  return lines;
}

CardHolders FindCardHolders(const std::string& pci_bus_id, const std::string& library) {
  const std::unique_ptr<void, CloseLibrary> open(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (open == nullptr) return Untold("there is no " + library + " here");
  const auto init = Find<int()>(open.get(), "nvmlInit_v2");
  const auto shutdown = Find<int()>(open.get(), "nvmlShutdown");
  const auto by_bus =
      Find<int(const char*, Device*)>(open.get(), "nvmlDeviceGetHandleByPciBusId_v2");
  const auto compute = Find<ListProcesses>(open.get(), "nvmlDeviceGetComputeRunningProcesses_v3");
  const auto graphics = Find<ListProcesses>(open.get(), "nvmlDeviceGetGraphicsRunningProcesses_v3");
  const auto name_of = Find<int(unsigned, char*, unsigned)>(open.get(), "nvmlSystemGetProcessName");
  if (init == nullptr || shutdown == nullptr || by_bus == nullptr || compute == nullptr) {
    return Untold(library + " here is of another version");
  }
  if (init() != kSuccess) return Untold(library + " cannot be used here");
  CardHolders holders;
  Device device = nullptr;
  std::vector<Process> all;
  if (by_bus(pci_bus_id.c_str(), &device) != kSuccess) {
    holders = Untold(library + " does not know the card at " + pci_bus_id);
  } else if (!AddProcesses(compute, device, &all)) {
    holders = Untold(library + " does not tell it here");
  } else if (graphics != nullptr) {
    AddProcesses(graphics, device, &all);  // what shows pictures counts, but may not be told
  }
  for (const Process& process : all) {
    const bool known = std::ranges::any_of(
        holders.list, [&](const CardHolder& holder) { return holder.pid == process.pid; });
    if (known || process.pid == static_cast<unsigned>(getpid())) continue;
    CardHolder& holder = holders.list.emplace_back();
    holder.pid = process.pid;
    holder.name = NameOf(name_of, process.pid);
    if (process.used_bytes != kNotAvailable) holder.bytes = process.used_bytes;
  }
  shutdown();
  std::ranges::sort(holders.list, std::ranges::greater(), [](const CardHolder& holder) {
    return std::pair(holder.bytes.value_or(0), holder.pid);
  });
  return holders;
}

}  // namespace bloomery::exec
