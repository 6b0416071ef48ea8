// Rope on lane types: one row's cosines and sines once, then every head. Internal.
#pragma once

#include <algorithm>

#include "kernels-common/exact_math/trig.h"
#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::cpu {

struct RopeTurns {
  float cos[kMaxRopeValues / 2];
  float sin[kMaxRopeValues / 2];
};

// Turns [begin, end) of one position, one at a time.
inline void FillTurns(const RopeArgs& args, double position, std::size_t begin, std::size_t end,
                      RopeTurns* turns) {
  for (std::size_t i = begin; i < end; ++i) {
    const SinCosResult turn = ExactSinCos(position * args.frequencies[i]);
    turns->cos[i] = static_cast<float>(turn.cos) * args.magnitude;
    turns->sin[i] = static_cast<float>(turn.sin) * args.magnitude;
  }
}

// One head; y may be x.
template <class V>
void TurnHead(const RopeArgs& args, const RopeTurns& turns, const float* x, float* y) {
  const std::size_t half = args.n_rot / 2;
  for (std::size_t i = 0; i < half; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, half - i);
    const auto a = V::LoadFirst(x + i, n);
    const auto b = V::LoadFirst(x + half + i, n);
    const auto c = V::LoadFirst(turns.cos + i, n);
    const auto s = V::LoadFirst(turns.sin + i, n);
    V::StoreFirst(y + i, V::Sub(V::Mul(a, c), V::Mul(b, s)), n);
    V::StoreFirst(y + half + i, V::Add(V::Mul(b, c), V::Mul(a, s)), n);
  }
  if (x != y) {
    std::copy(x + args.n_rot, x + args.head_dim, y + args.n_rot);
  }
}

template <class V, class Fill>
void RopeRows(const RopeArgs& args, std::size_t row_begin, std::size_t row_end, Fill fill) {
  RopeTurns turns;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    fill(args, static_cast<double>(args.positions[row]), &turns);
    for (std::size_t head = 0; head < args.heads; ++head) {
      TurnHead<V>(args, turns, args.x + row * args.x_stride + head * args.head_dim,
                  args.y + row * args.y_stride + head * args.head_dim);
    }
  }
}

}  // namespace bloomery::kernels::cpu
