/* Bloomery plugin ABI: the ground every other header stands on.
 *
 * A plugin is a shared object that describes one family of model architectures: its weights, states
 * and graphs, and kernels for operators of its own. The host owns files, memory, threads, streams
 * and clocks. Rules that hold for every declaration in this folder:
 *
 *   - Every struct opens with `size`, set by whoever fills it to sizeof(struct) at compile time.
 *     Members are only appended. A reader asks BL_HAS(p, member) before it touches a member that a
 *     peer of an older minor may not have; an absent member means its documented default, or zero.
 *     In an array all items have one size, and a reader steps by the first item's `size`. Four
 * small structs never grow and carry none: bl_abi, bl_str, bl_segment, bl_plane_type.
 *   - A function that fills a struct reads the `size` its caller set and writes nothing beyond it.
 *   - An array of n items may be null where n is 0. `reserved` members are 0.
 *   - Functions return a bl_status; a function that fails has said why through the sink or host it
 *     was given. No exception, exit, abort, longjmp or signal handler may cross or start in a
 * plugin.
 *   - Strings are UTF-8. `const char*` ends at NUL; bl_str may hold any bytes.
 *   - Each function names the thread that may call it: [any], [load] (one thread, while a model
 * loads) or [task] (a worker of the host's pool, many at once).
 *   - Pointers handed over live as long as the sentence beside them says.
 *
 * These headers compile as C11 and as C++20. <bloomery/bloomery.hpp> is the comfortable C++ layer.
 */
#ifndef BLOOMERY_BASE_H_
#define BLOOMERY_BASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI of this SDK. While the major is 0, host and plugin must agree in both numbers; from 1.0
 * on the majors must be equal and the host's minor at least the plugin's. */
#define BL_ABI_MAJOR 0
#define BL_ABI_MINOR 1

#if defined(__GNUC__)
#define BL_EXPORT __attribute__((visibility("default")))
#else
#define BL_EXPORT
#endif

/* Whether *p, as its maker compiled it, holds `member`. */
#define BL_HAS(p, member) ((p)->size >= offsetof(__typeof__(*(p)), member) + sizeof((p)->member))

typedef struct bl_abi {
  uint16_t major;
  uint16_t minor;
} bl_abi;

typedef struct bl_str {
  const char* data; /* not NUL-terminated; may be null when bytes is 0 */
  uint64_t bytes;
} bl_str;

typedef int32_t bl_status;
enum {
  BL_OK = 0,
  BL_REFUSED = 1,     /* this model, request or value is not accepted; the text says why */
  BL_UNSUPPORTED = 2, /* valid, but not offered by this side */
  BL_BAD_DATA = 3,    /* bytes of a file contradict themselves */
  BL_NO_MEMORY = 4,
  BL_DEVICE = 5,   /* a device failed or vanished */
  BL_INTERNAL = 6, /* a broken invariant of the side that returns it */
  BL_STATUS_END
};

/* Element types carry GGUF's type ids. Kernels may read any of them; an id outside this list is one
 * that the SDK does not name yet, not an error. */
typedef int32_t bl_dtype;
enum {
  BL_F32 = 0,
  BL_F16 = 1,
  BL_Q4_0 = 2,
  BL_Q4_1 = 3,
  BL_Q5_0 = 6,
  BL_Q5_1 = 7,
  BL_Q8_0 = 8,
  BL_Q2_K = 10,
  BL_Q3_K = 11,
  BL_Q4_K = 12,
  BL_Q5_K = 13,
  BL_Q6_K = 14,
  BL_IQ2_XXS = 16,
  BL_IQ2_XS = 17,
  BL_IQ3_XXS = 18,
  BL_IQ1_S = 19,
  BL_IQ4_NL = 20,
  BL_IQ3_S = 21,
  BL_IQ2_S = 22,
  BL_IQ4_XS = 23,
  BL_I8 = 24,
  BL_I16 = 25,
  BL_I32 = 26,
  BL_I64 = 27,
  BL_F64 = 28,
  BL_IQ1_M = 29,
  BL_BF16 = 30,
  BL_TQ1_0 = 34,
  BL_TQ2_0 = 35,
  BL_MXFP4 = 39,
  BL_NVFP4 = 40
};

/* Where refusals go. [any] `text` is copied before the call returns; one line, no trailing dot
 * needed. */
typedef struct bl_sink {
  uint32_t size;
  uint32_t reserved;
  void* self;
  void (*fail)(void* self, bl_status status, const char* text);
} bl_sink;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BLOOMERY_BASE_H_ */
