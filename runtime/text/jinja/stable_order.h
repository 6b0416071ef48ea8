// Internal: a stable order of 0..count by a comparison that need not be consistent (NaN, values
// that fail to compare by throwing): merge sort never reads outside whatever `less` answers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bloomery::jinja {

template <typename Less>
std::vector<size_t> StableOrder(size_t count, Less less) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) {
    order[i] = i;
  }
  std::vector<size_t> merged(count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto middle =
          order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + width, count));
      const auto last =
          order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 2 * width, count));
      std::merge(first, middle, middle, last, merged.begin() + static_cast<std::ptrdiff_t>(begin),
                 less);
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace bloomery::jinja
