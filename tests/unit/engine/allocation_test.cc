// In the steady state the engine's thread allocates nothing but what leaves in events.
#include <gtest/gtest.h>

#include "tests/support/allocation_count.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

constexpr int32_t kPasses = 1000;

// Says one token for ever; notes how often the engine allocated before each pass.
class CountingRunner final : public exec::PassRunner {
 public:
  explicit CountingRunner(int32_t token) : logits_(kVocabulary) {
    logits_[static_cast<size_t>(token)] = 1.0f;
    before_pass_.reserve(kPasses + 1);
  }
  const exec::SeatLimits& limits() const override { return limits_; }
  void Run(std::span<const exec::PassRow>) override {
    before_pass_.push_back(test::AllocationsOfThisThread());
  }
  std::span<const float> Logits(int32_t) const override { return logits_; }
  void Cut(int32_t, int32_t) override {}
  int32_t Keepable(int32_t, int32_t length) const override { return length; }
  void CopySlot(int32_t, int32_t, int32_t) override {}

  size_t Allocations(size_t from, size_t to) const { return before_pass_[to] - before_pass_[from]; }

 private:
  const exec::SeatLimits limits_{
      .slots = 2, .slot_context = 2048, .rows_max = 8, .vocabulary = kVocabulary};
  std::vector<float> logits_;
  std::vector<size_t> before_pass_;
};

size_t AllocationsOf400Passes(int32_t token) {
  const text::Tokenizer tokenizer = TestTokenizer();
  CountingRunner runner(token);
  Engine engine(runner, tokenizer);
  Collected collected = Await(*engine.Submit(Greedy(Ids("abc"), kPasses)));
  EXPECT_EQ(collected.finish().tokens_predicted, kPasses);
  engine.Stop(std::chrono::milliseconds(0));
  // Between 513 and 1023 held tokens no buffer of a choice has to grow.
  return runner.Allocations(550, 950);
}

TEST(EngineAllocation, APassWhoseTokensReleaseNoTextAllocatesNothing) {
  EXPECT_EQ(AllocationsOf400Passes(kTool), 0u);
}

// The ids of a Text, and its place in the queue.
TEST(EngineAllocation, AnEventCostsAtMostTwo) {
  const size_t count = AllocationsOf400Passes(0);
  EXPECT_GT(count, 0u);
  EXPECT_LE(count, 2u * 400u);
}

}  // namespace
}  // namespace bloomery::engine
