#include "runtime/exec/cpu/compute_rate.h"

#include <algorithm>
#include <chrono>

#include "kernels-common/linear/linear.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::exec {
namespace {

// A projection of a mid-sized model, and the rows of a pass; Q4_K, which most files have most of.
constexpr size_t kWidth = 2048;
constexpr size_t kOutputs = 8192;
constexpr size_t kRows = 512;
constexpr size_t kTaskOutputs = 64;

const kernels::FormatTraits& Format() {
  return *kernels::FindFormat(static_cast<int>(model::TensorType::kQ4_K));
}

size_t RowBytes() { return kernels::RowBytes(Format(), kWidth); }

class LinearStep : public ops::Step {
 public:
  LinearStep(const ops::Backend& backend, const kernels::LinearArgs& args)
      : backend_(backend), args_(args) {}
  int32_t Tasks() const override { return kOutputs / kTaskOutputs; }
  bl_status Run(int32_t task, ops::Worker* worker) const override {
    const size_t begin = static_cast<size_t>(task) * kTaskOutputs;
    backend_.linear(args_, begin, begin + kTaskOutputs, worker->scratch);
    return BL_OK;
  }

 private:
  const ops::Backend& backend_;
  const kernels::LinearArgs& args_;
};

}  // namespace

ComputeRate::ComputeRate(const ops::Backend& backend)
    : backend_(backend),
      weights_(kOutputs * RowBytes(), "a matrix to measure multiply-adds with"),
      rows_(kRows * kernels::QuantisedRowBytes(kWidth, Format().activation_group),
            "rows to measure multiply-adds with"),
      results_(kRows * kOutputs * sizeof(float), "results to measure multiply-adds with") {
  // Small finite scales, and codes of many values.
  const std::span<std::byte> weights = weights_.bytes();
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<std::byte>(i % 23);
  std::ranges::fill(rows_.bytes(), std::byte{1});
}

uint64_t ComputeRate::scratch_bytes() const { return backend_.linear_scratch(kWidth); }

double ComputeRate::Measure(Pool& pool) {
  const kernels::LinearArgs args = {
      .weight = {.format = &Format(),
                 .data = weights_.data(),
                 .row_bytes = RowBytes(),
                 .k = kWidth},
      .quantised = kernels::MakeQuantisedRows(rows_.data(), kWidth, Format().activation_group),
      .rows = kRows,
      .y = reinterpret_cast<float*>(results_.data()),
      .y_stride = kOutputs};
  const auto start = std::chrono::steady_clock::now();
  pool.Run(LinearStep(backend_, args));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return static_cast<double>(kWidth * kOutputs * kRows) / time.count();
}

}  // namespace bloomery::exec
