// Reading structs of the ABI, which open with the size their maker compiled. A copy holds what both
// sides know: members past the maker's size are zero, which is their documented "absent"; members
// past ours are left out. Values only.
#pragma once

#include <bloomery/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::plugin {

// `item` as this host compiles it. Throws Error(kBadModel) naming `what` when its size is smaller
// than the struct was in ABI 0.1, or no size at all (beyond 4096, or no multiple of 4).
template <class S>
S CopySized(const S* item, const std::string& what) {
  uint32_t size = 0;
  std::memcpy(&size, item, sizeof(size));  // the maker's struct may be shorter than S
  if (size < sizeof(S) || size > 4096 || size % 4 != 0) {
    throw Error(ErrorKind::kBadModel, what + ", field size: " + std::to_string(size) +
                                          " is not the size of this struct, " +
                                          std::to_string(sizeof(S)) +
                                          " bytes in this ABI; set it to sizeof");
  }
  S copy{};
  std::memcpy(static_cast<void*>(&copy), item, std::min<size_t>(size, sizeof(S)));
  return copy;
}

// An array of sized structs, stepped by the first one's size.
template <class S>
class SizedArray {
 public:
  // Throws Error(kBadModel) naming `what` on a null array of n > 0 items and on an absurd count.
  SizedArray(const S* items, uint32_t n, std::string what)
      : items_(items), n_(n), what_(std::move(what)) {
    if (n == 0) return;
    if (items == nullptr) {
      throw Error(ErrorKind::kBadModel, what_ + ": null, but there are " + std::to_string(n));
    }
    if (n > limits::kSeatItemsMax) {
      throw Error(ErrorKind::kBadModel, what_ + ": " + std::to_string(n) + " items, at most " +
                                            std::to_string(limits::kSeatItemsMax) + " are read");
    }
    stride_ = CopySized(items, what_ + " 0").size;
  }
  uint32_t size() const { return n_; }
  // Item i < size(), copied.
  S operator[](uint32_t i) const {
    const auto* at = reinterpret_cast<const char*>(items_) + size_t{stride_} * i;
    const std::string what = what_ + " " + std::to_string(i);
    const S copy = CopySized(reinterpret_cast<const S*>(at), what);
    if (copy.size != stride_) {
      throw Error(ErrorKind::kBadModel, what + ", field size: " + std::to_string(copy.size) +
                                            ", but item 0 has " + std::to_string(stride_));
    }
    return copy;
  }

 private:
  const S* items_;
  uint32_t n_;
  std::string what_;
  uint32_t stride_ = 0;
};

}  // namespace bloomery::plugin
