// The 64 largest logits against a sort.
#include "kernels-common/linear/cuda/top_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::SameValues;
using testing::TestLaunch;

struct Top {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  std::int32_t failed_row;
};

Top OnCard(const std::vector<float>& logits, std::int32_t vocabulary, std::int32_t rows) {
  testing::Check(cuda::PrepareTopLogits());
  const DeviceArray<float> device(logits);
  const std::size_t places = static_cast<std::size_t>(rows) * cuda::kTopLogits;
  const DeviceArray<std::int32_t> ids(places, 0xFF);
  const DeviceArray<float> values(places, 0xFF);
  const DeviceArray<std::int32_t> failed(std::vector<std::int32_t>{INT_MAX});
  const DeviceArray<std::byte> scratch(cuda::TopLogitsScratchBytes(rows), 0xEE);
  cuda::TopLogitsArgs args;
  args.logits = device.data();
  args.logits_stride = static_cast<std::size_t>(vocabulary);
  args.vocabulary = vocabulary;
  args.rows = rows;
  args.ids = ids.data();
  args.values = values.data();
  args.failed_row = failed.data();
  args.scratch = scratch.data();
  Finish(cuda::TopLogits(TestLaunch(), args));
  return {ids.Read(), values.Read(), failed.Read()[0]};
}

void ExpectSorted(const std::vector<float>& logits, std::int32_t vocabulary, std::int32_t rows) {
  const Top top = OnCard(logits, vocabulary, rows);
  EXPECT_EQ(top.failed_row, INT_MAX);
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  for (std::int32_t row = 0; row < rows; ++row) {
    const float* of_row = logits.data() + static_cast<std::ptrdiff_t>(row) * vocabulary;
    std::vector<std::int32_t> order(static_cast<std::size_t>(vocabulary));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [of_row](std::int32_t a, std::int32_t b) {
      return of_row[a] > of_row[b] || (of_row[a] == of_row[b] && a < b);
    });
    for (std::size_t i = 0; i < cuda::kTopLogits; ++i) {
      ids.push_back(order[i]);
      values.push_back(of_row[order[i]]);
    }
  }
  EXPECT_TRUE(SameValues(top.ids, ids)) << "vocabulary " << vocabulary << " rows " << rows;
  EXPECT_TRUE(SameBits(top.values, values));
}

TEST(CardTopLogits, RandomRowsOfAnyVocabulary) {
  for (const std::int32_t vocabulary : {64, 65, 250, 1000, 4097, 32000, 151936, 262144}) {
    for (const std::int32_t rows : {1, 3}) {
      Random random(static_cast<std::uint64_t>(vocabulary + rows));
      ExpectSorted(
          random.Values(static_cast<std::size_t>(vocabulary) * static_cast<std::size_t>(rows),
                        20.0F),
          vocabulary, rows);
    }
  }
}

TEST(CardTopLogits, ACardOfLessSharedMemoryFindsTheSame) {
  const testing::LessSharedMemory less;
  const std::int32_t vocabulary = cuda::kTopLogitsVocabularyMax;
  std::vector<float> logits(2 * static_cast<std::size_t>(vocabulary), 1.5F);  // all reach the bound
  ExpectSorted(logits, vocabulary, 2);
  Random random(31);
  ExpectSorted(random.Values(logits.size(), 9.0F), vocabulary, 2);
}

// All of the largest in one stretch, in every stretch alike, and few distinct values, so that ids
// decide; zeros of both signs are one value.
TEST(CardTopLogits, AwkwardOrdersAndTies) {
  constexpr std::int32_t kVocabulary = 50000;
  std::vector<float> logits(kVocabulary);
  std::iota(logits.begin(), logits.end(), -25000.0F);
  ExpectSorted(logits, kVocabulary, 1);
  std::reverse(logits.begin(), logits.end());
  ExpectSorted(logits, kVocabulary, 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = i % 3 == 0 ? 0.0F : i % 3 == 1 ? -0.0F : -1.0F;
  }
  ExpectSorted(logits, kVocabulary, 1);
  std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  logits[49000] = std::numeric_limits<float>::infinity();
  ExpectSorted(logits, kVocabulary, 1);
}

TEST(CardTopLogits, TheFirstRowWithANanIsNamed) {
  constexpr std::int32_t kVocabulary = 3000;
  Random random(5);
  std::vector<float> logits = random.Values(4 * kVocabulary);
  logits[2 * kVocabulary + 17] = std::numeric_limits<float>::quiet_NaN();
  logits[3 * kVocabulary] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(OnCard(logits, kVocabulary, 4).failed_row, 2);
}

}  // namespace
}  // namespace bloomery::kernels
