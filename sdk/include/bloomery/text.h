/* Extension "bloomery.text/1" of the host: the seat's own tokenizer and template.
 *
 * Asked from bl_host.get_extension after create has returned; null before the vocabulary is read.
 * [any]
 */
#ifndef BLOOMERY_TEXT_H_
#define BLOOMERY_TEXT_H_

#include <bloomery/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BL_EXT_TEXT_1 "bloomery.text/1"

typedef struct bl_text_1 {
  uint32_t size;
  uint32_t reserved;
  void* self;
  /* Ids of `text`; writes at most `capacity` of them and the number needed. parse_special: control
   * tokens in the text become their ids. */
  bl_status (*tokenise)(void* self, bl_str text, int32_t parse_special, int32_t* ids,
                        uint64_t capacity, uint64_t* needed);
  bl_status (*detokenise)(void* self, const int32_t* ids, uint64_t n, char* out, uint64_t capacity,
                          uint64_t* needed);
  /* Renders a chat request (JSON) with the template in force. */
  bl_status (*render)(void* self, const char* request_json, char* out, uint64_t capacity,
                      uint64_t* needed);
} bl_text_1;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_TEXT_H_ */
