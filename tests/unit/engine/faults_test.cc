// Runners that fail, logits that are no numbers, and stops: who hears of it, and who goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

void ThrowKernelError() {
  throw Error(ErrorKind::kInternal, "operator linear, layer 3, row 0: not finite");
}

// Until Stop was called on another thread: from then on even a bad request is told so first.
void AwaitStopping(Engine& engine) {
  const auto refused_as = [&] {
    return test::RefusalOf([&] { engine.Submit(GenerateRequest{}); }).kind;
  };
  while (refused_as() != ErrorKind::kUnavailable) std::this_thread::yield();
}

TEST(Faults, FailedPassFailsItsRequestsByNameAndTheEngineGoesOn) {
  for (const int bad_pass : {1, 2, 3, 5}) {
    Rig rig({.slots = 2, .rows_max = 4});
    int passes = 0;
    rig.runner.before_run = [&](auto) {
      if (++passes == bad_pass) ThrowKernelError();
    };
    const Tokens prompt = Ids("abcdefgh");
    Collected failed = rig.Run(Greedy(prompt, 6));
    ASSERT_TRUE(failed.failed.has_value()) << bad_pass;
    EXPECT_EQ(failed.failed->kind, ErrorKind::kInternal);
    EXPECT_THAT(failed.failed->message, HasSubstr("layer 3"));
    EXPECT_FALSE(rig.engine->SlotsSnapshot()[0].is_processing);
    EXPECT_EQ(rig.engine->SlotsSnapshot()[0].n_tokens, rig.runner.length(0));
    // What earlier passes evaluated is still good, and reused.
    Collected next = rig.Run(Greedy(prompt, 6));
    EXPECT_EQ(next.only().tokens, GreedyReference(prompt, 6));
    EXPECT_EQ(next.finish().timings.cache_n, bad_pass == 1 ? 0 : bad_pass == 2 ? 4 : 7);
    EXPECT_EQ(rig.engine->ReadMetrics().passes_failed, 1u);
    EXPECT_EQ(rig.engine->ReadMetrics().requests_failed, 1u);
  }
}

TEST(Faults, WaitingRequestsOutliveAFailedPass) {
  Rig rig;
  Gate gate;
  int passes = 0;
  rig.runner.before_run = [&](auto) {
    gate.Enter();
    if (++passes == 1) ThrowKernelError();
  };
  Engine& engine = rig.Start();
  auto first = engine.Submit(Greedy(Ids("a"), 3));
  gate.AwaitEntered(1);
  auto second = engine.Submit(Greedy(Ids("b"), 3));
  gate.Open();
  EXPECT_TRUE(Await(*first).failed.has_value());
  EXPECT_EQ(Await(*second).only().tokens, GreedyReference(Ids("b"), 3));
}

TEST(Faults, RowWithoutADistributionFailsItsOwnRequestOnly) {
  Rig rig({.slots = 2});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.change_logits = [](const Tokens& history, std::vector<float>& logits) {
    if (history[0] == Ids("x")[0] && history.size() == 4) {
      logits[3] = std::numeric_limits<float>::infinity();
    }
  };
  Engine& engine = rig.Start();
  auto bad = engine.Submit(Greedy(Ids("xy"), 10));
  auto good = engine.Submit(Greedy(Ids("ab"), 10));
  gate.Open();
  Collected failed = Await(*bad);
  ASSERT_TRUE(failed.failed.has_value());
  EXPECT_EQ(failed.failed->kind, ErrorKind::kInternal);
  EXPECT_EQ(Await(*good).only().tokens, GreedyReference(Ids("ab"), 10));
  EXPECT_EQ(engine.SlotsSnapshot()[0].n_tokens, 3);  // without the row that gave it
  EXPECT_EQ(engine.ReadMetrics().passes_failed, 0u);
}

TEST(Faults, FailedCopyFailsTheRequestAndLeavesItsSlotsUsable) {
  Rig rig({.slots = 2});
  int copies = 0;
  rig.runner.before_copy = [&] {
    if (++copies == 1) throw Error(ErrorKind::kNoMemory, "no room for a copy");
  };
  GenerateRequest request = Greedy(Ids("abc"), 3);
  request.choices = 2;
  Collected failed = rig.Run(request);
  ASSERT_TRUE(failed.failed.has_value());
  EXPECT_EQ(failed.failed->kind, ErrorKind::kNoMemory);
  Collected next = rig.Run(request);
  EXPECT_EQ(next.choices[0].tokens, GreedyReference(Ids("abc"), 3));
  EXPECT_EQ(next.choices[1].tokens, GreedyReference(Ids("abc"), 3));
}

// The prompt's row, or a later one of the first or the second choice.
TEST(Faults, FailureOfOneChoiceEndsItsSiblings) {
  for (const int bad_row : {1, 2, 3, 4, 5}) {
    Rig rig({.slots = 2});
    int logits_rows = 0;
    rig.runner.change_logits = [&](const Tokens&, std::vector<float>& logits) {
      if (++logits_rows == bad_row) logits[0] = std::numeric_limits<float>::infinity();
    };
    GenerateRequest request = Greedy(Ids("abc"), 20);
    request.choices = 2;
    request.sampling.ignore_eos = true;
    Collected collected = rig.Run(request);
    EXPECT_TRUE(collected.failed.has_value()) << bad_row;
    for (const SlotInfo& slot : rig.engine->SlotsSnapshot()) {
      EXPECT_FALSE(slot.is_processing);
      EXPECT_EQ(slot.n_tokens, rig.runner.length(slot.id));
    }
    EXPECT_EQ(rig.Run(request).choices.size(), 2u);
  }
}

TEST(Faults, FewerFailedPassesInARowThanTheLimitAreSurvived) {
  Rig rig;
  int fail = 0;
  rig.runner.before_run = [&](auto) {
    if (fail-- > 0) ThrowKernelError();
  };
  rig.Start();
  for (int round = 0; round < 2; ++round) {
    fail = limits::kFailedPassesMax - 1;
    for (int i = 0; i < limits::kFailedPassesMax - 1; ++i) {
      EXPECT_TRUE(rig.Run(Greedy(Ids("a"), 1)).failed.has_value());
    }
    EXPECT_EQ(rig.Run(Greedy(Ids("a"), 1)).finish().tokens_predicted, 1);
  }
}

TEST(Faults, TheLimitOfFailedPassesInARowEndsTheEngineWithTheReason) {
  Rig rig;
  rig.failure_expected = true;
  Gate gate;
  rig.runner.before_run = [&](auto) {
    gate.Enter();
    ThrowKernelError();
  };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> generations;
  generations.reserve(limits::kFailedPassesMax);
  for (int i = 0; i < limits::kFailedPassesMax; ++i) {
    generations.push_back(engine.Submit(Greedy(Ids("a"), 1)));
  }
  auto waiting = engine.Submit(Greedy(Ids("b"), 1));
  gate.Open();
  for (auto& generation : generations) {
    EXPECT_EQ(Await(*generation).failed->kind, ErrorKind::kInternal);
  }
  Collected unserved = Await(*waiting);
  EXPECT_EQ(unserved.failed->kind, ErrorKind::kUnavailable);
  EXPECT_THAT(engine.failure().value_or(""), HasSubstr("layer 3"));
  const auto refusal = test::RefusalOf([&] { engine.Submit(Greedy(Ids("a"), 1)); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnavailable);
  EXPECT_THAT(refusal.message, HasSubstr("layer 3"));
}

TEST(Faults, AnythingButAnErrorEndsTheEngineAtOnce) {
  Rig rig({.slots = 2});
  rig.failure_expected = true;
  Gate gate;
  rig.runner.before_run = [&](auto) {
    gate.Enter();
    throw std::runtime_error("the device fell off");
  };
  Engine& engine = rig.Start();
  auto running = engine.Submit(Greedy(Ids("a"), 5));
  gate.AwaitEntered(1);
  GenerateRequest wide = Greedy(Ids("b"), 5);
  wide.choices = 2;
  auto waiting = engine.Submit(wide);
  gate.Open();
  Collected failed = Await(*running);
  EXPECT_EQ(failed.failed->kind, ErrorKind::kInternal);
  EXPECT_THAT(failed.failed->message, HasSubstr("the device fell off"));
  EXPECT_TRUE(Await(*waiting).failed.has_value());
  EXPECT_THAT(engine.failure().value_or(""), HasSubstr("the device fell off"));
  for (const SlotInfo& slot : engine.SlotsSnapshot()) EXPECT_FALSE(slot.is_processing);
  engine.Stop(milliseconds(0));
}

TEST(Stop, RunningRequestsMayEndWithinTheDrainAndWaitingOnesFailAtOnce) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto running = engine.Submit(Greedy(Ids("a"), 5));
  gate.AwaitEntered(1);
  auto waiting = engine.Submit(Greedy(Ids("b"), 5));
  std::thread stopper([&] { engine.Stop(milliseconds(1000)); });
  AwaitStopping(engine);
  gate.Permit(1);
  Collected unserved = Await(*waiting);  // heard while the other still runs
  EXPECT_EQ(unserved.failed->kind, ErrorKind::kUnavailable);
  EXPECT_EQ(test::RefusalOf([&] { engine.Submit(Greedy(Ids("c"), 1)); }).kind,
            ErrorKind::kUnavailable);
  gate.Open();
  EXPECT_EQ(Await(*running).finish().tokens_predicted, 5);
  stopper.join();
  EXPECT_FALSE(engine.failure().has_value());
}

TEST(Stop, RequestsThatRunAtTheDeadlineAreTold) {
  Rig rig;
  Gate gate;
  rig.runner.next = [](const Tokens&) { return 0; };
  rig.runner.before_run = [&](auto) {
    gate.Enter();
    rig.clock.Advance(milliseconds(10));
  };
  Engine& engine = rig.Start();
  auto running = engine.Submit(Greedy(Ids("a"), -1));
  gate.AwaitEntered(1);
  auto waiting = engine.Submit(Greedy(Ids("b"), 1));
  std::thread stopper([&] { engine.Stop(milliseconds(50)); });  // at 0 ms
  AwaitStopping(engine);
  gate.Open();
  EXPECT_TRUE(Await(*waiting).failed.has_value());
  stopper.join();
  Collected collected = Await(*running);
  EXPECT_EQ(collected.only().tokens.size(), 5u);
  ASSERT_TRUE(collected.failed.has_value());
  EXPECT_EQ(collected.failed->kind, ErrorKind::kUnavailable);
  EXPECT_FALSE(engine.SlotsSnapshot()[0].is_processing);
}

TEST(Stop, FromSeveralThreadsAndOfAnIdleEngineReturns) {
  Rig rig;
  Engine& engine = rig.Start();
  std::thread other([&] { engine.Stop(milliseconds(5)); });
  engine.Stop(milliseconds(0));
  other.join();
  engine.Stop(milliseconds(0));
}

TEST(Stop, RequestsThatRaceWithItAreRefusedOrEnded) {
  for (int round = 0; round < 100; ++round) {
    Rig rig;
    Engine& engine = rig.Start();
    std::thread client([&] {
      try {
        while (true) Await(*engine.Submit(Greedy(Ids("a"), 1)));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
      }
    });
    engine.Stop(milliseconds(0));
    client.join();
  }
}

TEST(Stop, DestroyingTheEngineEndsAllStreams) {
  Rig rig({.slots = 2});
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> generations;
  generations.reserve(6);
  for (int i = 0; i < 6; ++i) generations.push_back(engine.Submit(Greedy(Ids("a"), -1)));
  rig.engine.reset();
  for (auto& generation : generations) Await(*generation);
}

// What a watchdog asks: an engine with nothing to do answers, one that hangs in a pass does not.
TEST(Beat, GrowsWhileTheThreadIsIdleAndNotWhileItHangsInAPass) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  const auto grows = [&](uint64_t from) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine.Beat() <= from) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  };
  EXPECT_TRUE(grows(engine.Beat()));
  const auto generation = engine.Submit(Greedy(Ids("ab"), 1));
  gate.AwaitEntered(1);
  const uint64_t hanging = engine.Beat();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(engine.Beat(), hanging);
  gate.Open();
  Await(*generation);
  EXPECT_TRUE(grows(hanging));
}

}  // namespace
}  // namespace bloomery::engine
