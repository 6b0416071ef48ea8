// All layers of a decode pass of one row in one launch, for the shape that decode speed is measured
// with: width 2048, 32 heads of 128 over 4 kv heads, 128 experts of 768 of which 8 are picked, Q4_K
// (v, output and down also Q6_K), f16 planes. A block a multiprocessor stays for the whole pass;
// layers' six launches become phases between which values go through L2 (exchange.cuh), while the
// next weights are on their way to shared memory. The bits are those of the six launches.
//
// Needs compute capability 9.0, 128 multiprocessors, and all of them: a launch starts when every
// block fits. Owns nothing; enqueues only (launch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/moe/cuda/rows_experts.h"

namespace bloomery::kernels::cuda {

// One layer as its six launches take it.
struct OneRowLayer {
  RowsLinearArgs qkv;
  CardAttention attention;
  HeadInputs heads;
  RowsLinearArgs output;
  RowsLinearArgs router;
  ExpertGateUpRowsArgs gate_up;
  ExpertDownRowsArgs down;
};

inline constexpr std::size_t kOneRowLayersMax = 64;

// Whether OneRowLayers takes these: the shape, the device, and that every launch reads what the one
// before it writes. Values between launches are then not written to their buffers.
bool OneRowLayersFit(const Launch& launch, std::span<const OneRowLayer> layers);

// Device memory that launches keep from pass to pass, zero at first, for layers with this attention
// (rows, heads, dims and planes count); 0 where it is none of the shape. Launches that may overlap
// must not share it.
std::size_t OneRowLayersStateBytes(const CardAttention& attention);

// Once a device, before the first launch.
cudaError_t PrepareOneRowLayers();

// Reads the first layer's input, writes the last one's output, plane rows, and failed_row. A row
// that does not live is left out.
cudaError_t OneRowLayers(const Launch& launch, std::span<const OneRowLayer> layers,
                         std::byte* state);

}  // namespace bloomery::kernels::cuda
