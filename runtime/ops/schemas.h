// Inside ops: each topic gives the schemas of its operators, and inference shares these helpers.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/operator.h"

namespace bloomery::ops {

void AddElementwiseOperators(
    std::vector<graph::OperatorSchema>* out);  // embed, rms_norm, reshape, add, mul, scale
void AddLinearOperators(std::vector<graph::OperatorSchema>* out);     // linear, head
void AddRopeOperators(std::vector<graph::OperatorSchema>* out);       // rope
void AddAttentionOperators(std::vector<graph::OperatorSchema>* out);  // append, attention
void AddMoeOperators(std::vector<graph::OperatorSchema>* out);        // router, routed_experts
void AddRowOperators(std::vector<graph::OperatorSchema>* out);        // select_rows
// slice, gate, l2_norm, short_conv, delta_rule
void AddRecurrentOperators(std::vector<graph::OperatorSchema>* out);
void AddTapOperators(std::vector<graph::OperatorSchema>* out);  // concat, previous, recall, keep

[[noreturn]] inline void RefuseGraph(const std::string& text) {
  throw Error(ErrorKind::kBadModel, text);
}

// Input `i` must be a value of `dtype` with a row axis and between `least` and `most` axes.
inline const graph::Shape& RowsInput(const graph::OperatorSchema& op, const graph::InferCall& call,
                                     size_t i, bl_dtype dtype, uint32_t least, uint32_t most) {
  const graph::Shape& shape = call.inputs[i];
  if (shape.dtype != dtype || shape.domain == BL_DOMAIN_NONE || shape.ndim < least ||
      shape.ndim > most) {
    RefuseGraph("input '" + std::string(op.inputs[i].name) + "' is " + ToString(shape) +
                ", must be " + (dtype == BL_I32 ? "I32" : "F32") + " with " +
                std::to_string(least) + (least == most ? "" : " to " + std::to_string(most)) +
                " axes, the last one rows");
  }
  return shape;
}

// "weight 'blk.0.attn_q.weight' F32 [256, 512]".
inline std::string DescribeWeight(const graph::InferCall& call, size_t i) {
  return "weight '" + call.seat.weights[call.weights[i]].name + "' " + ToString(call.weight(i));
}

// Weight `i` must have `ndim` axes and ne[0] == `k`.
inline const graph::Shape& WeightOver(const graph::InferCall& call, size_t i, uint32_t ndim,
                                      int64_t k, const std::string& of) {
  const graph::Shape& shape = call.weight(i);
  if (shape.ndim != ndim || shape.ne[0] != k) {
    RefuseGraph(DescribeWeight(call, i) + " does not fit " + of + ": needs " +
                std::to_string(ndim) + " axes and ne[0] = " + std::to_string(k));
  }
  return shape;
}

inline graph::Shape RowsShape(bl_dtype dtype, int64_t width, const graph::Shape& like) {
  return {.dtype = dtype, .domain = like.domain, .ndim = 2, .ne = {width, like.rows(), 0, 0}};
}

}  // namespace bloomery::ops
