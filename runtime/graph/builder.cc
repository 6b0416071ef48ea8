#include "runtime/graph/builder.h"

#include <algorithm>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/graph/abi.h"

namespace bloomery::graph {
namespace {

[[noreturn]] void Refuse(const std::string& text) { throw Error(ErrorKind::kBadModel, text); }

std::string Counts(size_t least, size_t most) {
  return least == most ? std::to_string(least)
                       : std::to_string(least) + " to " + std::to_string(most);
}

GraphBuilder& Self(void* self) { return *static_cast<GraphBuilder*>(self); }

}  // namespace

GraphBuilder::GraphBuilder(const OperatorSet& operators, const SeatInfo& seat, BuildSizes sizes)
    : operators_(operators), seat_(seat), sizes_(sizes) {
  abi_ = MakeAbi<bl_builder>();
  abi_.self = this;
  abi_.layer = [](void* self, int32_t l) { return Self(self).Guard([&] { Self(self).Layer(l); }); };
  abi_.input = [](void* self, bl_row_field field, bl_value* out) {
    return Self(self).Guard([&] { Self(self).Input(field, out); });
  };
  abi_.weight = [](void* self, uint32_t index, bl_shape* out) {
    bl_status status = BL_OK;
    const bl_status guarded = Self(self).Guard([&] { status = Self(self).Weight(index, out); });
    return guarded == BL_OK ? status : guarded;
  };
  abi_.node = [](void* self, const bl_node* node, bl_value* outs, uint32_t n_outs) {
    return Self(self).Guard([&] {
      if (node == nullptr) Refuse("node: the description is null");
      Self(self).AddNode(*node, outs, n_outs);
    });
  };
  abi_.shape = [](void* self, bl_value value, bl_shape* out) {
    return Self(self).Guard([&] {
      if (out == nullptr) Refuse("shape: the result pointer is null");
      *out = ToAbi(Self(self).ShapeOf(value));
    });
  };
  abi_.domain = [](void* self, bl_domain_kind kind, bl_domain* out) {
    bl_status status = BL_OK;
    const bl_status guarded = Self(self).Guard([&] { status = Self(self).Domain(kind, out); });
    return guarded == BL_OK ? status : guarded;
  };
  abi_.export_value = [](void* self, const char* name, bl_value value) {
    return Self(self).Guard([&] { Self(self).ExportValue(name, value); });
  };
  abi_.tap = [](void* self, uint32_t plane, bl_value) {
    return Self(self).Guard([&] {
      throw Error(ErrorKind::kUnsupported,
                  "tap into plane " + std::to_string(plane) +
                      ": taps for draft entries are not offered by this host");
    });
  };
  abi_.fail = [](void* self, bl_status status, const char* text) {
    Self(self).Guard([&] {
      throw Error(status == BL_UNSUPPORTED ? ErrorKind::kUnsupported : ErrorKind::kBadModel,
                  text == nullptr || *text == '\0' ? "the plugin gave up without a reason" : text);
    });
  };
}

bl_status GraphBuilder::Guard(const std::function<void()>& body) noexcept {
  if (failure_) return StatusOf(failure_->kind());
  try {
    body();
    return BL_OK;
  } catch (const Error& error) {
    failure_.emplace(error);
  } catch (const std::exception& error) {
    failure_.emplace(ErrorKind::kInternal, std::string("building a graph: ") + error.what());
  }
  return StatusOf(failure_->kind());
}

Graph GraphBuilder::Take() {
  if (failure_) throw Error(*failure_);
  return std::exchange(graph_, {});
}

std::string GraphBuilder::Where(const bl_node& node) const {
  std::string where = "operator " + std::string(node.op) + "/" + std::to_string(node.version);
  if (layer_ >= 0) where += ", layer " + std::to_string(layer_);
  return where + ": ";
}

void GraphBuilder::Layer(int32_t layer) {
  if (layer < -1 || layer >= seat_.layers) {
    Refuse("layer " + std::to_string(layer) + " is outside the seat's " +
           std::to_string(seat_.layers) + " layers");
  }
  if (layer >= 0 && layer < layer_highest_) {
    Refuse("layer " + std::to_string(layer) + " follows layer " + std::to_string(layer_highest_) +
           "; layers must ascend");
  }
  layer_ = layer;
  layer_highest_ = std::max(layer_highest_, layer);
}

void GraphBuilder::Input(bl_row_field field, bl_value* out) {
  if (out == nullptr) Refuse("input: the result pointer is null");
  if (field < BL_FIELD_TOKEN || field > BL_FIELD_EMBED_ROW) {
    Refuse("input: unknown row field " + std::to_string(field));
  }
  if (field == BL_FIELD_EMBED_ROW) {
    throw Error(ErrorKind::kUnsupported,
                "input: row field EMBED_ROW is for image rows, which this host does not offer");
  }
  const int64_t width = field == BL_FIELD_POS ? 4 : 1;
  graph_.values.push_back({.shape = {.dtype = BL_I32,
                                     .domain = BL_DOMAIN_PASS_ROWS,
                                     .ndim = 2,
                                     .ne = {width, sizes_.rows, 0, 0}},
                           .field = field});
  *out = static_cast<bl_value>(graph_.values.size());
}

bl_status GraphBuilder::Weight(uint32_t index, bl_shape* out) {
  if (index >= seat_.weights.size()) {
    Refuse("weight " + std::to_string(index) + " is outside the seat's " +
           std::to_string(seat_.weights.size()) + " weights");
  }
  if (!seat_.weights[index].present) return BL_UNSUPPORTED;
  if (out != nullptr) *out = ToAbi(seat_.weights[index].shape);
  return BL_OK;
}

const Shape& GraphBuilder::ShapeOf(bl_value value) const {
  if (value < 1 || static_cast<size_t>(value) > graph_.values.size()) {
    Refuse("value " + std::to_string(value) + " does not exist in this graph");
  }
  return graph_.value(value).shape;
}

bl_status GraphBuilder::Domain(bl_domain_kind kind, bl_domain* out) const {
  const int32_t capacity = kind == BL_DOMAIN_PASS_ROWS    ? sizes_.rows
                           : kind == BL_DOMAIN_LOGIT_ROWS ? sizes_.logit_rows
                                                          : 0;
  if (capacity == 0) return BL_UNSUPPORTED;
  if (out != nullptr) {
    *out = MakeAbi<bl_domain>();
    out->kind = kind;
    out->capacity = capacity;
    out->parent = kind == BL_DOMAIN_LOGIT_ROWS ? BL_DOMAIN_PASS_ROWS : -1;
  }
  return BL_OK;
}

void GraphBuilder::ExportValue(const char* name, bl_value value) {
  if (name == nullptr || *name == '\0') Refuse("an exported value has no name");
  ShapeOf(value);
  if (graph_.FindExport(name) != 0) {
    Refuse("two values are exported as '" + std::string(name) + "'");
  }
  graph_.exports.push_back({name, value});
}

void GraphBuilder::CheckInputs(const OperatorSchema& op, const bl_node& node,
                               std::vector<Shape>* shapes) const {
  if (node.n_inputs > op.inputs.size() || (node.n_inputs > 0 && node.inputs == nullptr)) {
    Refuse("takes " + std::to_string(op.inputs.size()) + " inputs, was given " +
           std::to_string(node.n_inputs));
  }
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bl_value value = i < node.n_inputs ? node.inputs[i] : 0;
    if (value == 0) {
      if (!op.inputs[i].optional) {
        Refuse("input '" + std::string(op.inputs[i].name) + "' is missing");
      }
      shapes->push_back({});
      continue;
    }
    shapes->push_back(ShapeOf(value));
  }
}

void GraphBuilder::CheckWeights(const OperatorSchema& op, const bl_node& node) const {
  if (node.n_weights < op.weights_min || node.n_weights > op.weights_max ||
      (node.n_weights > 0 && node.weights == nullptr)) {
    Refuse("takes " + Counts(op.weights_min, op.weights_max) + " weights, was given " +
           std::to_string(node.n_weights));
  }
  for (uint32_t i = 0; i < node.n_weights; ++i) {
    const uint32_t index = node.weights[i];
    if (index >= seat_.weights.size()) {
      Refuse("weight " + std::to_string(index) + " is outside the seat's " +
             std::to_string(seat_.weights.size()) + " weights");
    }
    if (!seat_.weights[index].present) {
      Refuse("weight '" + seat_.weights[index].name + "' is optional and not in the file");
    }
  }
}

void GraphBuilder::CheckPlanes(const OperatorSchema& op, const bl_node& node) const {
  if (node.n_planes != op.planes.size() || (node.n_planes > 0 && node.planes == nullptr)) {
    Refuse("takes " + std::to_string(op.planes.size()) + " planes, was given " +
           std::to_string(node.n_planes));
  }
  for (uint32_t i = 0; i < node.n_planes; ++i) {
    if (node.planes[i] >= seat_.planes.size()) {
      Refuse("plane " + std::to_string(node.planes[i]) + " is outside the seat's " +
             std::to_string(seat_.planes.size()) + " planes");
    }
    const PlaneInfo& plane = seat_.planes[node.planes[i]];
    const PlanePortSpec& port = op.planes[i];
    const bool fits =
        port.any_rule || plane.rule == port.rule || (port.or_ring && plane.rule == BL_PLANE_RING);
    if (!fits) {
      Refuse("plane port '" + std::string(op.planes[i].name) + "' does not take plane '" +
             plane.name + "', whose rule is another");
    }
  }
}

void GraphBuilder::CheckAttrs(const OperatorSchema& op, const Attrs& attrs) const {
  for (const Attr& attr : attrs.all()) {
    const auto spec = std::find_if(op.attrs.begin(), op.attrs.end(),
                                   [&](const AttrSpec& known) { return known.key == attr.key; });
    if (spec == op.attrs.end()) Refuse("has no attribute '" + attr.key + "'");
    if (!op.any_attr_type && spec->type != attr.type) {
      Refuse("attribute '" + attr.key + "' is " + std::string(AttrTypeName(attr.type)) +
             ", must be " + std::string(AttrTypeName(spec->type)));
    }
    if (attr.count() == 0 || attr.count() > spec->values_max) {
      Refuse("attribute '" + attr.key + "' has " + std::to_string(attr.count()) +
             " values, must have " + Counts(1, spec->values_max));
    }
  }
  for (const AttrSpec& spec : op.attrs) {
    if (spec.required && attrs.Find(spec.key) == nullptr) {
      Refuse("attribute '" + std::string(spec.key) + "' must be given");
    }
  }
}

void GraphBuilder::AddExpanded(const OperatorSchema& op, const bl_node& node, bl_value* outs,
                               uint32_t n_outs) {
  if (++expansions_ > limits::kExpansionDepthMax) Refuse("its expansion expands into itself");
  const bl_status status = op.plugin_op->expand(&abi_, &node, outs, n_outs);
  --expansions_;
  if (failure_) {
    const Error reason = *failure_;
    failure_.reset();  // Guard keeps it again, with this operator's name before it
    throw Error(reason);
  }
  if (status != BL_OK) Refuse("its expansion failed with status " + std::to_string(status));
  for (uint32_t i = 0; i < n_outs; ++i) ShapeOf(outs[i]);
}

void GraphBuilder::AddNode(const bl_node& node, bl_value* outs, uint32_t n_outs) {
  if (node.op == nullptr) Refuse("a node names no operator");
  try {
    uint32_t other = 0;
    const OperatorSchema* op = operators_.Find(node.op, node.version, &other);
    if (op == nullptr) {
      Refuse(other != 0 ? "this host has version " + std::to_string(other) + " of it only"
                        : "this host does not know it");
    }
    if (n_outs < op->outputs_min || n_outs > op->outputs_max || (n_outs > 0 && outs == nullptr)) {
      Refuse("has " + Counts(op->outputs_min, op->outputs_max) + " outputs, " +
             std::to_string(n_outs) + " were asked");
    }
    if (node.n_attrs > 0 && node.attrs == nullptr) Refuse("its attribute list is null");
    std::vector<Shape> inputs;
    CheckInputs(*op, node, &inputs);
    CheckWeights(*op, node);
    CheckPlanes(*op, node);
    Node added{.op = op, .layer = layer_, .attrs = Attrs({node.attrs, node.n_attrs})};
    CheckAttrs(*op, added.attrs);
    added.weights.assign(node.weights, node.weights + node.n_weights);
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      added.inputs.push_back(i < node.n_inputs ? node.inputs[i] : 0);
    }
    for (uint32_t i = 0; i < node.n_planes; ++i) {
      added.planes.push_back({node.planes[i], op->planes[i].access});
    }
    if (op->expand) {
      AddExpanded(*op, node, outs, n_outs);
      return;
    }
    std::vector<Shape> outputs(n_outs);
    op->infer(*op, {.inputs = inputs,
                    .weights = added.weights,
                    .planes = {node.planes, node.n_planes},
                    .attrs = added.attrs,
                    .seat = seat_,
                    .logit_rows = sizes_.logit_rows,
                    .outputs = outputs});
    for (uint32_t i = 0; i < n_outs; ++i) {
      graph_.values.push_back(
          {.shape = outputs[i], .producer = static_cast<NodeId>(graph_.nodes.size())});
      outs[i] = static_cast<bl_value>(graph_.values.size());
      added.outputs.push_back(outs[i]);
    }
    graph_.nodes.push_back(std::move(added));
  } catch (const Error& error) {
    throw Error(error.kind(), Where(node) + error.what());
  }
}

}  // namespace bloomery::graph
