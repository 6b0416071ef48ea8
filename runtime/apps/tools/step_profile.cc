#include "runtime/apps/tools/step_profile.h"

#include <algorithm>
#include <cstdio>

namespace bloomery::apps {
namespace {

std::string Cells(const char* format, double a, double b) {
  char text[64];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

}  // namespace

void StepProfile::StepDone(const exec::StepTime& step) {
  if (step.first || step.layer != layer_) layer_ops_.clear();
  layer_ = step.layer;
  const auto place =
      static_cast<int32_t>(std::count(layer_ops_.begin(), layer_ops_.end(), step.op)) + 1;
  layer_ops_.emplace_back(step.op);
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& other) {
    return other.op == step.op && other.place == place;
  });
  if (row == rows_.end()) {
    row = rows_.insert(rows_.end(), Row{.op = std::string(step.op), .place = place});
  }
  ++row->calls;
  row->tasks += step.tasks;
  row->seconds += step.seconds;
  row->wait_seconds += step.wait_seconds;
}

std::string StepProfile::Table() const {
  std::vector<Row> rows = rows_;
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  double all = 0;
  for (const Row& row : rows) all += row.seconds;
  std::string text =
      "\n| step | calls | tasks | µs a call | share | of it waiting |\n|---|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    const auto calls = static_cast<double>(row.calls);
    text += "| " + row.op + " " + std::to_string(row.place) + " | " + std::to_string(row.calls);
    text +=
        Cells(" | %.1f | %.1f", static_cast<double>(row.tasks) / calls, 1e6 * row.seconds / calls);
    text += Cells(" | %.1f %% | %.0f %% |\n", all > 0 ? 100 * row.seconds / all : 0,
                  row.seconds > 0 ? 100 * row.wait_seconds / row.seconds : 0);
  }
  return text + "\n";
}

void StepProfile::Clear() {
  rows_.clear();
  layer_ops_.clear();
  layer_ = -1;
}

}  // namespace bloomery::apps
