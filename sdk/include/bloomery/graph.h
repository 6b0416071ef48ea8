/* Building a graph: one generic call, names and attributes.
 *
 * The host calls bl_entry.build once for each program it compiles; the plugin adds nodes to the
 * builder and exports values. Operators are named by string and version; the standard set is
 * described in <bloomery/operators.h>. Row descriptors are implicit inputs of every operator that
 * touches a plane. [load] thread only; handles are meaningless after build returns.
 *
 * A call that fails has recorded the reason with the builder, and every later call on it fails too,
 * so a build function may check only its last status.
 */
#ifndef BLOOMERY_GRAPH_H_
#define BLOOMERY_GRAPH_H_

#include <bloomery/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t bl_value; /* a value of the graph being built; 0 is none */

typedef int32_t bl_attr_type;
enum { BL_ATTR_I64 = 0, BL_ATTR_F64 = 1, BL_ATTR_STR = 2, BL_ATTR_BOOL = 3 };

/* One attribute: `value` points to `count` values of `type` (int64_t, double, const char*, or
 * uint8_t 0 or 1). An unknown key is refused; an absent one has the default of that operator
 * version. */
typedef struct bl_attr {
  uint32_t size;
  bl_attr_type type;
  const char* key;
  uint64_t count;
  const void* value;
} bl_attr;

typedef struct bl_node {
  uint32_t size;
  uint32_t version;
  const char* op;
  const bl_value* inputs; /* 0 where an optional input is absent */
  uint32_t n_inputs;
  uint32_t n_weights;
  const uint32_t* weights; /* indices into bl_seat.weights */
  const uint32_t* planes;  /* indices into bl_seat.planes */
  uint32_t n_planes;
  uint32_t n_attrs;
  const bl_attr* attrs;
} bl_node;

/* Fields of a row that a graph may read as i32 values [1, rows]. */
typedef int32_t bl_row_field;
enum {
  BL_FIELD_TOKEN = 0,
  BL_FIELD_POS = 1, /* [4, rows] */
  BL_FIELD_INDEX = 2,
  BL_FIELD_SLOT = 3,
  BL_FIELD_CLASS = 4,
  BL_FIELD_EMBED_ROW = 5
};

/* The shape of a value or weight as inference sees it: bl_tensor without data. */
typedef struct bl_shape {
  uint32_t size;
  bl_dtype dtype;
  int32_t domain;
  uint32_t ndim;
  int64_t ne[4];
} bl_shape;

typedef struct bl_builder {
  uint32_t size;
  uint32_t reserved;
  void* self;
  /* Labels what follows as layer l, in ascending order; -1 is "outside the layers". */
  bl_status (*layer)(void* self, int32_t l);
  bl_status (*input)(void* self, bl_row_field field, bl_value* out);
  /* The shape of seat weight `index`; BL_UNSUPPORTED where it was optional and the file lacks it.
   */
  bl_status (*weight)(void* self, uint32_t index, bl_shape* out);
  /* Appends a node; writes its n_outs values. Refused when the operator is unknown, a port does not
   * fit, or the number of outputs differs. */
  bl_status (*node)(void* self, const bl_node* node, bl_value* outs, uint32_t n_outs);
  bl_status (*shape)(void* self, bl_value value, bl_shape* out);
  /* Capacity of a domain in this program; BL_UNSUPPORTED where the entry has no such domain. */
  bl_status (*domain)(void* self, bl_domain_kind kind, bl_domain* out);
  /* Names an output of the entry. "logits" and "hidden" are what bl_entry.needs promises; any other
   * name (such as "layer.3.in") is an observation, computed only when the host asks to see it. */
  bl_status (*export_value)(void* self, const char* name, bl_value value);
  /* Writes `value` into a ring plane that draft entries read. */
  bl_status (*tap)(void* self, uint32_t plane, bl_value value);
  /* Records why a build or an expansion gives up by itself; the first reason is kept. May be null.
   */
  void (*fail)(void* self, bl_status status, const char* text);
} bl_builder;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_GRAPH_H_ */
