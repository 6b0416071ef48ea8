#include "runtime/apps/check_plugin/built_seat.h"

#include "runtime/apps/check_plugin/recording_builder.h"
#include "runtime/base/limits.h"

namespace bloomery::apps::check {

BuiltSeat::BuiltSeat(const Subject& subject, model::ModelFile model, const HostWrap& wrap)
    : plugin_(plugin::LoadPlugin(subject.path)),
      model_(std::move(model)),
      host_model_(model_),
      instance_(plugin_, host_model_.raw(), limits::kPluginHostBytesMax, wrap),
      description_(plugin::CheckDescription(instance_.Describe(), plugin_.name, model_, {})),
      info_(exec::MakeSeatInfo(description_)),
      operators_(plugin_.name, description_) {}

BuiltSeat::Result BuiltSeat::Build(int32_t rows, std::optional<int> fail_at) {
  graph::GraphBuilder builder(operators_.set(), info_, {.rows = rows, .logit_rows = rows});
  RecordingBuilder recorder(*builder.abi(), fail_at);
  bl_build build{};
  build.size = sizeof(build);
  build.rows = rows;
  build.logit_rows = rows;
  build.class_flags = 1u << BL_ROW_TEXT;
  build.device = BL_DEVICE_CPU;
  instance_.host().reason() = {};
  Result result;
  const plugin::Entry& entry = description_.entries[description_.main_entry];
  result.status = entry.build(instance_.raw(), &recorder.raw(), &build);
  result.reason = builder.failure() ? builder.failure()->what() : instance_.host().reason().text;
  result.record = recorder.text();
  result.calls = recorder.calls();
  if (result.status == BL_OK && !builder.failure()) result.graph = builder.Take();
  return result;
}

graph::Graph BuiltSeat::BuildGraph(int32_t rows) {
  Result result = Build(rows);
  if (!result.graph) {
    throw Failed("build for " + std::to_string(rows) + " rows is not accepted: " + result.reason);
  }
  return std::move(*result.graph);
}

}  // namespace bloomery::apps::check
