// The card form of weight matrices: integer formats repacked, once after the copy to the card, into
// tiles of 16 rows x 256 values whose bytes lie in the order in which the lanes of a warp feed them
// to mma.sync (card_form.cuh), with the sub-block scales beside them. About the size in the file.
//
// Tile (rt, g) of a matrix lies at ((rt * groups) + g) * tile bytes, groups = ceil(k / 256); rows
// are padded to 16 and values to 256 by weights that add exactly 0. Experts follow one another.
// Float formats have no card form: their rows stay as in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// A weight matrix, or a bank of one matrix an expert, in device memory. Does not own.
struct CardWeight {
  const FormatTraits* format = nullptr;  // the table's row, host memory
  const void* data = nullptr;            // card form, or a float format's rows; 16-byte aligned
  std::size_t n = 0;                     // rows (of one expert)
  std::size_t k = 0;                     // values a row
  std::size_t row_bytes = 0;             // float formats: from row to row, a multiple of 4
  std::size_t expert_bytes = 0;          // from expert to expert; 0 for a single matrix
  // Kernels of prompts: where experts from `frames` on lie, when they are not at `data`.
  const void* more = nullptr;
  std::int32_t frames = 0;
};

// Rows of a tile, and values of one in each.
inline constexpr std::size_t kCardRows = 16;
inline constexpr std::size_t kCardValues = 256;

bool HasCardForm(int ggml_type);
// Bytes of one tile; 0 where the type has no card form.
std::size_t CardTileBytes(int ggml_type);
// Bytes of [n, k] in card form (of one expert); a multiple of 16.
std::size_t CardBytes(int ggml_type, std::size_t n, std::size_t k);

// Repacks `experts` consecutive matrices of n rows by k values (a multiple of the format's block)
// from the file's layout to the card form; device memory to device memory, not in place.
// `file_rows` must be 2-byte aligned, `card` 16-byte.
cudaError_t ToCardForm(const Launch& launch, int ggml_type, const void* file_rows, void* card,
                       std::size_t n, std::size_t k, std::size_t experts);

// The values of a matrix in card form as f32 rows [n][k], the same bits as decode_row of the file's
// rows. For tests, and for whoever needs a row of a matrix whose file form is gone.
cudaError_t DecodeCardForm(const Launch& launch, int ggml_type, const void* card, float* values,
                           std::size_t n, std::size_t k);

}  // namespace bloomery::kernels::cuda
