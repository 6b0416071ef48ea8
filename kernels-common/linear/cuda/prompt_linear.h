// Linears of prompts on the card: many rows against one to four matrices, or against the experts
// that their picks are grouped by.
//
// Integer formats (card form, int8 tensor cores) follow N2-N5 exactly: bits of reference::Linear
// and reference::ExpertGateUp, whatever the row count. F16 and BF16 weights (rows as in the file,
// 16-byte aligned, k dividing by 8) are a band: bf16 tensor cores with f32 accumulation,
// activations as the sum of two bf16 parts (16 bits of them count), F16 weights too (exactly). F32
// weights do not come here (linear/cuda/router.h).
//
// Enqueues only (launch.h), one launch for each distinct format of a call. All pointers are the
// device's. Rows beyond the live count are not written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/moe/cuda/picks.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/quant/cuda/card_form.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// Activation rows of k values: `quantised` for integer formats (group == the format's), `x` for
// float ones.
struct PromptRows {
  QuantisedRows quantised;
  const float* x = nullptr;  // 16-byte aligned
  std::size_t x_stride = 0;  // floats; divides by 4
};

// matrices[i]: y[r][n] = residual + (W[n] . x[r] * scale + bias[n]), as in rows_linear.h.
struct PromptLinearArgs {
  PromptRows input;
  std::int32_t count = 0;  // 1 to kRowsMatricesMax
  CardMatrix matrices[kRowsMatricesMax];
  RowBound rows;
};

// h[place][n] = silu(gate n . x) * (up n . x) for every place of `groups`, x being the row of the
// place. gate and up have the same n and k, and for kBoth the same format.
struct PromptGateUpArgs {
  GateUpPart part = GateUpPart::kBoth;
  CardWeight gate;
  CardWeight up;
  PromptRows input;  // one row a row of the pass, as the weights of the part want them
  PickGroups groups;
  std::int32_t tiles_max = 0;  // PickTilesMax
  std::int32_t rows = 0;       // of the pass, at most: chooses among kernels of the same bits
  float* h = nullptr;
  std::size_t h_stride = 0;  // floats
};

// y[place][n] = down n . h[place] of the place's expert.
struct PromptDownArgs {
  CardWeight down;
  PromptRows input;  // one row a place
  PickGroups groups;
  std::int32_t tiles_max = 0;
  std::int32_t rows = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;  // floats
};

// Types that the functions below take: those with a card form, F16 and BF16.
bool HasPromptLinear(int ggml_type);

// Once a device, before the first launch.
cudaError_t PreparePromptLinear();
cudaError_t PromptLinear(const Launch& launch, const PromptLinearArgs& args);
cudaError_t PromptGateUp(const Launch& launch, const PromptGateUpArgs& args);
cudaError_t PromptDown(const Launch& launch, const PromptDownArgs& args);

}  // namespace bloomery::kernels::cuda
