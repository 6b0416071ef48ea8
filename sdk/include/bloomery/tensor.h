/* Values, rows and planes as kernels see them.
 *
 * A *value* is f32 (or i32) in meaning; lowering picks the encoding that its consumers accept. Its
 * last axis names a *domain*: which rows it holds, how many of them live. A *plane* is state that a
 * seat's slots carry between passes. A *row* is one token position of one slot. All pointers here
 * live for one call unless said otherwise.
 */
#ifndef BLOOMERY_TENSOR_H_
#define BLOOMERY_TENSOR_H_

#include <bloomery/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encodings of a value. INT8 forms are the activation codes of the numeric rule (docs/design.md):
 * one f32 scale for each group of 256 or 32 values, and the sum of every 16 codes. The three parts
 * of the first row are at data, aux[0] and aux[1]; those of row r are r · nb[1] bytes further on.
 * This version gives them to the host's own kernels only. */
typedef int32_t bl_encoding;
enum {
  BL_ENC_F32 = 0,
  BL_ENC_BF16 = 1,
  BL_ENC_F16 = 2,
  BL_ENC_INT8_256 = 3, /* data: int8 codes; aux[0]: f32 scales; aux[1]: i16 sums of each 16 codes */
  BL_ENC_INT8_32 = 4,
  BL_ENC_I32 = 5,
  BL_ENC_WEIGHT = 6 /* a weight tensor in its dtype */
};

/* How a weight lies in memory: rows as in the file, or a form the host made for a device. */
typedef int32_t bl_layout;
enum { BL_LAYOUT_ROWS = 0, BL_LAYOUT_PLANAR = 1 };

typedef int32_t bl_domain_kind;
enum {
  BL_DOMAIN_NONE = 0,       /* no row axis: a constant */
  BL_DOMAIN_PASS_ROWS = 1,  /* the rows of the pass */
  BL_DOMAIN_LOGIT_ROWS = 2, /* those of them whose logits are wanted */
  BL_DOMAIN_DRAFT_BLOCK = 3,
  BL_DOMAIN_PATCHES = 4
};

typedef struct bl_domain {
  uint32_t size;
  bl_domain_kind kind;
  int32_t capacity;    /* rows the program was built for */
  int32_t parent;      /* the domain its rows are chosen from, or -1 */
  const int32_t* live; /* rows that live in this pass, at most capacity; on the device */
  const int32_t* map;  /* [live] row of the parent each row is, or null where there is no parent */
} bl_domain;

typedef struct bl_tensor {
  uint32_t size;
  bl_dtype dtype; /* BL_F32 or BL_I32 for values; the stored type for weights */
  bl_encoding encoding;
  bl_layout layout;
  int32_t domain; /* bl_domain_kind of the last axis */
  uint32_t ndim;
  int64_t ne[4]; /* ne[0] contiguous; ne[ndim-1] is the domain's capacity unless it is NONE */
  int64_t nb[4]; /* bytes between neighbours along each axis; for block types nb[0] is a block's */
  void* data;
  void* aux[2];
} bl_tensor;

/* Rows of a slot that belong together in a pass. */
typedef struct bl_segment {
  int32_t slot;
  int32_t row0; /* first row in the pass */
  int32_t rows;
  int32_t index0; /* index of the first row in its slot */
} bl_segment;

typedef int32_t bl_row_class;
enum { BL_ROW_TEXT = 0, BL_ROW_IMAGE = 1 };

/* Row descriptors: arrays of `capacity`, valid to `*live`. Padding rows never touch a plane. */
typedef struct bl_rows {
  uint32_t size;
  int32_t capacity;
  const int32_t* live;
  const int32_t* slot;
  const int32_t* index;  /* causality and storage: position in the slot */
  const int32_t* pos[4]; /* rope positions; equal for text */
  const int32_t* token;
  const int32_t* row_class; /* bl_row_class */
  const int32_t* embed_row; /* row of the external embeddings, or -1 */
  const int32_t* lane_in;   /* recurrent lane read at a segment's start, or -1 */
  const int32_t* lane_out;  /* recurrent lane written after this row, or -1 */
  const bl_segment* segments;
  const int32_t* n_segments;
} bl_rows;

/* A plane through its block table. Row `index` of `slot` lies in block
 * blocks[slot * blocks_per_slot + index / block_rows] at index % block_rows; read it with
 * bl_plane_row(). In append planes and rings block_rows divides by 128, so a window of 128 rows at
 * an absolute position never crosses a block. The block table of a ring repeats: `index` is the
 * position in the slot there, too, and rows from valid_from on are those not yet written over. */
typedef struct bl_plane_view {
  uint32_t size;
  bl_dtype type; /* BL_F32, BL_F16, BL_Q8_0 … */
  int64_t width; /* values of a row */
  int64_t row_bytes;
  void* data;
  const int32_t* blocks; /* [slots][blocks_per_slot] */
  int32_t blocks_per_slot;
  int32_t block_rows;
  int32_t capacity; /* positions of a slot */
  int32_t lanes;    /* fixed planes: lanes of a slot */
  int64_t lane_bytes;
  const int32_t* valid_from; /* [slots] first index whose row holds; below it nothing may be read */
} bl_plane_view;

static inline void* bl_plane_row(const bl_plane_view* view, int32_t slot, int32_t index) {
  const int64_t block =
      view->blocks[(int64_t)slot * view->blocks_per_slot + index / view->block_rows];
  const int64_t row = block * view->block_rows + index % view->block_rows;
  return (char*)view->data + row * view->row_bytes;
}

/* Lane `lane` of `slot` of a fixed plane. */
static inline void* bl_plane_lane(const bl_plane_view* view, int32_t slot, int32_t lane) {
  return (char*)view->data + ((int64_t)slot * view->lanes + lane) * view->lane_bytes;
}

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_TENSOR_H_ */
