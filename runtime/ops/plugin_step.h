// Wraps a plugin's CPU kernel as a step: keeps the bl_args it reads, with final pointers.
#pragma once

#include <bloomery/op.h>

#include <memory>
#include <vector>

#include "runtime/graph/attrs.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

struct PluginBinding {
  const bl_kernel* kernel = nullptr;  // lives as long as the plugin
  std::vector<bl_tensor> in = {};
  std::vector<bl_tensor> weights = {};
  std::vector<bl_plane_view> planes = {};
  std::vector<bl_tensor> out = {};
  graph::Attrs attrs = {};
  const bl_rows* rows = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
  bool workspace_zeroed = false;
};

// The best CPU kernel of a plugin's operator whose ports all take and give f32 (or i32, or
// weights), and that supports these shapes; null where none fits.
const bl_kernel* ChoosePluginKernel(const bl_op& op, const PluginBinding& shapes);

// What a kernel asks for. Throws Error(kBadModel) naming the operator when the plugin fails.
bl_workspace PluginWorkspace(const bl_kernel& kernel, const PluginBinding& shapes);

std::unique_ptr<Step> MakePluginStep(PluginBinding binding);

}  // namespace bloomery::ops
