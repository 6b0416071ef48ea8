#include "kernels-common/attention/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/scratch.h"
#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/quant/cpu/quant.h"

namespace bloomery::kernels::cpu {
namespace {

std::size_t CeilDiv(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit; }

// Where one head's part of plane rows begins: keys of a window, its values, and some keys of the
// next window, each filled up to whole strips with its last row. The order in which they are read.
class Stream {
 public:
  void Append(const KvView& view, std::size_t begin, std::size_t count, std::size_t head_bytes_at) {
    std::size_t j = 0;
    while (j < count) {
      const std::byte* row = view.Row(begin + j) + head_bytes_at;
      std::size_t run = count - j;
      if (view.blocks != nullptr) {
        run = std::min(run, view.block_rows - (begin + j) % view.block_rows);
      }
      for (const std::size_t end = j + run; j < end; ++j, row += view.row_bytes) {
        rows_[size_++] = row;
      }
    }
    Fill(AttentionCut::RoundUp(count, kAttentionStrip) - count);
  }
  void Fill(std::size_t count) {
    for (std::size_t j = 0; j < count; ++j, ++size_) {
      rows_[size_] = rows_[size_ - 1];
    }
  }
  const std::byte* const* From(std::size_t at) const { return rows_.data() + at; }

 private:
  std::array<const std::byte*, 2 * kAttentionWindow + kAttentionAhead> rows_;
  std::size_t size_ = 0;
};

std::size_t SlotOf(const AttentionArgs& args, std::size_t row) {
  return args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row]);
}

// Rows [row_begin, row_end) of one slot, at most a chunk. A window of keys and values is packed
// once, then every query takes its part of it.
class Chunk {
 public:
  Chunk(const WindowKernels& kernels, const AttentionArgs& args, std::size_t row_begin,
        std::size_t row_end, std::size_t kv_head, std::byte* scratch)
      : kernels_(kernels),
        args_(args),
        keys_(args.keys[SlotOf(args, row_begin)]),
        values_(args.values[SlotOf(args, row_begin)]),
        row_begin_(row_begin),
        row_end_(row_end),
        kv_head_(kv_head),
        cut_(args),
        scratch_(reinterpret_cast<float*>(scratch)),
        queries_(reinterpret_cast<const float**>(scratch_ + cut_.QueriesAt())),
        ask_(std::max(KvRowBytes(keys_.type, args.key_dim),
                      KvRowBytes(values_.type, args.value_dim))) {
    std::size_t query = 0;
    for (std::size_t row = row_begin; row < row_end; ++row) {
      const SeenKeys seen(args, row);
      if (seen.count() > 0) begin_seen_ = std::min(begin_seen_, seen.begin);
      end_seen_ = std::max(end_seen_, seen.end);
      for (std::size_t g = 0; g < cut_.group; ++g) {
        queries_[query++] =
            args.q + row * args.q_stride + (kv_head * cut_.group + g) * args.key_dim;
      }
    }
  }

  float* Out() const { return scratch_ + cut_.OutAt(); }
  const float* Max() const { return scratch_ + cut_.MaxAt(); }
  const float* Sum() const { return scratch_ + cut_.SumAt(); }

  std::size_t WindowsBegin() const { return begin_seen_ / kAttentionWindow; }
  std::size_t WindowsEnd() const { return CeilDiv(end_seen_, kAttentionWindow); }

  // Maxima, sums and outputs (at `out`) become those of one window, or take it in where `merging`
  // and the row has seen a window before.
  void Window(std::size_t window, bool merging, float* out) const {
    Runs runs;
    const std::size_t keys = FindRuns(window, merging, &runs);
    if (runs.count == 0) {
      return;
    }
    // Strips before the first key that a row sees are left out.
    const std::size_t begin = runs.begin / kAttentionStrip * kAttentionStrip;
    const std::size_t strips = AttentionCut::RoundUp(keys - begin, kAttentionStrip);
    const Stream stream = StreamOf(window, begin, keys);
    float* scores = scratch_ + cut_.ScoresAt();
    for (std::size_t j = begin; j < keys; j += kAttentionStrip) {
      PackKeys(stream.From(j - begin));
      for (std::size_t r = 0; r < runs.count; ++r) {
        const Run& run = runs.at[r];
        if (run.end > j && run.begin < j + kAttentionStrip) {
          kernels_.scores(queries_ + run.first, run.queries, scratch_ + cut_.KeysAt(),
                          args_.key_dim, args_.scale, scores + run.first * kAttentionWindow + j);
        }
      }
    }
    for (std::size_t r = 0; r < runs.count; ++r) {
      TakeScores(runs.at[r]);
    }
    const auto exponentials = [&](const Run& run) {
      return scores + run.first * kAttentionWindow + run.begin;
    };
    if (runs.count == 1 && runs.at[0].queries == kernels_.row_queries &&
        args_.value_dim % kAttentionStrip == 0) {
      const Run& run = runs.at[0];
      kernels_.weigh_rows(values_.type, stream.From(strips + run.begin - begin), exponentials(run),
                          run.end - run.begin, args_.value_dim, ask_, run.merging,
                          StatesFrom(run.first, out));
      return;
    }
    float* values = scratch_ + cut_.ValuesAt();
    kernels_.pack_values(values_.type, stream.From(strips), keys - begin, args_.value_dim, ask_,
                         values);
    for (std::size_t d = 0; d < args_.value_dim; d += kAttentionStrip) {
      for (std::size_t r = 0; r < runs.count; ++r) {
        const Run& run = runs.at[r];
        kernels_.weigh(exponentials(run), run.queries,
                       values + d * kAttentionWindow + (run.begin - begin) * kAttentionStrip,
                       run.end - run.begin, run.merging, d, StatesFrom(run.first, out));
      }
    }
  }

 private:
  // Queries that follow each other and see the same of a window's keys: [begin, end) in it.
  struct Run {
    std::size_t first = 0;
    std::size_t queries = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool merging = false;
  };
  struct Runs {
    std::array<Run, kAttentionRowsMax> at;
    std::size_t count = 0;
    std::size_t begin = kAttentionWindow;  // the first key that any row sees
  };

  // Rows that see nothing of the window are in no run. Returns where the keys end that any row
  // sees.
  std::size_t FindRuns(std::size_t window, bool merging, Runs* runs) const {
    const std::size_t base = window * kAttentionWindow;
    std::size_t most = 0;
    for (std::size_t row = row_begin_; row < row_end_; ++row) {
      const SeenKeys seen(args_, row);
      if (seen.end <= base || seen.begin >= base + kAttentionWindow) continue;
      const Run run = {.first = (row - row_begin_) * cut_.group,
                       .queries = cut_.group,
                       .begin = seen.begin <= base ? 0 : seen.begin - base,
                       .end = std::min(kAttentionWindow, seen.end - base),
                       .merging = merging && seen.begin < base};
      Run* last = runs->count == 0 ? nullptr : &runs->at[runs->count - 1];
      if (last != nullptr && last->first + last->queries == run.first && last->begin == run.begin &&
          last->end == run.end && last->merging == run.merging) {
        last->queries += cut_.group;
      } else {
        runs->at[runs->count++] = run;
      }
      runs->begin = std::min(runs->begin, run.begin);
      most = std::max(most, run.end);
    }
    return most;
  }

  // Keys and values [begin, end) of a window, and the beginning of the next one's keys.
  Stream StreamOf(std::size_t window, std::size_t begin, std::size_t end) const {
    const std::size_t base = window * kAttentionWindow;
    const std::size_t key_at = KvRowBytes(keys_.type, kv_head_ * args_.key_dim);
    Stream stream;
    stream.Append(keys_, base + begin, end - begin, key_at);
    stream.Append(values_, base + begin, end - begin,
                  KvRowBytes(values_.type, kv_head_ * args_.value_dim));
    const std::size_t next = base + kAttentionWindow;
    if (next < end_seen_) {
      stream.Append(keys_, next, std::min(kAttentionAhead, end_seen_ - next), key_at);
    } else {
      stream.Fill(kAttentionAhead);
    }
    return stream;
  }

  // A strip of keys is copied before it is taken apart: read in the order of memory.
  void PackKeys(const std::byte* const* rows) const {
    auto* stage = reinterpret_cast<std::byte*>(scratch_ + cut_.StageAt());
    const std::size_t bytes = KvRowBytes(keys_.type, args_.key_dim);
    for (std::size_t j = 0; j < kAttentionStrip; ++j) {
      std::memcpy(stage + j * cut_.stage_stride, rows[j], bytes);
      for (std::size_t at = 0; at < ask_; at += 64) {
        __builtin_prefetch(rows[j + kAttentionAhead] + at);
      }
    }
    kernels_.pack_keys(keys_.type, stage, cut_.stage_stride, args_.key_dim,
                       scratch_ + cut_.KeysAt());
  }

  void TakeScores(const Run& run) const {
    const AttentionStates states = StatesFrom(run.first, nullptr);
    kernels_.exponentials(scratch_ + cut_.ScoresAt() + run.first * kAttentionWindow + run.begin,
                          run.queries, run.end - run.begin, states);
    if (run.merging) {
      kernels_.merge(run.queries, states);
    } else {
      std::copy_n(states.keep, run.queries, states.max);
      std::copy_n(states.take, run.queries, states.sum);
    }
  }

  AttentionStates StatesFrom(std::size_t query, float* out) const {
    return {.max = scratch_ + cut_.MaxAt() + query,
            .sum = scratch_ + cut_.SumAt() + query,
            .out = out == nullptr ? nullptr : out + query * cut_.value_stride,
            .out_stride = cut_.value_stride,
            .keep = scratch_ + cut_.KeepAt() + query,
            .take = scratch_ + cut_.TakeAt() + query};
  }

  const WindowKernels& kernels_;
  const AttentionArgs& args_;
  const KvView& keys_;
  const KvView& values_;
  std::size_t row_begin_;
  std::size_t row_end_;
  std::size_t kv_head_;
  AttentionCut cut_;
  float* scratch_;
  const float** queries_;
  std::size_t ask_;                    // bytes of the larger of a head's key and value
  std::size_t begin_seen_ = SIZE_MAX;  // by any row
  std::size_t end_seen_ = 0;
};

// out / sum of one query with its head's sink, or zero where the row sees no key.
void Finish(const AttentionArgs& args, std::size_t row, std::size_t head, const float* out,
            float max, float sum) {
  float* y = args.out + row * args.out_stride + head * args.value_dim;
  if (args.index[row] < 0) {
    std::fill_n(y, args.value_dim, 0.0F);
    return;
  }
  float keep = 1.0F;
  if (args.sinks != nullptr) {
    const float larger = max > args.sinks[head] ? max : args.sinks[head];
    keep = ExactExp(max - larger);
    sum = sum * keep + ExactExp(args.sinks[head] - larger);
  }
  for (std::size_t d = 0; d < args.value_dim; ++d) {
    y[d] = out[d] * keep / sum;
  }
}

void WholeChunk(const WindowKernels& kernels, const AttentionArgs& args, std::size_t row_begin,
                std::size_t row_end, std::size_t kv_head, std::byte* scratch) {
  const AttentionCut cut(args);
  const Chunk chunk(kernels, args, row_begin, row_end, kv_head, scratch);
  for (std::size_t window = chunk.WindowsBegin(); window < chunk.WindowsEnd(); ++window) {
    chunk.Window(window, true, chunk.Out());
  }
  std::size_t query = 0;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t g = 0; g < cut.group; ++g, ++query) {
      Finish(args, row, kv_head * cut.group + g, chunk.Out() + query * cut.value_stride,
             chunk.Max()[query], chunk.Sum()[query]);
    }
  }
}

}  // namespace

std::size_t AttentionChunkRows(const AttentionArgs& args) { return AttentionCut(args).rows; }

std::size_t AttentionScratchBytes(const AttentionArgs& args) {
  return AttentionCut(args).Floats() * sizeof(float);
}

void Attention(Isa isa, const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::span<std::byte> scratch) {
  assert(args.heads % args.kv_heads == 0 && kv_head < args.kv_heads);
  assert(scratch.size() >= AttentionScratchBytes(args));
  const WindowKernels& kernels = BLOOMERY_KERNEL_512(isa, Window)();
  const std::size_t rows_max = AttentionChunkRows(args);
  for (std::size_t row = row_begin; row < row_end;) {
    std::size_t end = row + 1;
    while (end < row_end && end - row < rows_max && SlotOf(args, end) == SlotOf(args, row)) {
      ++end;
    }
    WholeChunk(kernels, args, row, end, kv_head, scratch.data());
    row = end;
  }
}

std::size_t AttentionPartBytes(const AttentionArgs& args, std::size_t rows) {
  return AttentionCut(args).PartFloats(rows) * sizeof(float);
}

void AttentionWindows(Isa isa, const AttentionArgs& args, std::size_t row_begin,
                      std::size_t row_end, std::size_t kv_head, std::size_t window_begin,
                      std::size_t window_end, std::byte* parts, std::span<std::byte> scratch) {
  assert(row_end - row_begin <= AttentionChunkRows(args) && args.window == 0);
  const AttentionCut cut(args);
  const std::size_t rows = row_end - row_begin;
  const std::size_t queries = rows * cut.group;
  const Chunk chunk(BLOOMERY_KERNEL_512(isa, Window)(), args, row_begin, row_end, kv_head,
                    scratch.data());
  auto* part = reinterpret_cast<float*>(parts);
  for (std::size_t window = window_begin; window < window_end; ++window) {
    chunk.Window(window, window_begin == 0, part);
    if (window_begin != 0 || window + 1 == window_end) {
      float* max = part + cut.PartOut(rows);
      std::copy_n(chunk.Max(), queries, max);
      std::copy_n(chunk.Sum(), queries, max + AttentionCut::RoundUp(queries, 16));
      part += cut.PartFloats(rows);
    }
  }
}

void AttentionMerge(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                    std::size_t kv_head, std::size_t head_begin, std::size_t head_end,
                    std::size_t first_windows, std::byte* parts) {
  const AttentionCut cut(args);
  const std::size_t rows = row_end - row_begin;
  const std::size_t sum_at = AttentionCut::RoundUp(rows * cut.group, 16);
  auto* first = reinterpret_cast<float*>(parts);
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const std::size_t windows = CeilDiv(SeenKeys(args, row).end, kAttentionWindow);
    const std::size_t count = windows > first_windows ? 1 + windows - first_windows : 1;
    for (std::size_t g = head_begin; g < head_end; ++g) {
      const std::size_t query = (row - row_begin) * cut.group + g;
      float* out = first + query * cut.value_stride;
      float max = first[cut.PartOut(rows) + query];
      float sum = first[cut.PartOut(rows) + sum_at + query];
      for (std::size_t p = 1; p < count; ++p) {
        const float* part = first + p * cut.PartFloats(rows);
        const float part_max = part[cut.PartOut(rows) + query];
        const float part_sum = part[cut.PartOut(rows) + sum_at + query];
        const float larger = max > part_max ? max : part_max;
        const float a = ExactExp(max - larger);
        const float b = ExactExp(part_max - larger);
        const float* o = part + query * cut.value_stride;
        for (std::size_t d = 0; d < cut.value_stride; ++d) {
          out[d] = out[d] * a + o[d] * b;
        }
        sum = sum * a + part_sum * b;
        max = larger;
      }
      Finish(args, row, kv_head * cut.group + g, out, max, sum);
    }
  }
}

void KvAppend(Isa isa, const KvAppendArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    if (args.index[row] < 0) {
      continue;
    }
    const KvView& view =
        args.views[args.slot_ids == nullptr ? 0 : static_cast<std::size_t>(args.slot_ids[row])];
    const auto position = static_cast<std::size_t>(args.index[row]);
    assert(position < view.capacity);
    EncodeKvRow(isa, view.type, args.x + row * args.x_stride, view.width, view.Row(position));
  }
}

}  // namespace bloomery::kernels::cpu
