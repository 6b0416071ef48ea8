// JSON schemas as GBNF text, and a writer that joins such rules with others, as tool calls do.
// Pure functions and values; one writer belongs to one thread.
//
//   GbnfWriter writer;
//   const std::string arguments = writer.AddSchema("arguments", schema);
//   writer.AddRule("root", GbnfWriter::Literal("<tool_call>") + " " + arguments);
//   compiler.FromGbnf(writer.Source());
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace bloomery::text {

// The grammar of a schema's documents. Between JSON tokens: nothing, one space, or one or two
// newlines and up to 20 blanks. Honoured: $ref within the document, anyOf, oneOf, allOf (merged),
// const, enum, type (one or several), properties, required, additionalProperties, items,
// prefixItems, additionalItems, minItems, maxItems, minLength, maxLength, pattern, format (date,
// time, date-time, uuid), minimum, maximum and the exclusive forms for integers, true and false as
// schemas; {} is any object. Keywords nobody knows are ignored, as JSON schema has it. Throws
// Error(kBadRequest, "JSON schema: line L, column C (#/path): why") for text that is no JSON, a
// keyword of the wrong type, a $ref that does not resolve, a pattern that is invalid, a schema that
// no document satisfies, and beyond limits::kSchema*.
std::string JsonSchemaToGbnf(std::string_view schema);

class GbnfWriter {
 public:
  GbnfWriter();
  ~GbnfWriter();
  GbnfWriter(const GbnfWriter&) = delete;
  GbnfWriter& operator=(const GbnfWriter&) = delete;

  // Adds `name ::= body` and returns the name: `name` made fit for GBNF, with a number behind it
  // where a different body has it already. The same name and body again are one rule.
  std::string AddRule(std::string_view name, std::string body);

  // A rule whose language is the documents of `schema`, as above. $ref resolves within `schema`.
  std::string AddSchema(std::string_view name, const rapidjson::Value& schema);
  // Of those documents the ones that are objects; refused where there can be none.
  std::string AddObjectSchema(std::string_view name, const rapidjson::Value& schema);
  // As AddSchema for the part of `root` that lies at `path` ({"properties", "a"}), with $ref in
  // `root`.
  std::string AddPartOfSchema(std::string_view name, const rapidjson::Value& root,
                              const rapidjson::Value& part, std::vector<std::string> path);

  // Error(kBadRequest), as above, where no document of `schema` can be an object.
  static void CheckGivesObjects(const rapidjson::Value& schema);

  // A rule for any text up to and including the first `stop` (not empty, valid UTF-8) in which
  // `never` does not occur ("": nothing is excluded).
  std::string AddTextThrough(std::string_view name, std::string_view stop,
                             std::string_view never = "");

  // A quoted literal; "\"\"" for empty text.
  static std::string Literal(std::string_view text);

  // All rules, one a line. Begins with root if there is one.
  std::string Source() const;

 private:
  friend class SchemaConverter;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bloomery::text
