#include "runtime/exec/nvml.h"

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

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

using Device = struct OpaqueDevice*;
using ListProcesses = int(Device, unsigned*, Process*);

// The library while it is open. What it lacks is null; `untold` says why it is of no use.
class Library {
 public:
  explicit Library(const std::string& name)
      : open_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)), name_(name) {
    if (open_ == nullptr) {
      untold_ = "there is no " + name + " here";
      return;
    }
    const auto init = Find<int()>("nvmlInit_v2");
    shutdown_ = Find<int()>("nvmlShutdown");
    if (init == nullptr || shutdown_ == nullptr) {
      untold_ = name + " here is of another version";
    } else if (init() != kSuccess) {
      untold_ = name + " cannot be used here";
    }
  }
  ~Library() {
    if (untold_.empty()) shutdown_();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& untold() const { return untold_; }
  const std::string& name() const { return name_; }

  template <class Function>
  Function* Find(const char* name) const {
    static_assert(std::is_function_v<Function>);
    return reinterpret_cast<Function*>(dlsym(open_.get(), name));
  }

 private:
  struct Closer {
    void operator()(void* library) const { dlclose(library); }
  };

  std::unique_ptr<void, Closer> open_;
  std::string name_;
  int (*shutdown_)() = nullptr;
  std::string untold_;
};

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

CardHolders HoldersOf(const Library& library, Device device) {
  const auto compute = library.Find<ListProcesses>("nvmlDeviceGetComputeRunningProcesses_v3");
  const auto graphics = library.Find<ListProcesses>("nvmlDeviceGetGraphicsRunningProcesses_v3");
  const auto name_of = library.Find<int(unsigned, char*, unsigned)>("nvmlSystemGetProcessName");
  if (compute == nullptr) return Untold(library.name() + " here is of another version");
  std::vector<Process> all;
  if (!AddProcesses(compute, device, &all)) {
    return Untold(library.name() + " does not tell it here");
  }
  // What shows pictures counts, but may not be told.
  if (graphics != nullptr) AddProcesses(graphics, device, &all);
  CardHolders holders;
  for (const Process& process : all) {
    const bool known = std::ranges::any_of(
        holders.list, [&](const CardHolder& holder) { return holder.pid == process.pid; });
    if (known || process.pid == static_cast<unsigned>(getpid())) continue;
    CardHolder& holder = holders.list.emplace_back();
    holder.pid = process.pid;
    holder.name = NameOf(name_of, process.pid);
    if (process.used_bytes != kNotAvailable) holder.bytes = process.used_bytes;
  }
  std::ranges::sort(holders.list, std::ranges::greater(), [](const CardHolder& holder) {
    return std::pair(holder.bytes.value_or(0), holder.pid);
  });
  return holders;
}

std::string Dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

VideoCard Look(const Library& library, unsigned index) {
  VideoCard card;
  card.index = index;
  const auto by_index = library.Find<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  Device device = nullptr;
  if (by_index == nullptr || by_index(index, &device) != kSuccess) {
    card.holders = Untold(library.name() + " does not know it");
    return card;
  }
  std::array<char, 96> name{};
  const auto name_of = library.Find<int(Device, char*, unsigned)>("nvmlDeviceGetName");
  if (name_of != nullptr && name_of(device, name.data(), name.size() - 1) == kSuccess) {
    card.name = name.data();
  }
  Memory memory{};
  const auto memory_of = library.Find<int(Device, Memory*)>("nvmlDeviceGetMemoryInfo");
  if (memory_of != nullptr && memory_of(device, &memory) == kSuccess) {
    card.total_bytes = memory.total;
    card.free_bytes = memory.free;
  }
  int major = 0;
  int minor = 0;
  const auto capability =
      library.Find<int(Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability");
  if (capability != nullptr && capability(device, &major, &minor) == kSuccess) {
    card.sm = Dotted(major, minor);
  }
  int cuda = 0;
  const auto version = library.Find<int(int*)>("nvmlSystemGetCudaDriverVersion_v2");
  if (version != nullptr && version(&cuda) == kSuccess) {
    card.driver_cuda = Dotted(cuda / 1000, cuda % 1000 / 10);
  }
  card.holders = HoldersOf(library, device);
  return card;
}

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
  const Library nvml(library);
  if (!nvml.untold().empty()) return Untold(nvml.untold());
  const auto by_bus = nvml.Find<int(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (by_bus == nullptr) return Untold(library + " here is of another version");
  Device device = nullptr;
  if (by_bus(pci_bus_id.c_str(), &device) != kSuccess) {
    return Untold(library + " does not know the card at " + pci_bus_id);
  }
  return HoldersOf(nvml, device);
}

std::vector<VideoCard> LookAtCards(const std::string& library) {
  constexpr unsigned kMost = 64;
  const Library nvml(library);
  std::vector<VideoCard> cards;
  if (!nvml.untold().empty()) return cards;
  const auto count_of = nvml.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  unsigned count = 0;
  if (count_of == nullptr || count_of(&count) != kSuccess) return cards;
  for (unsigned i = 0; i < std::min(count, kMost); ++i) cards.push_back(Look(nvml, i));
  return cards;
}

}  // namespace bloomery::exec
