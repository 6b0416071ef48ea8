#include "kernels-common/elementwise/reference.h"

#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::reference {

void Add(const float* a, const float* b, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = a[i] + b[i];
  }
}

void SwiGlu(const float* gate, const float* up, float* h, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    h[i] = ExactSilu(gate[i]) * up[i];
  }
}

void Gate(const GateArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t i = 0; i < args.width; ++i) {
      const std::size_t at = row * args.width + i;
      const float g = args.gate[args.single ? row : at];
      args.y[at] =
          args.x[at] * (args.function == GateFunction::kSilu ? ExactSilu(g) : ExactSigmoid(g));
    }
  }
}

void Embed(const EmbedArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const auto id = static_cast<std::size_t>(args.ids[row]);
    args.table.format->decode_row(args.table.data + id * args.table.row_bytes,
                                  args.y + row * args.y_stride, args.table.k);
  }
}

}  // namespace bloomery::kernels::reference
