/* The exported table of one flawed plugin: which flaw it is, and the flaws of the table itself. */
#define _GNU_SOURCE
#include <bloomery/plugin.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

extern const char* const flawed_flaw;
const char* const flawed_flaw = FLAW;

const void* flawed_get_extension(const char* id);
bl_status flawed_probe(const bl_model* model, const bl_sink* sink, bl_claim* out);
bl_status flawed_create(const bl_host* host, const bl_model* model, const bl_params* params,
                        bl_instance** out);
bl_status flawed_describe(bl_instance* instance, const bl_seat** out);
void flawed_destroy(bl_instance* instance);

#ifdef FLAW_other_abi
#define MINOR 99
#else
#define MINOR BL_ABI_MINOR
#endif
#ifdef FLAW_other_version
#define VERSION "9.9.9"
#else
#define VERSION "0.1.0"
#endif
#ifdef FLAW_null_function
#define DESCRIBE NULL
#else
#define DESCRIBE flawed_describe
#endif

#ifdef FLAW_odd_table
#define SIZE (sizeof(bl_plugin) + 4)
#else
#define SIZE sizeof(bl_plugin)
#endif

#ifndef FLAW_no_symbol
extern BL_EXPORT const bl_plugin bloomery_plugin;
const bl_plugin bloomery_plugin = {
    .size = SIZE,
    .abi = {BL_ABI_MAJOR, MINOR},
    .name = "fake",
    .version = VERSION,
    .get_extension = flawed_get_extension,
    .probe = flawed_probe,
    .create = flawed_create,
    .describe = DESCRIBE,
    .destroy = flawed_destroy,
};
#endif

#ifdef FLAW_second_symbol
BL_EXPORT int bloomery_extra(void);
int bloomery_extra(void) { return 1; }
#endif

#ifdef FLAW_sets_environment
__attribute__((constructor)) static void at_load(void) { setenv("BLOOMERY_FLAWED", "1", 1); }
#endif
#ifdef FLAW_goes_global
__attribute__((constructor)) static void at_load(void) {
  Dl_info info;
  if (dladdr(&flawed_flaw, &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}
#endif
#ifdef FLAW_starts_thread
static void* wait_a_while(void* unused) {
  usleep(5000000);
  return unused;
}
__attribute__((constructor)) static void at_load(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_a_while, NULL);
  pthread_detach(thread);
}
#endif
