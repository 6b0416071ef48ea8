#include "runtime/apps/check_plugin/built_seat.h"

#include "runtime/apps/check_plugin/recording_builder.h"
#include "runtime/base/limits.h"

namespace bloomery::apps::check {

BuiltSeat::BuiltSeat(const Subject& subject, model::ModelFile model, const HostWrap& wrap,
                     uint32_t features)
    : plugin_(plugin::LoadPlugin(subject.path)),
      model_(std::move(model)),
      host_model_(model_),
      instance_(plugin_, host_model_.raw(), limits::kPluginHostBytesMax, wrap, features),
      description_(plugin::CheckDescription(instance_.Describe(), plugin_.name, model_, {})),
      info_(exec::MakeSeatInfo(description_)),
      operators_(plugin_.name, description_) {}

BuiltSeat::Result BuiltSeat::Build(int32_t rows, std::optional<int> fail_at) {
  return Build(description_.entries[description_.main_entry], rows, fail_at);
}

BuiltSeat::Result BuiltSeat::Build(const plugin::Entry& entry, int32_t rows,
                                   std::optional<int> fail_at) {
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
  result.status = entry.build(instance_.raw(), &recorder.raw(), &build);
  result.reason = builder.failure() ? builder.failure()->what() : instance_.host().reason().text;
  result.record = recorder.text();
  result.calls = recorder.calls();
  if (result.status == BL_OK && !builder.failure()) result.graph = builder.Take();
  return result;
}

graph::Graph BuiltSeat::BuildGraph(int32_t rows) {
  return Accepted(description_.entries[description_.main_entry], rows);
}

graph::Graph BuiltSeat::BuildDraftGraph(int32_t rows) {
  return Accepted(description_.entries[*description_.draft_entry], rows);
}

graph::Graph BuiltSeat::Accepted(const plugin::Entry& entry, int32_t rows) {
  Result result = Build(entry, rows, {});
  if (!result.graph) {
    throw Failed("build of entry '" + entry.name + "' for " + std::to_string(rows) +
                 " rows is not accepted: " + result.reason);
  }
  return std::move(*result.graph);
}

}  // namespace bloomery::apps::check
