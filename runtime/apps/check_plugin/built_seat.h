// A described seat whose graphs can be built, for the tests of graphs and kernels.
#pragma once

#include <optional>
#include <string>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/exec/lower/seat_info.h"
#include "runtime/graph/builder.h"
#include "runtime/plugin/description.h"

namespace bloomery::apps::check {

class BuiltSeat {
 public:
  explicit BuiltSeat(const Subject& subject) : BuiltSeat(subject, OpenModel(subject)) {}
  // Of another model than the subject's; `wrap` and `features` as RawInstance takes them.
  BuiltSeat(const Subject& subject, model::ModelFile model, const HostWrap& wrap = {},
            uint32_t features = BL_FEATURE_OBSERVE);

  struct Result {
    bl_status status = BL_OK;
    std::string reason;
    std::string record;  // the calls, one a line
    int calls = 0;
    std::optional<graph::Graph> graph;  // where the builder accepted all of it
  };
  // Lets the plugin build its main entry for so many rows.
  Result Build(int32_t rows, std::optional<int> fail_at = {});
  // The same; throws Failed where it is not accepted.
  graph::Graph BuildGraph(int32_t rows);
  // The same of the draft's step, which the description must have.
  graph::Graph BuildDraftGraph(int32_t rows);

  const plugin::Description& description() const { return description_; }
  const plugin::LoadedPlugin& plugin() const { return plugin_; }
  const model::ModelFile& model() const { return model_; }
  const bl_model& host_model() const { return host_model_.raw(); }
  RawInstance& instance() { return instance_; }

 private:
  Result Build(const plugin::Entry& entry, int32_t rows, std::optional<int> fail_at);
  graph::Graph Accepted(const plugin::Entry& entry, int32_t rows);

  plugin::LoadedPlugin plugin_;
  model::ModelFile model_;
  plugin::HostModel host_model_;
  RawInstance instance_;
  plugin::Description description_;
  graph::SeatInfo info_;
  exec::SeatOperators operators_;
};

}  // namespace bloomery::apps::check
