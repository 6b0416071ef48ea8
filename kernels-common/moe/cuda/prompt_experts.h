// Routed experts of a prompt on the card, around the grouped linears of
// linear/cuda/prompt_linear.h: Route -> GroupPicks -> PromptGateUp -> QuantiseRows of h ->
// PromptDown -> PickSumRows.
//
// Bits of reference::RouteRow, cpu::GroupPicks and reference::PickSum. Enqueues only (launch.h);
// all pointers are the device's. Rows beyond the live count are not touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/moe/cuda/picks.h"
#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::cuda {

// Scores and top-k of router logits, one warp a row. A row with a logit that is not finite sets
// *failed_row (atomicMin; the caller sets it to INT32_MAX before); its ids are still distinct and
// in range.
struct RouteRowsArgs {
  RouterArgs router;
  RowBound rows;
  std::int32_t* failed_row = nullptr;
};

cudaError_t RouteRows(const Launch& launch, const RouteRowsArgs& args);

// Most places of a tile: what a block of the grouped linears takes.
inline constexpr std::int32_t kTilePlaces = 64;

// One unit of the grouped linears: `count` places of one expert, from place `first`. Never empty.
struct ExpertTile {
  std::int32_t expert = 0;  // of a split bank: its frame
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t unused = 0;
};

// Where each pair lies (moe.h: ExpertGroups), and the tiles of the grouped linears by ascending
// place. Arrays belong to the caller, sized for rows_max rows.
struct PickGroups {
  std::int32_t* offsets = nullptr;      // experts + 1
  std::int32_t* place_rows = nullptr;   // rows_max * top_k
  std::int32_t* pair_places = nullptr;  // rows_max * top_k
  ExpertTile* tiles = nullptr;          // PickTilesMax
  std::int32_t* tile_count = nullptr;   // 1
};

// Most tiles that rows_max rows can make.
std::int32_t PickTilesMax(std::int32_t rows_max, std::int32_t top_k, std::int32_t experts);

// A stable counting sort of the picks by expert; one block.
struct GroupPicksArgs {
  const std::int32_t* ids = nullptr;  // rows * top_k
  std::int32_t top_k = 0;
  std::int32_t experts = 0;  // at most kMaxExperts
  RowBound rows;             // rows, not picks
  PickGroups groups;
  PickCounts counts;
  // Picks of the host have no place (-1) and are not counted.
  FrameMap frame_of = nullptr;
};

cudaError_t PreparePromptExperts();
cudaError_t GroupPicks(const Launch& launch, const GroupPicksArgs& args);

// N7 for all columns of each row. dim and strides divide by 4, arrays are 16-byte aligned. A pick
// that is not finite or |v_p| >= 2^26 sets *failed_row as RouteRows does. Pairs without a place
// (-1) are left out.
struct PickSumRowsArgs {
  PickSumArgs sum;
  const std::int64_t* others = nullptr;  // rows * dim, or null: sums of Q made elsewhere
  RowBound rows;
  std::int32_t* failed_row = nullptr;
};

cudaError_t PickSumRows(const Launch& launch, const PickSumRowsArgs& args);

}  // namespace bloomery::kernels::cuda
