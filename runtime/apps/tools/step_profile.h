// Where the time of passes goes, step by step. Steps of one operator and place in their layer are
// one row of the table, over all layers and passes. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"

namespace bloomery::apps {

class StepProfile final : public exec::StepObserver {
 public:
  void StepDone(const exec::StepTime& step) override;

  // A markdown table by falling time: the operator and which of its steps in a layer it is, calls,
  // tasks and µs a call, the share of all time, and the share of it that the calling thread waited
  // for others.
  std::string Table() const;
  void Clear();

 private:
  struct Row {
    std::string op;
    int32_t place = 0;  // among the operator's steps of a layer
    uint64_t calls = 0;
    int64_t tasks = 0;
    double seconds = 0;
    double wait_seconds = 0;
  };

  std::vector<Row> rows_;
  std::vector<std::string> layer_ops_;  // of the layer that runs, so far
  int32_t layer_ = -1;
};

}  // namespace bloomery::apps
