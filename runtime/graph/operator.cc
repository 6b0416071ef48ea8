#include "runtime/graph/operator.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/abi.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::graph {
namespace {

struct Refusal {
  std::string text;
};

void RecordRefusal(void* self, bl_status /*status*/, const char* text) {
  static_cast<Refusal*>(self)->text = text == nullptr ? "" : text;
}

void InferByPlugin(const OperatorSchema& schema, const InferCall& call) {
  std::vector<bl_shape> in;
  in.reserve(call.inputs.size());
  for (const Shape& shape : call.inputs) in.push_back(ToAbi(shape));
  std::vector<bl_shape> weights;
  for (size_t i = 0; i < call.weights.size(); ++i) weights.push_back(ToAbi(call.weight(i)));
  std::vector<bl_shape> out(call.outputs.size(), MakeAbi<bl_shape>());
  const AbiAttrs attrs(call.attrs);
  Refusal refusal;
  auto sink = MakeAbi<bl_sink>();
  sink.self = &refusal;
  sink.fail = RecordRefusal;
  auto infer = MakeAbi<bl_infer>();
  infer.n_in = static_cast<uint32_t>(in.size());
  infer.in = in.data();
  infer.weights = weights.data();
  infer.n_weights = static_cast<uint32_t>(weights.size());
  infer.n_attrs = static_cast<uint32_t>(attrs.view().size());
  infer.attrs = attrs.view().data();
  infer.out = out.data();
  infer.n_out = static_cast<uint32_t>(out.size());
  infer.sink = &sink;
  const bl_status status = schema.plugin_op->infer(&infer);
  if (status != BL_OK) {
    throw Error(ErrorKind::kBadModel, refusal.text.empty()
                                          ? "its inference failed with status " +
                                                std::to_string(status) + " and no reason"
                                          : refusal.text);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Shape shape = FromAbi(out[i]);
    bool fits =
        shape.ndim >= 1 && shape.ndim <= 4 && (shape.dtype == BL_F32 || shape.dtype == BL_I32);
    for (uint32_t axis = 0; fits && axis < shape.ndim; ++axis) {
      fits = shape.ne[axis] > 0 && shape.ne[axis] < (int64_t{1} << 31);
    }
    if (!fits) {
      throw Error(ErrorKind::kBadModel,
                  "its inference gave output " + std::to_string(i) + " no usable shape");
    }
    call.outputs[i] = shape;
  }
}

}  // namespace

int64_t Shape::width() const {
  const uint32_t axes = domain == BL_DOMAIN_NONE || ndim == 0 ? ndim : ndim - 1;
  int64_t product = 1;
  for (uint32_t axis = 0; axis < axes; ++axis) product *= ne[axis];
  return product;
}

int64_t Shape::rows() const { return domain == BL_DOMAIN_NONE || ndim == 0 ? 1 : ne[ndim - 1]; }

Shape FromAbi(const bl_shape& shape) {
  Shape out{.dtype = shape.dtype, .domain = shape.domain, .ndim = shape.ndim};
  for (uint32_t axis = 0; axis < 4; ++axis) out.ne[axis] = shape.ne[axis];
  return out;
}

bl_shape ToAbi(const Shape& shape) {
  auto out = MakeAbi<bl_shape>();
  out.dtype = shape.dtype;
  out.domain = shape.domain;
  out.ndim = shape.ndim;
  for (uint32_t axis = 0; axis < 4; ++axis) out.ne[axis] = shape.ne[axis];
  return out;
}

std::string_view DomainName(bl_domain_kind domain) {
  switch (domain) {
    case BL_DOMAIN_PASS_ROWS:
      return "rows";
    case BL_DOMAIN_LOGIT_ROWS:
      return "logit rows";
    case BL_DOMAIN_DRAFT_BLOCK:
      return "draft rows";
    case BL_DOMAIN_PATCHES:
      return "patches";
    default:
      return "";
  }
}

std::string ToString(const Shape& shape) {
  const model::TensorTypeInfo* type =
      shape.dtype < 0 ? nullptr : model::FindTensorType(static_cast<uint32_t>(shape.dtype));
  std::string text =
      type == nullptr ? "type " + std::to_string(shape.dtype) : std::string(type->name);
  text += " [";
  for (uint32_t axis = 0; axis < shape.ndim; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape.ne[axis]);
    if (axis + 1 == shape.ndim && shape.domain != BL_DOMAIN_NONE) {
      text += " " + std::string(DomainName(shape.domain));
    }
  }
  return text + "]";
}

OperatorSchema SchemaOf(const bl_op& op) {
  bl_numeric_class weakest = BL_EXACT;
  for (uint32_t i = 0; i < op.n_kernels; ++i) {
    weakest = std::max(weakest, op.kernels[i].numeric_class);
  }
  OperatorSchema schema{.name = op.name,
                        .version = op.version,
                        .numeric_class = weakest,
                        .weights_min = op.n_weights,
                        .weights_max = op.n_weights,
                        .outputs_min = op.n_outputs,
                        .outputs_max = op.n_outputs,
                        .any_attr_type = true,
                        .infer = InferByPlugin,
                        .plugin_op = &op,
                        .expand = op.n_kernels == 0 && op.expand != nullptr};
  for (uint32_t i = 0; i < op.n_inputs; ++i) {
    schema.inputs.push_back({op.inputs[i].name, op.inputs[i].optional != 0});
  }
  for (uint32_t i = 0; i < op.n_planes; ++i) {
    schema.planes.push_back(
        {.name = op.planes[i].name, .access = op.planes[i].access, .any_rule = true});
  }
  for (uint32_t i = 0; i < op.n_attrs; ++i) {
    schema.attrs.push_back({.key = op.attrs[i], .values_max = kAttrValuesMax});
  }
  return schema;
}

}  // namespace bloomery::graph
