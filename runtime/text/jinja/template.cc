#include "runtime/text/jinja/template.h"

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/parser.h"

namespace bloomery::jinja {

Template Template::Parse(std::string_view source, std::string_view name) {
  auto body = std::make_shared<TemplateBody>();
  body->name = name;
  body->source = source;
  body->body = ParseTemplate(source, name);
  return Template(std::move(body));
}

RenderResult Template::Render(const Value& context, const RenderOptions& options) const {
  return Evaluator(*body_, context, options).Run();
}

const std::string& Template::name() const { return body_->name; }
const std::string& Template::source() const { return body_->source; }

}  // namespace bloomery::jinja
