// Internal: values as text: Python's str, repr, json.dumps and % formatting.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

// repr of a float: the shortest digits that read back the same.
std::string FloatRepr(double value);

// str(value); a text is itself.
Text Str(const Heap& heap, const Value& value);
Text Repr(const Heap& heap, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's indentation; absent: one line
  std::string item_separator = ", ";  // as given: json.dumps drops the space itself when it indents
  std::string key_separator = ": ";
};
Text JsonDumps(const Heap& heap, const Value& value, const JsonStyle& style);

// `format % arguments`: one value, a tuple, or a dict for %(name)s.
Text PercentFormat(const Heap& heap, const Text& format, const Value& arguments);

}  // namespace bloomery::jinja
