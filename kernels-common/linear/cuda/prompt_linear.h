// Linears of prompts on the card: many rows against one to four matrices, or against the experts
// their picks are grouped by.
//
// Integer formats (card form, int8 tensor cores) follow N2-N5 exactly: bits of reference::Linear
// and reference::ExpertGateUp, whatever the row count. Float formats (F16, BF16; rows as in the
// file) are a band: tensor cores with f32 accumulation, each activation split in a high and a low
// part of the weight's own format, so products carry 16 (BF16) or 22 (F16) bits of the activation.
// F32 weights do not come here (linear/cuda/router.h).
//
// Enqueues only (launch.h); one launch for each distinct format of a call. All pointers are the
// device's. Rows beyond the live count are not written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/quant/cuda/card_form.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

inline constexpr int kPromptMatricesMax = 4;

// Activation rows: `quantised` for integer formats (group == the format's), `x` for float ones.
struct PromptRows {
  QuantisedRows quantised;
  const float* x = nullptr;  // 16-byte aligned
  std::size_t x_stride = 0;  // floats; divides by 4
};

// One matrix: v = x . weight row n, then v * *scale, then v + bias[n], then y = residual + v.
struct PromptMatrix {
  CardWeight weight;
  const float* scale = nullptr;     // one value, or null
  const float* bias = nullptr;      // n values, or null
  const float* residual = nullptr;  // row stride residual_stride, or null; may be y
  std::size_t residual_stride = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

struct PromptLinearArgs {
  PromptRows rows_in;
  PromptMatrix matrices[kPromptMatricesMax];
  int count = 1;
  RowBound rows;
};

// h[place][n] = silu(gate n . x) * (up n . x) for every place of `groups`: x is the row of the
// place. gate and up have the same format, n and k.
struct PromptGateUpArgs {
  CardWeight gate;  // of expert 0; the others expert_bytes apart
  CardWeight up;
  PromptRows rows_in;
  PickGroups groups;
  std::int32_t tiles_max = 0;  // PickTilesMax
  float* h = nullptr;
  std::size_t h_stride = 0;
};

// y[place][n] = expert's down row n . h[place]; rows_in has one row a place.
struct PromptDownArgs {
  CardWeight down;
  PromptRows rows_in;
  PickGroups groups;
  std::int32_t tiles_max = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

// Once a device, before the first launch.
cudaError_t PreparePromptLinear();

// Types the functions below take: those with a card form, F16 and BF16.
bool HasPromptLinear(int ggml_type);

cudaError_t PromptLinear(const Launch& launch, const PromptLinearArgs& args);
cudaError_t PromptGateUp(const Launch& launch, const PromptGateUpArgs& args);
cudaError_t PromptDown(const Launch& launch, const PromptDownArgs& args);

}  // namespace bloomery::kernels::cuda
