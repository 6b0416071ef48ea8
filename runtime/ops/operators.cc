#include "runtime/ops/operators.h"

#include "runtime/ops/schemas.h"

namespace bloomery::ops {

std::vector<graph::OperatorSchema> StandardOperators() {
  std::vector<graph::OperatorSchema> all;
  AddElementwiseOperators(&all);
  AddLinearOperators(&all);
  AddRopeOperators(&all);
  AddAttentionOperators(&all);
  AddMoeOperators(&all);
  AddRowOperators(&all);
  AddRecurrentOperators(&all);
  AddTapOperators(&all);
  return all;
}

Operators::Operators() {
  for (graph::OperatorSchema& schema : StandardOperators()) schemas_.push_back(std::move(schema));
}

void Operators::Add(std::string_view plugin, const bl_op& op) {
  const std::string name = op.name == nullptr ? "" : op.name;
  const std::string prefix = std::string(plugin) + ".";
  if (!name.starts_with(prefix) || name.size() == prefix.size()) {
    RefuseGraph("plugin '" + std::string(plugin) + "' registers the operator '" + name +
                "'; its own operators are named '" + prefix + "<something>'");
  }
  uint32_t other = 0;
  if (Find(name, op.version, &other) != nullptr) {
    RefuseGraph("plugin '" + std::string(plugin) + "' registers the operator '" + name + "/" +
                std::to_string(op.version) + "' twice");
  }
  if (op.infer == nullptr) {
    RefuseGraph("the operator '" + name + "' of plugin '" + std::string(plugin) +
                "' has no inference");
  }
  schemas_.push_back(graph::SchemaOf(op));
}

const graph::OperatorSchema* Operators::Find(std::string_view name, uint32_t version,
                                             uint32_t* other_version) const {
  for (const graph::OperatorSchema& schema : schemas_) {
    if (schema.name != name) continue;
    if (schema.version == version) return &schema;
    if (other_version != nullptr) *other_version = schema.version;
  }
  return nullptr;
}

}  // namespace bloomery::ops
