// SchemaConverter: references, alternatives, merged schemas, objects and arrays.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/grammar/gbnf_text.h"
#include "runtime/text/grammar/schema_converter.h"

namespace bloomery::text {
namespace {

constexpr size_t kMergedEntriesMax = 2048;  // they are compared each with each
// Members that references and merges look at, and bytes that are compared: schemas of a hundred
// tools take some ten thousand; this many take some tenths of a second. References make merges grow
// without end.
constexpr size_t kSchemaStepsMax = size_t{1} << 23;
constexpr size_t kStepsOfText = 64;  // what making a text counts for, beside its bytes

constexpr std::string_view kComma = R"(json-ws "," json-ws )";

// What a keyword says about documents, not about people or tools.
bool Constrains(std::string_view keyword) {
  static constexpr std::string_view kNotes[] = {
      "title",     "description", "default", "examples", "example", "deprecated",  "readOnly",
      "writeOnly", "$schema",     "$id",     "$comment", "$defs",   "definitions", "$anchor"};
  return std::ranges::find(kNotes, keyword) == std::end(kNotes);
}

std::string_view Text(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

// One name of a JSON pointer in a URL's fragment: %XX, then ~1 and ~0.
std::string Unescaped(std::string_view name) {
  std::string bytes;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
  };
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '%' && i + 2 < name.size() && hex(name[i + 1]) >= 0 && hex(name[i + 2]) >= 0) {
      bytes += static_cast<char>(hex(name[i + 1]) * 16 + hex(name[i + 2]));
      i += 2;
    } else {
      bytes += name[i];
    }
  }
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool escape = bytes[i] == '~' && i + 1 < bytes.size();
    if (escape && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      out += bytes[++i] == '0' ? '~' : '/';
    } else {
      out += bytes[i];
    }
  }
  return out;
}

// Equal for values that are equal; of a number what it is worth, however it is written.
std::string KeyOf(const rapidjson::Value& value) {
  return value.IsDouble() || value.IsInt64() || value.IsUint64()
             ? WriteJson(rapidjson::Value(value.GetDouble()))
             : WriteJson(value);
}

}  // namespace

void SchemaConverter::CountSteps(size_t more) const {
  rules_.schema_steps += more;
  if (rules_.schema_steps > kSchemaStepsMax ||
      made_.GetAllocator().Size() > limits::kSchemaMergedBytesMax) {
    Fail("it takes too much to merge");
  }
}

// The schema that `schema`'s $ref names, and the way to it.
const rapidjson::Value& SchemaConverter::Resolve(const Value& schema,
                                                 std::vector<std::string>& path) const {
  const Value& reference = schema["$ref"];
  if (!reference.IsString()) Fail("'$ref' must be a string");
  const std::string_view pointer = Text(reference);
  if (pointer != "#" && !pointer.starts_with("#/")) {
    Fail("'$ref' must point into this document (#/...): '" + Printable(pointer) + "'");
  }
  const Value* at = &root_;
  path.clear();
  for (size_t begin = 1; begin < pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    const std::string name = Unescaped(pointer.substr(begin + 1, end - begin - 1));
    begin = end;
    path.push_back(name);
    CountSteps(kStepsOfText + (at->IsObject() ? at->MemberCount() : 0));
    if (at->IsObject() && at->HasMember(name)) {
      at = &(*at)[name];
      continue;
    }
    const bool index = at->IsArray() && !name.empty() && name.size() < 8 &&
                       std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (!index || std::stoul(name) >= at->Size()) {
      Fail("'$ref' leads nowhere: '" + Printable(pointer) + "'");
    }
    at = &(*at)[static_cast<rapidjson::SizeType>(std::stoul(name))];
  }
  return *at;
}

std::string SchemaConverter::Reference(const Value& schema, Want want) {
  std::vector<std::string> path;
  const Value& target = Resolve(schema, path);
  std::string key = "#";
  for (const std::string& name : path) key += "/" + name;
  const auto known = references_.find(std::pair(key, want));
  if (known != references_.end()) {
    if (inside_ == 0) heads_[rule_].push_back({known->second, path_});
    return known->second;
  }
  const std::string rule = rules_.Reserve(path.empty() ? "document" : path.back());
  references_.emplace(std::pair(std::move(key), want), rule);
  pending_.push_back({&target, rule, std::move(path), want});
  if (inside_ == 0) heads_[rule_].push_back({rule, path_});
  return rule;
}

// anyOf and oneOf: each branch, together with what stands beside the alternatives.
std::string SchemaConverter::Alternatives(const Value& schema, const char* keyword,
                                          const std::string& name, Want want) {
  const Value& branches = schema[keyword];
  const Step step(*this, keyword);
  if (!branches.IsArray() || branches.Empty()) {
    Fail("'" + std::string(keyword) + "' must be an array with entries");
  }
  const bool beside = std::ranges::any_of(schema.GetObject(), [&](const auto& member) {
    return Text(member.name) != keyword && Constrains(Text(member.name));
  });
  std::string body;
  for (rapidjson::SizeType i = 0; i < branches.Size(); ++i) {
    const Step index(*this, std::to_string(i));
    if (branches[i].IsFalse()) continue;
    const std::string own = name + "-" + std::to_string(i);
    std::string rule;
    if (beside && branches[i].IsObject()) {
      Value merged = Copy(schema, keyword);
      MergeInto(merged, branches[i], 0);
      if (want == Want::kObject && !GivesObjects(merged, 0)) continue;
      rule = Visit(merged, own, want);
    } else {
      if (want == Want::kObject && !GivesObjects(branches[i], 0)) continue;
      rule = Visit(branches[i], own, want);
    }
    if (!body.empty()) body += " | ";
    body += rule;
  }
  if (body.empty()) Fail("no document satisfies any branch");
  return body;
}

std::string SchemaConverter::AllOf(const Value& schema, const std::string& name, Want want) {
  const Value& parts = schema["allOf"];
  const Step step(*this, "allOf");
  if (!parts.IsArray() || parts.Empty()) Fail("'allOf' must be an array with entries");
  Value merged = Copy(schema, "allOf");
  for (const Value& part : parts.GetArray()) MergeInto(merged, part, 0);
  return Visit(merged, name, want);
}

// The schema without one keyword, to be merged with others.
rapidjson::Value SchemaConverter::Copy(const Value& schema, const char* without) {
  Value copy(rapidjson::kObjectType);
  auto& allocator = made_.GetAllocator();
  for (const auto& member : schema.GetObject()) {
    if (Text(member.name) == without || !Constrains(Text(member.name))) continue;
    copy.AddMember(Value(member.name, allocator), Value(member.value, allocator), allocator);
    CountSteps(1);  // what stands beside alternatives is copied for each of them
  }
  return copy;
}

void SchemaConverter::MergeInto(Value& merged, const Value& part, int depth) {
  if (depth > limits::kSchemaDepthMax) Fail("'allOf' and '$ref' lead in a circle");
  CountSteps(1);
  if (part.IsTrue()) return;
  if (!part.IsObject()) Fail("no document satisfies a part that is no object");
  if (part.HasMember("$ref")) {
    std::vector<std::string> path;
    MergeInto(merged, Resolve(part, path), depth + 1);
    return;
  }
  for (const auto& member : part.GetObject()) {
    if (Text(member.name) == "allOf" && member.value.IsArray()) {
      for (const Value& each : member.value.GetArray()) MergeInto(merged, each, depth + 1);
    } else {
      MergeMember(merged, member.name, member.value);
    }
  }
}

void SchemaConverter::MergeMember(Value& merged, const Value& name, const Value& value) {
  auto& allocator = made_.GetAllocator();
  const std::string_view keyword = Text(name);
  CountSteps(1 + merged.MemberCount());
  const auto known = merged.FindMember(name);
  if (known == merged.MemberEnd()) {
    merged.AddMember(Value(name, allocator), Value(value, allocator), allocator);
    return;
  }
  Value& old = known->value;
  const auto large = [](const Value& each) {
    return (each.IsArray() && each.Size() > kMergedEntriesMax) ||
           (each.IsObject() && each.MemberCount() > kMergedEntriesMax);
  };
  if (large(old) || large(value)) Fail("'" + std::string(keyword) + "' is too large to merge");
  if (keyword == "properties" && old.IsObject() && value.IsObject()) {
    for (const auto& property : value.GetObject()) {
      CountSteps(1 + old.MemberCount());
      const auto same = old.FindMember(property.name);
      if (same == old.MemberEnd()) {
        old.AddMember(Value(property.name, allocator), Value(property.value, allocator), allocator);
      } else if (same->value.IsObject() && property.value.IsObject()) {
        Value both(rapidjson::kObjectType);
        Value parts(rapidjson::kArrayType);
        parts.PushBack(Value(same->value, allocator), allocator);
        parts.PushBack(Value(property.value, allocator), allocator);
        both.AddMember("allOf", parts, allocator);
        same->value = both;
      }
    }
  } else if (keyword == "required" && old.IsArray() && value.IsArray()) {
    CountSteps(value.Size());
    for (const Value& each : value.GetArray()) old.PushBack(Value(each, allocator), allocator);
  } else if (keyword == "enum" && old.IsArray() && value.IsArray()) {
    Value both(rapidjson::kArrayType);
    std::set<std::string> others;
    const auto key_of = [&](const Value& each) {
      std::string key = KeyOf(each);
      CountSteps(kStepsOfText + key.size());
      return key;
    };
    for (const Value& each : value.GetArray()) others.insert(key_of(each));
    for (const Value& each : old.GetArray()) {
      if (others.contains(key_of(each))) both.PushBack(Value(each, allocator), allocator);
    }
    old = both;
  } else if (keyword == "anyOf" || keyword == "oneOf") {
    const std::string written = WriteJson(old);
    CountSteps(kStepsOfText + written.size());
    if (written == WriteJson(value)) return;
    Fail("two '" + std::string(keyword) + "' that both hold are not supported");
  } else if (Constrains(keyword)) {
    old = Value(value, allocator);
  }
}

std::set<std::string, std::less<>> SchemaConverter::RequiredNames(const Value& schema) const {
  std::set<std::string, std::less<>> names;
  const Value* required = Member(schema, "required");
  if (required == nullptr || required->IsBool()) return names;  // a boolean is of draft 3
  if (!required->IsArray()) Fail("'required' must be an array of names");
  for (const Value& each : required->GetArray()) {
    if (!each.IsString()) Fail("'required' must be an array of names");
    names.emplace(Text(each));
  }
  return names;
}

std::string SchemaConverter::Object(const Value& schema, const std::string& name) {
  const Inside inside(*this);
  const Value* others = Member(schema, "additionalProperties");
  if (others != nullptr && !others->IsBool() && !others->IsObject()) {
    Fail("'additionalProperties' must be a boolean or a schema");
  }
  std::vector<Property> properties = Properties(schema, name);
  if (properties.empty() && (others == nullptr || others->IsTrue()) &&
      !schema.HasMember("properties")) {
    return Basic("json-object");
  }
  const std::string other = Others(schema, properties, name);
  std::erase_if(properties, [](const Property& property) { return property.rule.empty(); });
  return ObjectBody(properties, other, name);
}

std::vector<SchemaConverter::Property> SchemaConverter::Properties(const Value& schema,
                                                                   const std::string& name) {
  std::vector<Property> properties;
  std::set<std::string, std::less<>> required = RequiredNames(schema);
  const Value* declared = Member(schema, "properties");
  if (declared != nullptr && !declared->IsObject()) Fail("'properties' must be an object");
  if (declared != nullptr) {
    const Step step(*this, "properties");
    for (const auto& member : declared->GetObject()) {
      const std::string property(Text(member.name));
      const Step at(*this, property);
      const bool needed = required.erase(property) > 0;
      if (member.value.IsFalse()) {
        if (needed) Fail("a property that is required cannot be false");
        properties.push_back({property, "", false});
        continue;
      }
      const std::string own = name + "-" + property;
      properties.push_back({property, PairRule(property, Visit(member.value, own), own), needed});
    }
  }
  // Names that are only required: any value.
  for (const std::string& property : required) {
    properties.push_back(
        {property, PairRule(property, Basic("json-value"), name + "-" + property), true});
  }
  return properties;
}

std::string SchemaConverter::PairRule(const std::string& property, const std::string& value,
                                      const std::string& name) {
  const std::string key = GbnfWriter::Literal(WriteJson(Value(
      property.c_str(), static_cast<rapidjson::SizeType>(property.size()), made_.GetAllocator())));
  const std::string ws = Basic("json-ws");
  return rules_.Add(GbnfWriter::State::Fit(name + "-pair"),
                    key + " " + ws + " \":\" " + ws + " " + value);
}

// The rule of a pair whose name is none of the declared ones; "" where there may be none.
std::string SchemaConverter::Others(const Value& schema, const std::vector<Property>& properties,
                                    const std::string& name) {
  const Value* others = Member(schema, "additionalProperties");
  if (others == nullptr || others->IsFalse()) return "";
  const Step step(*this, "additionalProperties");
  const bool any = others->IsTrue() || others->ObjectEmpty();
  const std::string own = name + "-other";
  const std::string value = any ? Basic("json-value") : Visit(*others, own);
  std::vector<std::string> declared;
  declared.reserve(properties.size());
  for (const Property& property : properties) declared.push_back(property.name);
  const std::string key = declared.empty() ? Basic("json-string") : OtherNames(declared, own);
  const std::string ws = Basic("json-ws");
  return rules_.Add(GbnfWriter::State::Fit(own + "-pair"),
                    key + " " + ws + " \":\" " + ws + " " + value);
}

// A JSON string that is none of `declared`: along the tree of their characters, out of it with any
// character that is no branch. Inside it names are spelt without needless escapes, for those could
// spell a declared one.
std::string SchemaConverter::OtherNames(const std::vector<std::string>& declared,
                                        const std::string& name) {
  struct Node {
    std::map<char32_t, size_t> next;
    bool ends = false;    // a declared name
    bool escape = false;  // behind a backslash
  };
  std::vector<Node> nodes(1);
  for (const std::string& each : declared) {
    const std::string quoted = WriteJson(
        Value(each.c_str(), static_cast<rapidjson::SizeType>(each.size()), made_.GetAllocator()));
    std::string_view left = std::string_view(quoted).substr(1, quoted.size() - 2);
    size_t at = 0;
    while (!left.empty()) {
      const Utf8Character c = DecodeUtf8(left);
      left.remove_prefix(c.length);
      const auto [entry, added] = nodes[at].next.try_emplace(c.code_point, nodes.size());
      at = entry->second;
      if (!added) continue;
      nodes.emplace_back();
      nodes.back().escape = c.code_point == U'\\' && !nodes[at].escape;
    }
    nodes[at].ends = true;
  }
  const std::string rest =
      rules_.Add(GbnfWriter::State::Fit("json-rest"), Basic("json-char") + "* \"\\\"\"");
  std::vector<std::string> rules(nodes.size());
  // From the back: a node's branches have higher numbers.
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    std::string body = node.ends || node.escape ? "" : "\"\\\"\"";
    CodeRanges barred = {{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}};
    for (const auto& [c, next] : node.next) {
      if (!body.empty()) body += " | ";
      body += GbnfClass({{c, c}}) + " " + rules[next];
      barred.push_back({c, c});
    }
    if (!node.escape) {
      if (!body.empty()) body += " | ";
      body += GbnfClass(Complement(Normalised(std::move(barred)))) + " " + rest;
    }
    rules[i] = rules_.Add(GbnfWriter::State::Fit(name + "-name"), std::move(body));
  }
  return "\"\\\"\" " + rules[0];
}

// Declared order; what is not required may be left out.
std::string SchemaConverter::ObjectBody(const std::vector<Property>& properties,
                                        const std::string& others, const std::string& name) {
  const std::string ws = Basic("json-ws");
  const std::string comma(kComma);
  // more[i]: what may follow once something stands before property i.
  std::vector<std::string> more(properties.size() + 1);
  more.back() = others.empty() ? "\"\"" : "(" + comma + others + ")*";
  for (size_t i = properties.size(); i-- > 1;) {
    std::string body = comma + properties[i].rule + " " + more[i + 1];
    // First, for a rule does not end with an empty alternative: the next line would be read as it.
    if (!properties[i].required) body = more[i + 1] + " | " + body;
    more[i] = rules_.Add(GbnfWriter::State::Fit(name + "-more"), std::move(body));
  }
  // Nothing stands before: up to the first required one any may be the first.
  std::string first;
  bool required = false;
  for (size_t i = 0; i < properties.size() && !required; ++i) {
    if (i > 0) first += " | ";
    first += properties[i].rule + " " + more[i + 1];
    required = properties[i].required;
  }
  if (!required && !others.empty()) {
    if (!first.empty()) first += " | ";
    first += others + " (" + comma + others + ")*";
  }
  if (first.empty()) return "\"{\" " + ws + " \"}\"";
  return "\"{\" " + ws + " (" + first + " " + (required ? ") " : ")? ") + ws + " \"}\"";
}

std::string SchemaConverter::Array(const Value& schema, const std::string& name) {
  const Inside inside(*this);
  for (const char* keyword : {"prefixItems", "items"}) {
    const Value* items = Member(schema, keyword);
    if (items != nullptr && items->IsArray()) return Tuple(*items, keyword, name);
    if (items != nullptr && std::string_view(keyword) == "prefixItems") {
      Fail("'prefixItems' must be an array of schemas");
    }
  }
  const int64_t least = Count(schema, "minItems").value_or(0);
  const std::optional<int64_t> most = Count(schema, "maxItems");
  if (most && *most < least) Fail("maxItems is below minItems");
  const std::string ws = Basic("json-ws");
  std::string item;
  if (const Value* items = Member(schema, "items")) {
    const Step step(*this, "items");
    if (items->IsFalse()) {
      if (least > 0) Fail("no item satisfies false, but minItems is above 0");
      return "\"[\" " + ws + " \"]\"";
    }
    item = Visit(*items, name + "-item");
  } else {
    if (least == 0 && !most) return Basic("json-array");
    item = Basic("json-value");
  }
  if (most == 0) return "\"[\" " + ws + " \"]\"";
  std::optional<int64_t> further;
  if (most) further = *most - 1;
  std::string items = item + " (" + std::string(kComma) + item + ")" +
                      Times(std::max<int64_t>(least - 1, 0), further);
  return "\"[\" " + ws + " (" + items + (least == 0 ? ")? " : ") ") + ws + " \"]\"";
}

std::string SchemaConverter::Tuple(const Value& items, const char* keyword,
                                   const std::string& name) {
  const Step step(*this, keyword);
  const std::string ws = Basic("json-ws");
  std::string body;
  for (rapidjson::SizeType i = 0; i < items.Size(); ++i) {
    const Step index(*this, std::to_string(i));
    if (!body.empty()) body += std::string(" ") + std::string(kComma);
    body += Visit(items[i], name + "-" + std::to_string(i));
  }
  return "\"[\" " + ws + " " + body + " " + ws + " \"]\"";
}

}  // namespace bloomery::text
