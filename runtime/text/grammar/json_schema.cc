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

std::string SchemaConverter::Convert(std::string_view name, Want want) {
  if (root_.IsObject() && root_.ObjectEmpty()) {
    return rules_.Add(GbnfWriter::State::Fit(name), Basic("json-object"));
  }
  const std::string rule = rules_.Reserve(name);
  references_.emplace(std::pair("#", want), rule);
  return ConvertAll(rule, root_, want);
}

std::string SchemaConverter::ConvertPart(std::string_view name, const Value& part,
                                         std::vector<std::string> path) {
  path_ = std::move(path);
  return ConvertAll(rules_.Reserve(name), part, Want::kAny);
}

std::string SchemaConverter::ConvertAll(const std::string& rule, const Value& schema, Want want) {
  rule_ = rule;
  rules_.Define(rule, Expression(schema, rule, want));
  // What is referred to comes one after another, not inside each other: chains of references may
  // be long.
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.back());
    pending_.pop_back();
    path_ = next.path;
    rule_ = next.rule;
    rules_.Define(next.rule, Expression(*next.schema, next.rule, next.want));
  }
  CheckHeads();
  return rule;
}

// A document of a schema that begins with itself would never begin. Along the references that stand
// where a rule begins, depth first; what is grey is on the way.
void SchemaConverter::CheckHeads() {
  enum class Colour { kWhite, kGrey, kBlack };
  std::map<std::string_view, Colour> colours;
  struct Visited {
    std::string_view rule;
    const std::vector<Head>* heads;
    size_t next = 0;
  };
  for (const auto& [rule, heads] : heads_) {
    if (colours[rule] != Colour::kWhite) continue;
    std::vector<Visited> way{{rule, &heads}};
    colours[rule] = Colour::kGrey;
    while (!way.empty()) {
      Visited& at = way.back();
      if (at.heads == nullptr || at.next == at.heads->size()) {
        colours[at.rule] = Colour::kBlack;
        way.pop_back();
        continue;
      }
      const Head& head = (*at.heads)[at.next++];
      Colour& colour = colours[head.to];
      if (colour == Colour::kGrey) {
        path_ = head.path;
        Fail("'$ref' leads back to a schema that it is all of: no document has an end");
      }
      if (colour == Colour::kBlack) continue;
      colour = Colour::kGrey;
      const auto further = heads_.find(head.to);
      way.push_back({head.to, further == heads_.end() ? nullptr : &further->second});
    }
  }
}

// A schema's own rule.
std::string SchemaConverter::Visit(const Value& schema, const std::string& name, Want want) {
  if (schema.IsObject() && schema.HasMember("$ref")) return Reference(schema, want);
  std::string body = Expression(schema, name, want);
  // A name alone needs no rule of its own.
  if (rules_.places.contains(body)) return body;
  return rules_.Add(GbnfWriter::State::Fit(name), std::move(body));
}

std::string SchemaConverter::Expression(const Value& schema, const std::string& name, Want want) {
  if (depth_ > limits::kSchemaDepthMax) {
    Fail("schemas are nested more than " + std::to_string(limits::kSchemaDepthMax) + " deep");
  }
  const bool objects = want == Want::kObject;
  if (schema.IsTrue()) return Basic(objects ? "json-object" : "json-value");
  if (schema.IsFalse()) Fail("no document satisfies false");
  if (!schema.IsObject()) Fail("a schema must be an object or a boolean");
  if (objects && !GivesObjects(schema, 0)) Fail("no object satisfies it");
  if (schema.HasMember("$ref")) return Reference(schema, want);
  if (schema.HasMember("allOf")) return AllOf(schema, name, want);
  for (const char* keyword : {"oneOf", "anyOf"}) {
    if (schema.HasMember(keyword)) return Alternatives(schema, keyword, name, want);
  }
  if (schema.HasMember("const")) return GbnfWriter::Literal(WriteJson(schema["const"]));
  if (schema.HasMember("enum")) return Enumeration(schema["enum"], want);
  if (!schema.HasMember("type")) return Untyped(schema, name, want);
  const Value& type = schema["type"];
  if (type.IsArray()) return Types(schema, name, want);
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

void SchemaConverter::CheckGivesObjects() const {
  if (!GivesObjects(root_, 0)) Fail("no object satisfies it");
}

// Of the wrong type a keyword says nothing here: the conversion refuses it. A schema without a type
// is what Untyped takes it for.
bool SchemaConverter::GivesObjects(const Value& schema, int depth) const {
  CountSteps(1);
  if (!schema.IsObject()) return schema.IsTrue();
  if (depth > limits::kSchemaDepthMax) return false;
  const auto gives = [&](const Value& part) { return GivesObjects(part, depth + 1); };
  if (schema.HasMember("$ref")) {
    std::vector<std::string> path;
    return gives(Resolve(schema, path));
  }
  const Value* parts = Member(schema, "allOf");
  if (parts != nullptr && parts->IsArray() && !std::ranges::all_of(parts->GetArray(), gives)) {
    return false;
  }
  for (const char* keyword : {"oneOf", "anyOf"}) {
    const Value* branches = Member(schema, keyword);
    if (branches == nullptr || !branches->IsArray() || branches->Empty()) continue;
    if (!std::ranges::any_of(branches->GetArray(), gives)) return false;
  }
  if (const Value* only = Member(schema, "const")) return only->IsObject();
  const Value* values = Member(schema, "enum");
  if (values != nullptr && values->IsArray() && !values->Empty()) {
    return std::ranges::any_of(values->GetArray(), [](const Value& v) { return v.IsObject(); });
  }
  const auto is_object = [](const Value& type) {
    return type.IsString() && Text(type) == "object";
  };
  const Value* type = Member(schema, "type");
  if (type != nullptr && type->IsArray()) return std::ranges::any_of(type->GetArray(), is_object);
  if (type != nullptr && type->IsString()) return is_object(*type);
  return HasAny(schema, {"properties", "additionalProperties", "required"}) ||
         !HasAny(schema, {"items", "prefixItems", "minItems", "maxItems", "pattern", "minLength",
                          "maxLength", "format", "minimum", "maximum", "exclusiveMinimum",
                          "exclusiveMaximum"});
}

std::string SchemaConverter::Untyped(const Value& schema, const std::string& name, Want want) {
  if (HasAny(schema, {"properties", "additionalProperties", "required"})) {
    return Object(schema, name);
  }
  if (want == Want::kObject) return Basic("json-object");
  if (HasAny(schema, {"items", "prefixItems", "minItems", "maxItems"})) return Array(schema, name);
  if (HasAny(schema, {"pattern", "minLength", "maxLength"})) return String(schema);
  if (schema.HasMember("format") && schema["format"].IsString()) return String(schema);
  if (HasAny(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    return Basic("json-number");
  }
  return Basic("json-value");
}

std::string SchemaConverter::Types(const Value& schema, const std::string& name, Want want) {
  const Value& types = schema["type"];
  if (types.Empty()) Fail("'type' has no entries");
  std::string body;
  for (const Value& each : types.GetArray()) {
    if (!each.IsString()) Fail("'type' must be a string or an array of strings");
    if (want == Want::kObject && Text(each) != "object") continue;
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

std::string SchemaConverter::Enumeration(const Value& values, Want want) {
  const Step step(*this, "enum");
  if (!values.IsArray() || values.Empty()) Fail("'enum' must be an array with entries");
  std::string body;
  for (const Value& value : values.GetArray()) {
    if (want == Want::kObject && !value.IsObject()) continue;
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
