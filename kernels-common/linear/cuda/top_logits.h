// The 64 largest logits of each row of a vocabulary, so that the host reads candidates and not
// rows of logits. Two launches; no state between calls beyond the caller's scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

inline constexpr std::int32_t kTopLogits = 64;
inline constexpr std::int32_t kTopLogitsVocabularyMax = 1 << 18;

struct TopLogitsArgs {
  const float* logits = nullptr;
  std::size_t logits_stride = 0;  // floats
  std::int32_t vocabulary = 0;    // kTopLogits to kTopLogitsVocabularyMax
  std::int32_t rows = 0;
  const std::int32_t* live = nullptr;  // device: rows in use; null: all
  // Overwritten, rows * kTopLogits each: by descending logit, equal ones by ascending id.
  std::int32_t* ids = nullptr;
  float* values = nullptr;
  // A NaN among a row's logits: that row (the smallest, by atomicMin), and its results may be
  // anything. Infinities are ordinary values.
  std::int32_t* failed_row = nullptr;
  void* scratch = nullptr;  // TopLogitsScratchBytes(rows), 16-byte aligned
};

std::size_t TopLogitsScratchBytes(std::int32_t rows);
// Once a device, before the first launch.
cudaError_t PrepareTopLogits();
cudaError_t TopLogits(const Launch& launch, const TopLogitsArgs& args);

}  // namespace bloomery::kernels::cuda
