/* Extension "bloomery.chat/1" of a plugin: how its models are talked to.
 *
 * Asked from bl_plugin.instance_extension, else from get_extension; constant data, [any] thread. A
 * plugin without it gets the host's defaults: the file's template and pre-tokenizer, no reasoning
 * marks, no tool syntax.
 */
#ifndef BLOOMERY_CHAT_H_
#define BLOOMERY_CHAT_H_

#include <bloomery/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BL_EXT_CHAT_1 "bloomery.chat/1"

/* A streaming parser of tool calls. One state serves one answer and is used by one thread at a
 * time; many may be open. Texts of events live for the emit call. */
typedef struct bl_tool_event {
  uint32_t size;
  int32_t kind; /* 0 content text, 1 call begins (name), 2 argument text, 3 call ends */
  int32_t call; /* index of the call */
  uint32_t reserved;
  bl_str text;
} bl_tool_event;

typedef struct bl_tool_parser {
  uint32_t size;
  uint32_t reserved;
  /* `tools_json`: the request's tools, or null. The state is the plugin's until close. */
  bl_status (*open)(const char* tools_json, void** state);
  /* Decisions depend on the whole text only, never on how it is cut into pieces. */
  bl_status (*feed)(void* state, bl_str piece, int32_t last,
                    void (*emit)(void* context, const bl_tool_event*), void* context);
  void (*close)(void* state);
} bl_tool_parser;

/* A recorded answer to test a parser against. */
typedef struct bl_chat_recording {
  uint32_t size;
  uint32_t reserved;
  const char* request_json; /* body of a chat request */
  const char* prompt;       /* what it must render to, or null */
  const char* output;       /* what a model answered, or null */
  const char* message_json; /* what the output must parse to */
} bl_chat_recording;

typedef struct bl_sampling {
  uint32_t size;
  int32_t top_k; /* -1: no advice; the same for NaN below */
  double temperature;
  double top_p;
  double min_p;
  double presence_penalty;
} bl_sampling;

typedef struct bl_chat_1 {
  uint32_t size;
  uint32_t n_pre_patterns;
  const char*
      pre_tokenizer; /* id of a known split ("qwen2"), or null: the file's, or the patterns */
  /* PCRE2 expressions, each on the pieces of the one before, where the file names a split that the
   * host does not know. */
  const char* const* pre_patterns;
  const char* reasoning_open; /* "<think>", or null */
  const char* reasoning_close;
  /* "hermes", "qwen_xml", "qwen_xml_inline", "glm_xml", "dsml", or null */
  const char* tool_syntax;
  const bl_tool_parser* tool_parser; /* used where tool_syntax is null */
  /* Renders a chat request (JSON of messages, tools, kwargs) in place of the file's template; null:
   * the template. Writes at most `capacity` bytes and the bytes needed. */
  bl_status (*render)(const char* request_json, char* out, uint64_t capacity, uint64_t* needed,
                      const bl_sink* sink);
  const char* const* stop_texts;
  const int32_t* stop_ids;
  uint32_t n_stop_texts;
  uint32_t n_stop_ids;
  bl_sampling sampling; /* recommended */
  const bl_chat_recording* recordings;
  uint32_t n_recordings;
  uint32_t reserved;
} bl_chat_1;

#ifdef __cplusplus
}
#endif

#endif /* BLOOMERY_CHAT_H_ */
