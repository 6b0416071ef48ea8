// Attention on the card. HeadAttentionRows, RowsAttention and the appends have the bits of the
// references; PromptAttention stays within a band of them.
#include <gtest/gtest.h>

#include <memory>

#include "kernels-common/attention/cuda/prompt_attention.h"
#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/attention/reference.h"
#include "kernels-common/rope/cuda/rope.h"
#include "tests/gpu/kernels/attention_case.h"

namespace bloomery::kernels {
namespace {

using testing::AttentionCase;
using testing::DeviceArray;
using testing::Finish;
using testing::HeadShape;
using testing::PassSegment;
using testing::SameBits;
using testing::TestLaunch;

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kF32};

class CardAttention : public ::testing::Test {
 protected:
  void SetUp() override { Finish(cuda::PrepareAttention()); }

  // Twice over the same workspace, so that it must be ready again after the first.
  static void ExpectFusedBits(const HeadShape& shape, const std::vector<PassSegment>& segments,
                              std::size_t padding, const char* what) {
    AttentionCase made(shape, segments, padding, 7);
    const AttentionCase::Card card = made.MakeCard();
    made.RunHost();
    const DeviceArray<std::byte> workspace(cuda::RowsAttentionWorkspaceBytes(card.attention));
    for (int round = 0; round < 2; ++round) {
      Finish(cuda::HeadAttentionRows(TestLaunch(), card.attention, card.inputs, workspace.data()));
      ASSERT_TRUE(SameBits(made.LiveOut(card), made.expected()))
          << what << " round " << round << " type " << static_cast<int>(shape.type) << " index0 "
          << segments[0].index0;
    }
    ASSERT_TRUE(made.SamePlanes(card)) << what << " type " << static_cast<int>(shape.type);
  }
};

TEST_F(CardAttention, OneRowHasTheReferencesBitsAtEveryDepth) {
  for (const KvType type : kTypes) {
    for (const std::int32_t depth : {0, 1, 127, 128, 129, 1000, 4096}) {
      HeadShape shape;
      shape.type = type;
      ExpectFusedBits(shape, {{0, depth, 1}}, 0, "one row");
    }
  }
}

// Two stages of keys and what a pass brings need not fit in the least a card has: then it says so.
TEST_F(CardAttention, ACardOfLessSharedMemoryMakesTheSameBitsOrRefuses) {
  const testing::LessSharedMemory less;
  for (const KvType type : kTypes) {
    for (const std::int32_t rows : {1, 8}) {
      HeadShape shape;
      shape.type = type;
      AttentionCase made(shape, {{0, 129, rows}}, 0, 7);
      const AttentionCase::Card card = made.MakeCard();
      made.RunHost();
      const DeviceArray<std::byte> workspace(cuda::RowsAttentionWorkspaceBytes(card.attention));
      const cudaError_t status =
          cuda::HeadAttentionRows(TestLaunch(), card.attention, card.inputs, workspace.data());
      if (status != cudaErrorInvalidValue) {
        Finish(status);
        EXPECT_TRUE(SameBits(made.LiveOut(card), made.expected())) << static_cast<int>(type);
      }
    }
  }
}

TEST_F(CardAttention, RowsOfOneSlotSeeEachOther) {
  for (const KvType type : kTypes) {
    HeadShape shape;
    shape.type = type;
    for (std::int32_t rows = 2; rows <= 8; ++rows) {
      for (const std::int32_t depth : {0, 124, 128, 700}) {
        ExpectFusedBits(shape, {{1, depth, rows}}, 0, "rows of one slot");
      }
    }
  }
}

TEST_F(CardAttention, SlotsOfDifferentLengthsSharePasses) {
  for (const KvType type : kTypes) {
    HeadShape shape;
    shape.type = type;
    ExpectFusedBits(shape, {{2, 300, 1}, {0, 0, 1}, {1, 127, 2}, {3, 1000, 3}}, 0, "slots");
    ExpectFusedBits(shape, {{2, 5, 1}, {0, 4096, 1}, {1, 126, 3}}, 3, "slots and padding");
    ExpectFusedBits(shape,
                    {{0, 512, 1},
                     {1, 512, 1},
                     {2, 512, 1},
                     {3, 512, 1},
                     {4, 512, 1},
                     {5, 511, 1},
                     {6, 640, 1},
                     {7, 12, 1}},
                    0, "eight slots");
  }
}

TEST_F(CardAttention, OneWorkspaceServesShapesAndRowsOfAnyNumberInTurn) {
  const HeadShape shapes[] = {{KvType::kF16, 32, 4, 128, 128, 128, true},
                              {KvType::kF16, 6, 6, 64, 64, 64, true}};
  std::size_t bytes = 0;
  std::vector<std::unique_ptr<AttentionCase>> cases;
  std::vector<AttentionCase::Card> cards;
  for (const HeadShape& shape : shapes) {
    for (const std::int32_t rows : {8, 1, 3}) {
      cases.push_back(
          std::make_unique<AttentionCase>(shape, std::vector<PassSegment>{{0, 900, rows}}, 0, 5));
      cards.push_back(cases.back()->MakeCard());
      cases.back()->RunHost();
      bytes = std::max(bytes, cuda::RowsAttentionWorkspaceBytes(cards.back().attention));
    }
  }
  const DeviceArray<std::byte> workspace(bytes);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      Finish(cuda::HeadAttentionRows(TestLaunch(), cards[i].attention, cards[i].inputs,
                                     workspace.data()));
      ASSERT_TRUE(SameBits(cases[i]->LiveOut(cards[i]), cases[i]->expected())) << i;
    }
  }
}

TEST_F(CardAttention, OtherShapesHaveTheReferencesBits) {
  const HeadShape shapes[] = {
      {KvType::kF16, 1, 1, 64, 64, 64, false},    {KvType::kF16, 2, 2, 96, 96, 48, true},
      {KvType::kF16, 6, 2, 128, 64, 0, false},    {KvType::kF16, 10, 2, 80, 112, 80, true},
      {KvType::kF16, 14, 2, 64, 64, 64, false},   {KvType::kF16, 16, 1, 192, 128, 64, false},
      {KvType::kF16, 16, 1, 576, 512, 0, false},  {KvType::kF16, 12, 4, 256, 256, 64, true},
      {KvType::kF16, 48, 3, 128, 128, 128, true}, {KvType::kF16, 2, 1, 576, 576, 64, true},
  };
  for (const KvType type : kTypes) {
    for (HeadShape shape : shapes) {
      shape.type = type;
      if (type == KvType::kQ8_0 && shape.key_dim % 32 + shape.value_dim % 32 != 0) {
        shape.key_dim = 96;
        shape.value_dim = 160;
      }
      ExpectFusedBits(shape, {{0, 0, 1}}, 0, "first row of a shape");
      ExpectFusedBits(shape, {{0, 397, 2}, {1, 60, 1}}, 1, "a shape");
    }
  }
}

TEST_F(CardAttention, ReadyRowsOfAnyNumberHaveTheReferencesBits) {
  for (const KvType type : kTypes) {
    HeadShape shape;
    shape.type = type;
    shape.heads = 8;
    shape.kv_heads = 2;
    for (const std::int32_t rows : {1, 8, 33}) {
      AttentionCase made(shape, {{0, 260, rows}, {1, 3, 7}}, 2, 9);
      AttentionCase::Card card = made.MakeCard();
      made.RunHost();
      Finish(cuda::HeadNormRopeAppend(TestLaunch(), card.append));
      ASSERT_TRUE(made.SamePlanes(card)) << static_cast<int>(type) << " rows " << rows;
      const DeviceArray<std::byte> workspace(cuda::RowsAttentionWorkspaceBytes(card.attention));
      Finish(cuda::RowsAttention(TestLaunch(), card.attention, workspace.data()));
      ASSERT_TRUE(SameBits(made.LiveOut(card), made.expected())) << static_cast<int>(type);
      Finish(cuda::RowsAttention(TestLaunch(), card.attention, nullptr));
      ASSERT_TRUE(SameBits(made.LiveOut(card), made.expected())) << "without workspace";
    }
  }
}

TEST_F(CardAttention, PlainRopeAndAppendHaveTheReferencesBits) {
  for (const KvType type : kTypes) {
    HeadShape shape;
    shape.type = type;
    shape.norm = false;
    AttentionCase made(shape, {{0, 2000, 40}, {1, 3, 7}}, 17, 9);
    AttentionCase::Card card = made.MakeCard();
    made.RunHost();
    RopeArgs rope;
    rope.x = card.qkv.data();
    rope.x_stride = made.stride();
    rope.y = card.qkv.data();
    rope.y_stride = made.stride();
    rope.heads = shape.heads + shape.kv_heads;  // q and k lie together
    rope.head_dim = shape.key_dim;
    rope.n_rot = shape.n_rot;
    rope.frequencies = card.frequencies.data();
    Finish(cuda::Rope(TestLaunch(), card.attention.rows, rope));
    EXPECT_TRUE(SameBits(card.qkv.Read(), made.ready_q()));
    Finish(cuda::Append(TestLaunch(), card.attention.rows, card.inputs.k, made.stride(),
                        card.attention.keys));
    Finish(cuda::Append(TestLaunch(), card.attention.rows, card.inputs.v, made.stride(),
                        card.attention.values));
    EXPECT_TRUE(made.SamePlanes(card));
  }
}

// Windows of one key, of a part of 128, of more; sinks; rings that have begun anew; keys wider than
// values; a factor on values. Positions before a row's window hold NaNs.
std::vector<HeadShape> BoundedShapes(KvType type) {
  std::vector<HeadShape> shapes;
  const auto add = [&](HeadShape shape, std::size_t window, std::size_t ring, bool sinks,
                       float v_scale) {
    shape.type = type;
    shape.norm = false;
    shape.window = window;
    shape.ring_rows = ring;
    shape.sinks = sinks;
    shape.v_scale = v_scale;
    shapes.push_back(shape);
  };
  add({type, 64, 8, 192, 128, 64}, 128, 384, true, 0.707F);
  add({type, 32, 2, 192, 128, 64}, 0, 0, false, 0.707F);
  add({type, 2, 2, 192, 128, 64}, 32, 384, true, 0.707F);
  add({type, 8, 2, 128, 128, 128}, 300, 640, true, 1.0F);
  add({type, 8, 1, 64, 96, 32}, 1, 384, true, 1.5F);
  add({type, 6, 2, 128, 64, 0}, 5, 0, true, 1.0F);
  add({type, 4, 4, 64, 64, 64}, 129, 512, false, 1.0F);
  add({type, 6, 3, 256, 256, 64}, 200, 512, true, 1.0F);
  add({type, 5, 1, 96, 160, 96}, 0, 0, true, 0.25F);
  if (type != KvType::kQ8_0) add({type, 4, 2, 24, 16, 8}, 8, 384, true, 0.707F);
  return shapes;
}

TEST_F(CardAttention, ASlidingLayerAtTheEdgesOfItsWindowAndRing) {
  HeadShape shape{KvType::kF16, 16, 2, 192, 128, 64, false, 128, 384, true, 0.707F};
  for (const std::int32_t depth : {0, 127, 382}) {
    ExpectFusedBits(shape, {{0, depth, 1}}, 0, "one row");
    ExpectFusedBits(shape, {{1, depth, 3}, {0, 130, 1}}, 1, "slots");
  }
  AttentionCase made(shape, {{0, 340, 70}}, 2, 9);
  AttentionCase::Card card = made.MakeCard();
  made.RunHost();
  Finish(cuda::HeadNormRopeAppend(TestLaunch(), card.append));
  Finish(cuda::RowsAttention(TestLaunch(), card.attention, nullptr));
  EXPECT_TRUE(SameBits(made.LiveOut(card), made.expected()));
  Finish(cuda::PromptAttention(TestLaunch(), card.attention));
  EXPECT_TRUE(made.SamePlanes(card));
}

TEST_F(CardAttention, RowsOfWindowsRingsAndSinksHaveTheReferencesBits) {
  for (const KvType type : kTypes) {
    for (const HeadShape& shape : BoundedShapes(type)) {
      SCOPED_TRACE(::testing::Message()
                   << "keys " << shape.key_dim << " values " << shape.value_dim << " window "
                   << shape.window << " ring " << shape.ring_rows << " sinks " << shape.sinks);
      for (const std::int32_t depth : {0, 1, 4, 30, 33, 126, 128, 255, 383, 384, 390, 1000, 1279}) {
        ExpectFusedBits(shape, {{0, depth, 1}}, 0, "one row");
      }
      for (const std::int32_t depth : {0, 28, 124, 380, 700}) {
        ExpectFusedBits(shape, {{1, depth, 8}}, 0, "eight rows");
        ExpectFusedBits(shape, {{2, depth, 3}, {0, 0, 1}, {1, depth + 77, 2}}, 2, "slots");
      }
    }
  }
}

TEST_F(CardAttention, ReadyRowsOfWindowsRingsAndSinksHaveTheReferencesBits) {
  for (const KvType type : kTypes) {
    for (const HeadShape& shape : BoundedShapes(type)) {
      for (const std::int32_t rows : {1, 8, 70}) {
        AttentionCase made(shape, {{0, 340, rows}, {1, 3, 7}}, 2, 9);
        AttentionCase::Card card = made.MakeCard();
        made.RunHost();
        Finish(cuda::HeadNormRopeAppend(TestLaunch(), card.append));
        EXPECT_TRUE(made.SamePlanes(card)) << static_cast<int>(type) << " rows " << rows;
        const DeviceArray<std::byte> workspace(cuda::RowsAttentionWorkspaceBytes(card.attention));
        for (std::byte* space : {workspace.data(), static_cast<std::byte*>(nullptr)}) {
          Finish(cuda::RowsAttention(TestLaunch(), card.attention, space));
          EXPECT_TRUE(SameBits(made.LiveOut(card), made.expected()))
              << static_cast<int>(type) << " keys " << shape.key_dim << " window " << shape.window
              << " rows " << rows;
        }
      }
    }
  }
}

TEST_F(CardAttention, ARingThatWindowsDoNotReadIsRefused) {
  HeadShape shape;
  shape.ring_rows = 384;
  const AttentionCase made(shape, {{0, 0, 1}}, 0, 7);
  AttentionCase::Card card = made.MakeCard();
  EXPECT_FALSE(cuda::RowsAttentionFits(card.attention));
  card.attention.window = 32;
  EXPECT_TRUE(cuda::RowsAttentionFits(card.attention));
  card.attention.keys.ring_rows = 200;
  EXPECT_FALSE(cuda::RowsAttentionFits(card.attention));
}

struct Band {
  double most = 0.0;
  double mean = 0.0;
};

Band Distance(const std::vector<float>& got, const std::vector<float>& expected) {
  Band band;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - expected[i]);
    band.most = difference > band.most || difference != difference ? difference : band.most;
    band.mean += difference / static_cast<double>(got.size());
  }
  return band;
}

void ExpectPromptBand(const HeadShape& shape, const std::vector<PassSegment>& segments,
                      std::size_t padding) {
  AttentionCase made(shape, segments, padding, 21);
  AttentionCase::Card card = made.MakeCard();
  made.RunHost();
  Finish(cuda::HeadNormRopeAppend(TestLaunch(), card.append));
  Finish(cuda::PromptAttention(TestLaunch(), card.attention));
  const Band band = Distance(made.LiveOut(card), made.expected());
  // Values lie in [-2, 2]. f16 operands: 2^-12 of each, averaged over keys and dims.
  const bool split = shape.type == KvType::kF32;
  EXPECT_LT(band.mean, split ? 1e-6 : 3e-4) << shape.key_dim << " " << segments[0].rows;
  EXPECT_LT(band.most, split ? 3e-5 : 6e-3) << shape.key_dim << " " << segments[0].rows;
  std::printf("prompt type %d dims %zu %zu rows %zu: most %.2e mean %.2e\n",
              static_cast<int>(shape.type), shape.key_dim, shape.value_dim, made.live(), band.most,
              band.mean);
}

TEST_F(CardAttention, PromptsStayWithinTheBand) {
  for (const KvType type : kTypes) {
    HeadShape shape;
    shape.type = type;
    ExpectPromptBand(shape, {{0, 0, 9}}, 60);
    ExpectPromptBand(shape, {{0, 0, 63}}, 2);
    ExpectPromptBand(shape, {{1, 0, 200}, {0, 77, 30}, {2, 500, 26}}, 0);
    ExpectPromptBand(shape, {{0, 130, 600}}, 40);
  }
}

TEST_F(CardAttention, PromptsOfWindowsRingsAndSinksStayWithinTheBand) {
  for (const KvType type : kTypes) {
    for (HeadShape shape : BoundedShapes(type)) {
      shape.norm = true;  // of scores as other prompts have
      SCOPED_TRACE(::testing::Message() << "window " << shape.window << " ring " << shape.ring_rows
                                        << " sinks " << shape.sinks);
      ExpectPromptBand(shape, {{0, 0, 9}}, 60);
      ExpectPromptBand(shape, {{1, 0, 150}, {0, 77, 30}, {2, 500, 26}}, 0);
      ExpectPromptBand(shape, {{0, 130, 230}}, 40);
    }
  }
}

TEST_F(CardAttention, PromptsOnACardOfLessSharedMemoryStayWithinTheBand) {
  const testing::LessSharedMemory less;
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    HeadShape shape;
    shape.type = type;
    ExpectPromptBand(shape, {{1, 0, 200}, {0, 77, 30}, {2, 500, 26}}, 0);
  }
}

TEST_F(CardAttention, PromptsOfOtherShapesStayWithinTheBand) {
  const HeadShape shapes[] = {
      {KvType::kF16, 4, 4, 64, 64, 64, true},    {KvType::kF16, 2, 2, 96, 96, 48, true},
      {KvType::kF16, 6, 2, 128, 64, 0, true},    {KvType::kF16, 10, 2, 80, 112, 80, true},
      {KvType::kF16, 16, 1, 192, 128, 64, true}, {KvType::kF16, 16, 1, 576, 512, 64, true},
      {KvType::kF16, 12, 4, 256, 256, 64, true}, {KvType::kF16, 48, 3, 128, 128, 128, true},
  };
  for (const KvType type : kTypes) {
    for (HeadShape shape : shapes) {
      shape.type = type;
      if (type == KvType::kQ8_0 && shape.key_dim % 32 + shape.value_dim % 32 != 0) {
        shape.key_dim = 96;
        shape.value_dim = 160;
      }
      ExpectPromptBand(shape, {{0, 70, 45}, {1, 0, 20}}, 3);
    }
  }
}

}  // namespace
}  // namespace bloomery::kernels
