// What a graph knows of an operator: its name, version, ports, attribute keys, and the inference of
// its outputs' shapes. The set of operators is behind an interface, so that a graph can be built
// and checked without any kernel. Tables are constant; any thread.
#pragma once

#include <bloomery/op.h>
#include <bloomery/seat.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/attrs.h"

namespace bloomery::graph {

// Shape of a value or a weight: ne[0] is contiguous; where `domain` is not NONE the last axis is
// the row axis and ne[ndim-1] its capacity in this program.
struct Shape {
  bl_dtype dtype = BL_F32;
  bl_domain_kind domain = BL_DOMAIN_NONE;
  uint32_t ndim = 0;
  std::array<int64_t, 4> ne = {};

  // Product of the axes without the row axis: the values of one row.
  int64_t width() const;
  // Capacity of the row axis; 1 where there is none.
  int64_t rows() const;

  bool operator==(const Shape&) const = default;
};

Shape FromAbi(const bl_shape& shape);
bl_shape ToAbi(const Shape& shape);
// "f32 [128, 4, 32 rows]", "Q4_K [2048, 4096]".
std::string ToString(const Shape& shape);
// "rows", "logit rows" …
std::string_view DomainName(bl_domain_kind domain);

struct WeightInfo {
  std::string name = {};  // in the file
  Shape shape = {};
  bool present = true;  // false: optional, and the file lacks it
};

struct PlaneInfo {
  std::string name = {};
  bl_plane_rule rule = BL_PLANE_APPEND;
  int64_t width = 0;
  int64_t window = 0;  // ring: rows that a row may read, its own included
};

// The routed experts of one layer.
struct BankInfo {
  int64_t experts = 0;
  int64_t used = 0;   // experts a row picks
  int64_t width = 0;  // input and output
  int64_t ff = 0;     // inner width of an expert
};

// What a seat holds, as far as graphs look at it.
struct SeatInfo {
  int32_t layers = 0;
  std::vector<WeightInfo> weights = {};
  std::vector<PlaneInfo> planes = {};
  std::vector<BankInfo> banks = {};
};

// One call of inference. `inputs` hold a shape with ndim 0 where an optional input is absent.
struct InferCall {
  std::span<const Shape> inputs;
  std::span<const uint32_t> weights;  // indices into seat.weights; all are present
  std::span<const uint32_t> planes;   // indices into seat.planes
  const Attrs& attrs;
  const SeatInfo& seat;
  int64_t logit_rows = 0;  // capacity of the logit-rows domain
  std::span<Shape> outputs;

  const Shape& weight(size_t i) const { return seat.weights[weights[i]].shape; }
};

struct AttrSpec {
  std::string_view key = {};
  bl_attr_type type = BL_ATTR_I64;
  bool required = false;
  size_t values_max = 1;
};

struct PortSpec {
  std::string_view name = {};
  bool optional = false;
};

struct PlanePortSpec {
  std::string_view name = {};
  bl_access access = BL_READ;
  bl_plane_rule rule = BL_PLANE_APPEND;
  bool or_ring = false;   // takes a ring, too
  bool any_rule = false;  // a plugin's operator says only how it reaches the plane
};

struct OperatorSchema {
  std::string_view name = {};
  uint32_t version = 1;
  // What the operator promises about bits; no kernel of the host may keep less. Said by each
  // operator itself, so there is no default. Of a plugin's operator: what its weakest kernel keeps.
  bl_numeric_class numeric_class;
  std::vector<PortSpec> inputs = {};
  size_t weights_min = 0;
  size_t weights_max = 0;
  std::vector<PlanePortSpec> planes = {};
  size_t outputs_min = 1;
  size_t outputs_max = 1;
  std::vector<AttrSpec> attrs = {};
  bool any_attr_type = false;  // a plugin's operator names its keys, not their types
  // Fills call.outputs or throws Error(kBadModel) saying which port does not fit and why.
  void (*infer)(const OperatorSchema& schema, const InferCall& call) = nullptr;
  const bl_op* plugin_op = nullptr;  // where a plugin brought it
  // Its nodes become the nodes of plugin_op->expand: no kernel of it runs here.
  bool expand = false;
};

class OperatorSet {
 public:
  virtual ~OperatorSet() = default;
  // The operator, or null. Sets `other_version` to a version that is known where only the version
  // does not match.
  virtual const OperatorSchema* Find(std::string_view name, uint32_t version,
                                     uint32_t* other_version) const = 0;
};

// A schema over a plugin's own operator: ports by its lists, inference by its function.
OperatorSchema SchemaOf(const bl_op& op);

}  // namespace bloomery::graph
