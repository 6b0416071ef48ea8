// Templates from anywhere: the input is a template's source, rendered with a fixed conversation
// under small limits. A template is refused with an Error or renders; nothing else may happen.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/template.h"

namespace {

const bloomery::jinja::Value& Conversation() {
  static const bloomery::jinja::Value context = bloomery::jinja::FromJson(
      bloomery::ParseJson(
          R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hé 🙂 <think>"},
              {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]},
              {"role": "tool", "content": "r"}], "tools": [{"type": "function", "function": {"name": "f"}}],
              "a": "abc", "n": 7, "l": [3, 1, 2], "d": {"b": 1, "a": "x"}, "add_generation_prompt": true})",
          "context"),
      bloomery::jinja::Origin::kInput);
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bloomery::jinja::RenderOptions options;
  options.steps_max = 20'000;
  options.output_bytes_max = 1u << 16;
  options.value_bytes_max = 1u << 20;
  try {
    const auto parsed = bloomery::jinja::Template::Parse(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    const auto result = parsed.Render(Conversation(), options);
    size_t end = 0;
    for (const auto& span : result.input_spans) {
      // Ascending, disjoint, inside the text.
      if (span.begin < end || span.end <= span.begin || span.end > result.text.size()) {
        std::abort();
      }
      end = span.end;
    }
  } catch (const bloomery::Error&) {
    return 0;
  }
  return 0;
}
