// Turns one JSON schema into rules of a GbnfWriter: each schema in it becomes a rule, references
// become names. One conversion each; recursion is bounded by limits::kSchemaDepthMax.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/text/grammar/json_schema.h"
#include "runtime/text/grammar/writer_state.h"

namespace bloomery::text {

class SchemaConverter {
 public:
  // `source`: the schema as it was written, for the places in messages; "" where it came as a
  // value, and then places are those of its compact form.
  SchemaConverter(GbnfWriter::State& rules, const rapidjson::Value& root, std::string_view source)
      : rules_(rules), root_(root), source_(source) {}

  // Which documents of a schema are meant.
  enum class Want { kAny, kObject };

  // The name of the rule for the whole schema; {} is any object.
  std::string Convert(std::string_view name, Want want = Want::kAny);
  // The same for a part of it, which lies at `path`.
  std::string ConvertPart(std::string_view name, const rapidjson::Value& part,
                          std::vector<std::string> path);

  // Fails where no document can be an object.
  void CheckGivesObjects() const;

  static std::string WholeGrammar(const rapidjson::Value& schema, std::string_view source);

 private:
  using Value = rapidjson::Value;

  // A property as an object's rule needs it.
  struct Property {
    std::string name;
    std::string rule;  // of the whole pair; "" where the property must not be there
    bool required;
  };
  // A schema that a reference named and that has no body yet.
  struct Pending {
    const Value* schema;
    std::string rule;
    std::vector<std::string> path;
    Want want;
  };
  // A reference that stands where its rule begins.
  struct Head {
    std::string to;
    std::vector<std::string> path;
  };
  // While it lives, references are inside an object or an array: behind its bracket.
  class Inside {
   public:
    explicit Inside(SchemaConverter& converter) : inside_(converter.inside_) { ++inside_; }
    ~Inside() { --inside_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    int& inside_;
  };
  // While it lives, messages name the part `name` of what was named before.
  class Step {
   public:
    Step(SchemaConverter& converter, std::string name) : converter_(converter) {
      converter_.path_.push_back(std::move(name));
      ++converter_.depth_;
    }
    ~Step() {
      --converter_.depth_;
      converter_.path_.pop_back();
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    SchemaConverter& converter_;
  };

  [[noreturn]] void Fail(const std::string& why) const;
  std::string ConvertAll(const std::string& rule, const Value& schema, Want want);
  void CheckHeads();
  void CountSteps(size_t more) const;
  std::string Visit(const Value& schema, const std::string& name, Want want = Want::kAny);
  std::string Expression(const Value& schema, const std::string& name, Want want);
  std::string OfType(const Value& schema, std::string_view type, const std::string& name);
  std::string Untyped(const Value& schema, const std::string& name, Want want);
  std::string Reference(const Value& schema, Want want);
  const Value& Resolve(const Value& schema, std::vector<std::string>& path) const;
  std::string Alternatives(const Value& schema, const char* keyword, const std::string& name,
                           Want want);
  std::string Types(const Value& schema, const std::string& name, Want want);
  std::string AllOf(const Value& schema, const std::string& name, Want want);
  // Whether an object can be among the documents of `schema`, by its keywords that say so.
  bool GivesObjects(const Value& schema, int depth) const;
  Value Copy(const Value& schema, const char* without);
  void MergeInto(Value& merged, const Value& part, int depth);
  void MergeMember(Value& merged, const Value& name, const Value& value);
  std::string Enumeration(const Value& values, Want want);
  std::string Object(const Value& schema, const std::string& name);
  std::vector<Property> Properties(const Value& schema, const std::string& name);
  std::string Others(const Value& schema, const std::vector<Property>& properties,
                     const std::string& name);
  std::string PairRule(const std::string& property, const std::string& value,
                       const std::string& name);
  std::string ObjectBody(const std::vector<Property>& properties, const std::string& others,
                         const std::string& name);
  std::string OtherNames(const std::vector<std::string>& declared, const std::string& name);
  std::string Array(const Value& schema, const std::string& name);
  std::string Tuple(const Value& items, const char* keyword, const std::string& name);
  std::string String(const Value& schema);
  std::string Integer(const Value& schema);

  // Readers of keywords that refuse the wrong type.
  std::optional<int64_t> Count(const Value& schema, const char* keyword) const;
  std::optional<int64_t> Bound(const Value& schema, bool lower) const;
  const Value* Member(const Value& schema, const char* keyword) const;
  std::set<std::string, std::less<>> RequiredNames(const Value& schema) const;
  static std::string Times(int64_t least, std::optional<int64_t> most);

  std::string Basic(std::string_view name);

  GbnfWriter::State& rules_;
  const Value& root_;
  std::string_view source_;
  std::vector<std::string> path_;
  int depth_ = 0;
  int inside_ = 0;
  std::string rule_;  // that is being made, of those that references name
  std::map<std::string, std::vector<Head>, std::less<>> heads_;  // by such a rule
  bool warned_ = false;
  std::map<std::pair<std::string, Want>, std::string> references_;  // pointer → rule
  std::vector<Pending> pending_;
  mutable rapidjson::Document made_;  // owns merged schemas; its allocator cannot be asked for its
                                      // size otherwise
};

}  // namespace bloomery::text
