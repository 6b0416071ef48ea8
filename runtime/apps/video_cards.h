// What the driver's management library (NVML) says of the cards, without opening one: no memory of
// a card is touched, nothing is waited for. Loaded by name when asked; a machine without it has no
// cards to tell of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bloomery::apps {

struct CardHolder {
  uint32_t pid = 0;
  std::string name;  // "?" where the system does not say
  uint64_t bytes = 0;
};

struct VideoCard {
  uint32_t index = 0;
  std::string name;
  std::string sm;  // "9.0"
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  std::string driver_cuda;  // "13.0": the newest CUDA the driver runs
  std::vector<CardHolder> holders;
};

std::vector<VideoCard> LookAtCards();

}  // namespace bloomery::apps
