// JSON, read and written with RapidJSON; its macros are set here, so include this header and never
// <rapidjson/…> itself. Parsing is iterative and limited in size, depth and number of values, keeps
// members in their order, keeps 64-bit integers exact and doubles correctly rounded. Writing never
// throws on content. Documents own their memory; one document belongs to one thread at a time.
//
//   rapidjson::Document body = ParseJson(text, "request body");
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::internal {
[[noreturn]] void ThrowJsonMisuse(const char* condition);
}  // namespace bloomery::internal

#if defined(RAPIDJSON_RAPIDJSON_H_)
#error "include runtime/base/json.h instead of <rapidjson/...>: the macros below must come first"
#endif
#define RAPIDJSON_HAS_STDSTRING 1
// A wrong access (GetInt on a string) is a bug of ours that must not end the server.
#define RAPIDJSON_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::bloomery::internal::ThrowJsonMisuse(#condition))
#include <rapidjson/document.h>

namespace bloomery {

struct JsonOptions {
  ErrorKind kind = ErrorKind::kBadRequest;  // of the Error thrown for bad text
  uint64_t bytes_max = limits::kRequestBodyBytesMax;
  int depth_max = limits::kJsonDepthMax;  // arrays and objects inside each other; [] has depth 1
  size_t nodes_max =
      limits::kJsonNodesMax;   // values and names; bounds what a short text can grow to
  bool keep_repeated = false;  // members of one name: all of them, for a reader that refuses them
};

// Parses one JSON value, RFC 8259 with valid UTF-8; white space around it is fine, anything else
// is not. Of the members of one name in an object the last one's value counts, at the first one's
// place. Integers beyond 64 bits become doubles. Throws Error(options.kind) naming `what`, the byte
// offset, line and column.
rapidjson::Document ParseJson(std::string_view text, std::string_view what,
                              const JsonOptions& options = {});

// The object's first member of that name, or null when it is absent or JSON null.
const rapidjson::Value* FindNonNull(const rapidjson::Value& object, std::string_view name);

// The value as compact JSON on one line. Invalid UTF-8 in strings and names becomes U+FFFD,
// NaN and infinities become null.
std::string WriteJson(const rapidjson::Value& value);

}  // namespace bloomery
