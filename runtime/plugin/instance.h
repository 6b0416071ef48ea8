// One seat served by one plugin: the plugin's instance with the host table, model and parameters it
// was lent, and its checked description. Owns all of them; destroys the instance first. The model
// and the options' pointers must outlive it. Calls are for the [load] thread unless said otherwise.
// Memory that the plugin took from the host is counted, and freed here if the plugin forgot it.
#pragma once

#include <bloomery/plugin.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/description.h"
#include "runtime/plugin/library.h"

namespace bloomery::plugin {

struct InstanceOptions {
  int32_t n_slots = 1;
  int64_t n_ctx = 4096;  // rows of one slot
  int32_t rows_max = 512;
  std::vector<bl_plane_type> plane_types = {};  // the user's cache-type flags, by class
  uint32_t features = BL_FEATURE_OBSERVE;
  int32_t draft_rows_max = 0;  // tokens of a draft; with BL_FEATURE_DRAFT
  uint64_t host_bytes_max = limits::kPluginHostBytesMax;  // for the plugin's alloc calls
  // Runs fn(0 … n-1), all done on return; the caller's pool. Empty: in order on the calling thread.
  std::function<void(int32_t n, const std::function<void(int32_t)>& fn)> parallel_for = {};
};

class Instance {
 public:
  // create, describe, check. Throws Error with the plugin's own reason (kBadModel, kUnsupported,
  // kNoMemory or kInternal by its status), and as CheckDescription does.
  Instance(const LoadedPlugin& plugin, const model::ModelFile& model, InstanceOptions options);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const LoadedPlugin& plugin() const;
  const Description& description() const;

  // Lets the plugin build entry `entry` into `builder`. Throws Error(kInternal or as the status
  // says) with the plugin's reason; a failure that the builder recorded is the caller's to report
  // instead.
  void Build(uint32_t entry, const bl_builder& builder, const bl_build& build);

  // A constant table of the plugin by versioned id, or null. [any]
  const void* Extension(const char* id) const;

  // What bl_host.get_extension answers for "bloomery.text/1" from now on; it must outlive this
  // object.
  void SetTextExtension(const void* table);

  // Bytes the plugin holds through the host's alloc. [any]
  uint64_t host_bytes() const;

  // The handle that functions of a description take.
  bl_instance* raw() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bloomery::plugin
