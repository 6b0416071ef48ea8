#include "runtime/plugin/host_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::plugin {
namespace {

// Runs `body`; an exception becomes a status, since none may cross into the plugin.
template <class Body>
bl_status Caught(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return BL_NO_MEMORY;
  } catch (...) {
    return BL_INTERNAL;
  }
}

// Writes as much of `value` as the caller's struct has room for, keeping its size.
template <class S>
bl_status WriteSized(S value, S* out) {
  uint32_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  if (size < sizeof(uint32_t)) return BL_REFUSED;
  value.size = size;
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof(S)));
  return BL_OK;
}

void SetNumber(const model::Number& number, bl_kv& kv) {
  if (const auto* u = std::get_if<uint64_t>(&number)) {
    kv.kind = BL_KV_U64;
    kv.u = *u;
    kv.i = *u <= uint64_t{INT64_MAX} ? static_cast<int64_t>(*u) : 0;
    kv.f = static_cast<double>(*u);
  } else if (const auto* i = std::get_if<int64_t>(&number)) {
    kv.kind = *i < 0 ? BL_KV_I64 : BL_KV_U64;
    kv.u = *i < 0 ? 0 : static_cast<uint64_t>(*i);
    kv.i = *i;
    kv.f = static_cast<double>(*i);
  } else {
    kv.kind = BL_KV_F64;
    kv.f = std::get<double>(number);
  }
}

void SetBool(bool value, bl_kv& kv) {
  kv.kind = BL_KV_BOOL;
  kv.u = value ? 1 : 0;
  kv.i = static_cast<int64_t>(kv.u);
}

void SetText(std::string_view text, bl_kv& kv) {
  kv.kind = BL_KV_STR;
  kv.s = {text.data(), text.size()};
}

bl_kv_kind ItemKind(model::ValueKind kind) {
  switch (kind) {
    case model::ValueKind::kF32:
    case model::ValueKind::kF64:
      return BL_KV_F64;
    case model::ValueKind::kBool:
      return BL_KV_BOOL;
    case model::ValueKind::kString:
      return BL_KV_STR;
    default:
      return BL_KV_U64;
  }
}

struct KvSetter {
  bl_kv& kv;
  void operator()(uint64_t v) const { SetNumber(v, kv); }
  void operator()(int64_t v) const { SetNumber(v, kv); }
  void operator()(double v) const { SetNumber(v, kv); }
  void operator()(bool v) const { SetBool(v, kv); }
  void operator()(const std::string& v) const { SetText(v, kv); }
  void operator()(const model::MetadataArray& v) const {
    kv.kind = BL_KV_ARRAY;
    kv.item_kind = ItemKind(v.element_kind());
    kv.count = v.size();
  }
};

HostModel* Self(void* self) { return static_cast<HostModel*>(self); }

}  // namespace

HostModel::HostModel(const model::ModelFile& model)
    : model_(model), small_bytes_left_(limits::kPluginReadBytesSeatMax) {
  architecture_ = model.metadata().FindString("general.architecture").value_or("");
  files_.push_back({sizeof(bl_file), BL_FILE_TRUNK, BL_FORMAT_GGUF, 0, architecture_.c_str()});
  raw_.size = sizeof(raw_);
  raw_.n_files = static_cast<uint32_t>(files_.size());
  raw_.files = files_.data();
  raw_.n_tensors = model.tensors().size();
  raw_.self = this;
  raw_.kv = [](void* self, const char* key, bl_kv* out) noexcept {
    return Caught([&] { return Self(self)->Kv(key, out); });
  };
  raw_.kv_item = [](void* self, const char* key, uint64_t i, bl_kv* out) noexcept {
    return Caught([&] { return Self(self)->KvItem(key, i, out); });
  };
  raw_.file_kv = [](void* self, uint32_t file, const char* key, bl_kv* out) noexcept {
    return Caught([&] {
      if (file >= Self(self)->raw_.n_files) return bl_status{BL_REFUSED};
      return Self(self)->Kv(key, out);
    });
  };
  raw_.tensor = [](void* self, uint64_t i, bl_tensor_info* out) noexcept {
    return Caught([&] { return Self(self)->Tensor(i, out); });
  };
  raw_.find = [](void* self, const char* name) noexcept -> int64_t {
    if (name == nullptr) return -1;
    const auto index = Self(self)->model_.FindTensorIndex(name);
    return index ? static_cast<int64_t>(*index) : -1;
  };
  raw_.read_small = [](void* self, uint64_t tensor, uint64_t offset, void* dst,
                       uint64_t bytes) noexcept {
    return Caught([&] { return Self(self)->ReadSmall(tensor, offset, dst, bytes); });
  };
}

bl_status HostModel::Kv(const char* key, bl_kv* out) const {
  if (key == nullptr || out == nullptr) return BL_REFUSED;
  const model::MetadataValue* value = model_.metadata().Find(key);
  if (value == nullptr) return BL_UNSUPPORTED;
  bl_kv kv{};
  std::visit(KvSetter{kv}, value->data);
  return WriteSized(kv, out);
}

bl_status HostModel::KvItem(const char* key, uint64_t i, bl_kv* out) const {
  if (key == nullptr || out == nullptr) return BL_REFUSED;
  const model::MetadataValue* value = model_.metadata().Find(key);
  if (value == nullptr) return BL_UNSUPPORTED;
  const auto* array = std::get_if<model::MetadataArray>(&value->data);
  if (array == nullptr || i >= array->size()) return BL_REFUSED;
  bl_kv kv{};
  if (array->element_kind() == model::ValueKind::kString) {
    SetText(array->String(i), kv);
  } else if (array->element_kind() == model::ValueKind::kBool) {
    SetBool(std::get<uint64_t>(array->At(i)) != 0, kv);
  } else {
    SetNumber(array->At(i), kv);
  }
  return WriteSized(kv, out);
}

bl_status HostModel::Tensor(uint64_t i, bl_tensor_info* out) const {
  if (out == nullptr || i >= model_.tensors().size()) return BL_REFUSED;
  const model::TensorInfo& tensor = model_.tensors()[i];
  bl_tensor_info info{};
  info.name = tensor.name.c_str();
  info.type = static_cast<bl_dtype>(tensor.type);
  info.n_dims = tensor.n_dims;
  std::ranges::copy(tensor.ne, info.ne);
  info.bytes = tensor.bytes;
  return WriteSized(info, out);
}

bl_status HostModel::ReadSmall(uint64_t tensor, uint64_t offset, void* dst, uint64_t bytes) {
  if (dst == nullptr || tensor >= model_.tensors().size()) return BL_REFUSED;
  const uint64_t available = model_.tensors()[tensor].bytes;
  if (offset > available || bytes > available - offset) return BL_REFUSED;
  if (bytes > limits::kPluginReadBytesMax || bytes > small_bytes_left_) return BL_REFUSED;
  small_bytes_left_ -= bytes;
  model_.ReadTensor(tensor, offset, std::span(static_cast<std::byte*>(dst), bytes));
  return BL_OK;
}

}  // namespace bloomery::plugin
