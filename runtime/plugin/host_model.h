// The bl_model a plugin reads: a view of a ModelFile through the C ABI. Every call checks what the
// plugin passes and catches what is thrown. The ModelFile must outlive this object. [load] thread.
#pragma once

#include <bloomery/model.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/inventory.h"

namespace bloomery::plugin {

class HostModel {
 public:
  explicit HostModel(const model::ModelFile& model);
  HostModel(const HostModel&) = delete;
  HostModel& operator=(const HostModel&) = delete;

  const bl_model& raw() const { return raw_; }
  const std::string& architecture() const { return architecture_; }

 private:
  bl_status Kv(const char* key, bl_kv* out) const;
  bl_status KvItem(const char* key, uint64_t i, bl_kv* out) const;
  bl_status Tensor(uint64_t i, bl_tensor_info* out) const;
  bl_status ReadSmall(uint64_t tensor, uint64_t offset, void* dst, uint64_t bytes);

  const model::ModelFile& model_;
  std::string architecture_;
  std::vector<bl_file> files_;
  uint64_t small_bytes_left_;
  bl_model raw_{};
};

}  // namespace bloomery::plugin
