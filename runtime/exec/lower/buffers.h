// The buffers of a program while it is lowered: one for each value that needs memory, found by the
// value, alive from the first step that touches it to the last. Buffers never alive together share
// bytes of the arena once planned. Places only; no memory.
#pragma once

#include <bloomery/graph.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/memory/arena.h"

namespace bloomery::exec {

using BufferId = int32_t;

// Where a buffer's bytes come from.
enum class BufferHome { kArena, kRowField, kLogits };

struct Buffer {
  BufferHome home = BufferHome::kArena;
  bl_row_field field = BL_FIELD_TOKEN;  // kRowField
  memory::BufferLife life;              // kArena
  uint64_t offset = 0;                  // kArena, once planned
};

// The value that `value` is a reshape of, or itself: both are the same bytes.
graph::ValueId SourceOf(const graph::Graph& graph, graph::ValueId value);

class ProgramBuffers {
 public:
  // The value exported as "logits" gets its home, also where a reshape of it is exported.
  explicit ProgramBuffers(const graph::Graph& graph);

  BufferId New(uint64_t bytes);
  // Of a value that exists: a node made it, it is a row field, or it was brought in.
  BufferId Of(const graph::Graph& graph, graph::ValueId value);
  // Of a value that another stage makes: there before the first step.
  BufferId BringIn(const graph::Graph& graph, graph::ValueId value);
  // Of a value that the present node makes.
  BufferId Make(const graph::Graph& graph, graph::ValueId value);
  // `value` lies where `of` lies.
  void Alias(graph::ValueId value, BufferId of) { of_value_[static_cast<size_t>(value)] = of; }

  // Step `step` touches them.
  void Use(std::span<const BufferId> buffers, int32_t step);
  // It is read after the pass.
  void KeepToTheEnd(BufferId buffer);

  // Gives every buffer of the arena its place; the bytes of all. Then Take.
  uint64_t Plan();
  std::vector<Buffer> Take() { return std::move(buffers_); }

 private:
  std::vector<Buffer> buffers_;
  std::vector<BufferId> of_value_;  // by value; -1: none yet
  graph::ValueId logits_ = 0;
};

}  // namespace bloomery::exec
