#include "runtime/exec/trial_build.h"

#include "runtime/exec/lower/seat_info.h"
#include "runtime/graph/abi.h"
#include "runtime/graph/builder.h"

namespace bloomery::exec {

void BuildForTrial(plugin::Instance& instance) {
  const plugin::Description& description = instance.description();
  const graph::SeatInfo info = MakeSeatInfo(description);
  const SeatOperators operators(instance.plugin().name, description);
  for (const int32_t rows : {1, 8}) {
    graph::GraphBuilder builder(operators.set(), info, {.rows = rows, .logit_rows = rows});
    auto build = graph::MakeAbi<bl_build>();
    build.rows = rows;
    build.logit_rows = rows;
    build.class_flags = 1U << BL_ROW_TEXT;
    build.device = BL_DEVICE_CPU;
    instance.Build(description.main_entry, *builder.abi(), build);
    builder.Take();
  }
}

}  // namespace bloomery::exec
