// The bl_host an instance is lent: logging, failure texts, counted memory, the pool and host
// extensions. Owns what the plugin allocated and has not freed. alloc, free, log, fail and
// get_extension may be called from any thread.
#pragma once

#include <bloomery/plugin.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/plugin/call.h"

namespace bloomery::plugin {

class HostServices {
 public:
  using ParallelFor = std::function<void(int32_t n, const std::function<void(int32_t)>& fn)>;

  // `plugin` names it in log lines. An empty `parallel_for` runs the pieces in order.
  HostServices(std::string plugin, uint64_t bytes_max, ParallelFor parallel_for);
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;

  const bl_host& raw() const { return raw_; }
  Reason& reason() { return reason_; }
  void SetTextExtension(const void* table);
  uint64_t bytes() const;

 private:
  void Log(bl_log_level level, const char* text) const;
  void* Alloc(uint64_t bytes, uint64_t align);
  void Free(void* p);
  bl_status RunAll(int32_t n, bl_status (*fn)(void*, int32_t), void* context);
  const void* Extension(const char* id) const;

  struct Release {
    void operator()(void* p) const;
  };
  struct Block {
    std::unique_ptr<void, Release> memory;
    uint64_t bytes;
  };

  std::string plugin_;
  uint64_t bytes_max_;
  ParallelFor parallel_for_;
  Reason reason_;
  mutable std::mutex mutex_;  // blocks_, bytes_, reason_ and text_
  std::map<void*, Block> blocks_;
  uint64_t bytes_ = 0;
  const void* text_ = nullptr;
  bl_host raw_{};
};

}  // namespace bloomery::plugin
