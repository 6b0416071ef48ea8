// A program: a seat's graph compiled for one row count. Steps in order with their pointers
// resolved, and where the exported values lie. Made in two phases: Lower (lower.h) decides steps,
// encodings and the places of buffers without touching memory, so that everything can be planned
// first; Bind then puts addresses in. Immutable after that; run by one pass at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/cpu/ahead.h"
#include "runtime/exec/lower/buffers.h"
#include "runtime/exec/pass_inputs.h"
#include "runtime/exec/pick_ledger.h"
#include "runtime/exec/residency.h"
#include "runtime/graph/graph.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/planes.h"
#include "runtime/memory/weights.h"
#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// The addresses of a loaded seat. All outlive the programs bound to them.
struct SeatMemory {
  const ops::Backend* backend = nullptr;
  int32_t threads = 1;
  std::byte* arena = nullptr;
  float* logits = nullptr;
  const PassInputs* inputs = nullptr;
  const memory::PlaneStore* planes = nullptr;
  const memory::WeightStore* weights = nullptr;
  const plugin::Description* description = nullptr;
  PickCounts* picks = nullptr;   // null: not counted
  PickLedger* ledger = nullptr;  // null: nobody asks
};

// What a step's maker asks for its pointers.
class Binder {
 public:
  Binder(const SeatMemory& memory, const std::vector<Buffer>& buffers)
      : memory_(memory), buffers_(buffers) {}

  const ops::Backend& backend() const { return *memory_.backend; }
  int32_t threads() const { return memory_.threads; }
  int32_t slots() const { return memory_.planes->slots(); }
  const PassInputs& inputs() const { return *memory_.inputs; }
  ops::RowCount Rows(bl_domain_kind domain) const { return {memory_.inputs->live(domain)}; }
  const bl_plane_view& Plane(uint32_t plane) const { return memory_.planes->View(plane); }

  std::span<std::atomic<uint64_t>> PickCounters(size_t bank) const {
    if (memory_.picks == nullptr) return {};
    return memory_.picks->Of(bank);
  }

  // Where the rows of a pass leave what they picked of a bank; empty: nobody asks. Throws
  // Error(kUnsupported) for a bank that not all rows of a pass go through.
  std::span<uint16_t> PickRecord(size_t bank, bl_domain_kind domain) const;

  std::byte* Bytes(BufferId buffer) const;
  float* Floats(BufferId buffer) const { return reinterpret_cast<float*>(Bytes(buffer)); }
  int32_t* Ints(BufferId buffer) const { return reinterpret_cast<int32_t*>(Bytes(buffer)); }

  const std::byte* WeightBytes(uint32_t weight) const;
  // A matrix, or expert 0 of a bank's part.
  kernels::WeightRows WeightRows(uint32_t weight) const;
  const float* WeightFloats(uint32_t weight) const {
    return reinterpret_cast<const float*>(WeightBytes(weight));
  }

 private:
  const SeatMemory& memory_;
  const std::vector<Buffer>& buffers_;
};

using StepMaker = std::function<std::unique_ptr<ops::Step>(const Binder&)>;

struct PendingStep {
  graph::NodeId node = 0;
  StepMaker make;
  // The step after which the weights that this one will read can be foreseen; kForeseenAlways:
  // before any, kForeseenNever: not at all.
  int32_t foreseen_after = kForeseenNever;

  static constexpr int32_t kForeseenAlways = -1;
  static constexpr int32_t kForeseenNever = INT32_MAX;
};

// The next steps, at most kAheadSteps, whose weights can be foreseen while step `at` runs.
std::vector<size_t> StepsAhead(std::span<const PendingStep> steps, size_t at);

struct ExportedBuffer {
  std::string name;
  BufferId buffer = 0;
  graph::Shape shape;
};

// A graph after the first phase.
struct LoweredGraph {
  graph::Graph graph;
  int32_t rows = 0;  // the row bucket
  std::vector<PendingStep> steps;
  std::vector<Buffer> buffers;
  std::vector<ExportedBuffer> exports;
  std::set<std::string> inexact;  // operators whose kernels here are not exact: "op/1 (band)"
  uint64_t arena_bytes = 0;
  uint64_t scratch_bytes = 0;  // of one worker
};

struct ProgramStep {
  std::unique_ptr<ops::Step> step;
  std::string_view op;
  int32_t layer = -1;
  // The next steps whose weights can be foreseen while this one runs, null where there is none.
  Ahead ahead{};
};

struct ExportedValue {
  std::string name;
  graph::Shape shape;
  const std::byte* data = nullptr;
};

class Program {
 public:
  // `lowered` gives its graph away: step names point into it.
  Program(LoweredGraph lowered, const SeatMemory& memory);

  int32_t rows() const { return lowered_.rows; }
  const std::vector<ProgramStep>& steps() const { return steps_; }
  // Null where the name was not exported or not asked for.
  const ExportedValue* Find(std::string_view name) const;

 private:
  LoweredGraph lowered_;
  std::vector<ProgramStep> steps_;
  std::vector<ExportedValue> exports_;
};

}  // namespace bloomery::exec
