/* What a plugin can read of a model's files before and while it describes it.
 *
 * The host has parsed and checked the files; a plugin asks for metadata by key, lists tensors, and
 * may read small ones (scales, tables of a few KiB). It never opens a file and never sees where
 * bytes lie. [load] thread only. Everything a bl_model hands out lives until bl_plugin.destroy
 * returns.
 */
#ifndef BLOOMERY_MODEL_H_
#define BLOOMERY_MODEL_H_

#include <bloomery/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a file is to the seat. A companion (draft, projector, head) means nothing alone: it resolves
 * inside the plugin of its trunk. */
typedef int32_t bl_file_kind;
enum { BL_FILE_TRUNK = 0, BL_FILE_DRAFT = 1, BL_FILE_PROJECTOR = 2, BL_FILE_HEAD = 3 };

typedef int32_t bl_file_format;
/* A safetensors folder comes as its folder map makes it (<seat>.folder.json beside the manifest):
 * with the keys, names, shapes and values of a GGUF file, and is one to a plugin. */
enum { BL_FORMAT_GGUF = 0, BL_FORMAT_SAFETENSORS = 1 };

typedef struct bl_file {
  uint32_t size;
  bl_file_kind kind;
  bl_file_format format;
  uint32_t reserved;
  const char* arch; /* GGUF general.architecture; of a folder what its map says */
} bl_file;

/* Metadata kinds after normalisation: the exact integer is kept, whatever width the file used. */
typedef int32_t bl_kv_kind;
enum {
  BL_KV_U64 = 0, /* unsigned integers, and signed ones that are not negative */
  BL_KV_I64 = 1, /* negative integers */
  BL_KV_F64 = 2,
  BL_KV_BOOL = 3,
  BL_KV_STR = 4,
  BL_KV_ARRAY = 5
};

typedef struct bl_kv {
  uint32_t size;
  bl_kv_kind kind;
  uint64_t u; /* U64, and BOOL as 0 or 1 */
  int64_t i;  /* I64, and U64 where it fits */
  double f;   /* F64, and integers converted */
  bl_str s;   /* STR */
  bl_kv_kind
      item_kind; /* ARRAY: kind of every item (U64 also when some items are negative: use i) */
  uint32_t reserved;
  uint64_t count; /* ARRAY: items; read them with bl_model.kv_item */
} bl_kv;

typedef struct bl_tensor_info {
  uint32_t size;
  uint32_t file; /* index into bl_model.files */
  const char* name;
  bl_dtype type;
  uint32_t n_dims;
  uint64_t ne[4]; /* ne[0] is contiguous: the input width of a matrix; unused dims are 1 */
  uint64_t bytes;
} bl_tensor_info;

typedef struct bl_model {
  uint32_t size;
  uint32_t n_files;
  const bl_file* files; /* files[0] is the trunk */
  uint64_t n_tensors;
  void* self; /* the host's; hand it back as the first argument */

  /* Metadata of the trunk by exact key; a folder's config.json appears as dotted keys.
   * BL_UNSUPPORTED when the key is absent (not a failure: nothing is said to any sink). Set
   * out->size first. */
  bl_status (*kv)(void* self, const char* key, bl_kv* out);
  /* Item `i` of an array key. BL_REFUSED past the end. */
  bl_status (*kv_item)(void* self, const char* key, uint64_t i, bl_kv* out);
  /* The same for another file of the seat. */
  bl_status (*file_kv)(void* self, uint32_t file, const char* key, bl_kv* out);
  bl_status (*tensor)(void* self, uint64_t i, bl_tensor_info* out);
  /* Index of the tensor of that name, or -1. */
  int64_t (*find)(void* self, const char* name);
  /* Copies bytes of a tensor; at most 1 MiB a call and 16 MiB a seat, since large weights belong to
   * the host. BL_REFUSED beyond the tensor or the budget. */
  bl_status (*read_small)(void* self, uint64_t tensor, uint64_t offset, void* dst, uint64_t bytes);
} bl_model;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_MODEL_H_ */
