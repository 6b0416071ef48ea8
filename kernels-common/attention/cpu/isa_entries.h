// What each instruction set brings for attention: the work inside one window of keys, a strip at a
// time. A strip is 32 keys with all their values (lanes are keys), or 32 value columns of all keys
// (lanes are columns). Queries are (row, head) pairs that share keys; their scores lie
// kAttentionWindow floats apart. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::cpu {

inline constexpr std::size_t kAttentionStrip = 32;
// Plane rows that are asked for before they are read. Head rows lie a power of two apart, which the
// processor's own prefetcher follows badly: one row of f16 keys and values at 65536 read 5.4 GB/s
// without, 12 with (tests/bench).
inline constexpr std::size_t kAttentionAhead = 32;

// Running maxima, sums and outputs of queries, and the factors of their last merge. Arrays are
// padded to 16 floats.
struct AttentionStates {
  float* max;
  float* sum;
  float* out;  // out_stride floats a query
  std::size_t out_stride;
  float* keep;  // a of attention.h
  float* take;  // b
};

struct WindowKernels {
  // strip[d * 32 + j] = value d of row j for d < dim and 32 rows; row j lies at rows + j * stride.
  void (*pack_keys)(KvType type, const std::byte* rows, std::size_t stride, std::size_t dim,
                    float* strip);
  // scores[i * kAttentionWindow + j] = dot(q[i], key j of the strip) * scale, j < 32.
  void (*scores)(const float* const* q, std::size_t queries, const float* strip, std::size_t dim,
                 float scale, float* scores);
  // Scores become exponentials, those past `count` stay; maxima and sums of the window go to
  // states.keep and .take. Reads up to fifteen values past the last query's.
  void (*exponentials)(float* scores, std::size_t queries, std::size_t count,
                       const AttentionStates& states);
  // The maxima and sums of a window in keep and take are merged into max and sum; keep and take
  // become a and b.
  void (*merge)(std::size_t queries, const AttentionStates& states);
  // Strip c, kAttentionWindow * 32 floats after the one before: [j * 32 + d] = value 32c + d of
  // rows[j] for j < count; zero from dim on. The first `ask` bytes of rows[j + kAttentionAhead] are
  // asked for meanwhile.
  void (*pack_values)(KvType type, const std::byte* const* rows, std::size_t count, std::size_t dim,
                      std::size_t ask, float* strips);
  // With o[d] = sum over j < count of p[j] * strip[j * 32 + d] for d < 32: out[column + d] = o[d],
  // or out*a + o*b where `merging`.
  void (*weigh)(const float* p, std::size_t queries, const float* strip, std::size_t count,
                bool merging, std::size_t column, const AttentionStates& states);
  // Both for exactly this many queries, each value being read once: all columns straight from the
  // plane's rows; dim divides by 32, `rows` and `ask` as in pack_values.
  std::size_t row_queries;
  void (*weigh_rows)(KvType type, const std::byte* const* rows, const float* p, std::size_t count,
                     std::size_t dim, std::size_t ask, bool merging, const AttentionStates& states);
};

namespace scalar {
const WindowKernels& Window();
}  // namespace scalar
namespace avx2 {
const WindowKernels& Window();
}  // namespace avx2
namespace avx512vnni {
const WindowKernels& Window();
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
