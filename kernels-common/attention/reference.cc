#include "kernels-common/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/quant/reference.h"

namespace bloomery::kernels::reference {
namespace {

// One head's slice of one plane row, decoded.
std::vector<float> HeadRow(const KvView& view, std::size_t position, std::size_t kv_head,
                           std::size_t dim) {
  std::vector<float> row(view.width);
  DecodeKvRow(view.type, view.Row(position), view.width, row.data());
  const auto first = row.begin() + static_cast<std::ptrdiff_t>(kv_head * dim);
  return {first, first + static_cast<std::ptrdiff_t>(dim)};
}

struct HeadPlace {
  const float* q;
  float* out;
  const KvView* keys;
  const KvView* values;
  std::size_t kv_head;
  std::int32_t index;
};

HeadPlace Place(const AttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t slot =
      args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row]);
  return {args.q + row * args.q_stride + head * args.key_dim,
          args.out + row * args.out_stride + head * args.value_dim,
          args.keys + slot,
          args.values + slot,
          head / (args.heads / args.kv_heads),
          args.index[row]};
}

struct Window {
  float max;
  float sum;
};

// Keys [begin, begin + count) alone: their maximum, the sum of exponentials, and o.
Window OneWindow(const AttentionArgs& args, const HeadPlace& place, std::size_t begin,
                 std::size_t count, float* scores, float* o) {
  for (std::size_t j = 0; j < count; ++j) {
    const auto key = HeadRow(*place.keys, begin + j, place.kv_head, args.key_dim);
    scores[j] = Dot32(place.q, key.data(), args.key_dim) * args.scale;
  }
  const float max = *std::max_element(scores, scores + count);
  std::fill_n(o, args.value_dim, 0.0F);
  for (std::size_t j = 0; j < count; ++j) {
    scores[j] = ExactExp(scores[j] - max);
    const auto value = HeadRow(*place.values, begin + j, place.kv_head, args.value_dim);
    for (std::size_t d = 0; d < args.value_dim; ++d) {
      o[d] = std::fma(scores[j], value[d], o[d]);
    }
  }
  return {max, Sum32(scores, count)};
}

}  // namespace

void Attention(const AttentionArgs& args, std::size_t row, std::size_t head,
               std::span<float> scratch) {
  const HeadPlace place = Place(args, row, head);
  float* scores = scratch.data();
  float* window_o = scores + kAttentionWindow;
  float* o = window_o + args.value_dim;
  std::fill_n(place.out, args.value_dim, 0.0F);
  if (place.index < 0) {
    return;
  }
  const auto keys = static_cast<std::size_t>(place.index) + 1;
  float max = 0.0F;
  float sum = 0.0F;
  for (std::size_t begin = 0; begin < keys; begin += kAttentionWindow) {
    const std::size_t count = std::min(kAttentionWindow, keys - begin);
    const Window window = OneWindow(args, place, begin, count, scores, window_o);
    if (begin == 0) {
      max = window.max;
      sum = window.sum;
      std::copy_n(window_o, args.value_dim, o);
      continue;
    }
    const float larger = max > window.max ? max : window.max;
    const float a = ExactExp(max - larger);
    const float b = ExactExp(window.max - larger);
    sum = sum * a + window.sum * b;
    for (std::size_t d = 0; d < args.value_dim; ++d) {
      o[d] = o[d] * a + window_o[d] * b;
    }
    max = larger;
  }
  for (std::size_t d = 0; d < args.value_dim; ++d) {
    place.out[d] = o[d] / sum;
  }
}

void AttentionF64(const AttentionArgs& args, std::size_t row, std::size_t head, double* out) {
  const HeadPlace place = Place(args, row, head);
  std::fill_n(out, args.value_dim, 0.0);
  if (place.index < 0) {
    return;
  }
  std::vector<double> scores(static_cast<std::size_t>(place.index) + 1);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const auto key = HeadRow(*place.keys, j, place.kv_head, args.key_dim);
    for (std::size_t d = 0; d < args.key_dim; ++d) {
      scores[j] += static_cast<double>(place.q[d]) * static_cast<double>(key[d]);
    }
    scores[j] *= static_cast<double>(args.scale);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j] - max);
    sum += p;
    const auto value = HeadRow(*place.values, j, place.kv_head, args.value_dim);
    for (std::size_t d = 0; d < args.value_dim; ++d) {
      out[d] += p * static_cast<double>(value[d]);
    }
  }
  for (std::size_t d = 0; d < args.value_dim; ++d) {
    out[d] /= sum;
  }
}

}  // namespace bloomery::kernels::reference
