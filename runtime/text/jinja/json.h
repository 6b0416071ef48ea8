// JSON into template values and back. Objects keep their order; numbers that do not fit 64-bit
// integers become floats. No state, any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/json.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

// Every string, keys included, gets `origin`. Throws Error(kBadRequest) when nested deeper than
// limits::kJinjaValueDepthMax.
Value FromJson(const rapidjson::Value& json, Origin origin);

// Parses JSON text; undefined when it is not valid JSON or nested too deep.
Value TryParseJson(std::string_view text, Origin origin);

// json.dumps with ensure_ascii off: `, ` and `: ` separators, order kept. Throws Error(kBadRequest)
// for values JSON cannot hold (undefined, functions, namespaces).
std::string ToJson(const Value& value);

}  // namespace bloomery::jinja
