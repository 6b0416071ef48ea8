// SchemaConverter: which rule a schema becomes. Objects are in schema_objects.cc.
#include "runtime/text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "runtime/text/grammar/schema_converter.h"
#include "runtime/text/grammar/schema_integers.h"
#include "runtime/text/grammar/schema_pattern.h"
#include "runtime/text/grammar/schema_place.h"

namespace bloomery::text {
namespace {

struct BasicRule {
  std::string_view name;
  std::string_view body;
};

// Digits are bounded so that every number is one that readers take; lone surrogates are left out
// for the same reason. The white space between tokens is llama-server's.
constexpr BasicRule kBasic[] = {
    {"json-ws", R"(| " " | "\n"{1,2} [ \t]{0,20})"},
    {"json-boolean", R"("true" | "false")"},
    {"json-null", R"("null")"},
    {"json-integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
    {"json-number",
     R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)"},
    {"json-hex", "[0-9a-fA-F]"},
    {"json-unit", R"([0-9a-cA-CefEF] json-hex{3} | [dD] [0-7] json-hex{2})"
                  R"( | [dD] [89abAB] json-hex{2} "\\u" [dD] [c-fC-F] json-hex{2})"},
    {"json-char", R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" json-unit))"},
    {"json-string", R"("\"" json-char* "\"")"},
    {"json-value",
     "json-object | json-array | json-string | json-number | json-boolean | json-null"},
    {"json-pair", R"(json-string json-ws ":" json-ws json-value)"},
    {"json-object", R"("{" json-ws (json-pair (json-ws "," json-ws json-pair)* json-ws)? "}")"},
    {"json-array", R"("[" json-ws (json-value (json-ws "," json-ws json-value)* json-ws)? "]")"},
    {"json-day", R"(("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]))"
                 R"( | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30"))"
                 R"( | "02-" ("0" [1-9] | [12] [0-9]))"},
    {"json-date", R"([0-9]{4} "-" json-day)"},
    {"json-clock", R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])"},
    {"json-time", R"(json-clock ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [+-] json-clock))"},
    {"json-date-time", R"(json-date "T" json-time)"},
    {"json-uuid",
     R"(json-hex{8} "-" json-hex{4} "-" json-hex{4} "-" json-hex{4} "-" json-hex{12})"},
};

// The names of basic rules in a body: no literal of the table has "json-" in it.
std::vector<std::string_view> NamesIn(std::string_view body) {
  std::vector<std::string_view> names;
  for (size_t at = body.find("json-"); at != std::string_view::npos; at = body.find("json-", at)) {
    size_t end = at;
    while (end < body.size() && ((body[end] >= 'a' && body[end] <= 'z') || body[end] == '-')) ++end;
    names.push_back(body.substr(at, end - at));
    at = end;
  }
  return names;
}

bool HasAny(const rapidjson::Value& schema, std::initializer_list<const char*> keywords) {
  return std::ranges::any_of(keywords,
                             [&](const char* keyword) { return schema.HasMember(keyword); });
}

std::string_view Text(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

}  // namespace

std::string JsonSchemaToGbnf(std::string_view schema) {
  const rapidjson::Document document =
      ParseJson(schema, "JSON schema", {.bytes_max = limits::kSchemaBytesMax});
  return SchemaConverter::WholeGrammar(document, schema);
}

std::string SchemaConverter::WholeGrammar(const Value& schema, std::string_view source) {
  GbnfWriter writer;
  if (!schema.IsObject())
    SchemaConverter(*writer.state_, schema, source).Fail("a schema must be an object");
  // The rule for the schema is not named root itself, so that a reference to it is a name too.
  const std::string document = SchemaConverter(*writer.state_, schema, source).Convert("document");
  writer.AddRule("root", document);
  return writer.Source();
}

void SchemaConverter::Fail(const std::string& why) const {
  std::string pointer = "#";
  for (const std::string& name : path_) pointer += "/" + name;
  const std::string compact = source_.empty() ? WriteJson(root_) : std::string();
  const SourcePlace place = PlaceInJson(source_.empty() ? compact : source_, path_);
  throw Error(ErrorKind::kBadRequest, "JSON schema: line " + std::to_string(place.line) +
                                          ", column " + std::to_string(place.column) + " (" +
                                          Printable(pointer, 200) + "): " + why);
}

// The rule of that name from the table, added with all that it needs.
std::string SchemaConverter::Basic(std::string_view name) {
  std::vector<std::string_view> wanted{name};
  while (!wanted.empty()) {
    const std::string_view next = wanted.back();
    wanted.pop_back();
    if (rules_.places.contains(next)) continue;
    const auto found =
        std::ranges::find_if(kBasic, [&](const BasicRule& rule) { return rule.name == next; });
    rules_.Add(std::string(next), std::string(found->body));
    for (const std::string_view needed : NamesIn(found->body)) wanted.push_back(needed);
  }
  return std::string(name);
}

std::string SchemaConverter::Convert(std::string_view name) {
  if (root_.IsObject() && root_.ObjectEmpty()) {
    return rules_.Add(GbnfWriter::State::Fit(name), Basic("json-object"));
  }
  const std::string rule = rules_.Reserve(name);
  references_.emplace("#", rule);
  return ConvertAll(rule, root_);
}

std::string SchemaConverter::ConvertPart(std::string_view name, const Value& part,
                                         std::vector<std::string> path) {
  path_ = std::move(path);
  return ConvertAll(rules_.Reserve(name), part);
}

std::string SchemaConverter::ConvertAll(const std::string& rule, const Value& schema) {
  rules_.Define(rule, Expression(schema, rule));
  // What is referred to comes one after another, not inside each other: chains of references may
  // be long.
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.back());
    pending_.pop_back();
    path_ = next.path;
    rules_.Define(next.rule, Expression(*next.schema, next.rule));
  }
  return rule;
}

// A schema's own rule.
std::string SchemaConverter::Visit(const Value& schema, const std::string& name) {
  if (schema.IsObject() && schema.HasMember("$ref")) return Reference(schema);
  std::string body = Expression(schema, name);
  // A name alone needs no rule of its own.
  if (rules_.places.contains(body)) return body;
  return rules_.Add(GbnfWriter::State::Fit(name), std::move(body));
}

std::string SchemaConverter::Expression(const Value& schema, const std::string& name) {
  if (depth_ > limits::kSchemaDepthMax) {
    Fail("schemas are nested more than " + std::to_string(limits::kSchemaDepthMax) + " deep");
  }
  if (schema.IsTrue()) return Basic("json-value");
  if (schema.IsFalse()) Fail("no document satisfies false");
  if (!schema.IsObject()) Fail("a schema must be an object or a boolean");
  if (schema.HasMember("$ref")) return Reference(schema);
  if (schema.HasMember("allOf")) return AllOf(schema, name);
  for (const char* keyword : {"oneOf", "anyOf"}) {
    if (schema.HasMember(keyword)) return Alternatives(schema, keyword, name);
  }
  if (schema.HasMember("const")) return GbnfWriter::Literal(WriteJson(schema["const"]));
  if (schema.HasMember("enum")) return Enumeration(schema["enum"]);
  if (!schema.HasMember("type")) return Untyped(schema, name);
  const Value& type = schema["type"];
  if (type.IsArray()) return Types(schema, name);
  if (!type.IsString()) Fail("'type' must be a string or an array of strings");
  return OfType(schema, Text(type), name);
}

std::string SchemaConverter::OfType(const Value& schema, std::string_view type,
                                    const std::string& name) {
  if (type == "boolean") return Basic("json-boolean");
  if (type == "null") return Basic("json-null");
  if (type == "number") return Basic("json-number");
  if (type == "object") return Object(schema, name);
  if (type == "array") return Array(schema, name);
  if (type == "string") return String(schema);
  if (type == "integer") return Integer(schema);
  Fail("unknown type '" + Printable(type) + "'");
}

std::string SchemaConverter::Untyped(const Value& schema, const std::string& name) {
  if (HasAny(schema, {"properties", "additionalProperties", "required"})) {
    return Object(schema, name);
  }
  if (HasAny(schema, {"items", "prefixItems", "minItems", "maxItems"})) return Array(schema, name);
  if (HasAny(schema, {"pattern", "minLength", "maxLength"})) return String(schema);
  if (schema.HasMember("format") && schema["format"].IsString()) return String(schema);
  if (HasAny(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    return Basic("json-number");
  }
  return Basic("json-value");
}

std::string SchemaConverter::Types(const Value& schema, const std::string& name) {
  const Value& types = schema["type"];
  if (types.Empty()) Fail("'type' has no entries");
  std::string body;
  for (const Value& each : types.GetArray()) {
    if (!each.IsString()) Fail("'type' must be a string or an array of strings");
    const std::string own = name + "-" + std::string(Text(each));
    std::string one = OfType(schema, Text(each), own);
    if (!rules_.places.contains(one)) {
      one = rules_.Add(GbnfWriter::State::Fit(own), std::move(one));
    }
    if (!body.empty()) body += " | ";
    body += one;
  }
  return body;
}

const rapidjson::Value* SchemaConverter::Member(const Value& schema, const char* keyword) const {
  const auto found = schema.FindMember(keyword);
  return found == schema.MemberEnd() ? nullptr : &found->value;
}

std::string SchemaConverter::Enumeration(const Value& values) {
  const Step step(*this, "enum");
  if (!values.IsArray() || values.Empty()) Fail("'enum' must be an array with entries");
  std::string body;
  for (const Value& value : values.GetArray()) {
    if (!body.empty()) body += " | ";
    body += GbnfWriter::Literal(WriteJson(value));
  }
  return body;
}

std::string SchemaConverter::String(const Value& schema) {
  if (const Value* pattern = Member(schema, "pattern")) {
    const Step step(*this, "pattern");
    if (!pattern->IsString()) Fail("'pattern' must be a string");
    std::optional<std::string> body;
    try {
      body = PatternToGbnf(Text(*pattern));
    } catch (const Error& error) {
      Fail(std::string("the pattern is not valid at ") + error.what());
    }
    if (body) return "\"\\\"\" (" + *body + ") \"\\\"\"";
    if (!warned_)
      LOG(WARNING) << "the pattern '" << Printable(Text(*pattern))
                   << "' of a JSON schema is not honoured: only such between ^ and $ without "
                      "look-around, back references and word boundaries are";
    warned_ = true;  // one line a schema, however many patterns it has
    return Basic("json-string");
  }
  if (const Value* format = Member(schema, "format"); format != nullptr && format->IsString()) {
    const std::string_view name = Text(*format);
    const bool uuid = name == "uuid" || (name.size() == 5 && name.starts_with("uuid") &&
                                         name[4] >= '1' && name[4] <= '5');
    if (name == "date" || name == "time" || name == "date-time") {
      return "\"\\\"\" " + Basic("json-" + std::string(name)) + " \"\\\"\"";
    }
    if (uuid) return "\"\\\"\" " + Basic("json-uuid") + " \"\\\"\"";
  }
  const auto least = Count(schema, "minLength");
  const auto most = Count(schema, "maxLength");
  if (!least && !most) return Basic("json-string");
  if (most && *most < least.value_or(0)) Fail("maxLength is below minLength");
  return "\"\\\"\" " + Basic("json-char") + Times(least.value_or(0), most) + " \"\\\"\"";
}

// "{m,n}", "{m,}" or "{m}".
std::string SchemaConverter::Times(int64_t least, std::optional<int64_t> most) {
  std::string out = "{" + std::to_string(least);
  if (!most) return out + ",}";
  if (*most != least) out += "," + std::to_string(*most);
  return out + "}";
}

std::optional<int64_t> SchemaConverter::Count(const Value& schema, const char* keyword) const {
  const Value* value = Member(schema, keyword);
  if (value == nullptr) return std::nullopt;
  double number = -1.0;
  if (value->IsNumber()) number = value->GetDouble();
  if (number < 0.0 || number != std::floor(number)) {
    Fail("'" + std::string(keyword) + "' must be an integer of at least 0");
  }
  if (number > limits::kGrammarRepeatMax) {
    // As an upper limit it is none; as a lower one it asks for too much.
    if (std::string_view(keyword).starts_with("max")) return std::nullopt;
    Fail("'" + std::string(keyword) + "' is above " + std::to_string(limits::kGrammarRepeatMax));
  }
  return static_cast<int64_t>(number);
}

// The tightest of `minimum` and `exclusiveMinimum`, or of their opposites, as an integer. The
// boolean forms of draft 4 sharpen the other keyword.
std::optional<int64_t> SchemaConverter::Bound(const Value& schema, bool lower) const {
  const char* inclusive_name = lower ? "minimum" : "maximum";
  const char* exclusive_name = lower ? "exclusiveMinimum" : "exclusiveMaximum";
  const Value* inclusive = Member(schema, inclusive_name);
  const Value* exclusive = Member(schema, exclusive_name);
  std::optional<int64_t> bound;
  const auto tighten = [&](const Value& value, const char* keyword, bool sharp) {
    if (!value.IsNumber()) Fail("'" + std::string(keyword) + "' must be a number");
    const double number = value.GetDouble();
    if (std::abs(number) > static_cast<double>(kIntegerBoundMax)) {
      const bool outside = lower == (number > 0.0);
      if (outside)
        Fail("'" + std::string(keyword) + "' is beyond " + std::to_string(kIntegerBoundMax));
      return;
    }
    int64_t integer = value.IsInt64()
                          ? value.GetInt64()
                          : static_cast<int64_t>(lower ? std::ceil(number) : std::floor(number));
    const bool whole = value.IsInt64() || number == std::floor(number);
    if (sharp && whole) integer += lower ? 1 : -1;
    if (!bound) {
      bound = integer;
    } else {
      bound = lower ? std::max(*bound, integer) : std::min(*bound, integer);
    }
  };
  const bool sharp = exclusive != nullptr && exclusive->IsTrue();
  if (inclusive != nullptr) tighten(*inclusive, inclusive_name, sharp);
  if (exclusive != nullptr && !exclusive->IsBool()) tighten(*exclusive, exclusive_name, true);
  return bound;
}

std::string SchemaConverter::Integer(const Value& schema) {
  const auto least = Bound(schema, true);
  const auto most = Bound(schema, false);
  if (!least && !most) return Basic("json-integer");
  if (least && most && *least > *most) Fail("no integer lies between the minimum and the maximum");
  return IntegersToGbnf(least, most);
}

}  // namespace bloomery::text
