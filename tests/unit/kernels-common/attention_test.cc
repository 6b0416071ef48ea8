#include "kernels-common/attention/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels-common/attention/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::AlignedBytes;
using testing::FirstDifference;
using testing::HashBits;
using testing::Random;

// Planes of some slots in blocks that lie in shuffled order, filled by KvAppend.
class Planes {
 public:
  Planes(KvType type, std::size_t width, std::size_t slots, std::size_t capacity,
         std::size_t block_rows, Random& random)
      : row_bytes_(KvRowBytes(type, width)),
        per_slot_((capacity + block_rows - 1) / block_rows),
        tables_(slots * per_slot_),
        bytes_(slots * per_slot_ * block_rows * row_bytes_) {
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      tables_[i] = static_cast<std::int32_t>(i);
      std::swap(tables_[i], tables_[random.Below(i + 1)]);
    }
    for (std::size_t slot = 0; slot < slots; ++slot) {
      views_.push_back({type, width, row_bytes_, bytes_.data(), tables_.data() + slot * per_slot_,
                        block_rows, capacity});
    }
    const std::vector<float> rows = random.Values(capacity * width, 2.0F);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      std::vector<std::int32_t> index(capacity);
      const std::vector<std::int32_t> ids(capacity, static_cast<std::int32_t>(slot));
      for (std::size_t i = 0; i < capacity; ++i) {
        index[i] = static_cast<std::int32_t>(i);
      }
      const std::vector<float> x = random.Values(capacity * width, 2.0F);
      cpu::KvAppend(Isa::kScalar, {x.data(), width, views_.data(), ids.data(), index.data()}, 0,
                    capacity);
    }
  }
  const KvView* views() const { return views_.data(); }

 private:
  std::size_t row_bytes_;
  std::size_t per_slot_;
  std::vector<std::int32_t> tables_;
  std::vector<std::byte> bytes_;
  std::vector<KvView> views_;
};

struct Case {
  AttentionArgs args;
  std::size_t rows;
  std::vector<float> q;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> index;
  std::unique_ptr<Planes> keys;
  std::unique_ptr<Planes> values;

  std::size_t OutSize() const { return rows * args.heads * args.value_dim; }

  std::vector<float> Run(Isa isa, std::size_t rows_at_a_time) {
    std::vector<float> out(OutSize(), NAN);
    args.out = out.data();
    AlignedBytes scratch(cpu::AttentionScratchBytes(args));
    std::memset(scratch.data(), 0xFF, scratch.span().size());  // NaNs
    for (std::size_t row = 0; row < rows; row += rows_at_a_time) {
      for (std::size_t head = 0; head < args.kv_heads; ++head) {
        cpu::Attention(isa, args, row, std::min(row + rows_at_a_time, rows), head, scratch.span());
      }
    }
    return out;
  }

  std::vector<float> Reference() {
    std::vector<float> out(OutSize(), NAN);
    args.out = out.data();
    std::vector<float> scratch(kAttentionWindow + 2 * args.value_dim);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t head = 0; head < args.heads; ++head) {
        reference::Attention(args, row, head, scratch);
      }
    }
    return out;
  }
};

struct Shape {
  std::size_t heads;
  std::size_t kv_heads;
  std::size_t key_dim;
  std::size_t value_dim;
  std::size_t rows;
  std::size_t slots;
  std::size_t capacity;
};

Case MakeCase(KvType type, const Shape& shape, Random& random) {
  Case made;
  made.rows = shape.rows;
  made.q = random.Values(shape.rows * shape.heads * shape.key_dim, 2.0F);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    made.slots.push_back(static_cast<std::int32_t>(random.Below(shape.slots)));
    made.index.push_back(static_cast<std::int32_t>(random.Below(shape.capacity)));
  }
  std::sort(made.slots.begin(), made.slots.end());
  made.keys = std::make_unique<Planes>(type, shape.kv_heads * shape.key_dim, shape.slots,
                                       shape.capacity, 1 + random.Below(40), random);
  made.values = std::make_unique<Planes>(type, shape.kv_heads * shape.value_dim, shape.slots,
                                         shape.capacity, 1 + random.Below(40), random);
  made.args.q = made.q.data();
  made.args.q_stride = shape.heads * shape.key_dim;
  made.args.out_stride = shape.heads * shape.value_dim;
  made.args.heads = shape.heads;
  made.args.kv_heads = shape.kv_heads;
  made.args.key_dim = shape.key_dim;
  made.args.value_dim = shape.value_dim;
  made.args.scale = 1.0F / std::sqrt(static_cast<float>(shape.key_dim));
  made.args.keys = made.keys->views();
  made.args.values = made.values->views();
  made.args.slot_ids = made.slots.data();
  made.args.index = made.index.data();
  return made;
}

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kQ8_0};
constexpr std::uint64_t kCommittedHash = 0x194C4159125370E7ULL;

TEST(Attention, BitsAreTheCommittedOnesOneRowAtATimeOrBatched) {
  std::uint64_t hash = HashBits({});
  for (const KvType type : kTypes) {
    Random random(33);
    Case made = MakeCase(type, {8, 2, 128, 128, 19, 3, 400}, random);
    made.index[0] = 0;
    made.index[1] = 127;
    made.index[2] = 128;
    made.index[3] = 399;
    const std::vector<float> expected = made.Reference();
    hash = HashBits(expected, hash);
    for (const Isa isa : AvailableIsas()) {
      for (const std::size_t rows : {1U, 2U, 5U, 8U, 19U}) {
        EXPECT_EQ(FirstDifference(made.Run(isa, rows), expected), expected.size())
            << static_cast<int>(type) << " rows " << rows << " " << IsaName(isa);
      }
    }
  }
  EXPECT_EQ(hash, kCommittedHash) << std::hex << hash;
}

TEST(Attention, OddShapesEqualTheReference) {
  Random random(44);
  for (int round = 0; round < 60; ++round) {
    const KvType type = kTypes[random.Below(3)];
    const std::size_t unit = type == KvType::kQ8_0 ? 32 : 1;
    const std::size_t kv_heads = 1 + random.Below(3);
    const Shape shape = {kv_heads * (1 + random.Below(4)),
                         kv_heads,
                         unit * (1 + random.Below(unit == 1 ? 90 : 4)),
                         unit * (1 + random.Below(unit == 1 ? 90 : 4)),
                         1 + random.Below(12),
                         1 + random.Below(3),
                         1 + random.Below(300)};
    Case made = MakeCase(type, shape, random);
    made.index[random.Below(shape.rows)] = -1;  // a padding row
    const std::vector<float> expected = made.Reference();
    for (const Isa isa : AvailableIsas()) {
      const std::size_t rows = 1 + random.Below(shape.rows);
      const std::vector<float> out = made.Run(isa, rows);
      EXPECT_EQ(FirstDifference(out, expected), out.size())
          << "key " << shape.key_dim << " value " << shape.value_dim << " " << IsaName(isa);
    }
  }
}

TEST(Attention, IsSoftmaxAttentionInF64) {
  for (const KvType type : kTypes) {
    Random random(55);
    Case made = MakeCase(type, {4, 2, 64, 96, 6, 2, 700}, random);
    const std::vector<float> out = made.Run(DetectIsa(), 6);
    std::vector<double> exact(96);
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t head = 0; head < 4; ++head) {
        reference::AttentionF64(made.args, row, head, exact.data());
        for (std::size_t d = 0; d < 96; ++d) {
          EXPECT_NEAR(out[(row * 4 + head) * 96 + d], exact[d], 3e-6);
        }
      }
    }
  }
}

// Rows of one slot, their keys in spans of `span` windows computed last first, merged head by head.
std::vector<float> RunSplit(Case& made, Isa isa, std::size_t span) {
  std::vector<float> out(made.OutSize(), NAN);
  made.args.out = out.data();
  const auto last = *std::max_element(made.index.begin(), made.index.end());
  const std::size_t windows = static_cast<std::size_t>(last) / kAttentionWindow + 1;
  const std::size_t first = std::min(span, windows);
  const std::size_t part = cpu::AttentionPartBytes(made.args, made.rows);
  AlignedBytes scratch(cpu::AttentionScratchBytes(made.args));
  AlignedBytes parts((1 + windows - first) * part);
  std::memset(scratch.data(), 0xFF, scratch.span().size());  // NaNs
  for (std::size_t head = 0; head < made.args.kv_heads; ++head) {
    std::memset(parts.data(), 0xFF, parts.span().size());
    for (std::size_t begin = (windows - 1) / span * span;; begin -= span) {
      std::byte* at = parts.data() + (begin == 0 ? 0 : 1 + begin - first) * part;
      cpu::AttentionWindows(isa, made.args, 0, made.rows, head, begin,
                            std::min(windows, begin + span), at, scratch.span());
      if (begin == 0) break;
    }
    for (std::size_t g = 0; g < made.args.heads / made.args.kv_heads; ++g) {
      cpu::AttentionMerge(made.args, 0, made.rows, head, g, g + 1, first, parts.data());
    }
  }
  return out;
}

TEST(Attention, SplitKeysGiveTheSameBits) {
  for (const KvType type : kTypes) {
    Random random(77);
    Case made = MakeCase(type, {6, 2, 96, 160, 5, 1, 900}, random);
    const std::vector<float> expected = made.Reference();
    for (const Isa isa : AvailableIsas()) {
      for (const std::size_t span : {1U, 2U, 3U, 7U, 8U, 20U}) {
        EXPECT_EQ(FirstDifference(RunSplit(made, isa, span), expected), expected.size())
            << static_cast<int>(type) << " span " << span << " " << IsaName(isa);
      }
    }
  }
}

// A tile's worth of queries takes the values straight from the planes: 1, 2 or 8 of them, by
// instruction set.
TEST(Attention, OneRowOfAnyGroupEqualsTheReference) {
  for (const KvType type : kTypes) {
    for (const std::size_t group : {1U, 2U, 4U, 8U, 9U, 16U}) {
      for (const std::size_t value_dim : {32U, 96U, 128U, 192U}) {
        Random random(99);
        Case made = MakeCase(type, {2 * group, 2, 64, value_dim, 2, 2, 400}, random);
        made.slots = {0, 1};
        made.index = {399, static_cast<std::int32_t>(random.Below(300))};
        made.args.slot_ids = made.slots.data();
        made.args.index = made.index.data();
        const std::vector<float> expected = made.Reference();
        for (const Isa isa : AvailableIsas()) {
          EXPECT_EQ(FirstDifference(made.Run(isa, 2), expected), expected.size())
              << static_cast<int>(type) << " group " << group << " dim " << value_dim << " "
              << IsaName(isa);
        }
      }
    }
  }
}

TEST(Attention, RowsOnBothSidesOfTheEdgesOfWindowsAndStripsEqualTheReference) {
  for (const KvType type : kTypes) {
    for (const std::int32_t edge : {32, 96, 128, 256, 384}) {
      Random random(88);
      Case made = MakeCase(type, {12, 2, 64, 64, 41, 1, 420}, random);
      for (std::size_t row = 0; row < made.rows; ++row) {  // ascending, as in a prompt
        made.index[row] = std::max(0, edge - 20 + static_cast<std::int32_t>(row));
      }
      const std::vector<float> expected = made.Reference();
      for (const Isa isa : AvailableIsas()) {
        for (const std::size_t rows : {1U, 3U, 32U, 41U}) {
          EXPECT_EQ(FirstDifference(made.Run(isa, rows), expected), expected.size())
              << static_cast<int>(type) << " edge " << edge << " rows " << rows << " "
              << IsaName(isa);
        }
      }
    }
  }
}

TEST(Attention, SlidingWindowsAndSinksEqualTheReferenceOverOddShapes) {
  Random random(111);
  for (int round = 0; round < 80; ++round) {
    const KvType type = kTypes[random.Below(3)];
    const std::size_t unit = type == KvType::kQ8_0 ? 32 : 1;
    const std::size_t kv_heads = 1 + random.Below(3);
    const Shape shape = {kv_heads * (1 + random.Below(9)),
                         kv_heads,
                         unit * (1 + random.Below(unit == 1 ? 90 : 4)),
                         unit * (1 + random.Below(unit == 1 ? 130 : 4)),
                         1 + random.Below(40),
                         1 + random.Below(3),
                         1 + random.Below(500)};
    Case made = MakeCase(type, shape, random);
    if (random.Below(2) == 0) {  // a prompt
      std::sort(made.index.begin(), made.index.end());
      std::fill(made.slots.begin(), made.slots.end(), 0);
    }
    made.index[random.Below(shape.rows)] = -1;  // a padding row
    made.args.window = 1 + random.Below(300);
    const std::vector<float> sinks = random.Values(shape.heads, 3.0F);
    if (random.Below(3) > 0) made.args.sinks = sinks.data();
    const std::vector<float> expected = made.Reference();
    for (const Isa isa : AvailableIsas()) {
      for (const std::size_t rows : {std::size_t{1}, 1 + random.Below(shape.rows), shape.rows}) {
        const std::vector<float> out = made.Run(isa, rows);
        EXPECT_EQ(FirstDifference(out, expected), out.size())
            << "window " << made.args.window << " key " << shape.key_dim << " value "
            << shape.value_dim << " rows " << rows << " of " << shape.rows << " " << IsaName(isa);
      }
    }
  }
}

TEST(Attention, SlidingWindowsAndSinksAreSoftmaxAttentionInF64) {
  for (const std::size_t window : {1U, 7U, 127U, 128U, 129U, 200U, 900U}) {
    Random random(122);
    Case made = MakeCase(KvType::kF32, {4, 2, 192, 128, 6, 2, 700}, random);
    made.index = {0, 6, 128, 255, 256, 699};
    made.args.window = window;
    const float sinks[] = {-50.0F, 0.25F, 3.0F, 60.0F};  // far below and far above every score
    made.args.sinks = sinks;
    const std::vector<float> out = made.Run(DetectIsa(), 6);
    std::vector<double> exact(128);
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t head = 0; head < 4; ++head) {
        reference::AttentionF64(made.args, row, head, exact.data());
        for (std::size_t d = 0; d < 128; ++d) {
          EXPECT_NEAR(out[(row * 4 + head) * 128 + d], exact[d], 3e-6)
              << "window " << window << " row " << row << " head " << head;
        }
      }
    }
  }
}

// Scores 1, 2, -0.5 and a sink of 1.5; each key's value is a unit vector, so the output is the
// probabilities.
TEST(Attention, ASinkTakesItsShareOfTheSoftmaxAndAddsNothing) {
  float keys[] = {9.0F, 1.0F, 2.0F, -0.5F};
  float values[] = {7, 7, 7, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  const KvView key_view = {KvType::kF32, 1, 4, reinterpret_cast<std::byte*>(keys), nullptr, 0, 4};
  const KvView value_view = {KvType::kF32, 3, 12, reinterpret_cast<std::byte*>(values),
                             nullptr,      0, 4};
  const float q = 1.0F;
  const float sink = 1.5F;
  const std::int32_t index = 3;
  float out[3];
  AttentionArgs args;
  args.q = &q;
  args.q_stride = 1;
  args.out = out;
  args.out_stride = 3;
  args.heads = args.kv_heads = args.key_dim = 1;
  args.value_dim = 3;
  args.keys = &key_view;
  args.values = &value_view;
  args.index = &index;
  args.window = 3;
  args.sinks = &sink;
  for (const Isa isa : AvailableIsas()) {
    AlignedBytes scratch(cpu::AttentionScratchBytes(args));
    cpu::Attention(isa, args, 0, 1, 0, scratch.span());
    EXPECT_NEAR(out[0], 0.17888661, 1e-6);
    EXPECT_NEAR(out[1], 0.48626423, 1e-6);
    EXPECT_NEAR(out[2], 0.03991500, 1e-6);
  }
}

TEST(Attention, AWindowThatHoldsAllKeysChangesNoBit) {
  Random random(133);
  Case made = MakeCase(KvType::kF16, {8, 2, 96, 64, 19, 2, 400}, random);
  const std::vector<float> whole = made.Reference();
  made.args.window = 400;
  for (const Isa isa : AvailableIsas()) {
    EXPECT_EQ(FirstDifference(made.Run(isa, 19), whole), whole.size());
  }
}

// A block table that repeats makes a ring of a plane: what a row no longer sees is written over.
TEST(Attention, ARingGivesTheBitsOfAPlaneThatKeepsEverything) {
  constexpr std::size_t kRows = 700;
  constexpr std::size_t kWindow = 90;
  constexpr std::size_t kPass = 40;  // 89 + 40 rows fit into two blocks of 128
  Random random(144);
  const std::vector<float> x = random.Values(kRows * 64, 2.0F);
  const std::vector<float> q = random.Values(kRows * 4 * 32, 2.0F);
  std::vector<std::byte> kept(6 * 128 * 64 * 4);
  std::vector<std::byte> ring(2 * 128 * 64 * 4);
  const std::int32_t straight[] = {0, 1, 2, 3, 4, 5};
  const std::int32_t round[] = {0, 1, 0, 1, 0, 1};
  const KvView plane = {KvType::kF32, 64, 256, kept.data(), straight, 128, kRows};
  const KvView turning = {KvType::kF32, 64, 256, ring.data(), round, 128, kRows};
  std::vector<std::int32_t> index(kRows);
  for (std::size_t i = 0; i < kRows; ++i) index[i] = static_cast<std::int32_t>(i);
  const auto run = [&](const KvView& view) {
    std::vector<float> out(kRows * 4 * 32);
    AttentionArgs args;
    args.q = q.data();
    args.q_stride = 128;
    args.out = out.data();
    args.out_stride = 128;
    args.heads = 4;
    args.kv_heads = 2;
    args.key_dim = args.value_dim = 32;
    args.keys = args.values = &view;
    args.index = index.data();
    args.window = kWindow;
    AlignedBytes scratch(cpu::AttentionScratchBytes(args));
    for (std::size_t row = 0; row < kRows; row += kPass) {
      const std::size_t end = std::min(kRows, row + kPass);
      cpu::KvAppend(DetectIsa(), {x.data(), 64, &view, nullptr, index.data()}, row, end);
      for (std::size_t head = 0; head < 2; ++head) {
        cpu::Attention(DetectIsa(), args, row, end, head, scratch.span());
      }
    }
    return out;
  };
  EXPECT_EQ(run(turning), run(plane));
}

TEST(Attention, PaddingRowsGiveZeroAndReadNoPlane) {
  Random random(66);
  Case made = MakeCase(KvType::kF16, {2, 1, 32, 32, 2, 1, 10}, random);
  made.index = {-1, -1};
  made.args.index = made.index.data();
  KvView nothing;
  nothing.type = KvType::kF16;
  made.args.keys = made.args.values = &nothing;
  for (const Isa isa : AvailableIsas()) {
    EXPECT_EQ(made.Run(isa, 2), std::vector<float>(made.OutSize(), 0.0F));
  }
}

TEST(Attention, AppendSkipsPaddingAndWritesTheRowOfItsSlot) {
  std::vector<std::byte> bytes(2 * 6 * 8, std::byte{0x55});
  const std::int32_t first[] = {2, 0};
  const std::int32_t second[] = {1, 3};
  const KvView views[] = {{KvType::kF32, 2, 8, bytes.data(), first, 3, 6},
                          {KvType::kF32, 2, 8, bytes.data(), second, 3, 6}};
  const float x[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t slots[] = {0, 1, 1};
  const std::int32_t index[] = {4, -1, 2};
  std::vector<std::byte> expected = bytes;
  std::memcpy(expected.data() + (0 * 3 + 1) * 8, x, 8);      // slot 0, position 4: block 0, row 1
  std::memcpy(expected.data() + (1 * 3 + 2) * 8, x + 4, 8);  // slot 1, position 2: block 1, row 2
  for (const Isa isa : AvailableIsas()) {
    std::vector<std::byte> written = bytes;
    KvView moved[] = {views[0], views[1]};
    moved[0].base = moved[1].base = written.data();
    cpu::KvAppend(isa, {x, 2, moved, slots, index}, 0, 3);
    EXPECT_EQ(written, expected);
  }
}

}  // namespace
}  // namespace bloomery::kernels
