#include "runtime/ops/plugin_step.h"

#include <cstring>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/limits.h"
#include "runtime/graph/abi.h"

namespace bloomery::ops {
namespace {

// bl_args over a binding; owns the attribute structs.
class Args {
 public:
  explicit Args(PluginBinding binding) : binding_(std::move(binding)), attrs_(binding_.attrs) {
    device_ = graph::MakeAbi<bl_device>();
    device_.kind = BL_DEVICE_CPU;
    args_ = graph::MakeAbi<bl_args>();
    args_.n_in = static_cast<uint32_t>(binding_.in.size());
    args_.in = binding_.in.data();
    args_.weights = binding_.weights.data();
    args_.planes = binding_.planes.data();
    args_.out = binding_.out.data();
    args_.n_weights = static_cast<uint32_t>(binding_.weights.size());
    args_.n_planes = static_cast<uint32_t>(binding_.planes.size());
    args_.n_out = static_cast<uint32_t>(binding_.out.size());
    args_.n_attrs = static_cast<uint32_t>(attrs_.view().size());
    args_.attrs = attrs_.view().data();
    args_.rows = binding_.rows;
    args_.workspace = binding_.workspace;
    args_.device = &device_;
  }
  Args(const Args&) = delete;
  Args& operator=(const Args&) = delete;

  const PluginBinding& binding() const { return binding_; }
  const bl_args* get() const { return &args_; }

 private:
  PluginBinding binding_;
  graph::AbiAttrs attrs_;
  bl_device device_;
  bl_args args_;
};

class PluginStep : public Step {
 public:
  explicit PluginStep(PluginBinding binding) : args_(std::move(binding)) {}

  int32_t Tasks() const override {
    const PluginBinding& binding = args_.binding();
    if (binding.workspace_zeroed) {
      std::memset(binding.workspace, 0, binding.workspace_bytes);
    }
    try {
      const ForeignCallNote note(binding.kernel->op, "tasks of its kernel");
      return binding.kernel->tasks(args_.get());
    } catch (...) {
      return -1;  // a failure of the step, as a plugin's own negative count is
    }
  }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const bl_kernel& kernel = *args_.binding().kernel;
    try {
      const ForeignCallNote note(kernel.op, "run of its kernel");
      return kernel.run(args_.get(), task);
    } catch (...) {
      return BL_INTERNAL;
    }
  }

 private:
  Args args_;
};

bool PlainEncoding(bl_encoding encoding) {
  return encoding == BL_ENC_F32 || encoding == BL_ENC_I32;
}

bool Fits(const bl_kernel& kernel, const Args& args) {
  if (kernel.device != BL_DEVICE_CPU || kernel.tasks == nullptr || kernel.run == nullptr) {
    return false;
  }
  if (kernel.n_in != args.get()->n_in || kernel.n_out != args.get()->n_out) return false;
  for (uint32_t i = 0; i < kernel.n_in; ++i) {
    if (!PlainEncoding(kernel.in_enc[i])) return false;
  }
  for (uint32_t i = 0; i < kernel.n_out; ++i) {
    if (!PlainEncoding(kernel.out_enc[i])) return false;
  }
  return kernel.supports == nullptr || kernel.supports(args.get()) != 0;
}

}  // namespace

const bl_kernel* ChoosePluginKernel(const bl_op& op, const PluginBinding& shapes) {
  const Args args(shapes);
  const bl_kernel* best = nullptr;
  for (uint32_t i = 0; i < op.n_kernels; ++i) {
    const bl_kernel& kernel = op.kernels[i];
    if (Fits(kernel, args) && (best == nullptr || kernel.priority > best->priority)) {
      best = &kernel;
    }
  }
  return best;
}

bl_workspace PluginWorkspace(const bl_kernel& kernel, const PluginBinding& shapes) {
  auto workspace = graph::MakeAbi<bl_workspace>();
  if (kernel.workspace == nullptr) return workspace;
  const Args args(shapes);
  const bl_status status = kernel.workspace(args.get(), &workspace);
  if (status != BL_OK) {
    throw Error(ErrorKind::kBadModel, "operator " + std::string(kernel.op) +
                                          ": its kernel's workspace call failed with status " +
                                          std::to_string(status));
  }
  if (workspace.bytes > limits::kWorkspaceBytesMax) {
    throw Error(ErrorKind::kBadModel, "operator " + std::string(kernel.op) +
                                          ": its kernel asks for a workspace of " +
                                          std::to_string(workspace.bytes) + " bytes, at most " +
                                          std::to_string(limits::kWorkspaceBytesMax));
  }
  return workspace;
}

std::unique_ptr<Step> MakePluginStep(PluginBinding binding) {
  return std::make_unique<PluginStep>(std::move(binding));
}

}  // namespace bloomery::ops
