#include "runtime/exec/lower/buffers.h"

#include <bloomery/operators.h>

#include <algorithm>
#include <climits>

namespace bloomery::exec {

graph::ValueId SourceOf(const graph::Graph& graph, graph::ValueId value) {
  for (;;) {
    const graph::NodeId producer = graph.value(value).producer;
    if (producer < 0) return value;
    const graph::Node& node = graph.nodes[static_cast<size_t>(producer)];
    if (node.op->plugin_op != nullptr || node.op->name != BL_OP_RESHAPE) return value;
    value = node.inputs[0];
  }
}

ProgramBuffers::ProgramBuffers(const graph::Graph& graph)
    : of_value_(graph.values.size() + 1, -1), logits_(graph.FindExport("logits")) {
  if (logits_ != 0) logits_ = SourceOf(graph, logits_);
}

BufferId ProgramBuffers::New(uint64_t bytes) {
  Buffer buffer;
  buffer.life = {bytes, INT32_MAX, -1};  // no use yet
  buffers_.push_back(buffer);
  return static_cast<BufferId>(buffers_.size() - 1);
}

BufferId ProgramBuffers::Of(const graph::Graph& graph, graph::ValueId value) {
  BufferId& buffer = of_value_[static_cast<size_t>(value)];
  if (buffer < 0) {  // only row fields are not made by a node before
    buffer = New(0);
    Buffer& home = buffers_[static_cast<size_t>(buffer)];
    home.home = BufferHome::kRowField;
    home.field = graph.value(value).field;
  }
  return buffer;
}

BufferId ProgramBuffers::BringIn(const graph::Graph& graph, graph::ValueId value) {
  const BufferId buffer = Make(graph, value);
  Use({&buffer, 1}, 0);
  return buffer;
}

BufferId ProgramBuffers::Make(const graph::Graph& graph, graph::ValueId value) {
  const graph::Shape& shape = graph.value(value).shape;
  const BufferId buffer =
      New(static_cast<uint64_t>(shape.width()) * static_cast<uint64_t>(shape.rows()) * 4);
  if (value == logits_) buffers_[static_cast<size_t>(buffer)].home = BufferHome::kLogits;
  of_value_[static_cast<size_t>(value)] = buffer;
  return buffer;
}

void ProgramBuffers::Use(std::span<const BufferId> buffers, int32_t step) {
  for (const BufferId buffer : buffers) {
    memory::BufferLife& life = buffers_[static_cast<size_t>(buffer)].life;
    life.first = std::min(life.first, step);
    life.last = std::max(life.last, step);
  }
}

void ProgramBuffers::KeepToTheEnd(BufferId buffer) {
  buffers_[static_cast<size_t>(buffer)].life.last = INT32_MAX;
}

uint64_t ProgramBuffers::Plan() {
  std::vector<memory::BufferLife> lives;
  std::vector<size_t> which;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].home != BufferHome::kArena) continue;
    lives.push_back(buffers_[i].life);
    which.push_back(i);
  }
  const memory::ArenaPlan plan = memory::PlanArena(lives);
  for (size_t i = 0; i < which.size(); ++i) buffers_[which[i]].offset = plan.offsets[i];
  return plan.bytes;
}

}  // namespace bloomery::exec
