#include "runtime/apps/agent_json.h"

#include <gtest/gtest.h>

namespace bloomery::apps {
namespace {

memory::MemoryPlan CardPlan(uint64_t weights, uint64_t planes) {
  memory::MemoryPlan plan(100, std::nullopt, memory::PlanOf::kCard);
  plan.Add("weights", weights);
  plan.Add("planes k", planes);
  return plan;
}

TEST(PlansJson, EachStageNamesItsCardAndItsLayersAndTheHostIsTheLast) {
  memory::Placement placement;
  placement.place = memory::Place::kCard;
  placement.device = "CUDA1,CUDA0";
  placement.stages = {{.device = "CUDA1", .layers = {0, 5}, .plan = CardPlan(60, 7)},
                      {.device = "CUDA0", .layers = {5, 8}, .plan = CardPlan(90, 11)}};
  placement.host.Add("scratch", 3);
  EXPECT_EQ(PlansJson(placement).Text(),
            R"([{"device":"card","id":"CUDA1","layers":[0,5],"free":100,"free_source":"budget",)"
            R"("need":67,"fits":true,"terms":{"weights":60,"planes k":7},"mapped":{}},)"
            R"({"device":"card","id":"CUDA0","layers":[5,8],"free":100,"free_source":"budget",)"
            R"("need":101,"fits":false,"terms":{"weights":90,"planes k":11},"mapped":{}},)"
            R"({"device":"host","free":null,"free_source":"","need":3,"fits":true,)"
            R"("terms":{"scratch":3},"mapped":{}}])");
}

TEST(PlansJson, OfTheHostAloneThereIsOne) {
  EXPECT_EQ(PlansJson(memory::Placement()).Text(),
            R"([{"device":"host","free":null,"free_source":"","need":0,"fits":true,)"
            R"("terms":{},"mapped":{}}])");
}

}  // namespace
}  // namespace bloomery::apps
