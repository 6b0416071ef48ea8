/* A seat's description: weights with roles and sources, banks, tables, planes, entries, operators.
 *
 * `describe` returns one bl_seat; the host checks every line of it against the files and refuses by
 * name what does not fit: a missing tensor, a wrong shape, a tensor in the file that nothing
 * claims. All pointers live until bl_plugin.destroy.
 */
#ifndef BLOOMERY_SEAT_H_
#define BLOOMERY_SEAT_H_

#include <bloomery/model.h>
#include <bloomery/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bl_instance bl_instance; /* the plugin's own; opaque to the host */

typedef int32_t bl_role;
enum {
  BL_ROLE_DENSE = 0,
  BL_ROLE_NORM = 1,
  BL_ROLE_ROUTER = 2,
  BL_ROLE_ROUTED = 3, /* part of a bank: may live in any tier */
  BL_ROLE_SHARED = 4, /* shared expert */
  BL_ROLE_TABLE = 5,  /* read row by row */
  BL_ROLE_HEAD = 6
};

/* Which entry a weight, bank or plane belongs to. */
typedef int32_t bl_owner;
enum { BL_OWNER_MAIN = 0, BL_OWNER_DRAFT = 1, BL_OWNER_ENCODER = 2, BL_OWNER_TASK = 3 };

enum {
  BL_WEIGHT_OPTIONAL = 1, /* may be absent from the file */
  BL_WEIGHT_IGNORED =
      2, /* known, and not read (its pattern may hold {l}; `layer` -1 means every layer) */
  BL_WEIGHT_ALIAS = 4 /* another name of a tensor that an earlier weight claims (tied head) */
};
/* Each row of a tensor belongs to one weight that is no alias; a tensor that no weight claims and
 * no ignored pattern matches is refused. */

/* How a source's bytes become (part of) the weight. */
typedef int32_t bl_verb;
enum {
  BL_VERB_WHOLE = 0,     /* the tensor as it is */
  BL_VERB_ROW_RANGE = 1, /* rows row0 .. row0+rows-1 */
  BL_VERB_STACK = 2,     /* several tensors as one, {e} counts 0 .. arg-1 along the last axis */
  BL_VERB_EXTENTS = 3,   /* a list of extents in place, not copied */
  BL_VERB_TRANSPOSE = 4,
  BL_VERB_TAKE_ROWS = 5, /* rows named by arg (a bl_take_rows) */
  BL_VERB_ADD_ONE = 6,
  BL_VERB_MINUS_EXP = 7,
  BL_VERB_PRODUCT = 8, /* elementwise product with the source before */
  BL_VERB_AS_F32 = 9,
  BL_VERB_CALLBACK = 10 /* transform() makes the values; small tensors only */
};

typedef struct bl_source {
  uint32_t size;
  bl_verb verb;
  const char* pattern; /* tensor name with {l} and {e} */
  uint64_t row0;
  uint64_t rows;
  uint64_t arg;
  /* [load] CALLBACK: `in` f32 values of the tensor → `out` f32 values of the weight. */
  bl_status (*transform)(bl_instance* instance, const float* in, uint64_t n_in, float* out,
                         uint64_t n_out);
} bl_source;

typedef int32_t bl_bank_part;
enum {
  BL_PART_NONE = 0,
  BL_PART_GATE = 1,
  BL_PART_UP = 2,
  BL_PART_DOWN = 3,
  BL_PART_GATE_UP = 4, /* gate rows first, then up */
  BL_PART_GATE_BIAS = 5,
  BL_PART_UP_BIAS = 6,
  BL_PART_DOWN_BIAS = 7
};

typedef struct bl_weight {
  uint32_t size;
  uint32_t flags;
  const char* pattern; /* name in the file; {l} is replaced by `layer` */
  bl_role role;
  bl_owner owner;
  int32_t layer; /* -1: outside the layers */
  uint32_t n_dims;
  uint64_t ne[4];           /* shape that the sources must give; 0 leaves a dim unchecked */
  const bl_source* sources; /* null: the tensor named by `pattern`, whole */
  uint32_t n_sources;
  int32_t bank; /* index into bl_seat.banks, or -1 */
  bl_bank_part part;
  uint32_t n_attrs;
  const bl_attr* attrs; /* e.g. "head_order" = "tiled" | "grouped" */
} bl_weight;

typedef int32_t bl_activation;
enum { BL_ACT_SILU = 0, BL_ACT_GELU = 1, BL_ACT_GELU_TANH = 2, BL_ACT_RELU2 = 3 };

typedef int32_t bl_weight_place;
enum { BL_AFTER_DOWN = 0, BL_BEFORE_DOWN = 1 };

/* The routed experts of one layer. */
typedef struct bl_bank {
  uint32_t size;
  int32_t layer;
  bl_owner owner;
  uint32_t experts;
  uint32_t used; /* experts a row picks */
  bl_activation activation;
  double act_params[4];
  double clamp; /* gate and up are clamped to it first; 0: none */
  bl_weight_place weight_place;
  uint32_t ids_known_ahead; /* 1: ids come from hashing, before the pass */
  uint64_t ff;              /* inner width of an expert */
  uint64_t width;           /* input and output width */
} bl_bank;

typedef int32_t bl_id_origin;
enum { BL_IDS_HOST = 0, BL_IDS_DEVICE = 1 };

/* A tensor read row by row by ids that a pure function of the history gives. */
typedef struct bl_table {
  uint32_t size;
  uint32_t weight; /* index into bl_seat.weights */
  uint32_t ids_per_row;
  bl_id_origin id_origin;
  /* [any] `history` are the slot's tokens up to and with the row, oldest first. */
  bl_status (*row_ids)(bl_instance* instance, const int32_t* history, const int32_t* classes,
                       uint64_t n, uint64_t* ids);
} bl_table;

typedef int32_t bl_plane_rule;
enum {
  BL_PLANE_APPEND = 0, /* one row every `rate` positions, immutable once written */
  BL_PLANE_RING = 1,   /* a row reads the last `window` rows at most, its own included */
  BL_PLANE_FIXED = 2   /* lanes */
};

typedef int32_t bl_plane_class;
enum {
  BL_CLASS_K = 0,
  BL_CLASS_V = 1,
  BL_CLASS_LATENT = 2,
  BL_CLASS_INDEX = 3,
  BL_CLASS_RAW = 4,
  BL_CLASS_RECURRENT = 5,
  BL_CLASS_TAP = 6
};

typedef int32_t bl_plane_init;
enum { BL_INIT_NONE = 0, BL_INIT_ZERO = 1 };

typedef struct bl_plane {
  uint32_t size;
  uint32_t rate; /* append: positions a row stands for; 1 for KV */
  const char* name;
  bl_owner owner;
  int32_t layer;
  bl_plane_rule rule;
  bl_plane_class plane_class;
  uint64_t window;               /* ring: rows */
  uint64_t width;                /* values of a row, or of a lane */
  const bl_dtype* types_allowed; /* first is the default where no flag speaks for the class */
  uint32_t n_types;
  uint32_t lanes; /* fixed: lanes a slot needs; the host may give more */
  bl_plane_init init;
  uint32_t reserved;
} bl_plane;

typedef int32_t bl_entry_kind;
enum {
  BL_ENTRY_MAIN = 0,
  BL_ENTRY_DRAFT_STORE = 1, /* appends only */
  /* One guess a slot: the row's token, not yet in the slot, to the logits of the one behind it.
   * Described only where bl_params.features has BL_FEATURE_DRAFT. Its first step reads the fixed
   * planes of class TAP as the main entry left them, each further one as the step before did; what
   * it appends lies behind the slot's rows and is written anew by the main entry, and what it keeps
   * no other entry sees. So guesses need not be undone. */
  BL_ENTRY_DRAFT_STEP = 2,
  BL_ENTRY_DRAFT_BLOCK = 3,
  BL_ENTRY_ENCODE = 4,
  BL_ENTRY_HIDDEN = 5
};

enum { BL_NEEDS_LOGITS = 1, BL_NEEDS_HIDDEN = 2, BL_NEEDS_TAPS = 4 };

/* What a program is built for. */
typedef struct bl_build {
  uint32_t size;
  int32_t rows; /* capacity of the pass-rows domain: a row bucket */
  int32_t logit_rows;
  uint32_t class_flags; /* bit c set: rows of bl_row_class c may occur */
  bl_device_kind device;
  uint32_t reserved;
} bl_build;

typedef struct bl_entry {
  uint32_t size;
  bl_entry_kind kind;
  const char* name;
  bl_domain_kind domain; /* of its input rows */
  uint32_t needs;
  /* [load] Called once a program; must give the same graph for the same `build`. */
  bl_status (*build)(bl_instance* instance, const bl_builder* builder, const bl_build* build);
} bl_entry;

typedef struct bl_seat {
  uint32_t size;
  uint32_t layers;
  const bl_weight* weights;
  const bl_bank* banks;
  const bl_table* tables;
  const bl_plane* planes;
  const bl_op* ops;
  const bl_entry* entries;
  uint32_t n_weights;
  uint32_t n_banks;
  uint32_t n_tables;
  uint32_t n_planes;
  uint32_t n_ops;
  uint32_t n_entries;
  uint64_t vocabulary; /* length of a logits row */
  uint64_t context_trained;
} bl_seat;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_SEAT_H_ */
