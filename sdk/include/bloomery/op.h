/* Operators and kernels that a plugin brings.
 *
 * A plugin may register operators named "<plugin>.<something>"; standard operators and their
 * kernels are the host's. An operator is a schema plus a definition: either kernels, or an
 * expansion into other operators. An operator that has an expansion is a fused one: where no kernel
 * fits, the host expands it.
 */
#ifndef BLOOMERY_OP_H_
#define BLOOMERY_OP_H_

#include <bloomery/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t bl_device_kind;
enum { BL_DEVICE_CPU = 0, BL_DEVICE_CUDA = 1 };

typedef struct bl_device {
  uint32_t size;
  bl_device_kind kind;
  int32_t ordinal;
  int32_t cc; /* compute capability, 90 = 9.0; 0 on a CPU */
  int32_t sm_count;
  uint32_t reserved;
} bl_device;

/* What a kernel promises about bits: EXACT keeps place, rows and prompt; ROW_STABLE keeps rows;
 * BAND keeps neither and is listed in /props. */
typedef int32_t bl_numeric_class;
enum { BL_EXACT = 0, BL_ROW_STABLE = 1, BL_BAND = 2 };

typedef int32_t bl_access;
enum { BL_READ = 1, BL_WRITE = 2, BL_READ_WRITE = 3 };

/* What a kernel is called with. Rows of the last axis past *rows->live are padding: a kernel leaves
 * them alone, in values and in planes. */
typedef struct bl_args {
  uint32_t size;
  uint32_t n_in;
  const bl_tensor* in; /* data is null where an optional input is absent */
  const bl_tensor* weights;
  const bl_plane_view* planes;
  bl_tensor* out;
  uint32_t n_weights;
  uint32_t n_planes;
  uint32_t n_out;
  uint32_t n_attrs;
  const bl_attr* attrs;
  const bl_rows* rows;
  void* workspace;         /* what `workspace` asked for, 64-byte aligned */
  const bl_device* device; /* the context is already current */
} bl_args;

typedef struct bl_workspace {
  uint32_t size;
  uint32_t zeroed; /* 1: the host clears it before each launch */
  uint64_t bytes;
} bl_workspace;

typedef struct bl_kernel {
  uint32_t size;
  uint32_t op_version;
  const char* op;
  bl_device_kind device;
  int32_t cc_min; /* 0 and 0 on a CPU */
  int32_t cc_max;
  bl_numeric_class numeric_class;
  const bl_encoding* in_enc; /* [n_in] the encoding each input port takes */
  uint32_t n_in;
  uint32_t n_out;
  const bl_encoding* out_enc;
  int32_t priority; /* among kernels that fit, the highest runs */
  uint32_t reserved;
  /* [load] Whether it runs these shapes and types (data pointers null); null means always. */
  int32_t (*supports)(const bl_args* args);
  /* [load] Null means none. */
  bl_status (*workspace)(const bl_args* args, bl_workspace* out);
  /* [load] Once a device, before the first launch: load functions, set attributes, self-test. May
   * be null. */
  bl_status (*prepare)(const bl_device* device, const bl_sink* sink);
  /* [load, pass] CUDA: enqueue on `stream` (a cudaStream_t), no default-stream work, no
   * synchronisation. */
  bl_status (*launch)(const bl_args* args, void* stream);
  /* [pass] CPU: how many independent pieces of work there are now. */
  int32_t (*tasks)(const bl_args* args);
  /* [task] CPU: does piece `task`; no barriers, no locks, no allocation; bits do not depend on
   * which worker runs it or on how many there are. */
  bl_status (*run)(const bl_args* args, int32_t task);
} bl_kernel;

/* Inference: shapes in, shapes out. */
typedef struct bl_infer {
  uint32_t size;
  uint32_t n_in;
  const bl_shape* in;
  const bl_shape* weights;
  uint32_t n_weights;
  uint32_t n_attrs;
  const bl_attr* attrs;
  bl_shape* out;
  uint32_t n_out;
  uint32_t reserved;
  const bl_sink* sink;
} bl_infer;

typedef struct bl_port {
  uint32_t size;
  uint32_t optional;
  const char* name;
} bl_port;

typedef struct bl_plane_port {
  uint32_t size;
  bl_access access;
  const char* name;
} bl_plane_port;

typedef struct bl_op {
  uint32_t size;
  uint32_t version;
  const char* name; /* "<plugin>.<something>" */
  const bl_port* inputs;
  const bl_port* weights;
  const bl_plane_port* planes;
  const bl_port* outputs;
  uint32_t n_inputs;
  uint32_t n_weights;
  uint32_t n_planes;
  uint32_t n_outputs;
  const char* const* attrs; /* keys it knows; any other is refused */
  uint32_t n_attrs;
  uint32_t n_kernels;
  bl_status (*infer)(const bl_infer* call); /* [load] */
  /* [load] Writes the same outputs with other operators; null where there is no expansion. */
  bl_status (*expand)(const bl_builder* builder, const bl_node* node, bl_value* outs,
                      uint32_t n_outs);
  const bl_kernel* kernels;
} bl_op;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_OP_H_ */
