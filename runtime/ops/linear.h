// Steps of linear and head: several weight matrices over one input in one dispatch, and the
// quantisation of their input (N2) where a matrix is of an integer format.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// The activations in the encodings that some matrix reads; the others stay empty.
struct Activations {
  const float* f32 = nullptr;
  size_t stride = 0;                 // floats from row to row
  kernels::QuantisedRows group_256;  // data null where nothing reads it
  kernels::QuantisedRows group_32;

  // Those of a format; the group must be there.
  kernels::QuantisedRows Quantised(size_t group) const {
    return group == 256 ? group_256 : group == 32 ? group_32 : kernels::QuantisedRows{};
  }
  // Sets the input of a kernel's arguments for weights of `format`, from row `first` on.
  template <class Args>
  void SetInput(const kernels::FormatTraits& format, size_t first, Args* args) const {
    if (format.activation_group == 0) {
      args->x = f32 + first * stride;
      args->x_stride = stride;
    } else {
      args->quantised = Quantised(format.activation_group);
      args->quantised.data += first * args->quantised.row_bytes;
    }
  }
};

struct Matrix {
  kernels::WeightRows weight;
  size_t n = 0;                 // weight rows
  const float* bias = nullptr;  // n values, or null
  float* y = nullptr;           // overwritten, n values a row
  size_t y_stride = 0;
};

std::unique_ptr<Step> MakeLinear(const Backend& backend, const Activations& x,
                                 std::vector<Matrix> matrices, RowCount rows, int32_t threads);

// out row r = N2(x row r).
std::unique_ptr<Step> MakeQuantise(const Backend& backend, const float* x, size_t x_stride,
                                   const kernels::QuantisedRows& out, RowCount rows,
                                   int32_t threads);

}  // namespace bloomery::ops
