// What the steps of attention add to the kernels: a cut that covers everything once, into pieces of
// like size whatever the slots' depths are, and the same bits however the work was cut.
#include "runtime/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels-common/attention/cpu/attention.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/ops/attention_plan.h"

namespace bloomery::ops {
namespace {

using kernels::kAttentionWindow;

// Rows of a pass: for each slot, how many rows end at which index.
struct Rows {
  std::vector<int32_t> slots;
  std::vector<int32_t> index;

  Rows& Add(int32_t slot, int32_t last, int32_t count = 1) {
    for (int32_t i = count; i-- > 0;) {
      slots.push_back(slot);
      index.push_back(last - i);
    }
    return *this;
  }
};

// Qwen3-30B-A3B's heads.
kernels::AttentionArgs ArgsOf(const Rows& rows) {
  kernels::AttentionArgs args;
  args.heads = 32;
  args.kv_heads = 4;
  args.key_dim = args.value_dim = 128;
  args.slot_ids = rows.slots.data();
  args.index = rows.index.data();
  return args;
}

const std::vector<Rows> kPasses = {
    Rows().Add(0, 0),
    Rows().Add(0, 4095),
    Rows().Add(0, 4103, 8),
    Rows().Add(0, 100, 101).Add(1, 5000, 3),
    Rows().Add(0, 60000).Add(1, 3).Add(2, 200).Add(3, 1),
    Rows().Add(0, 511, 512),
    Rows().Add(0, 4607, 512),
    Rows().Add(0, 129, 20).Add(1, 127).Add(2, 128).Add(3, 8000, 40),
    Rows().Add(0, -1),
};
constexpr size_t kAmple = size_t{1} << 40U;

size_t Windows(int32_t index) {
  return (static_cast<size_t>(index + 1) + kAttentionWindow - 1) / kAttentionWindow;
}

TEST(AttentionPlan, EveryWindowOfEveryRowIsInOneTaskAndEverySplitHeadInOneMerge) {
  const Backend& backend = FindBackend("scalar");
  for (const Rows& rows : kPasses) {
    const kernels::AttentionArgs args = ArgsOf(rows);
    for (const int32_t threads : {1, 2, 3, 16, 64}) {
      const AttentionPlan plan(backend, args, rows.index.size(), threads, kAmple);
      std::map<std::vector<size_t>, int> seen;     // (row, kv head, window)
      std::map<std::vector<size_t>, int> whole;    // (row, kv head)
      std::map<std::vector<size_t>, int> written;  // first bytes of parts
      for (int32_t task = 0; task < plan.tasks(); ++task) {
        const AttentionTask cut = plan.Task(task);
        for (size_t row = cut.row_begin; row < cut.row_end; ++row) {
          for (size_t head = cut.head_begin; head < cut.head_end; ++head) {
            if (!cut.split) ++whole[{row, head}];
            const size_t windows = Windows(rows.index[row]);
            const size_t end = cut.split ? std::min(cut.window_end, windows) : windows;
            for (size_t w = cut.window_begin; w < end; ++w) ++seen[{row, head, w}];
          }
        }
        if (!cut.split) continue;
        EXPECT_LE(cut.row_end - cut.row_begin, kernels::cpu::AttentionChunkRows(args));
        const size_t part = kernels::cpu::AttentionPartBytes(args, cut.row_end - cut.row_begin);
        const size_t parts = cut.window_begin == 0 ? 1 : cut.window_end - cut.window_begin;
        for (size_t p = 0; p < parts; ++p) {
          EXPECT_LE(cut.parts_at + (p + 1) * part, plan.parts_bytes());
          ++written[{cut.parts_at + p * part}];
        }
      }
      size_t expected = 0;
      for (const int32_t index : rows.index) expected += args.kv_heads * Windows(index);
      EXPECT_EQ(seen.size(), expected);
      for (const auto& [what, times] : seen) EXPECT_EQ(times, 1);
      for (const auto& [what, times] : written) EXPECT_EQ(times, 1);
      for (int32_t merge = 0; merge < plan.merges(); ++merge) {
        const AttentionMergeTask cut = plan.Merge(merge);
        for (size_t row = cut.row_begin; row < cut.row_end; ++row) {
          // Counted in heads of the group: all of them make a whole.
          whole[{row, cut.kv_head}] += static_cast<int>(cut.group_end - cut.group_begin) * 100;
        }
      }
      EXPECT_EQ(whole.size(), rows.index.size() * args.kv_heads);
      for (const auto& [what, times] : whole) EXPECT_TRUE(times == 1 || times == 800) << times;
    }
  }
}

TEST(AttentionPlan, RowsThatSeeTheirLastKeysOnlyAreNotSplitAndEachIsInOneTaskAHead) {
  const Backend& backend = FindBackend("scalar");
  for (const Rows& rows : kPasses) {
    kernels::AttentionArgs args = ArgsOf(rows);
    args.window = 128;
    EXPECT_EQ(AttentionPlan::PartsBytes(backend, args, 4, 65536, 16), 0U);
    for (const int32_t threads : {1, 2, 16}) {
      const AttentionPlan plan(backend, args, rows.index.size(), threads, kAmple);
      EXPECT_EQ(plan.merges(), 0);
      std::map<std::vector<size_t>, int> seen;  // (row, kv head)
      for (int32_t task = 0; task < plan.tasks(); ++task) {
        const AttentionTask cut = plan.Task(task);
        EXPECT_FALSE(cut.split);
        for (size_t row = cut.row_begin; row < cut.row_end; ++row) {
          for (size_t head = cut.head_begin; head < cut.head_end; ++head) ++seen[{row, head}];
        }
      }
      EXPECT_EQ(seen.size(), rows.index.size() * args.kv_heads);
      for (const auto& [what, times] : seen) EXPECT_EQ(times, 1);
    }
  }
}

// Row-windows of the largest task over the even share of a thread.
double Unevenness(const AttentionPlan& plan, const Rows& rows, int32_t threads) {
  double largest = 0;
  double all = 0;
  for (int32_t task = 0; task < plan.tasks(); ++task) {
    const AttentionTask cut = plan.Task(task);
    double work = 0;
    for (size_t row = cut.row_begin; row < cut.row_end; ++row) {
      const size_t windows = Windows(rows.index[row]);
      const size_t end = cut.split ? std::min(cut.window_end, windows) : windows;
      work += static_cast<double>((cut.head_end - cut.head_begin) *
                                  (end - std::min(end, cut.window_begin)));
    }
    largest = std::max(largest, work);
    all += work;
  }
  return largest * threads / all;
}

TEST(AttentionPlan, OneLongContextAloneOrBesideShortOnesIsSharedByAllThreads) {
  for (const Rows& rows : {Rows().Add(0, 8191), Rows().Add(0, 8191, 4),
                           Rows().Add(0, 60000).Add(1, 3).Add(2, 200).Add(3, 1),
                           Rows().Add(1, 3).Add(2, 200).Add(3, 1).Add(0, 60000)}) {
    const kernels::AttentionArgs args = ArgsOf(rows);
    for (const int32_t threads : {2, 3, 8, 16}) {
      const AttentionPlan plan(FindBackend("scalar"), args, rows.index.size(), threads, kAmple);
      EXPECT_LE(Unevenness(plan, rows, threads), 0.55) << threads;
      EXPECT_LE(plan.tasks(), threads * 8 + 8) << threads;  // nor into crumbs
    }
  }
}

TEST(AttentionPlan, RowsOfOneSlotShareTheirKeysWhereKeysCanBeSplit) {
  const Rows rows = Rows().Add(0, 8191, 8);
  const kernels::AttentionArgs args = ArgsOf(rows);
  const AttentionPlan split(FindBackend("scalar"), args, 8, 16, kAmple);
  EXPECT_EQ(split.Task(0).row_end - split.Task(0).row_begin, 8U);
  const AttentionPlan whole(FindBackend("scalar"), args, 8, 16, 0);
  EXPECT_EQ(whole.Task(0).row_end - whole.Task(0).row_begin, 1U);
}

TEST(AttentionPlan, PromptsThatFillTheThreadsAndPassesWithoutRoomSplitNoKeys) {
  const Rows prompt = Rows().Add(0, 4607, 512);
  EXPECT_EQ(AttentionPlan(FindBackend("scalar"), ArgsOf(prompt), 512, 16, kAmple).merges(), 0);
  const Rows one = Rows().Add(0, 8191);
  const AttentionPlan ample(FindBackend("scalar"), ArgsOf(one), 1, 16, kAmple);
  EXPECT_GT(ample.merges(), 0);
  const AttentionPlan tight(FindBackend("scalar"), ArgsOf(one), 1, 16, ample.parts_bytes());
  EXPECT_EQ(tight.merges(), ample.merges());
  const AttentionPlan less(FindBackend("scalar"), ArgsOf(one), 1, 16, ample.parts_bytes() - 1);
  EXPECT_EQ(less.merges(), 0);
  EXPECT_EQ(less.parts_bytes(), 0U);
}

TEST(AttentionPlan, ThePlannedRoomIsEnoughForARowASlotAtAnyDepth) {
  for (const int32_t last : {200, 4095, 4096, 8191}) {
    const Rows rows = Rows().Add(0, last).Add(1, last).Add(2, 5);
    const kernels::AttentionArgs args = ArgsOf(rows);
    for (const int32_t threads : {2, 16, 64}) {
      const size_t room = AttentionPlan::PartsBytes(FindBackend("scalar"), args, 3,
                                                    static_cast<size_t>(last) + 1, threads);
      const AttentionPlan free(FindBackend("scalar"), args, 3, threads, kAmple);
      EXPECT_LE(free.parts_bytes(), room);
    }
  }
  const Rows one = Rows().Add(0, 8191);
  EXPECT_EQ(AttentionPlan::PartsBytes(FindBackend("scalar"), ArgsOf(one), 1, 8192, 1), 0U);
  EXPECT_EQ(AttentionPlan::PartsBytes(FindBackend("reference"), ArgsOf(one), 1, 8192, 16), 0U);
}

// Planes of f16 for some slots, and a pass over them.
class AttentionSteps : public testing::Test {
 protected:
  static constexpr size_t kSlotRows = 1400;
  static constexpr size_t kWidth = 128;  // 2 kv heads of 64

  AttentionSteps() : plane_(3 * kSlotRows * kWidth * 2, "planes") {
    for (size_t slot = 0; slot < 3; ++slot) {
      views_.push_back({kernels::KvType::kF16, kWidth, 2 * kWidth,
                        plane_.data() + slot * kSlotRows * 2 * kWidth, nullptr, 0, kSlotRows});
    }
    std::vector<float> x(kSlotRows * kWidth);
    std::vector<int32_t> ids(kSlotRows), index(kSlotRows);
    for (int32_t slot = 0; slot < 3; ++slot) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = Wave(i + static_cast<size_t>(slot) * 7919);
      for (size_t i = 0; i < kSlotRows; ++i) {
        ids[i] = slot;
        index[i] = static_cast<int32_t>(i);
      }
      FindBackend("scalar").append({x.data(), kWidth, views_.data(), ids.data(), index.data()}, 0,
                                   kSlotRows);
    }
  }

  static float Wave(size_t i) { return static_cast<float>(i * 2654435761U % 1009) / 504.0F - 1.0F; }

  std::vector<float> Run(const Backend& backend, const Rows& rows, int32_t threads, bool room) {
    const auto count = static_cast<int32_t>(rows.index.size());
    std::vector<float> q(rows.index.size() * 16 * 64);
    for (size_t i = 0; i < q.size(); ++i) q[i] = 3.0F * Wave(i * 31 + 5);
    std::vector<float> out(q.size(), NAN);
    kernels::AttentionArgs args;
    args.q = q.data();
    args.out = out.data();
    args.q_stride = args.out_stride = 16 * 64;
    args.heads = 16;
    args.kv_heads = 2;
    args.key_dim = args.value_dim = 64;
    args.scale = 0.125F;
    args.slot_ids = rows.slots.data();
    args.index = rows.index.data();
    const size_t bytes = room ? AttentionPlan::PartsBytes(backend, args, 3, kSlotRows, threads) : 0;
    memory::HostBuffer parts(bytes, "parts");
    memory::HostBuffer scratch(backend.attention_scratch(args), "scratch");
    Worker worker{.scratch = {scratch.data(), backend.attention_scratch(args)}};
    const AttentionBinding binding = {.backend = backend,
                                      .args = args,
                                      .keys = views_,
                                      .values = views_,
                                      .rows = {&count},
                                      .threads = threads,
                                      .parts = {parts.data(), bytes}};
    for (const auto& step : {MakeAttention(binding), MakeAttentionMerge(binding)}) {
      for (int32_t task = step->Tasks(); task-- > 0;) {
        EXPECT_EQ(step->Run(task, &worker), BL_OK);
      }
      merges_ = step->Tasks();
    }
    return out;
  }

  memory::HostBuffer plane_;
  std::vector<kernels::KvView> views_;
  int32_t merges_ = 0;  // of the last run
};

TEST_F(AttentionSteps, BitsDoNotDependOnThreadsNorOnWhetherKeysAreSplit) {
  const Rows passes[] = {Rows().Add(0, 1399), Rows().Add(0, 1300, 4).Add(1, 50).Add(2, 700),
                         Rows().Add(1, 300, 70).Add(2, 1399)};
  for (const Rows& rows : passes) {
    const std::vector<float> expected = Run(FindBackend("reference"), rows, 1, false);
    for (const char* name : {"scalar", "auto"}) {
      for (const int32_t threads : {1, 2, 3, 16, 48}) {
        EXPECT_EQ(Run(FindBackend(name), rows, threads, true), expected) << name << threads;
        if (&rows == passes) {
          EXPECT_EQ(merges_ > 0, threads > 1) << threads;
        }
        EXPECT_EQ(Run(FindBackend(name), rows, threads, false), expected) << name << threads;
        EXPECT_EQ(merges_, 0);
      }
    }
  }
}

TEST_F(AttentionSteps, APassWithoutRowsHasNoTasks) {
  EXPECT_TRUE(Run(FindBackend("auto"), Rows(), 16, true).empty());
  EXPECT_EQ(merges_, 0);
}

}  // namespace
}  // namespace bloomery::ops
