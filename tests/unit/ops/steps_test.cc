// What steps add to kernels: cutting the work into pieces that together do all of it once, looking
// at live rows only, and naming the row that fails. The kernels' own results are tested beside
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/memory/host_buffer.h"
#include "runtime/ops/elementwise.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/moe.h"
#include "runtime/ops/rows.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {
namespace {

class Steps : public testing::Test {
 protected:
  // Runs all tasks, the last first: order must not matter. The first failing status, if any.
  bl_status Run(const Step& step) {
    bl_status status = BL_OK;
    const int32_t tasks = step.Tasks();
    for (int32_t task = tasks; task-- > 0;) {
      const bl_status of_task = step.Run(task, &worker_);
      if (of_task != BL_OK) status = of_task;
    }
    return status;
  }

  const Backend& backend_ = FindBackend("auto");
  // Rows here are at most this wide; the largest scratch of any step is that of a linear.
  static constexpr size_t kWidest = 512;
  memory::HostBuffer scratch_{backend_.linear_scratch(kWidest), "scratch"};
  Worker worker_{.scratch = {scratch_.data(), backend_.linear_scratch(kWidest)}};
  int32_t live_ = 0;
};

TEST(Split, CoversEverythingOnceInMultiplesOfTheUnit) {
  for (int64_t count : {0, 1, 7, 8, 9, 511, 512, 1000}) {
    for (int64_t least : {0, 1, 64, 5000}) {
      for (int64_t pieces : {1, 3, 8}) {
        const Split split = Split::Of(count, 8, least, pieces);
        int64_t at = 0;
        for (int32_t i = 0; i < split.pieces(); ++i) {
          EXPECT_EQ(split.begin(i), at);
          EXPECT_GT(split.end(i), at);
          EXPECT_EQ(split.begin(i) % 8, 0);
          at = split.end(i);
        }
        EXPECT_EQ(at, count);
        EXPECT_LE(split.pieces(), pieces);
      }
    }
  }
}

TEST_F(Steps, LinearOverSeveralMatricesGivesEachItsOutputForLiveRowsOnly) {
  constexpr size_t kWidth = 64;
  std::vector<float> w(kWidth * 300), x(kWidth * 9);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i) * 0.7F);
  const auto matrix = [&](size_t first, size_t n, float* y) {
    Matrix m;
    m.weight.format = kernels::FindFormat(0);
    m.weight.data = reinterpret_cast<const std::byte*>(w.data() + first * kWidth);
    m.weight.row_bytes = kWidth * 4;
    m.weight.k = kWidth;
    m.n = n;
    m.y = y;
    m.y_stride = n;
    return m;
  };
  std::vector<float> a(200 * 9, 7.0F), b(100 * 9, 7.0F);
  Activations in;
  in.f32 = x.data();
  in.stride = kWidth;
  live_ = 8;
  const auto step =
      MakeLinear(backend_, in, {matrix(0, 200, a.data()), matrix(200, 100, b.data())}, {&live_}, 3);
  EXPECT_GT(step->Tasks(), 1);
  EXPECT_EQ(Run(*step), BL_OK);
  for (size_t row = 0; row < 8; ++row) {
    for (size_t n = 0; n < 300; ++n) {
      double sum = 0;
      for (size_t i = 0; i < kWidth; ++i) sum += double{w[n * kWidth + i]} * x[row * kWidth + i];
      const float got = n < 200 ? a[row * 200 + n] : b[row * 100 + n - 200];
      ASSERT_NEAR(got, sum, 1e-5) << "row " << row << ", output " << n;
    }
  }
  EXPECT_EQ(a[8 * 200], 7.0F);  // the padding row
  EXPECT_EQ(worker_.weight_bytes_read, w.size() * 4);
  live_ = 0;
  EXPECT_EQ(step->Tasks(), 0);
}

// A router: too few weight rows for all threads.
TEST_F(Steps, LinearOfFewWeightRowsIsCutAlongRowsToo) {
  constexpr size_t kWidth = 512;
  constexpr size_t kOut = 40;
  constexpr size_t kRows = 200;
  std::vector<float> w(kWidth * kOut), x(kWidth * kRows), whole(kOut * kRows), y(kOut * kRows);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i) * 0.7F);
  Matrix m;
  m.weight.format = kernels::FindFormat(0);
  m.weight.data = reinterpret_cast<const std::byte*>(w.data());
  m.weight.row_bytes = kWidth * 4;
  m.weight.k = kWidth;
  m.n = kOut;
  m.y_stride = kOut;
  Activations in;
  in.f32 = x.data();
  in.stride = kWidth;
  for (const int32_t rows : {1, 4, 5, 199}) {
    live_ = rows;
    m.y = whole.data();
    const auto one = MakeLinear(backend_, in, {m}, {&live_}, 1);
    ASSERT_EQ(Run(*one), BL_OK);
    std::fill(y.begin(), y.end(), 7.0F);
    m.y = y.data();
    const auto step = MakeLinear(backend_, in, {m}, {&live_}, 8);
    worker_.weight_bytes_read = 0;
    ASSERT_EQ(Run(*step), BL_OK);
    EXPECT_EQ(worker_.weight_bytes_read, w.size() * 4) << rows << " rows";
    const auto live = static_cast<ptrdiff_t>(kOut) * rows;
    EXPECT_TRUE(std::equal(y.begin(), y.begin() + live, whole.begin())) << rows << " rows";
    EXPECT_EQ(y[static_cast<size_t>(live)], 7.0F);
    // 80 KiB of weights for one row; 199 rows of 20,480 multiply-adds.
    EXPECT_GE(step->Tasks(), rows == 1 ? 2 : rows == 199 ? 16 : 1);
  }
}

// The stretches that the threads of a pool foresee, joined where one ends and another begins.
std::vector<std::span<const std::byte>> Foreseen(const Step& step, int32_t threads) {
  std::vector<std::span<const std::byte>> all;
  const Shares shares{step.Tasks(), threads};
  for (int32_t thread = 0; thread < threads; ++thread) {
    std::array<std::span<const std::byte>, 8> out;
    const int32_t begin = shares.begin(thread);
    const int32_t end = shares.begin(thread + 1);
    const size_t found = begin < end ? step.Foresee(begin, end, out) : 0;
    for (size_t i = 0; i < found; ++i) {
      if (!all.empty() && all.back().data() + all.back().size() == out[i].data()) {
        all.back() = {all.back().data(), all.back().size() + out[i].size()};
      } else {
        all.push_back(out[i]);
      }
    }
  }
  return all;
}

TEST_F(Steps, LinearForeseesEachWeightOfItsMatricesOnceWhereReadingBoundsIt) {
  constexpr size_t kWidth = 512;
  std::vector<float> w(kWidth * 700);
  std::vector<float> x(kWidth * 8);
  std::vector<float> y(700 * 8);
  const auto matrix = [&](size_t first, size_t n) {
    Matrix m;
    m.weight.format = kernels::FindFormat(0);
    m.weight.data = reinterpret_cast<const std::byte*>(w.data() + first * kWidth);
    m.weight.row_bytes = kWidth * 4;
    m.weight.k = kWidth;
    m.n = n;
    m.y = y.data();
    m.y_stride = n;
    return m;
  };
  Activations in;
  in.f32 = x.data();
  in.stride = kWidth;
  // A row between the matrices that belongs to neither.
  for (const int32_t threads : {1, 2, 3, 16}) {
    const auto step =
        MakeLinear(backend_, in, {matrix(0, 403), matrix(404, 296)}, {&live_}, threads);
    live_ = 4;
    const auto foreseen = Foreseen(*step, threads);
    ASSERT_EQ(foreseen.size(), 2U);
    const auto* data = reinterpret_cast<const std::byte*>(w.data());
    EXPECT_EQ(foreseen[0].data(), data);
    EXPECT_EQ(foreseen[0].size(), 403 * kWidth * 4);
    EXPECT_EQ(foreseen[1].data(), data + 404 * kWidth * 4);
    EXPECT_EQ(foreseen[1].size(), 296 * kWidth * 4);
    live_ = 5;
    EXPECT_TRUE(Foreseen(*step, threads).empty());
    live_ = 0;
    EXPECT_TRUE(Foreseen(*step, threads).empty());
  }
}

TEST_F(Steps, EmbedNamesTheRowWhoseIdIsOutsideTheTable) {
  const std::vector<float> table(4 * 8, 1.0F);
  std::vector<int32_t> ids = {0, 3, 4, 1};
  std::vector<float> y(4 * 8);
  kernels::EmbedArgs args;
  args.table.format = kernels::FindFormat(0);
  args.table.data = reinterpret_cast<const std::byte*>(table.data());
  args.table.row_bytes = 32;
  args.table.k = 8;
  args.ids = ids.data();
  args.y = y.data();
  args.y_stride = 8;
  const auto step = MakeEmbed(backend_, args, 4, {&live_}, 1);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_OK);
  live_ = 4;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 2);
  ids[2] = -1;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
}

TEST_F(Steps, RouteNamesTheRowWithALogitThatIsNotFinite) {
  std::vector<float> logits = {1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN(), 1, 0};
  std::vector<int32_t> ids(4);
  std::vector<float> weights(4);
  kernels::RouterArgs args;
  args.experts = 4;
  args.top_k = 2;
  args.logits = logits.data();
  args.logits_stride = 4;
  args.ids = ids.data();
  args.weights = weights.data();
  const auto step = MakeRoute(backend_, args, {&live_}, 1);
  live_ = 1;
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 2);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 1);
}

TEST_F(Steps, RowsOfEachExpertAreCountedOverPasses) {
  std::vector<int32_t> ids = {0, 1, 1, 3, 3, 1};
  const auto groups = std::make_shared<PickGroups>();
  std::vector<int32_t> space(96);
  groups->offsets = space.data();
  groups->active = space.data() + 8;
  groups->place_rows = space.data() + 16;
  groups->pair_places = space.data() + 32;
  groups->gate_up = {.n = 64, .k = 8, .first = space.data() + 64, .per_piece = space.data() + 69};
  groups->down = {.n = 64, .k = 8, .first = space.data() + 80, .per_piece = space.data() + 85};
  std::vector<std::atomic<uint64_t>> counts(4);
  groups->counts = counts;
  const auto step = MakeGroupPicks(ids.data(), 2, 4, 10, groups, {&live_}, 2);
  live_ = 3;
  EXPECT_EQ(Run(*step), BL_OK);
  live_ = 1;
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_THAT(std::vector<uint64_t>(counts.begin(), counts.end()),
              testing::ElementsAre(2, 4, 0, 2));
}

TEST_F(Steps, AnExpertIdOutsideTheBankFailsItsRowBeforeAnyExpertIsRead) {
  std::vector<int32_t> ids = {0, 1, 2, 7};
  const auto groups = std::make_shared<PickGroups>();
  std::vector<int32_t> space(96);
  groups->offsets = space.data();
  groups->active = space.data() + 8;
  groups->place_rows = space.data() + 16;
  groups->pair_places = space.data() + 32;
  groups->gate_up = {.n = 64, .k = 8, .first = space.data() + 64, .per_piece = space.data() + 69};
  groups->down = {.n = 64, .k = 8, .first = space.data() + 80, .per_piece = space.data() + 85};
  const auto step = MakeGroupPicks(ids.data(), 2, 4, 10, groups, {&live_}, 2);
  live_ = 1;
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_EQ(groups->active_count, 2);
  EXPECT_EQ(worker_.experts_picked, 2U);
  EXPECT_EQ(worker_.expert_bytes, 20U);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 1);
}

// Groups of experts with these many rows, and their pieces.
struct Cut {
  std::vector<int32_t> offsets{0};
  std::vector<int32_t> active;
  std::vector<int32_t> first;
  std::vector<int32_t> per_piece;
  ExpertCut cut;

  Cut(const std::vector<int32_t>& rows, int64_t n, int64_t k, int32_t threads) {
    for (size_t expert = 0; expert < rows.size(); ++expert) {
      offsets.push_back(offsets.back() + rows[expert]);
      if (rows[expert] > 0) active.push_back(static_cast<int32_t>(expert));
    }
    first.assign(rows.size() + 1, -1);
    per_piece.assign(rows.size(), -1);
    kernels::ExpertGroups groups;
    groups.offsets = offsets.data();
    groups.active = active.data();
    groups.active_count = static_cast<int32_t>(active.size());
    cut = {.n = n, .k = k, .first = first.data(), .per_piece = per_piece.data()};
    CutExperts(groups, threads, &cut);
  }
  int32_t pieces(size_t at) const { return first[at + 1] - first[at]; }
};

TEST(CutExperts, APopularExpertIsCutIntoPiecesNoLargerThanTheRest) {
  // A prompt's skew: one expert has half of all rows.
  const Cut cut({256, 64, 0, 64, 64, 64}, 768, 4096, 16);
  ASSERT_EQ(cut.active.size(), 5u);
  // 512 rows x 768 over 128 pieces: 3072 rows times weight rows each; a tile of 32 is 8192 of the
  // large expert, so it is cut as finely as tiles allow, the others into 48 and 32 rows at most.
  EXPECT_EQ(cut.per_piece[0], 32);
  EXPECT_EQ(cut.pieces(0), 24);
  for (size_t at = 1; at < 5; ++at) EXPECT_EQ(cut.per_piece[at], 32);
  // With two threads the pieces are 24,576 large: 96 weight rows of the large one, 384 of others.
  const Cut few({256, 64, 0, 64, 64, 64}, 768, 4096, 2);
  EXPECT_EQ(few.per_piece[0], 96);
  EXPECT_EQ(few.pieces(0), 8);
  EXPECT_EQ(few.per_piece[1], 384);
  EXPECT_EQ(few.pieces(1), 2);
  EXPECT_EQ(few.first[5], 8 + 4 * 2);
}

TEST(CutExperts, EveryWeightRowOfEveryActiveExpertIsInExactlyOnePiece) {
  // Rows that are no whole tiles, a single one, thread counts beyond them, an expert without picks.
  for (const int32_t threads : {1, 3, 16, 200}) {
    for (const int64_t n : {1, 31, 33, 768, 1000}) {
      const Cut cut({7, 0, 300, 1, 2}, n, 512, threads);
      ASSERT_EQ(cut.first[0], 0);
      for (size_t at = 0; at < cut.active.size(); ++at) {
        SCOPED_TRACE(testing::Message() << threads << " threads, " << n << " rows, expert " << at);
        ASSERT_GT(cut.pieces(at), 0);
        // As the steps read it: a piece begins at its number times per_piece, the last ends at n.
        ASSERT_GE(int64_t{cut.pieces(at)} * cut.per_piece[at], n);
        ASSERT_LT(int64_t{cut.pieces(at) - 1} * cut.per_piece[at], n);
      }
    }
  }
}

TEST(CutExperts, DecodesExpertsAreCutAlikeAndNotBelowWhatIsWorthHandingOver) {
  const Cut up(std::vector<int32_t>(8, 1), 768, 4096, 16);
  EXPECT_EQ(up.first[8], 8 * 24);
  const Cut down(std::vector<int32_t>(8, 1), 2048, 768, 64);
  for (size_t at = 0; at < 8; ++at) {
    EXPECT_EQ(down.per_piece[at], 192);  // 131,072 multiply-adds are 171 rows
    EXPECT_EQ(down.pieces(at), 11);
  }
  // An expert narrower than a tile is one piece.
  EXPECT_EQ(Cut({3}, 16, 64, 4).first[1], 1);
  // A row more or less within what reading bounds changes nothing.
  EXPECT_EQ(Cut({1, 4, 2}, 768, 4096, 2).first, Cut({4, 4, 4}, 768, 4096, 2).first);
}

// One float stands for an expert's weights and says which one it is.
float ExpertOf(const kernels::WeightRows& rows) {
  float id = 0;
  std::memcpy(&id, rows.data, sizeof(id));
  return id;
}

TEST_F(Steps, ExpertPiecesWriteEveryOutputOfEveryPickOnceFromItsOwnExpert) {
  constexpr size_t kExperts = 5, kUsed = 2, kRows = 60, kFf = 200, kWidth = 330;
  // Expert 3 gets no pick, expert 4 most.
  std::vector<int32_t> ids(kRows * kUsed);
  for (size_t row = 0; row < kRows; ++row) {
    ids[row * kUsed] = 4;
    ids[row * kUsed + 1] = row % 9 == 0 ? 0 : row % 2 == 0 ? 1 : 2;
  }
  std::vector<int32_t> offsets(kExperts + 1), active(kExperts), place_rows(ids.size()),
      pair_places(ids.size()), up_first(kExperts + 1), up_pieces(kExperts),
      down_first(kExperts + 1), down_pieces(kExperts);
  const auto groups = std::make_shared<PickGroups>();
  groups->offsets = offsets.data();
  groups->active = active.data();
  groups->place_rows = place_rows.data();
  groups->pair_places = pair_places.data();
  groups->gate_up = {.n = kFf, .k = 4096, .first = up_first.data(), .per_piece = up_pieces.data()};
  groups->down = {
      .n = kWidth, .k = 4096, .first = down_first.data(), .per_piece = down_pieces.data()};
  live_ = kRows;
  EXPECT_EQ(Run(*MakeGroupPicks(ids.data(), kUsed, kExperts, 1, groups, {&live_}, 4)), BL_OK);

  // Kernels that add what tells expert and activation row apart to each output they are asked for.
  Backend marks = backend_;
  marks.gate_up = [](const kernels::ExpertGateUpArgs& args, size_t begin, size_t end,
                     std::span<std::byte>) {
    EXPECT_EQ(ExpertOf(args.gate), ExpertOf(args.up));
    for (size_t place = 0; place < args.places; ++place) {
      const float row = args.x[static_cast<size_t>(args.place_rows[place]) * args.x_stride];
      for (size_t n = begin; n < end; ++n) {
        args.h[place * args.h_stride + n] += 100 * ExpertOf(args.gate) + row;
      }
    }
    return end - begin;
  };
  marks.linear = [](const kernels::LinearArgs& args, size_t begin, size_t end,
                    std::span<std::byte>) {
    for (size_t place = 0; place < args.rows; ++place) {
      for (size_t n = begin; n < end; ++n) {
        args.y[place * args.y_stride + n] +=
            1000 * ExpertOf(args.weight) + args.x[place * args.x_stride];
      }
    }
    return end - begin;
  };
  const std::vector<float> weights = {1, 2, 3, 4, 5};
  BankRows bank;
  for (kernels::WeightRows* rows : {&bank.gate, &bank.up, &bank.down}) {
    rows->format = kernels::FindFormat(0);
    rows->data = reinterpret_cast<const std::byte*>(weights.data());
  }
  bank.gate_expert_bytes = bank.up_expert_bytes = bank.down_expert_bytes = sizeof(float);
  bank.experts = kExperts;
  bank.ff = kFf;
  bank.width = kWidth;
  std::vector<float> x(kRows), h(ids.size() * kFf), y(ids.size() * kWidth);
  for (size_t row = 0; row < kRows; ++row) x[row] = static_cast<float>(row);
  Activations in, middle;
  in.f32 = x.data();
  in.stride = 1;
  middle.f32 = h.data();
  middle.stride = kFf;
  const RowCount picks{&live_, kUsed};
  const auto up = MakeExpertGateUp(marks, bank, groups, in, h.data(), picks);
  const auto down = MakeExpertDown(marks, bank, groups, middle, y.data(), picks);
  EXPECT_GT(up->Tasks(), 10);
  EXPECT_EQ(Run(*up), BL_OK);
  EXPECT_EQ(Run(*down), BL_OK);
  for (size_t pick = 0; pick < ids.size(); ++pick) {
    const auto place = static_cast<size_t>(pair_places[pick]);
    const auto expert = static_cast<float>(ids[pick] + 1);
    const size_t row = pick / kUsed;
    const float inner = 100 * expert + static_cast<float>(row);
    for (size_t n = 0; n < kFf; ++n) ASSERT_EQ(h[place * kFf + n], inner) << pick << ' ' << n;
    for (size_t n = 0; n < kWidth; ++n) {
      ASSERT_EQ(y[place * kWidth + n], 1000 * expert + inner) << pick << ' ' << n;
    }
  }
}

TEST_F(Steps, ExpertsThatWerePickedByFewRowsAreForeseenWholeAndOthersNot) {
  constexpr size_t kExperts = 6, kUsed = 2, kWidth = 2048, kFf = 768;
  // Experts 1, 2 and 4 get up to four rows, expert 0 five; the second and third lie side by side.
  std::vector<int32_t> ids = {0, 1, 0, 2, 0, 4, 0, 2, 0, 4};
  std::vector<int32_t> space(6 * kExperts + 3 + 2 * ids.size());
  const auto groups = std::make_shared<PickGroups>();
  groups->offsets = space.data();
  groups->active = groups->offsets + kExperts + 1;
  groups->place_rows = groups->active + kExperts;
  groups->pair_places = groups->place_rows + ids.size();
  groups->gate_up = {.n = kFf, .k = kWidth, .first = groups->pair_places + ids.size()};
  groups->gate_up.per_piece = groups->gate_up.first + kExperts + 1;
  groups->down = {.n = kWidth, .k = kFf, .first = groups->gate_up.per_piece + kExperts};
  groups->down.per_piece = groups->down.first + kExperts + 1;
  live_ = 5;
  const std::vector<std::byte> weights(kExperts * kWidth * 16);  // rows of 16 bytes: never read
  BankRows bank;
  for (kernels::WeightRows* rows : {&bank.gate, &bank.up, &bank.down}) {
    rows->format = kernels::FindFormat(0);
    rows->data = weights.data();
    rows->row_bytes = 16;
  }
  bank.down_expert_bytes = kWidth * 16;
  for (const int32_t threads : {1, 2, 5}) {
    ASSERT_EQ(Run(*MakeGroupPicks(ids.data(), kUsed, kExperts, 1, groups, {&live_}, threads)),
              BL_OK);
    const auto down = MakeExpertDown(backend_, bank, groups, {}, nullptr, {&live_, kUsed});
    const auto foreseen = Foreseen(*down, threads);
    ASSERT_EQ(foreseen.size(), 2U) << threads;
    EXPECT_EQ(foreseen[0].data(), weights.data() + bank.down_expert_bytes);
    EXPECT_EQ(foreseen[0].size(), 2 * bank.down_expert_bytes);
    EXPECT_EQ(foreseen[1].data(), weights.data() + 4 * bank.down_expert_bytes);
    EXPECT_EQ(foreseen[1].size(), bank.down_expert_bytes);
  }
}

TEST_F(Steps, PickSumOfFewRowsIsCutAlongColumns) {
  constexpr size_t kPicks = 8;
  constexpr size_t kDim = 2048;
  constexpr size_t kRows = 2;
  std::vector<float> y(kRows * kPicks * kDim);
  for (size_t i = 0; i < y.size(); ++i) y[i] = std::sin(static_cast<float>(i));
  const std::vector<float> weights(kRows * kPicks, 0.125F);
  std::vector<int32_t> places(kRows * kPicks);
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int32_t>(i * 5 % places.size());
  const auto groups = std::make_shared<PickGroups>();
  groups->pair_places = places.data();
  std::vector<float> whole(kRows * kDim), out(kRows * kDim, 7.0F);
  kernels::PickSumArgs args;
  args.y = y.data();
  args.y_stride = kDim;
  args.weights = weights.data();
  args.top_k = kPicks;
  args.dim = kDim;
  args.out_stride = kDim;
  live_ = kRows;
  args.out = whole.data();
  EXPECT_EQ(Run(*MakePickSum(backend_, args, groups, {&live_}, 1)), BL_OK);
  double first = 0;
  for (size_t i = 0; i < kPicks; ++i) first += 0.125 * y[static_cast<size_t>(places[i]) * kDim];
  EXPECT_NEAR(whole[0], first, 1e-6);
  args.out = out.data();
  const auto step = MakePickSum(backend_, args, groups, {&live_}, 8);
  EXPECT_GE(step->Tasks(), 4);
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_EQ(out, whole);
}

TEST_F(Steps, SelectRowsGathersByTheMap) {
  const std::vector<float> x = {0, 1, 10, 11, 20, 21, 30, 31};
  const std::vector<int32_t> map = {3, 1, 99};  // beyond the live count: never looked at
  std::vector<float> y(6, -1.0F);
  live_ = 2;
  EXPECT_EQ(Run(*MakeSelectRows(x.data(), y.data(), 2, map.data(), {&live_}, 2)), BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(30, 31, 10, 11, -1, -1));
}

TEST_F(Steps, BinaryStepsAddAndMultiplyLiveRows) {
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<float> b = {5, 6, 7, 8};
  std::vector<float> y(4, 0.5F);
  live_ = 1;
  EXPECT_EQ(Run(*MakeBinary(backend_, Binary::kAdd, a.data(), b.data(), y.data(), 2, {&live_}, 2)),
            BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(6, 8, 0.5F, 0.5F));
  live_ = 2;
  EXPECT_EQ(Run(*MakeBinary(backend_, Binary::kMul, a.data(), b.data(), y.data(), 2, {&live_}, 2)),
            BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(5, 12, 21, 32));
}

}  // namespace
}  // namespace bloomery::ops
