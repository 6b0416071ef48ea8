// The model's own draft head, where the plugin describes one for the model: it is built, its planes
// are what main keeps for it, and the model without it is the same model.
#include <algorithm>

#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/exec/draft_graph.h"
#include "runtime/exec/seat.h"
#include "runtime/plugin/instance.h"

namespace bloomery::apps::check {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 7, 8};  // of a step: a row a slot
constexpr int32_t kTokens = 24;
constexpr int32_t kBatch = 7;

// Described and built as where drafts are wanted.
BuiltSeat DraftingSeat(const Subject& subject) {
  return {subject, OpenModel(subject), {}, BL_FEATURE_OBSERVE | BL_FEATURE_DRAFT};
}
void SkipWithoutHead(const BuiltSeat& seat) {
  if (!seat.description().draft_entry) {
    throw NotApplicable("the plugin describes no draft head for this model");
  }
}

void BuildsForEveryRowCount(const Subject& subject) {
  BuiltSeat seat = DraftingSeat(subject);
  SkipWithoutHead(seat);
  for (const int32_t rows : kRowCounts) {
    seat.BuildGraph(rows);
    const graph::Graph step = seat.BuildDraftGraph(rows);
    exec::CheckDraftGraph(step, seat.description(), seat.plugin().name);
    const graph::ValueId logits = step.FindExport("logits");
    Expect(logits != 0, "the draft's step exports no 'logits'");
    Expect(static_cast<uint64_t>(step.value(logits).shape.width()) == seat.description().vocabulary,
           "the draft's 'logits' are " + graph::ToString(step.value(logits).shape));
  }
}

int UsesOf(const graph::Graph& graph, size_t plane) {
  int uses = 0;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::PlaneUse& use : node.planes) uses |= use.plane == plane ? use.access : 0;
  }
  return uses;
}

// What main does not write the step would read as it was left by other rows.
void UsesEveryPlane(const Subject& subject) {
  BuiltSeat seat = DraftingSeat(subject);
  SkipWithoutHead(seat);
  const graph::Graph main = seat.BuildGraph(7);
  const graph::Graph step = seat.BuildDraftGraph(2);
  const auto& planes = seat.description().planes;
  for (size_t i = 0; i < planes.size(); ++i) {
    const std::string plane = "plane " + std::to_string(i) + " '" + planes[i].name + "'";
    const int of_main = UsesOf(main, i);
    Expect((of_main & BL_WRITE) != 0, plane + " is not written by the main entry");
    Expect(((of_main | UsesOf(step, i)) & BL_READ) != 0,
           plane + " is read by neither the main entry nor the draft's step");
  }
}

std::vector<std::vector<float>> LogitsOf(const Subject& subject, bool drafts) {
  const exec::SeatOptions options{.slot_context = kTokens,
                                  .rows_max = kBatch,
                                  .window_rows = drafts ? 2 : 1,
                                  .drafts = drafts,
                                  .threads = 2,
                                  .pin = false};
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  plugin::Instance instance(plugin, model, exec::InstanceOptionsOf(options));
  const auto seat = exec::LoadSeat(model, instance, options);
  const std::vector<int32_t> tokens =
      Random(subject.seed).Tokens(kTokens, seat->limits().vocabulary);
  std::vector<std::vector<float>> logits;
  for (int32_t at = 0; at < kTokens; at += kBatch) {
    std::vector<exec::PassRow> rows;
    for (int32_t i = at; i < std::min(at + kBatch, kTokens); ++i) {
      rows.push_back(
          {.slot = 0, .index = i, .token = tokens[static_cast<size_t>(i)], .logits = true});
    }
    seat->Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row = seat->Logits(static_cast<int32_t>(i));
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

// Answers with drafts are those without.
void LeavesLogitsAlone(const Subject& subject) {
  SkipWithoutHead(DraftingSeat(subject));
  const auto without = LogitsOf(subject, false);
  const auto with = LogitsOf(subject, true);
  for (size_t i = 0; i < with.size(); ++i) {
    Expect(with[i] == without[i],
           "logits of row " + std::to_string(i) + " are others where the head is loaded");
  }
}

}  // namespace

std::vector<Check> DraftChecks() {
  return {{"draft.builds_for_every_row_count", true, BuildsForEveryRowCount},
          {"draft.uses_every_plane", true, UsesEveryPlane},
          {"draft.leaves_logits_alone", true, LeavesLogitsAlone}};
}

}  // namespace bloomery::apps::check
