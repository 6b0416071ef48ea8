#include "kernels-common/elementwise/cpu/elementwise.h"

#include <algorithm>

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/elementwise/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

void Add(Isa isa, const float* a, const float* b, float* y, std::size_t count) {
  BLOOMERY_KERNEL(isa, Add)(a, b, y, count);
}

void SwiGlu(Isa isa, const float* gate, const float* up, float* h, std::size_t count) {
  BLOOMERY_KERNEL_512(isa, SwiGlu)(gate, up, h, count);
}

void Gate(Isa isa, const GateArgs& args, std::size_t row_begin, std::size_t row_end) {
  BLOOMERY_KERNEL(isa, Gate)(args, row_begin, row_end);
}

// A few rows a pass: the table's own decode is fast enough on every instruction set.
void Embed(Isa /*isa*/, const EmbedArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const auto id = static_cast<std::size_t>(args.ids[row]);
    args.table.format->decode_row(args.table.data + id * args.table.row_bytes,
                                  args.y + row * args.y_stride, args.table.k);
  }
}

void GatherRows(const float* x, std::size_t x_stride, const std::int32_t* ids, float* y,
                std::size_t y_stride, std::size_t width, std::size_t row_begin,
                std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    std::copy_n(x + static_cast<std::size_t>(ids[row]) * x_stride, width, y + row * y_stride);
  }
}

}  // namespace bloomery::kernels::cpu
