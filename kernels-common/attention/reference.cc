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
};

HeadPlace Place(const AttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t slot =
      args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row]);
  return {args.q + row * args.q_stride + head * args.key_dim,
          args.out + row * args.out_stride + head * args.value_dim, args.keys + slot,
          args.values + slot, head / (args.heads / args.kv_heads)};
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
  const SeenKeys seen(args, row);
  if (seen.count() == 0) {
    return;
  }
  float max = 0.0F;
  float sum = 0.0F;
  for (std::size_t begin = seen.begin; begin < seen.end;) {
    const std::size_t end = std::min((begin / kAttentionWindow + 1) * kAttentionWindow, seen.end);
    const Window window = OneWindow(args, place, begin, end - begin, scores, window_o);
    const bool first = begin == seen.begin;
    begin = end;
    if (first) {
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
  float keep = 1.0F;
  if (args.sinks != nullptr) {
    const float larger = max > args.sinks[head] ? max : args.sinks[head];
    keep = ExactExp(max - larger);
    sum = sum * keep + ExactExp(args.sinks[head] - larger);
  }
  for (std::size_t d = 0; d < args.value_dim; ++d) {
    place.out[d] = o[d] * keep / sum;
  }
}

void AttentionF64(const AttentionArgs& args, std::size_t row, std::size_t head, double* out) {
  const HeadPlace place = Place(args, row, head);
  std::fill_n(out, args.value_dim, 0.0);
  const SeenKeys seen(args, row);
  if (seen.count() == 0) {
    return;
  }
  std::vector<double> scores(seen.count());
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const auto key = HeadRow(*place.keys, seen.begin + j, place.kv_head, args.key_dim);
    for (std::size_t d = 0; d < args.key_dim; ++d) {
      scores[j] += static_cast<double>(place.q[d]) * static_cast<double>(key[d]);
    }
    scores[j] *= static_cast<double>(args.scale);
  }
  double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  if (args.sinks != nullptr) {
    const auto sink = static_cast<double>(args.sinks[head]);
    max = std::max(max, sink);
    sum = std::exp(sink - max);
  }
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j] - max);
    sum += p;
    const auto value = HeadRow(*place.values, seen.begin + j, place.kv_head, args.value_dim);
    for (std::size_t d = 0; d < args.value_dim; ++d) {
      out[d] += p * static_cast<double>(value[d]);
    }
  }
  for (std::size_t d = 0; d < args.value_dim; ++d) {
    out[d] /= sum;
  }
}

}  // namespace bloomery::kernels::reference
