// Making structs of the plugin ABI: zero but for `size`, as its first rule asks.
#pragma once

#include <cstdint>

namespace bloomery::graph {

template <class T>
T MakeAbi() {
  T made{};
  made.size = static_cast<uint32_t>(sizeof(T));
  return made;
}

}  // namespace bloomery::graph
