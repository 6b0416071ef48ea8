#include "runtime/exec/trial_build.h"

#include "runtime/exec/lower/seat_info.h"
#include "runtime/graph/abi.h"
#include "runtime/graph/builder.h"

namespace bloomery::exec {
namespace {

constexpr int32_t kSeveralRows = 8;

}  // namespace

void BuildForTrial(plugin::Instance& instance) {
  const plugin::Description& description = instance.description();
  const graph::SeatInfo info = MakeSeatInfo(description);
  const SeatOperators operators(instance.plugin().name, description);
  const auto build_entry = [&](uint32_t entry) {
    for (const int32_t rows : {1, kSeveralRows}) {
      graph::GraphBuilder builder(operators.set(), info, {.rows = rows, .logit_rows = rows});
      auto build = graph::MakeAbi<bl_build>();
      build.rows = rows;
      build.logit_rows = rows;
      build.class_flags = 1U << BL_ROW_TEXT;
      build.device = BL_DEVICE_CPU;
      instance.Build(entry, *builder.abi(), build);
      builder.Take();
    }
  };
  build_entry(description.main_entry);
  if (description.draft_entry) build_entry(*description.draft_entry);
}

plugin::TrialOptions TrialOf(int32_t draft_rows_max) {
  plugin::TrialOptions trial = {.build = BuildForTrial};
  if (draft_rows_max > 0) {
    trial.instance.n_slots = kSeveralRows;  // a draft's step has a row a slot
    trial.instance.features |= BL_FEATURE_DRAFT;
    trial.instance.draft_rows_max = draft_rows_max;
  }
  return trial;
}

}  // namespace bloomery::exec
