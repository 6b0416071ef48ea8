// A set of CPU kernels under one signature each: the plain references, or the kernels of one
// instruction set. A program is bound to one backend as a whole, so any program can be run by the
// references alone. Constant tables; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels-common/attention/attention.h"
#include "kernels-common/delta/delta.h"
#include "kernels-common/elementwise/elementwise.h"
#include "kernels-common/linear/linear.h"
#include "kernels-common/moe/moe.h"
#include "kernels-common/norm/norm.h"
#include "kernels-common/quant/quant.h"
#include "kernels-common/rope/rope.h"

namespace bloomery::ops {

// Signatures and contracts are those of kernels-common/<topic>/cpu/*.h without the Isa.
struct Backend {
  std::string_view name;  // "reference", or one of kernels::kIsaNames
  void (*quantise_rows)(const float* x, size_t x_stride, const kernels::QuantisedRows& out,
                        size_t row_begin, size_t row_end);
  size_t (*linear_scratch)(size_t k);
  size_t (*linear)(const kernels::LinearArgs& args, size_t n_begin, size_t n_end,
                   std::span<std::byte> scratch);
  void (*rms_norm)(const kernels::RmsNormArgs& args, size_t row_begin, size_t row_end);
  void (*l2_norm)(const kernels::L2NormArgs& args, size_t row_begin, size_t row_end);
  void (*rope)(const kernels::RopeArgs& args, size_t row_begin, size_t row_end);
  void (*add)(const float* a, const float* b, float* y, size_t count);
  void (*gate)(const kernels::GateArgs& args, size_t row_begin, size_t row_end);
  void (*short_conv)(const kernels::ShortConvArgs& args, size_t rows, size_t channel_begin,
                     size_t channel_end);
  void (*delta)(const kernels::DeltaArgs& args, size_t rows, size_t head);
  // Null in the references: they have no other order of sums.
  size_t (*delta_chunks_scratch)(const kernels::DeltaArgs& args);
  void (*delta_chunks)(const kernels::DeltaArgs& args, size_t rows, size_t head,
                       std::span<std::byte> scratch);
  void (*embed)(const kernels::EmbedArgs& args, size_t row_begin, size_t row_end);
  size_t (*attention_scratch)(const kernels::AttentionArgs& args);
  void (*attention)(const kernels::AttentionArgs& args, size_t row_begin, size_t row_end,
                    size_t kv_head, std::span<std::byte> scratch);
  // Null in the references: they split no keys.
  size_t (*attention_part_bytes)(const kernels::AttentionArgs& args, size_t rows);
  void (*attention_windows)(const kernels::AttentionArgs& args, size_t row_begin, size_t row_end,
                            size_t kv_head, size_t window_begin, size_t window_end,
                            std::byte* parts, std::span<std::byte> scratch);
  void (*attention_merge)(const kernels::AttentionArgs& args, size_t row_begin, size_t row_end,
                          size_t kv_head, size_t group_begin, size_t group_end,
                          size_t first_windows, std::byte* parts);
  void (*append)(const kernels::KvAppendArgs& args, size_t row_begin, size_t row_end);
  int64_t (*route)(const kernels::RouterArgs& args, size_t row_begin, size_t row_end);
  size_t (*gate_up_scratch)(size_t k, size_t places_max);
  size_t (*gate_up)(const kernels::ExpertGateUpArgs& args, size_t n_begin, size_t n_end,
                    std::span<std::byte> scratch);
  int64_t (*pick_sum)(const kernels::PickSumArgs& args, size_t row_begin, size_t row_end,
                      size_t column_begin, size_t column_end);
};

// "auto" (the best this machine has), "reference", or one of kernels::kIsaNames. Throws
// Error(kUsage) naming the known ones for another name, and for one that this machine or build
// lacks. "auto" logs a line where the CPU has AMX and the system withholds it.
const Backend& FindBackend(std::string_view name);

}  // namespace bloomery::ops
