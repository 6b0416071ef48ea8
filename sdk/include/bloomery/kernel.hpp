// What a kernel or an operator's inference sees, typed. Nothing here allocates: kernels run inside
// the pass. Views live for one call.
//
//   struct ScaleKernel {
//     static int32_t Tasks(const sdk::Args& args) { return args.live_rows(); }
//     static void Run(const sdk::Args& args, int32_t row) {
//       const float factor = static_cast<float>(args.attrs().F64("factor").value_or(1.0));
//       const auto in = args.In(0).Row<const float>(row);
//       const auto out = args.Out(0).Row<float>(row);
//       for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * factor;
//     }
//   };
#pragma once

#include <bloomery/op.h>

#include <bloomery/attrs.hpp>
#include <bloomery/errors.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace bloomery::sdk {

// Item i of an array whose structs open with the size that their maker compiled.
template <class T>
T& Strided(T* items, uint32_t i) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return *reinterpret_cast<T*>(reinterpret_cast<Byte*>(items) + size_t{items->size} * i);
}

class TensorView {
 public:
  explicit TensorView(const bl_tensor& tensor) : tensor_(&tensor) {}
  const bl_tensor& raw() const { return *tensor_; }
  bool present() const { return tensor_->data != nullptr; }

  // Values of one row: the product of all axes but the last.
  int64_t width() const {
    int64_t n = 1;
    for (uint32_t i = 0; i + 1 < tensor_->ndim; ++i) n *= tensor_->ne[i];
    return n;
  }
  // Rows there is room for; how many live is Args::live_rows().
  int64_t capacity() const { return tensor_->ndim == 0 ? 0 : tensor_->ne[tensor_->ndim - 1]; }
  // Row i along the last axis, for encodings of one element a value (f32, i32, f16 and bf16 as
  // uint16_t); rows are contiguous inside.
  template <class T>
  std::span<T> Row(int64_t i) const {
    char* base = static_cast<char*>(tensor_->data) + i * tensor_->nb[tensor_->ndim - 1];
    return std::span<T>(reinterpret_cast<T*>(base), static_cast<size_t>(width()));
  }

 private:
  const bl_tensor* tensor_;
};

class Args {
 public:
  explicit Args(const bl_args* args) : args_(args) {}
  const bl_args& raw() const { return *args_; }
  uint32_t n_in() const { return args_->n_in; }
  uint32_t n_out() const { return args_->n_out; }
  TensorView In(uint32_t i) const { return TensorView(Strided(args_->in, i)); }
  TensorView Weight(uint32_t i) const { return TensorView(Strided(args_->weights, i)); }
  TensorView Out(uint32_t i) const { return TensorView(Strided(args_->out, i)); }
  const bl_plane_view& Plane(uint32_t i) const { return Strided(args_->planes, i); }
  AttrReader attrs() const { return AttrReader(args_->attrs, args_->n_attrs); }
  const bl_rows& rows() const { return *args_->rows; }
  // Rows that live in this pass. Rows beyond are padding: kernels leave them alone.
  int32_t live_rows() const { return *args_->rows->live; }
  void* workspace() const { return args_->workspace; }

 private:
  const bl_args* args_;
};

// Inference: look at shapes and attributes, fill the outputs, throw Failure (Refuse) on a misfit.
class InferCall {
 public:
  explicit InferCall(const bl_infer* call) : call_(call) {}
  uint32_t n_in() const { return call_->n_in; }
  const bl_shape& In(uint32_t i) const { return Strided(call_->in, i); }
  const bl_shape& Weight(uint32_t i) const { return Strided(call_->weights, i); }
  AttrReader attrs() const { return AttrReader(call_->attrs, call_->n_attrs); }
  // Output i gets this shape; the members behind `size` are copied.
  void SetOut(uint32_t i, const bl_shape& shape) const {
    bl_shape& out = Strided(call_->out, i);
    const uint32_t size = out.size;
    out = shape;
    out.size = size;
  }

 private:
  const bl_infer* call_;
};

// C functions over a kernel class K. K has Tasks and Run, and may have Supports(args) → bool,
// WorkspaceBytes(args) → uint64_t (uncleared), Prepare(device).
template <class K>
struct CpuKernelCalls {
  static int32_t Tasks(const bl_args* args) noexcept {
    int32_t n = -1;  // a negative count is a failure to the host
    Guard([&] { n = K::Tasks(Args(args)); }, [](bl_status, const char*) {});
    return n;
  }
  static bl_status Run(const bl_args* args, int32_t task) noexcept {
    return Guard([&] { K::Run(Args(args), task); }, [](bl_status, const char*) {});
  }
  static int32_t Supports(const bl_args* args) noexcept {
    int32_t yes = 0;
    Guard([&] { yes = K::Supports(Args(args)) ? 1 : 0; }, [](bl_status, const char*) {});
    return yes;
  }
  static bl_status Workspace(const bl_args* args, bl_workspace* out) noexcept {
    return Guard(
        [&] {
          out->zeroed = 0;
          out->bytes = K::WorkspaceBytes(Args(args));
        },
        [](bl_status, const char*) {});
  }
  static bl_status Prepare(const bl_device* device, const bl_sink* sink) noexcept {
    return Guard([&] { K::Prepare(*device); }, SinkSayer(sink));
  }

  // Fills the function members of a kernel.
  static void Fill(bl_kernel& kernel) {
    kernel.tasks = Tasks;
    kernel.run = Run;
    if constexpr (requires(const Args& a) { K::Supports(a); }) kernel.supports = Supports;
    if constexpr (requires(const Args& a) { K::WorkspaceBytes(a); }) kernel.workspace = Workspace;
    if constexpr (requires(const bl_device& d) { K::Prepare(d); }) kernel.prepare = Prepare;
  }
};

}  // namespace bloomery::sdk
