// What the driver's management library (NVML) says of the cards and of the processes that hold
// their memory, without opening a card: no memory of one is touched, nothing is waited for. The
// library is opened when it is asked for and closed again; where there is none, or it does not tell
// (in a container it often may not), lists are empty, and holders say why. Never fails a load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bloomery::exec {

struct CardHolder {
  uint32_t pid = 0;
  std::string name;               // of its program, or "?": another container's, another user's
  std::optional<uint64_t> bytes;  // none: the driver does not say
};

struct CardHolders {
  std::vector<CardHolder> list;  // most bytes first; without this process
  std::string untold;            // where nothing could be asked: why

  // A line each, "  held by pid 4711 (python3): 12,345 MiB", or the one line that says why there
  // is none. Every line begins with a newline.
  std::string Lines() const;
};

struct VideoCard {
  uint32_t index = 0;  // as whoever tells of it counts cards
  std::string name;
  std::string sm;  // "9.0"
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  std::string driver_cuda;  // "13.0": the newest CUDA the driver runs; empty: not asked for
  CardHolders holders;
};

inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

// `pci_bus_id`: "00000000:65:00.0".
CardHolders FindCardHolders(const std::string& pci_bus_id,
                            const std::string& library = kManagementLibrary);

// Every card, by the library's own numbers; what it does not tell of one stays empty or 0.
std::vector<VideoCard> LookAtCards(const std::string& library = kManagementLibrary);

}  // namespace bloomery::exec
