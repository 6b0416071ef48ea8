#include "runtime/serve/reasoning_controls.h"

#include <utility>

namespace bloomery::serve {

std::shared_ptr<const void> ReasoningControls::Add(const std::string& id,
                                                   std::shared_ptr<std::atomic<bool>> stop) {
  auto entry = std::make_shared<Entry>(std::move(stop));
  std::lock_guard lock(mutex_);
  std::erase_if(running_, [](const auto& item) { return item.second.expired(); });
  running_[id] = entry;
  return entry;
}

bool ReasoningControls::End(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  const auto entry = found == running_.end() ? nullptr : found->second.lock();
  if (entry == nullptr) return false;
  (*entry)->store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace bloomery::serve
