// A bl_model in front of another one that hides a key, counts reads of tensor data, and counts
// calls from other threads than the one that made it. The inner model must outlive it.
#pragma once

#include <bloomery/model.h>

#include <atomic>
#include <string>
#include <thread>

namespace bloomery::apps::check {

class WatchedModel {
 public:
  explicit WatchedModel(const bl_model& inner) : inner_(inner), raw_(inner) {
    raw_.self = this;
    raw_.kv = [](void* self, const char* key, bl_kv* out) noexcept {
      return Of(self).Hides(key) ? bl_status{BL_UNSUPPORTED}
                                 : Of(self).inner_.kv(Of(self).inner_.self, key, out);
    };
    raw_.kv_item = [](void* self, const char* key, uint64_t i, bl_kv* out) noexcept {
      return Of(self).Hides(key) ? bl_status{BL_UNSUPPORTED}
                                 : Of(self).inner_.kv_item(Of(self).inner_.self, key, i, out);
    };
    raw_.file_kv = [](void* self, uint32_t file, const char* key, bl_kv* out) noexcept {
      return Of(self).Hides(key) ? bl_status{BL_UNSUPPORTED}
                                 : Of(self).inner_.file_kv(Of(self).inner_.self, file, key, out);
    };
    raw_.tensor = [](void* self, uint64_t i, bl_tensor_info* out) noexcept {
      return Of(self).Seen().inner_.tensor(Of(self).inner_.self, i, out);
    };
    raw_.find = [](void* self, const char* name) noexcept {
      return Of(self).Seen().inner_.find(Of(self).inner_.self, name);
    };
    raw_.read_small = [](void* self, uint64_t tensor, uint64_t offset, void* dst,
                         uint64_t bytes) noexcept {
      ++Of(self).Seen().small_reads;
      return Of(self).inner_.read_small(Of(self).inner_.self, tensor, offset, dst, bytes);
    };
  }
  WatchedModel(const WatchedModel&) = delete;
  WatchedModel& operator=(const WatchedModel&) = delete;

  const bl_model& raw() const { return raw_; }
  std::string hidden_key = {};  // as if the file did not have it
  int small_reads = 0;
  int foreign_calls() const { return foreign_calls_; }

 private:
  static WatchedModel& Of(void* self) { return *static_cast<WatchedModel*>(self); }
  WatchedModel& Seen() {
    if (std::this_thread::get_id() != thread_) ++foreign_calls_;
    return *this;
  }
  bool Hides(const char* key) { return key != nullptr && Seen().hidden_key == key; }

  const bl_model& inner_;
  bl_model raw_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<int> foreign_calls_ = 0;
};

}  // namespace bloomery::apps::check
