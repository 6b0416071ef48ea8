// What Submit refuses, at each limit and one past it, and what the smallest requests give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

std::string RefusedWith(Engine& engine, GenerateRequest request, ErrorKind kind) {
  const auto refusal = test::RefusalOf([&] { engine.Submit(std::move(request)); });
  EXPECT_EQ(refusal.kind, kind);
  return refusal.message;
}

TEST(Request, EmptyPromptIsRefused) {
  Rig rig;
  EXPECT_THAT(RefusedWith(rig.Start(), Greedy({}, 1), ErrorKind::kBadRequest),
              testing::HasSubstr("'prompt'"));
}

TEST(Request, TokenOutsideTheVocabularyIsRefusedWithItsPlace) {
  Rig rig;
  Engine& engine = rig.Start();
  EXPECT_EQ(rig.Run(Greedy({0, kVocabulary - 1}, 1)).finish().tokens_evaluated, 2);
  const std::string message =
      RefusedWith(engine, Greedy({0, kVocabulary}, 1), ErrorKind::kBadRequest);
  EXPECT_THAT(message, testing::HasSubstr("token 34 at position 1"));
  RefusedWith(engine, Greedy({-1}, 1), ErrorKind::kBadRequest);
}

TEST(Request, PromptOfTheWholeContextIsRefusedWithTheNumbers) {
  Rig rig({.slot_context = 8});
  Engine& engine = rig.Start();
  try {
    engine.Submit(Greedy(Ids("abcdefgh"), 1));
    FAIL() << "accepted";
  } catch (const ContextError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kContextFull);
    EXPECT_EQ(error.n_prompt_tokens(), 8);
    EXPECT_EQ(error.n_ctx(), 8);
  }
  const Collected collected = rig.Run(Greedy(Ids("abcdefg"), -1));
  Collected copy = collected;
  EXPECT_EQ(copy.finish().tokens_predicted, 1);
  EXPECT_TRUE(copy.finish().truncated);
}

TEST(Request, FieldsOutOfRangeAreRefusedByName) {
  Rig rig({.slots = 2});
  Engine& engine = rig.Start();
  const auto refused = [&](auto change) {
    GenerateRequest request = Greedy(Ids("a"), 1);
    change(request);
    return RefusedWith(engine, std::move(request), ErrorKind::kBadRequest);
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused([](auto& r) { r.n_predict = -2; }), HasSubstr("'n_predict'"));
  EXPECT_THAT(refused([](auto& r) { r.choices = 0; }), HasSubstr("'n_cmpl'"));
  EXPECT_THAT(refused([](auto& r) { r.choices = 3; }), HasSubstr("'n_cmpl'"));
  EXPECT_THAT(refused([](auto& r) { r.n_indent = -1; }), HasSubstr("'n_indent'"));
  EXPECT_THAT(refused([](auto& r) { r.t_max_predict_ms = -2; }), HasSubstr("'t_max_predict_ms'"));
  EXPECT_THAT(refused([](auto& r) { r.n_keep = -2; }), HasSubstr("'n_keep'"));
  EXPECT_THAT(refused([](auto& r) { r.n_discard = -1; }), HasSubstr("'n_discard'"));
  EXPECT_THAT(refused([](auto& r) { r.sampling.repeat_penalty = 0; }),
              HasSubstr("'repeat_penalty'"));
  GenerateRequest lowest = Greedy(Ids("a"), 1);
  lowest.t_max_predict_ms = -1;
  lowest.n_keep = -1;
  EXPECT_TRUE(rig.Run(lowest).finish().stop_type == StopType::kLimit);
}

TEST(Request, NoTokensWantedEvaluatesThePromptOnly) {
  Rig rig;
  rig.Start();
  Collected first = rig.Run(Greedy(Ids("abcdef"), 0));
  EXPECT_EQ(first.finish().stop_type, StopType::kLimit);
  EXPECT_EQ(first.finish().tokens_predicted, 0);
  EXPECT_EQ(first.finish().timings.prompt_n, 6);
  EXPECT_TRUE(first.choices[0].pieces.empty());
  EXPECT_EQ(rig.Run(Greedy(Ids("abcdefg"), 0)).finish().timings.cache_n, 6);
}

TEST(Request, TheEnginesBudgetStandsForMinusOne) {
  Rig rig({}, {.n_predict = 4});
  rig.runner.next = [](const Tokens&) { return 0; };
  EXPECT_EQ(rig.Run(Greedy(Ids("x"), -1)).finish().tokens_predicted, 4);
  EXPECT_EQ(rig.Run(Greedy(Ids("x"), 6)).finish().tokens_predicted, 6);
}

TEST(Request, GenerationFillsTheContextAndIsTruncated) {
  Rig rig({.slot_context = 20});
  rig.runner.next = [](const Tokens&) { return 0; };
  Collected collected = rig.Run(Greedy(Ids("abc"), -1));
  EXPECT_EQ(collected.finish().tokens_predicted, 17);
  EXPECT_EQ(collected.finish().stop_type, StopType::kLimit);
  EXPECT_TRUE(collected.finish().truncated);
}

TEST(Request, SeedInUseIsReportedAndRepeatsTheText) {
  Rig rig;
  Engine& engine = rig.Start();
  GenerateRequest request = Greedy(Ids("hello"), 20);
  request.sampling.temperature = 1;
  auto generation = engine.Submit(request);
  Collected first = Await(*generation);
  const uint32_t seed = generation->request()->sampling.seed;
  EXPECT_NE(seed, text::kRandomSeed);
  request.sampling.seed = seed;
  EXPECT_EQ(rig.Run(request).only().text, first.only().text);
}

TEST(Request, IgnoreEosBansTheEndTokenWhereTheSettingsShowIt) {
  Rig rig({.slot_context = 12});
  rig.runner.next = [](const Tokens&) { return kEnd; };
  Engine& engine = rig.Start();
  GenerateRequest request = Greedy(Ids("ab"), -1);
  request.sampling.ignore_eos = true;
  auto generation = engine.Submit(request);
  EXPECT_EQ(Await(*generation).finish().tokens_predicted, 10);
  ASSERT_EQ(generation->request()->sampling.logit_bias.size(), 1u);
  EXPECT_EQ(generation->request()->sampling.logit_bias[0].token, kEnd);
  // The next request is free of it.
  EXPECT_EQ(rig.Run(Greedy(Ids("ab"), -1)).finish().stop_type, StopType::kEos);
}

TEST(Request, QueueTakesTheLimitAndRefusesOnePastIt) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> generations{engine.Submit(Greedy(Ids("a"), 1))};
  gate.AwaitEntered(1);  // it runs: the queue is empty
  for (int32_t i = 0; i < limits::kQueuedRequestsMax; ++i) {
    generations.push_back(engine.Submit(Greedy(Ids("b"), 1)));
  }
  EXPECT_EQ(engine.ReadMetrics().requests_waiting, limits::kQueuedRequestsMax);
  try {
    engine.Submit(Greedy(Ids("c"), 1));
    ADD_FAILURE() << "accepted";
  } catch (const QueueFullError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    EXPECT_EQ(error.retry_after_s(), 1);
  }
  gate.Open();
  for (auto& generation : generations) {
    EXPECT_EQ(Await(*generation).finish().stop_type, StopType::kLimit);
  }
  EXPECT_EQ(rig.Run(Greedy(Ids("c"), 1)).finish().tokens_predicted, 1);
}

TEST(Request, ARefusedOneIsToldWhenHalfOfTheQueueWillHaveBegun) {
  Rig rig({}, {.queue_max = 4});
  Gate gate;
  rig.runner.before_run = [&](auto) {
    gate.Enter();
    rig.clock.Advance(std::chrono::seconds(10));
  };
  Engine& engine = rig.Start();
  gate.Permit(1);
  Await(*engine.Submit(Greedy(Ids("a"), 1)));  // ten seconds
  std::vector<std::shared_ptr<Generation>> generations{engine.Submit(Greedy(Ids("b"), 1))};
  gate.AwaitEntered(2);
  for (int i = 0; i < 4; ++i) generations.push_back(engine.Submit(Greedy(Ids("b"), 1)));
  try {
    engine.Submit(Greedy(Ids("c"), 1));
    ADD_FAILURE() << "accepted";
  } catch (const QueueFullError& error) {
    EXPECT_EQ(error.retry_after_s(), 20);
    EXPECT_THAT(error.what(), testing::HasSubstr("4 requests are waiting; try again in 20 s"));
  }
  gate.Open();
  for (auto& generation : generations) Await(*generation);
}

TEST(EngineOptionsCheck, RefusesWhatCannotRun) {
  text::Tokenizer tokenizer = TestTokenizer();
  FakeRunner runner(Rig::Defaults({}));
  for (const EngineOptions& options :
       {EngineOptions{.batch_rows = 0}, EngineOptions{.ubatch_rows = 0},
        EngineOptions{.n_predict = -2}, EngineOptions{.queue_max = 0},
        EngineOptions{.decode_gap_ms = -1}}) {
    EXPECT_EQ(test::RefusalOf([&] { Engine engine(runner, tokenizer, options); }).kind,
              ErrorKind::kUsage);
  }
  exec::SeatLimits limits = Rig::Defaults({});
  limits.vocabulary = kVocabulary + 1;
  FakeRunner wider(limits);
  EXPECT_EQ(test::RefusalOf([&] { Engine engine(wider, tokenizer); }).kind, ErrorKind::kBadModel);
}

}  // namespace
}  // namespace bloomery::engine
