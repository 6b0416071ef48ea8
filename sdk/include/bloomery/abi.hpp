// Making the ABI's structs: zero but for `size`, as its first rule asks. Any thread.
//
//   auto entry = sdk::MakeAbi<bl_entry>();
#pragma once

#include <cstdint>

namespace bloomery::sdk {

template <class T>
T MakeAbi() {
  T made{};
  made.size = static_cast<uint32_t>(sizeof(T));
  return made;
}

}  // namespace bloomery::sdk
