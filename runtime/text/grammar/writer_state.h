// What a GbnfWriter holds: rules in the order of their names' first use.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/grammar/json_schema.h"

namespace bloomery::text {

struct GbnfWriter::State {
  struct Rule {
    std::string name;
    std::string body;
  };

  // A name as GBNF takes it.
  static std::string Fit(std::string_view name);
  // As AddRule; `name` is fit already.
  std::string Add(const std::string& name, std::string body);
  // A name that no rule has, for a rule that refers to itself; Define gives the body.
  std::string Reserve(std::string_view name);
  void Define(const std::string& name, std::string body);

  std::vector<Rule> rules;
  std::map<std::string, size_t, std::less<>> places;  // by name, into rules
  std::map<std::string, std::string> added;           // name and body → the rule's name
  std::map<std::string, size_t, std::less<>> tries;   // by name, the last number given
  size_t bytes = 0;                                   // of Source(), about
  size_t schema_steps = 0;  // spent on schemas' references and merges, over all schemas

 private:
  std::string ReserveExactly(const std::string& name);
  void Count(size_t more);
};

}  // namespace bloomery::text
