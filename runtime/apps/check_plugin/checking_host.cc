#include "runtime/apps/check_plugin/checking_host.h"

#include <vector>

namespace bloomery::apps::check {
namespace {

constexpr int32_t kThreads = 4;

CheckingHost& Of(void* self) { return *static_cast<CheckingHost*>(self); }

}  // namespace

std::string CheckingHost::complaint() const {
  const std::lock_guard lock(mutex_);
  return complaint_;
}

void CheckingHost::Look(const char* function, bool load_only) {
  const char* call = call_;
  std::string wrong;
  if (call == nullptr) {
    wrong = " was called while no call into the plugin was under way";
  } else if (load_only && std::this_thread::get_id() != load_thread_) {
    wrong = std::string(" was called in ") + call + " from another thread than the load thread";
  }
  if (wrong.empty()) return;
  const std::lock_guard lock(mutex_);
  if (complaint_.empty()) complaint_ = std::string("bl_host.") + function + wrong;
}

// Pieces are dealt to the threads in turn; an empty piece costs nothing to speak of.
bl_status CheckingHost::RunAll(int32_t n, bl_status (*fn)(void*, int32_t), void* context) {
  if (n < 0 || fn == nullptr) return BL_REFUSED;
  std::atomic<bl_status> worst{BL_OK};
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t i = t; i < n; i += kThreads) {
        const bl_status status = fn(context, i);
        if (status != BL_OK) worst = status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return worst;
}

const bl_host& CheckingHost::Wrap(const bl_host& inner) {
  inner_ = &inner;
  load_thread_ = std::this_thread::get_id();
  raw_ = inner;
  raw_.self = this;
  raw_.get_extension = [](void* self, const char* id) -> const void* {
    Of(self).Look("get_extension", false);
    return Of(self).inner_->get_extension(Of(self).inner_->self, id);
  };
  raw_.log = [](void* self, bl_log_level level, const char* text) {
    Of(self).Look("log", false);
    Of(self).inner_->log(Of(self).inner_->self, level, text);
  };
  raw_.fail = [](void* self, bl_status status, const char* text) {
    Of(self).Look("fail", false);
    Of(self).inner_->fail(Of(self).inner_->self, status, text);
  };
  raw_.progress = [](void* self, const char* what, uint64_t done, uint64_t total) {
    Of(self).Look("progress", true);
    Of(self).inner_->progress(Of(self).inner_->self, what, done, total);
  };
  raw_.alloc = [](void* self, uint64_t bytes, uint64_t align) -> void* {
    Of(self).Look("alloc", false);
    return Of(self).inner_->alloc(Of(self).inner_->self, bytes, align);
  };
  raw_.free = [](void* self, void* p) {
    Of(self).Look("free", false);
    Of(self).inner_->free(Of(self).inner_->self, p);
  };
  raw_.parallel_for = [](void* self, int32_t n, bl_status (*fn)(void*, int32_t),
                         void* context) -> bl_status {
    Of(self).Look("parallel_for", true);
    return Of(self).RunAll(n, fn, context);
  };
  return raw_;
}

}  // namespace bloomery::apps::check
