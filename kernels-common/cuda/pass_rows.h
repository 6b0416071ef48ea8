// The rows of a pass as kernels of the card see them: device arrays, one entry a row, written by a
// copy that ends before the program's first kernel starts, so that a kernel may read them ahead of
// WaitForInputs(). Rows of one slot lie together, and their indices ascend by one. Does not own.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

struct PassRowsView {
  const std::int32_t* live = nullptr;      // one value: rows that live, at most `rows`
  const std::int32_t* slot = nullptr;      // [rows]
  const std::int32_t* index = nullptr;     // [rows] position in the slot's planes
  const std::int32_t* position = nullptr;  // [rows] rope position
  std::int32_t rows = 0;                   // the bucket: what grids are made for
  // RowsAttention only: the rows it does, `live` of them; null: rows 0 to live - 1. The other
  // arrays are those of the whole pass.
  const std::int32_t* map = nullptr;
};

}  // namespace bloomery::kernels::cuda
