/* The one symbol a plugin exports, and what the host lends it.
 *
 *   BL_EXPORT const bl_plugin bloomery_plugin = { sizeof(bl_plugin), … };
 *
 * Loading a plugin touches no device, file or environment variable. Life cycle, all on the [load]
 * thread: probe (any number of times, on any model) → create → describe → builds, prepares →
 * destroy. Two instances may live at once. The library stays loaded until the process ends. Small
 * objects may come from the C library; blocks of 1 MiB and more, and whatever grows with the
 * context, come from bl_host.alloc.
 */
#ifndef BLOOMERY_PLUGIN_H_
#define BLOOMERY_PLUGIN_H_

#include <bloomery/seat.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t bl_log_level;
enum { BL_LOG_INFO = 0, BL_LOG_WARNING = 1, BL_LOG_ERROR = 2 };

/* What an instance is lent. Valid from create until destroy returns. log, fail, alloc, free and
 * get_extension: [any] thread; progress and parallel_for: [load]. */
typedef struct bl_host {
  uint32_t size;
  bl_abi abi;
  void* self;
  /* A host extension by versioned id such as "bloomery.text/1", or null. */
  const void* (*get_extension)(void* self, const char* id);
  void (*log)(void* self, bl_log_level level, const char* text);
  /* Says why the call in progress will return `status`; `text` is copied, the last one counts. */
  void (*fail)(void* self, bl_status status, const char* text);
  /* Of long work in create or describe; done and total in the same unit. */
  void (*progress)(void* self, const char* what, uint64_t done, uint64_t total);
  /* Counted memory: aligned to `align` (a power of two, at most 4096), null when the budget is
   * spent. */
  void* (*alloc)(void* self, uint64_t bytes, uint64_t align);
  /* Null is allowed. What is left at destroy is freed by the host, and logged. */
  void (*free)(void* self, void* p);
  /* Runs fn(context, 0 … n-1) on the host's pool and returns when all are done: BL_OK, or the
   * status of one that failed. */
  bl_status (*parallel_for)(void* self, int32_t n, bl_status (*fn)(void* context, int32_t i),
                            void* context);
} bl_host;

typedef struct bl_plane_type {
  bl_plane_class plane_class;
  bl_dtype type;
} bl_plane_type;

enum {
  BL_FEATURE_OBSERVE = 1, /* observations may be asked for */
  BL_FEATURE_DRAFT = 2,   /* the model's own draft head is wanted, where the file has one */
  BL_FEATURE_IMAGES = 4
};

typedef struct bl_params {
  uint32_t size;
  int32_t n_slots;
  int64_t n_ctx; /* rows of one slot */
  int32_t rows_max;
  int32_t draft_rows_max;
  const bl_plane_type* plane_types; /* what the user's cache-type flags chose */
  uint32_t n_plane_types;
  uint32_t features;
} bl_params;

/* What probe says of a model it accepts. */
typedef struct bl_claim {
  uint32_t size;
  int32_t score; /* 1 … 100; among plugins that claim a model the highest wins, a tie is refused */
} bl_claim;

typedef struct bl_plugin {
  uint32_t size;
  bl_abi abi; /* BL_ABI_MAJOR, BL_ABI_MINOR it was built with */
  const char* name;
  const char* version; /* "1.2.3" */
  /* An extension of the plugin by versioned id, or null; any id may be asked. [any] */
  const void* (*get_extension)(const char* id);
  /* Whether this plugin serves the model. BL_OK with *out filled, or BL_REFUSED with the reason in
   * the sink. Reads metadata only. */
  bl_status (*probe)(const bl_model* model, const bl_sink* sink, bl_claim* out);
  /* `host`, `model` and `params` live until destroy returns. On failure *out stays null. */
  bl_status (*create)(const bl_host* host, const bl_model* model, const bl_params* params,
                      bl_instance** out);
  /* The same pointer and content on every call. */
  bl_status (*describe)(bl_instance* instance, const bl_seat** out);
  /* Every instance once, in any order; entries, tables and transforms of it are not called again.
   */
  void (*destroy)(bl_instance* instance);
  /* An extension as the instance's model needs it, where models of one plugin differ (two tool
   * syntaxes); lives until destroy. Null, or a null answer: what get_extension says. [any] */
  const void* (*instance_extension)(bl_instance* instance, const char* id);
} bl_plugin;

#define BL_PLUGIN_SYMBOL "bloomery_plugin"

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_PLUGIN_H_ */
