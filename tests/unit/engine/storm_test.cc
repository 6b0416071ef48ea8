// Many clients at once, a third of which leave: every finished text equals the same request run
// alone, and no slot stays behind. Meant for tsan as well.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

struct Plan {
  GenerateRequest request;
  int cancel_after = -1;  // events taken before the client leaves; -1: it stays
};

// Prompts that share beginnings, so that slots are cut and reused all the time.
Plan MakePlan(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  static constexpr const char* kBeginnings[] = {"you are a poet. ", "you are a judge. ", "say "};
  Plan plan;
  plan.request.prompt = Ids(kBeginnings[below(3)]);
  for (int32_t i = 0, n = 1 + below(30); i < n; ++i) plan.request.prompt.push_back(below(31));
  plan.request.n_predict = below(40) - 1;
  plan.request.sampling.temperature = below(2);
  plan.request.sampling.seed = static_cast<uint32_t>(random() >> 1);
  plan.request.cache_prompt = below(5) != 0;
  plan.request.id_slot = below(4) == 0 ? below(4) : -1;
  plan.request.choices = below(8) == 0 ? 2 : 1;
  plan.request.return_progress = below(3) == 0;
  if (below(3) == 0) plan.request.stop = {"ab", "q.", "zzz"};
  if (below(3) == 0) plan.cancel_after = below(12);
  return plan;
}

TEST(Storm, FinishedTextsEqualTheSameRequestsRunAlone) {
  constexpr size_t kClients = 8, kRequestsEach = 25;
  std::mt19937 random(20261129);
  std::vector<Plan> plans;
  plans.reserve(kClients * kRequestsEach);
  for (size_t i = 0; i < kClients * kRequestsEach; ++i) plans.push_back(MakePlan(random));
  std::vector<Collected> results(plans.size());

  Rig rig({.slots = 4, .slot_context = 96, .rows_max = 8}, {.batch_rows = 16});
  Engine& engine = rig.Start();
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (size_t client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (size_t i = 0; i < kRequestsEach; ++i) {
        const size_t at = client * kRequestsEach + i;
        auto generation = engine.Submit(plans[at].request);
        int taken = 0;
        if (plans[at].cancel_after == 0) generation->Cancel();
        while (auto event = generation->Pop()) {
          Collect(results[at], std::move(*event));
          if (++taken == plans[at].cancel_after) generation->Cancel();
        }
        engine.SlotsSnapshot();
        engine.ReadMetrics();
      }
    });
  }
  for (std::thread& client : clients) client.join();

  for (const SlotInfo& slot : engine.SlotsSnapshot()) EXPECT_FALSE(slot.is_processing);
  const Metrics metrics = engine.ReadMetrics();
  EXPECT_EQ(metrics.requests_finished + metrics.requests_cancelled, plans.size());
  EXPECT_EQ(metrics.requests_failed, 0u);
  EXPECT_GT(metrics.requests_cancelled, 10u);
  EXPECT_EQ(metrics.requests_waiting, 0);
  EXPECT_GT(metrics.pass_slots, metrics.passes) << "no pass was shared";

  int compared = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (results[i].failed) {
      EXPECT_EQ(results[i].failed->kind, ErrorKind::kCancelled);
      EXPECT_GE(plans[i].cancel_after, 0);
      continue;
    }
    Rig alone({.slots = 2, .slot_context = 96, .rows_max = 8});
    Collected one = alone.Run(plans[i].request);
    for (int32_t choice = 0; choice < plans[i].request.choices; ++choice) {
      EXPECT_EQ(results[i].choices[choice].text, one.choices[choice].text) << "request " << i;
      EXPECT_EQ(results[i].choices[choice].tokens, one.choices[choice].tokens);
      EXPECT_EQ(results[i].finish(choice).stop_type, one.finish(choice).stop_type);
      EXPECT_EQ(results[i].finish(choice).tokens_evaluated,
                static_cast<int32_t>(plans[i].request.prompt.size()));
    }
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

// A client that takes nothing until the end hears the same text, in few events.
TEST(Storm, AStalledReaderHearsTheSameText) {
  Rig rig({.slot_context = 4096});
  rig.runner.next = [](const Tokens& history) -> std::optional<int32_t> {
    return static_cast<int32_t>(history.size() % 26);
  };
  Engine& engine = rig.Start();
  auto stalled = engine.Submit(Greedy(Ids("a"), 3000));
  Await(*engine.Submit(Greedy(Ids("b"), 1)));  // behind it: the first is done
  Collected late = Await(*stalled);
  EXPECT_LE(late.only().pieces.size(), 64u);
  EXPECT_EQ(rig.Run(Greedy(Ids("a"), 3000)).only().text, late.only().text);
}

}  // namespace
}  // namespace bloomery::engine
