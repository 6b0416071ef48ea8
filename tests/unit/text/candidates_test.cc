#include "runtime/text/candidates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

namespace bloomery::text {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Few distinct values, so that ties are common, and the values that must never win.
std::vector<float> TiedRow(std::mt19937& random, size_t size) {
  std::vector<float> row(size);
  for (float& logit : row) {
    const auto draw = random() % 12;
    logit = draw == 10 ? kNan : draw == 11 ? -kInf : static_cast<float>(draw) - 5.0f;
  }
  return row;
}

std::vector<Candidate> SortAll(const std::vector<float>& row) {
  std::vector<Candidate> all;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -kInf) all.push_back({row[id], static_cast<TokenId>(id)});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(-a.logit, a.token) < std::pair(-b.logit, b.token);
  });
  return all;
}

TEST(ArgMaxTest, TiesGoToTheLowestIdAndNanNeverWins) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -2, kNan, -1}), 3);
  EXPECT_EQ(ArgMax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, kNan}), -1);
  EXPECT_EQ(ArgMax(std::vector<float>{}), -1);
}

TEST(ArgMaxTest, EqualsAPlainScanAtEverySize) {
  std::mt19937 random(1);
  for (size_t size = 1; size < 100; ++size) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> row = TiedRow(random, size);
      TokenId best = -1;
      for (size_t id = 0; id < size; ++id) {
        if (row[id] > -kInf && (best < 0 || row[id] > row[static_cast<size_t>(best)])) {
          best = static_cast<TokenId>(id);
        }
      }
      EXPECT_EQ(ArgMax(row), best);
    }
  }
}

TEST(SelectBestTest, EqualsASortAtEverySizeAndCount) {
  std::mt19937 random(2);
  std::vector<Candidate> best;
  for (size_t size = 1; size < 120; size += 7) {
    for (size_t count = 0; count < size + 2; ++count) {
      const std::vector<float> row = TiedRow(random, size);
      std::vector<Candidate> expected = SortAll(row);
      expected.resize(std::min(expected.size(), count));
      SelectBest(row, count, best);
      ASSERT_EQ(best.size(), expected.size());
      for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i].token, expected[i].token);
    }
  }
}

TEST(CandidatesTest, TheListIsAscendingByIdOrDescendingByLogit) {
  const std::vector<float> row = {1, 5, kNan, 3, -kInf, 5, 2};
  Candidates candidates(row.size());
  const auto ids = [&candidates] {
    std::vector<TokenId> tokens;
    for (const Candidate& c : candidates.list()) tokens.push_back(c.token);
    return tokens;
  };
  candidates.Load(row);
  candidates.MakeList();
  EXPECT_EQ(ids(), (std::vector<TokenId>{0, 1, 3, 5, 6}));
  candidates.Settle();
  EXPECT_EQ(ids(), (std::vector<TokenId>{0, 1, 3, 5, 6}));
  candidates.SortFirst(2);
  candidates.DropFirst(2);
  candidates.Settle();
  EXPECT_EQ(ids(), (std::vector<TokenId>{3, 6, 0}));
}

TEST(CandidatesTest, EditsDoNotReachTheCallersRow) {
  const std::vector<float> row = {1, 2};
  Candidates candidates(row.size());
  candidates.Load(row);
  candidates.EditRow()[0] = 9;
  EXPECT_EQ(candidates.MaxLogit(), 9);
  EXPECT_EQ(row[0], 1);
  candidates.Load(row);
  EXPECT_EQ(candidates.MaxLogit(), 2);
}

TEST(CandidatesTest, KeepAllowedKeepsJustTheTokensOfTheMask) {
  std::vector<float> row(200);
  for (size_t id = 0; id < row.size(); ++id) row[id] = static_cast<float>(id % 7);
  row[3] = -std::numeric_limits<float>::infinity();
  for (const size_t step : {1, 2, 3, 60}) {  // all, half, fewer, a handful
    for (const bool as_list : {false, true}) {
      TokenMask mask;
      mask.bits.assign(4, 0);
      for (size_t id = 0; id < row.size(); id += step) {
        ++mask.allowed;
        mask.bits[id / 64] |= uint64_t{1} << (id % 64);
        if (as_list) mask.few.push_back(static_cast<TokenId>(id));
      }
      if (as_list && 2 * mask.allowed > row.size()) continue;  // such masks have bits
      if (as_list) mask.bits.clear();
      Candidates candidates(row.size());
      candidates.Load(row);
      candidates.KeepAllowed(mask);
      candidates.MakeList();
      std::vector<TokenId> kept;
      for (const Candidate& candidate : candidates.list()) kept.push_back(candidate.token);
      std::vector<TokenId> expected;
      for (size_t id = 0; id < row.size(); id += step) {
        if (id != 3) expected.push_back(static_cast<TokenId>(id));
      }
      EXPECT_EQ(kept, expected) << step;
      EXPECT_EQ(row[1], 1.0f) << "the row itself is as it was";
    }
  }
}

}  // namespace
}  // namespace bloomery::text
