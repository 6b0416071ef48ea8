// Steps of embed, rms_norm, add, mul and scale. Pointers are final; every step writes live rows
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// y[r] = table row ids[r]; an id outside [0, vocabulary) fails its row.
std::unique_ptr<Step> MakeEmbed(const Backend& backend, const kernels::EmbedArgs& args,
                                int64_t vocabulary, RowCount rows, int32_t threads);

std::unique_ptr<Step> MakeRmsNorm(const Backend& backend, const kernels::RmsNormArgs& args,
                                  RowCount rows, int32_t threads);

enum class Binary { kAdd, kMul };

// y = a op b, `width` values a row; y may be a or b.
std::unique_ptr<Step> MakeBinary(const Backend& backend, Binary kind, const float* a,
                                 const float* b, float* y, size_t width, RowCount rows,
                                 int32_t threads);

// y = x * factor, `width` values a row; y may be x.
std::unique_ptr<Step> MakeScale(const float* x, float factor, float* y, size_t width, RowCount rows,
                                int32_t threads);

}  // namespace bloomery::ops
