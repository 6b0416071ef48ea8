// Chat templates, rendered as Python's jinja2 renders them under Hugging Face's settings
// (trim_blocks, lstrip_blocks, loop controls, a sandbox without mutation, tojson by json.dumps).
// A Template owns its parsed form, is immutable, and may be rendered by several threads at once.
// Rendering reads no file, clock or environment variable: the time is handed in. Every loop, depth,
// intermediate value and output has a limit in runtime/base/limits.h. Example:
//   auto t = jinja::Template::Parse("Hello {{ name }}!", "greeting");
//   t.Render(jinja::Value::Dict({{jinja::Value::Trusted("name"), jinja::Value::Input("Ada")}}),
//   {}).text
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

struct TemplateBody;

// Defaults are the host's limits; tests lower them.
struct RenderOptions {
  // What strftime_now formats: seconds since 1970, already shifted into the zone to be shown.
  int64_t now_s = 0;
  uint64_t steps_max = limits::kJinjaStepsMax;
  size_t output_bytes_max = limits::kJinjaOutputBytesMax;
  size_t value_bytes_max = limits::kJinjaValueBytesMax;
};

// `input_spans` are the bytes of `text` that came from Origin::kInput values, ascending and
// disjoint. A tokenizer must not recognise a special token that touches one of these bytes; it need
// not split the text there.
struct RenderResult {
  std::string text;
  std::vector<Span> input_spans;
};

class Template {
 public:
  // `name` is used in messages only. Throws Error(kBadModel) with name, line, column and what for
  // malformed source, unknown statements, filters and tests, and for include, import, extends and
  // block.
  static Template Parse(std::string_view source, std::string_view name);

  // `context` is a dict of the template's variables. Throws Error(kBadRequest) with name, line,
  // column and what when the template fails (raise_exception gives its message), and
  // Error(kNoMemory) naming the limit when one is passed.
  RenderResult Render(const Value& context, const RenderOptions& options) const;

  const std::string& name() const;
  const std::string& source() const;

 private:
  explicit Template(std::shared_ptr<const TemplateBody> body) : body_(std::move(body)) {}
  std::shared_ptr<const TemplateBody> body_;
};

}  // namespace bloomery::jinja
