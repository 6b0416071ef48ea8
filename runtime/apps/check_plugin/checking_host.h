// A bl_host in front of another one that looks at who calls: functions of the load thread called
// from elsewhere, and any call while no call of the host's into the plugin is under way. Its
// parallel_for runs pieces on threads of its own, all at once. The inner table must outlive it.
#pragma once

#include <bloomery/plugin.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace bloomery::apps::check {

class CheckingHost {
 public:
  CheckingHost() = default;
  CheckingHost(const CheckingHost&) = delete;
  CheckingHost& operator=(const CheckingHost&) = delete;

  // For RawInstance. The thread that calls this is the load thread.
  const bl_host& Wrap(const bl_host& inner);

  // A call into the plugin begins, or has ended (null).
  void SetCall(const char* name) { call_ = name; }

  // The first thing that was wrong, or empty.
  std::string complaint() const;

 private:
  void Look(const char* function, bool load_only);
  bl_status RunAll(int32_t n, bl_status (*fn)(void*, int32_t), void* context);

  const bl_host* inner_ = nullptr;
  bl_host raw_{};
  std::thread::id load_thread_;
  std::atomic<const char*> call_{nullptr};
  mutable std::mutex mutex_;
  std::string complaint_;
};

}  // namespace bloomery::apps::check
