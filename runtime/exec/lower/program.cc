#include "runtime/exec/lower/program.h"

#include "runtime/base/error.h"

namespace bloomery::exec {

std::span<uint16_t> Binder::PickRecord(size_t bank, bl_domain_kind domain) const {
  if (memory_.ledger == nullptr) return {};
  if (domain != BL_DOMAIN_PASS_ROWS) {
    throw Error(ErrorKind::kUnsupported,
                "bank " + std::to_string(bank) +
                    ": not all rows of a pass go through it, and what they pick cannot be traced");
  }
  return memory_.ledger->Of(bank);
}

std::byte* Binder::Bytes(BufferId buffer) const {
  const Buffer& home = buffers_[static_cast<size_t>(buffer)];
  switch (home.home) {
    case BufferHome::kRowField:
      // Row fields are inputs: no step writes them.
      return const_cast<std::byte*>(
          reinterpret_cast<const std::byte*>(memory_.inputs->field(home.field)));
    case BufferHome::kLogits:
      return reinterpret_cast<std::byte*>(memory_.logits);
    default:
      return memory_.arena + home.offset;
  }
}

const std::byte* Binder::WeightBytes(uint32_t weight) const {
  const plugin::Weight& described = memory_.description->weights[weight];
  return memory_.weights->Find(described.tensor) + described.offset;
}

kernels::WeightRows Binder::WeightRows(uint32_t weight) const {
  const plugin::Weight& described = memory_.description->weights[weight];
  kernels::WeightRows rows;
  rows.format = kernels::FindFormat(static_cast<int>(described.type));
  rows.data = WeightBytes(weight);
  rows.k = described.ne[0];
  rows.row_bytes = kernels::RowBytes(*rows.format, rows.k);
  return rows;
}

std::vector<size_t> StepsAhead(std::span<const PendingStep> steps, size_t at) {
  std::vector<size_t> ahead;
  for (size_t i = at + 1; i < steps.size() && ahead.size() < kAheadSteps; ++i) {
    if (steps[i].foreseen_after < static_cast<int32_t>(at)) ahead.push_back(i);
  }
  return ahead;
}

Program::Program(LoweredGraph lowered, const SeatMemory& memory) : lowered_(std::move(lowered)) {
  const Binder binder(memory, lowered_.buffers);
  for (const PendingStep& pending : lowered_.steps) {
    const graph::Node& node = lowered_.graph.nodes[static_cast<size_t>(pending.node)];
    steps_.push_back({pending.make(binder), node.op->name, node.layer});
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<size_t> ahead = StepsAhead(lowered_.steps, i);
    for (size_t j = 0; j < ahead.size(); ++j) steps_[i].ahead[j] = steps_[ahead[j]].step.get();
  }
  lowered_.steps.clear();
  for (const ExportedBuffer& exported : lowered_.exports) {
    exports_.push_back({exported.name, exported.shape, binder.Bytes(exported.buffer)});
  }
}

const ExportedValue* Program::Find(std::string_view name) const {
  for (const ExportedValue& value : exports_) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

}  // namespace bloomery::exec
