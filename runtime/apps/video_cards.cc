#include "runtime/apps/video_cards.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

namespace bloomery::apps {
namespace {

constexpr uint32_t kCardsMax = 64;
constexpr uint32_t kHoldersMax = 64;
constexpr size_t kNameBytes = 96;

// NVML's own shapes, of its stable C interface.
struct Memory {
  unsigned long long total;  // NOLINT(google-runtime-int)
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};
struct Process {
  unsigned pid;
  unsigned long long used;  // NOLINT(google-runtime-int)
  unsigned gpu_instance;
  unsigned compute_instance;
};
using Device = void*;

struct Closer {
  void operator()(void* library) const { ::dlclose(library); }
};

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) return;
    ready_ = Load(init_, "nvmlInit_v2") && Load(shutdown_, "nvmlShutdown") &&
             Load(count_, "nvmlDeviceGetCount_v2") &&
             Load(handle_, "nvmlDeviceGetHandleByIndex_v2") && Load(name_, "nvmlDeviceGetName") &&
             Load(memory_, "nvmlDeviceGetMemoryInfo") &&
             Load(capability_, "nvmlDeviceGetCudaComputeCapability") &&
             Load(cuda_, "nvmlSystemGetCudaDriverVersion_v2") && init_() == 0;
    Load(processes_, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  ~Nvml() {
    if (ready_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  uint32_t Count() const {
    unsigned count = 0;
    return ready_ && count_(&count) == 0 ? std::min(count, kCardsMax) : 0;
  }

  VideoCard Look(uint32_t index) const {
    VideoCard card;
    card.index = index;
    Device device = nullptr;
    if (handle_(index, &device) != 0) return card;
    std::array<char, kNameBytes> name{};
    if (name_(device, name.data(), kNameBytes) == 0) card.name = name.data();
    Memory memory{};
    if (memory_(device, &memory) == 0) {
      card.total_bytes = memory.total;
      card.free_bytes = memory.free;
    }
    int major = 0;
    int minor = 0;
    if (capability_(device, &major, &minor) == 0) card.sm = Dotted(major, minor);
    if (int cuda = 0; cuda_(&cuda) == 0) card.driver_cuda = Dotted(cuda / 1000, cuda % 1000 / 10);
    AddHolders(device, card);
    return card;
  }

 private:
  template <class Function>
  bool Load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_.get(), name));
    return function != nullptr;
  }

  static std::string Dotted(int major, int minor) {
    return std::to_string(major) + "." + std::to_string(minor);
  }

  void AddHolders(Device device, VideoCard& card) const {
    std::array<Process, kHoldersMax> found{};
    unsigned count = kHoldersMax;
    if (processes_ == nullptr || processes_(device, &count, found.data()) != 0) return;
    for (unsigned i = 0; i < std::min(count, kHoldersMax); ++i) {
      std::string name = "?";
      std::ifstream comm("/proc/" + std::to_string(found[i].pid) + "/comm");
      std::getline(comm, name);
      constexpr auto kUnknown = ~0ULL;
      card.holders.push_back({found[i].pid, name, found[i].used == kUnknown ? 0 : found[i].used});
    }
  }

  std::unique_ptr<void, Closer> library_;
  bool ready_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*capability_)(Device, int*, int*) = nullptr;
  int (*cuda_)(int*) = nullptr;
  int (*processes_)(Device, unsigned*, Process*) = nullptr;
};

}  // namespace

std::vector<VideoCard> LookAtCards() {
  const Nvml nvml;
  std::vector<VideoCard> cards;
  for (uint32_t i = 0; i < nvml.Count(); ++i) cards.push_back(nvml.Look(i));
  return cards;
}

}  // namespace bloomery::apps
