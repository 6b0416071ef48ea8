#include "runtime/plugin/host_services.h"

#include <bloomery/text.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace bloomery::plugin {
namespace {

HostServices* Self(void* self) { return static_cast<HostServices*>(self); }

constexpr uint64_t kAlignMax = 4096;  // sdk plugin.h

}  // namespace

void HostServices::Release::operator()(void* p) const {
  std::free(p);  // NOLINT(cppcoreguidelines-no-malloc): what std::aligned_alloc gave
}

// The table's functions are noexcept: an exception of ours must not enter the plugin.
HostServices::HostServices(std::string plugin, uint64_t bytes_max, ParallelFor parallel_for)
    : plugin_(std::move(plugin)), bytes_max_(bytes_max), parallel_for_(std::move(parallel_for)) {
  raw_.size = sizeof(raw_);
  raw_.abi = {BL_ABI_MAJOR, BL_ABI_MINOR};
  raw_.self = this;
  raw_.get_extension = [](void* self, const char* id) noexcept {
    return Self(self)->Extension(id);
  };
  raw_.log = [](void* self, bl_log_level level, const char* text) noexcept {
    Self(self)->Log(level, text);
  };
  raw_.fail = [](void* self, bl_status status, const char* text) noexcept {
    const std::lock_guard lock(Self(self)->mutex_);
    Self(self)->reason_.Set(status, text);
  };
  raw_.progress = [](void* self, const char* what, uint64_t done, uint64_t total) noexcept {
    if (what == nullptr || done != total)
      return;  // the end of each piece of work is enough for a log
    VLOG(1) << "plugin " << Self(self)->plugin_ << ": " << Printable(what) << " " << done << "/"
            << total;
  };
  raw_.alloc = [](void* self, uint64_t bytes, uint64_t align) noexcept -> void* {
    try {
      return Self(self)->Alloc(bytes, align);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  };
  raw_.free = [](void* self, void* p) noexcept { Self(self)->Free(p); };
  raw_.parallel_for = [](void* self, int32_t n, bl_status (*fn)(void*, int32_t),
                         void* context) noexcept -> bl_status {
    try {
      return Self(self)->RunAll(n, fn, context);
    } catch (...) {
      return BL_INTERNAL;
    }
  };
}

void HostServices::SetTextExtension(const void* table) {
  const std::lock_guard lock(mutex_);
  text_ = table;
}

uint64_t HostServices::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

const void* HostServices::Extension(const char* id) const {
  if (id == nullptr || std::strcmp(id, BL_EXT_TEXT_1) != 0) return nullptr;
  const std::lock_guard lock(mutex_);
  return text_;
}

void HostServices::Log(bl_log_level level, const char* text) const {
  const std::string line =
      "plugin " + plugin_ + ": " + Printable(text == nullptr ? "" : text, 1024);
  switch (level) {
    case BL_LOG_INFO:
      LOG(INFO) << line;
      break;
    case BL_LOG_WARNING:
      LOG(WARNING) << line;
      break;
    default:
      LOG(ERROR) << line;
  }
}

void* HostServices::Alloc(uint64_t bytes, uint64_t align) {
  if (bytes == 0 || bytes > uint64_t{PTRDIFF_MAX}) return nullptr;
  if (!std::has_single_bit(align) || align > kAlignMax) return nullptr;
  const std::lock_guard lock(mutex_);
  if (bytes > bytes_max_ - bytes_) return nullptr;  // bytes_ <= bytes_max_ always
  // aligned_alloc wants a multiple of the alignment, and at least a pointer's.
  const uint64_t unit = std::max<uint64_t>(align, alignof(std::max_align_t));
  const uint64_t rounded = (bytes + unit - 1) / unit * unit;
  Block block{std::unique_ptr<void, Release>(std::aligned_alloc(unit, rounded)), bytes};
  void* p = block.memory.get();
  if (p == nullptr) return nullptr;
  blocks_.emplace(p, std::move(block));
  bytes_ += bytes;
  return p;
}

void HostServices::Free(void* p) {
  if (p == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(p);
  if (it == blocks_.end()) {
    Log(BL_LOG_ERROR, "freed memory that the host did not give");
    return;
  }
  bytes_ -= it->second.bytes;
  blocks_.erase(it);
}

bl_status HostServices::RunAll(int32_t n, bl_status (*fn)(void*, int32_t), void* context) {
  if (n < 0 || fn == nullptr) return BL_REFUSED;
  std::atomic<bl_status> worst{BL_OK};
  const auto piece = [&](int32_t i) {
    const bl_status status = fn(context, i);
    bl_status none = BL_OK;
    if (status != BL_OK) worst.compare_exchange_strong(none, status);
  };
  if (parallel_for_) {
    parallel_for_(n, piece);
  } else {
    for (int32_t i = 0; i < n; ++i) piece(i);
  }
  return worst.load();
}

}  // namespace bloomery::plugin
