// JSON schemas: documents that each keyword takes and refuses, written by hand, and messages with
// line and column.
#include "runtime/text/grammar/json_schema.h"

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/text/grammar/schema_integers.h"
#include "runtime/text/grammar/schema_pattern.h"
#include "tests/unit/text/grammar/grammar_test_support.h"

namespace bloomery::text {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Case {
  std::string schema;
  std::vector<std::string> taken;
  std::vector<std::string> refused;
};

class JsonSchemaTest : public GrammarFixture {
 protected:
  void Check(const Case& each) {
    SCOPED_TRACE(each.schema);
    std::string gbnf;
    ASSERT_NO_THROW(gbnf = JsonSchemaToGbnf(each.schema));
    for (const std::string& text : each.taken) EXPECT_TRUE(Matches(gbnf, text)) << text << gbnf;
    for (const std::string& text : each.refused) EXPECT_FALSE(Matches(gbnf, text)) << text << gbnf;
  }

  static std::string Refusal(const std::string& schema) {
    try {
      JsonSchemaToGbnf(schema);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      return error.what();
    }
    return "";
  }
};

TEST_F(JsonSchemaTest, AnEmptySchemaIsAnyObject) {
  Check({"{}",
         {"{}", "{ }", R"({"a":1})",
          R"({"a" : [1,2.5e3,-0,true,null,"x\n\u00e9\ud83d\ude00"], "b":{"c":{}}})",
          "{\n\n    \"a\": [\n  1\n]\n}"},
         {"", "[]", "1", "{", R"({"a"})", R"({a:1})", R"({"a":1,})", R"({"a":01})", R"({"a":"\x"})",
          R"({"a":"\ud83d"})", "{\"a\":\"\n\"}", R"({"a":1} )", "{\n\n\n}", R"({"a":tru})"}});
}

TEST_F(JsonSchemaTest, Primitives) {
  Check({R"({"type":"boolean"})", {"true", "false"}, {"null", "1", "True"}});
  Check({R"({"type":"null"})", {"null"}, {"0", "\"null\""}});
  Check({R"({"type":"number"})",
         {"0", "-1", "3.25", "1e9", "-2.5E-10"},
         {"01", ".5", "1.", "1e", "+1", "\"1\""}});
  Check({R"({"type":"integer"})", {"0", "-12", "123456"}, {"1.0", "00", "1e3"}});
  Check({R"({"type":"string"})",
         {R"("")", R"("a\"b\\")", "\"\u00e9\U0001F600\""},
         {"a", R"("a)", R"("\")", "\"a\tb\""}});
  Check({R"({"type":["string","null"],"maxLength":1})",
         {"null", R"("a")", R"("")"},
         {R"("ab")", "1"}});
}

TEST_F(JsonSchemaTest, ConstantsAndEnumerations) {
  Check({R"({"const":42})", {"42"}, {"41", "42.0"}});
  Check({R"({"const":{"a":[1,"x\"y"]}})", {R"({"a":[1,"x\"y"]})"}, {R"({"a":[1]})", "{}"}});
  Check({R"({"enum":["a","b",1,null]})", {R"("a")", R"("b")", "1", "null"}, {R"("c")", "2", "a"}});
}

TEST_F(JsonSchemaTest, ObjectsHaveTheirPropertiesInOrder) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"string"},"c":{"type":"boolean"}},"required":["b"]})";
  Check({schema,
         {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":true})",
          R"({ "b" : "x" , "c":false })"},
         {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x",})",
          R"({,"b":"x"})", R"({"b":1})", R"({"b":"x" "c":true})"}});
  Check({R"({"properties":{"a":true,"b":false}})",
         {"{}", R"({"a":[{}]})"},
         {R"({"b":1})", R"({"a":1,"b":1})"}});
  // All optional: any of the eight selections, in order.
  const std::string optional =
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}}})";
  const std::string pairs[] = {R"("a":1)", R"("b":2)", R"("c":3)"};
  for (int chosen = 0; chosen < 8; ++chosen) {
    std::string in_order;
    std::string reversed;
    for (int i = 0; i < 3; ++i) {
      if ((chosen >> i & 1) == 0) continue;
      in_order += (in_order.empty() ? "" : ",") + pairs[i];
      reversed = pairs[i] + (reversed.empty() ? "" : ",") + reversed;
    }
    Check({optional, {"{" + in_order + "}"}, {}});
    if (in_order != reversed) Check({optional, {}, {"{" + reversed + "}"}});
  }
}

TEST_F(JsonSchemaTest, OtherPropertiesAsAdditionalPropertiesSays) {
  Check({R"({"type":"object","additionalProperties":{"type":"integer"}})",
         {"{}", R"({"x":1})", R"({"x":1,"y":2})"},
         {R"({"x":"1"})"}});
  Check({R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {R"({"x":1})"}});
  const std::string schema =
      R"({"type":"object","properties":{"ab":{"const":1},"ac":{"const":2},"q\"":{"const":3}},
      "required":["ab"],"additionalProperties":{"type":"string"}})";
  Check({schema,
         {R"({"ab":1})", R"({"ab":1,"ac":2})", R"({"ab":1,"x":"y"})",
          R"({"ab":1,"a":"y","abc":"","b":"","":"z"})", R"({"ab":1,"q\"":3,"q":"1"})"},
         {R"({"ab":"1"})", R"({"ab":1,"ac":"2"})", R"({"ab":1,"x":1})", R"({"ab":1,"ab":"1"})",
          R"({"ab":1,"\u0061c":"2"})", R"({"ab":1,"q\"":"3"})"}});
  // A name that is only required takes any value.
  Check({R"({"type":"object","required":["a"]})", {R"({"a":1})", R"({"a":{}})"}, {"{}"}});
}

TEST_F(JsonSchemaTest, Arrays) {
  Check({R"({"type":"array"})", {"[]", "[ ]", "[1,\"a\",[]]"}, {"[1,]", "[,1]", "{}", "[1 2]"}});
  Check({R"({"items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[\"a\"]", "[1.5]"}});
  Check({R"({"type":"array","items":{"const":1},"minItems":2,"maxItems":3})",
         {"[1,1]", "[1,1,1]"},
         {"[]", "[1]", "[1,1,1,1]"}});
  Check({R"({"type":"array","items":{"const":1},"minItems":1})", {"[1]", "[1,1,1,1,1]"}, {"[]"}});
  Check({R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}});
  Check({R"({"type":"array","items":{"const":1},"maxItems":1})", {"[]", "[1]"}, {"[1,1]"}});
  Check({R"({"type":"array","maxItems":2})", {"[]", "[{}]", "[1,null]"}, {"[1,2,3]"}});
  Check({R"({"prefixItems":[{"const":1},{"type":"string"}]})",
         {R"([1,"a"])"},
         {"[]", "[1]", R"(["a",1])", R"([1,"a",2])"}});
  Check({R"({"type":"array","items":[{"const":1},{"const":2}]})", {"[1,2]"}, {"[1]", "[2,1]"}});
}

TEST_F(JsonSchemaTest, StringsWithLengths) {
  Check({R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("abc")", R"("\n\u0041")", "\"\u00e9\U0001F600\"", R"("\ud83d\ude00a")"},
         {R"("a")", R"("abcd")", "\"\u00e9\""}});
  Check({R"({"minLength":1})", {R"("a")", R"("abcdef")"}, {R"("")"}});
}

TEST_F(JsonSchemaTest, Formats) {
  Check({R"({"type":"string","format":"date"})",
         {R"("2026-02-28")", R"("2024-02-29")", R"("1999-12-31")"},
         {R"("2026-13-01")", R"("2026-00-01")", R"("2026-02-30")", R"("2026-04-31")",
          R"("26-01-01")", R"("2026-1-1")"}});
  Check({R"({"format":"time"})",
         {R"("00:00:00Z")", R"("23:59:59.125+01:30")"},
         {R"("24:00:00Z")", R"("12:00:00")", R"("12:60:00Z")"}});
  Check({R"({"format":"date-time"})",
         {R"("2026-11-30T04:05:06Z")"},
         {R"("2026-11-30 04:05:06Z")", R"("2026-11-30")"}});
  for (const char* name : {"uuid", "uuid4"}) {
    Check({std::string(R"({"type":"string","format":")") + name + "\"}",
           {R"("123e4567-e89b-12d3-a456-426614174000")"},
           {R"("123e4567e89b12d3a456426614174000")", R"("g23e4567-e89b-12d3-a456-426614174000")"}});
  }
  Check({R"({"type":"string","format":"email"})", {R"("anything")"}, {"1"}});
}

TEST_F(JsonSchemaTest, Patterns) {
  const auto pattern = [](const std::string& text) {
    return R"({"type":"string","pattern":")" + text + "\"}";
  };
  Check({pattern("^a+b*$"), {R"("a")", R"("aab")"}, {R"("b")", R"("ba")", R"("")"}});
  Check({pattern("^(foo|ba[rz])-\\\\d{2,3}$"),
         {R"("foo-12")", R"("baz-123")"},
         {R"("foo-1")", R"("bat-12")", R"("foo-1234")"}});
  Check({pattern("^[^a-c]?.$"),
         {R"("d")", R"("dd")", R"("a")", "\"\u00e9\u00e9\""},
         {R"("aa")", R"("")", "\"\\n\""}});
  Check({pattern("^\\\\w\\\\s\\\\W$"), {R"("a -")", R"("_\t\"")"}, {R"("a-")"}});
  Check({pattern("^(?:a|b){2}$"), {R"("ab")"}, {R"("a")", R"("abc")"}});
  Check({pattern("^$"), {R"("")"}, {R"("a")"}});
  Check({pattern("^a$|^b$"), {R"("a")", R"("b")"}, {R"("ab")"}});
  Check({pattern("^\\\\u0041\\\\x42\\\\.\\\\/$"), {R"("AB./")"}, {R"("ABx/")"}});
  // A quote and a backslash are written as JSON writes them.
  Check({pattern("^[\\\"\\\\\\\\]+$"), {R"("\"\\")"}, {R"("a")", R"("\n")"}});
  // Valid, but not translated: any string.
  for (const char* text : {"a", "^a", "a$", "^(?=a).*$", "^(a)\\\\1$", "^\\\\bword$", "^a|b$",
                           "^\\\\p{L}$", "^(^a)$"}) {
    Check({pattern(text), {R"("zzz")", R"("")"}, {"1"}});
  }
}

TEST_F(JsonSchemaTest, IntegerRangesHoldExactlyTheirNumbers) {
  constexpr int64_t kBounds[] = {-1200, -101, -100, -99, -10, -9,  -1,  0,   1,
                                 7,     9,    10,   42,  99,  100, 109, 999, 1001};
  for (const int64_t least : kBounds) {
    for (const int64_t most : kBounds) {
      if (least > most) continue;
      const std::string gbnf = "root ::= " + IntegersToGbnf(least, most);
      const auto grammar = compiler_.FromGbnf(gbnf);
      for (int64_t n = -1300; n <= 1300; n += n > -130 && n < 130 ? 1 : 7) {
        GrammarState state(grammar);
        const bool taken = state.AcceptText(std::to_string(n)) && state.complete();
        ASSERT_EQ(taken, least <= n && n <= most) << least << ".." << most << ": " << n;
      }
    }
    for (const bool lower : {true, false}) {
      const std::string gbnf = "root ::= " + (lower ? IntegersToGbnf(least, std::nullopt)
                                                    : IntegersToGbnf(std::nullopt, least));
      const auto grammar = compiler_.FromGbnf(gbnf);
      for (int64_t n = -130'000; n <= 130'000; n += n > -130 && n < 130 ? 1 : 107) {
        GrammarState state(grammar);
        const bool taken = state.AcceptText(std::to_string(n)) && state.complete();
        ASSERT_EQ(taken, lower ? n >= least : n <= least) << gbnf << ": " << n;
      }
    }
  }
  EXPECT_FALSE(Matches("root ::= " + IntegersToGbnf(0, 100), "007"));
  EXPECT_FALSE(Matches("root ::= " + IntegersToGbnf(-5, 5), "-"));
}

TEST_F(JsonSchemaTest, IntegerBoundsAreReadAsTheyAreMeant) {
  Check({R"({"type":"integer","minimum":3,"maximum":5})", {"3", "5"}, {"2", "6"}});
  Check(
      {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":6})", {"4", "5"}, {"3", "6"}});
  Check({R"({"type":"integer","minimum":2.5,"maximum":4.5})", {"3", "4"}, {"2", "5"}});
  Check({R"({"type":"integer","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"}});
  Check({R"({"type":"integer","maximum":-1})", {"-1", "-99999"}, {"0", "1"}});
  Check({R"({"type":"integer","minimum":0})", {"0", "123456789"}, {"-1", "-0"}});
}

TEST_F(JsonSchemaTest, AlternativesAndWhatStandsBesideThem) {
  Check({R"({"anyOf":[{"type":"string"},{"type":"null"}],"title":"x","default":null})",
         {R"("a")", "null"},
         {"1"}});
  Check({R"({"oneOf":[{"const":1},{"const":2},false]})", {"1", "2"}, {"3"}});
  Check({R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},
            "anyOf":[{"required":["a"]},{"required":["b"]}]})",
         {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
         {"{}"}});
}

// Each schema refers several times to the next: eight to the power of twenty parts.
TEST_F(JsonSchemaTest, ReferencesThatMultiplyAreRefusedInTime) {
  for (const char* last : {R"({"type":"object","properties":{"x":{}},"required":["x"]})",
                           R"({"enum":[1,2,3]})", R"({"anyOf":[{"const":1},{"const":2}]})"}) {
    std::string schema = R"({"allOf":[{"$ref":"#/$defs/a0"}],"$defs":{)";
    for (int i = 0; i < 20; ++i) {
      std::string part = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
      schema += "\"a" + std::to_string(i) + R"(":{"allOf":[)" + part;
      for (int k = 1; k < 8; ++k) schema += "," + part;
      schema += "]},";
    }
    schema += std::string(R"("a20":)") + last + "}}";
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THROW(JsonSchemaToGbnf(schema), Error) << last;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << last;
  }
}

TEST_F(JsonSchemaTest, AllOfIsMerged) {
  Check({R"({"allOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},
                      {"properties":{"b":{"const":2}},"required":["b"]}]})",
         {R"({"a":1,"b":2})"},
         {R"({"a":1})", R"({"b":2})"}});
  Check({R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}]})", {"2", "3"}, {"1", "4"}});
  Check({R"({"allOf":[{"enum":[1,"1",2]},{"enum":[2.0,"1"]}]})", {"2", "\"1\""}, {"1"}});
  Check({R"({"$defs":{"A":{"properties":{"a":{"type":"integer"}},"required":["a"]}},
             "allOf":[{"$ref":"#/$defs/A"},{"properties":{"a":{"minimum":5}}}]})",
         {R"({"a":5})"},
         {R"({"a":4})", "{}"}});
}

TEST_F(JsonSchemaTest, ReferencesAndTheirCycles) {
  Check({R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
             "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},
             "$ref":"#/$defs/node"})",
         {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
         {R"({"v":1})", R"({"v":1,"next":1})"}});
  Check({R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "{}"}});
  Check({R"({"definitions":{"a/b":{"const":1},"c~d":{"const":2}},
             "prefixItems":[{"$ref":"#/definitions/a~1b"},{"$ref":"#/definitions/c~0d"},{"$ref":"#/prefixItems/0"}]})",
         {"[1,2,1]"},
         {"[2,1,1]"}});
  // A chain of references as long as it likes, none inside another.
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 2000; ++i) {
    chain += "\"a" + std::to_string(i) + "\":{\"items\":{\"$ref\":\"#/$defs/a" +
             std::to_string(i + 1) + "\"}},";
  }
  chain += R"("a2000":{"const":1}}})";
  Check({chain, {"[]", "[[[]]]"}, {"[1]"}});
}

TEST_F(JsonSchemaTest, SchemasInEachOtherKeepTheirNamesApart) {
  Check({R"({"properties":{"a":{"properties":{"a":{"const":1}},"required":["a"]},"a-a":{"const":2},
             "é":{"const":3}},"required":["a","a-a","é"]})",
         {R"({"a":{"a":1},"a-a":2,"é":3})"},
         {R"({"a":{"a":2},"a-a":1,"é":3})"}});
}

TEST_F(JsonSchemaTest, ErrorsNamePlaceAndPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"type\":\n  \"hiccup\"}", "line 1, column 1 (#): unknown type 'hiccup'"},
      {"{\"properties\":{\n  \"a\": {\"type\": 5}}}",
       "line 2, column 8 (#/properties/a): 'type' must be a string or an array of strings"},
      {"123", "line 1, column 1 (#): a schema must be an object"},
      {"true", "a schema must be an object"},
      {"{\"anyOf\":[]}", "line 1, column 10 (#/anyOf): 'anyOf' must be an array with entries"},
      {"{\"items\":{\"enum\":[]}}",
       "line 1, column 18 (#/items/enum): 'enum' must be an array with entries"},
      {"{\"$ref\":\"http://x/y\"}", "'$ref' must point into this document"},
      {"{\"$ref\":\"#/$defs/a\"}", "'$ref' leads nowhere: '#/$defs/a'"},
      {"{\"type\":\"string\",\"pattern\":\"^a(b$\"}",
       "line 1, column 28 (#/pattern): the pattern is not valid at column 6: expected ')'"},
      {"{\"pattern\":\"^a**$\"}", "not valid at column 4: a repetition of a repetition"},
      {"{\"pattern\":\"^[z-a]$\"}", "the range is not one"},
      {"{\"pattern\":\"^a{3,2}$\"}", "the repetition ends below its begin"},
      {"{\"pattern\":\"^\\\\q$\"}", "unknown escape"},
      {"{\"minLength\":-1}", "'minLength' must be an integer of at least 0"},
      {"{\"minLength\":5,\"maxLength\":4}", "maxLength is below minLength"},
      {"{\"minItems\":2,\"maxItems\":1}", "maxItems is below minItems"},
      {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no integer lies between"},
      {"{\"properties\":[]}", "'properties' must be an object"},
      {"{\"required\":\"a\",\"properties\":{}}", "'required' must be an array of names"},
      {"{\"additionalProperties\":5}", "'additionalProperties' must be a boolean or a schema"},
      {"{\"allOf\":[{\"$ref\":\"#\"}]}", "lead in a circle"},
      {"{\"$ref\":\"#\"}", "line 1, column 1 (#): '$ref' leads back"},
      {"{\"properties\":{\"p\":{\"$ref\":\"#/$defs/"
       "a\"}},\n\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},"
       "{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
       "'$ref' leads back to a schema that it is all of"},
      {"{\"type\":", "JSON schema"},
  };
  for (const auto& [schema, expected] : cases) {
    EXPECT_THAT(Refusal(schema), StartsWith("JSON schema")) << schema;
    EXPECT_THAT(Refusal(schema), HasSubstr(expected)) << schema;
  }
}

TEST_F(JsonSchemaTest, LimitsAreRefusedByName) {
  const auto nested = [](int depth) {
    std::string schema = "{}";
    for (int i = 0; i < depth; ++i) schema = "{\"items\":" + schema + "}";
    return schema;
  };
  EXPECT_EQ(Refusal(nested(60)), "");
  EXPECT_THAT(Refusal(nested(70)), HasSubstr("64"));
  std::string wide = "{\"enum\":[0";
  for (int i = 0; i < 200'000; ++i) wide += ",123456";
  EXPECT_THAT(Refusal(wide + "]}"), HasSubstr("it makes a grammar of more than"));
  std::string groups = "^";
  for (int i = 0; i < 40; ++i) groups += "(";
  EXPECT_THAT(Refusal("{\"pattern\":\"" + groups + "\"}"), HasSubstr("nested more than 32 deep"));
  EXPECT_THAT(Refusal("{\"pattern\":\"" + std::string(5000, 'a') + "\"}"),
              HasSubstr("a pattern of more than 4096"));
}

class WriterTest : public GrammarFixture {};

TEST_F(WriterTest, TextThroughAMarkEndsAtItsFirst) {
  GbnfWriter writer;
  const std::string text = writer.AddTextThrough("text", "aab");
  writer.AddRule("root", GbnfWriter::Literal("<") + " " + text + " " + GbnfWriter::Literal(">"));
  const std::string gbnf = writer.Source();
  for (const char* each :
       {"<aab>", "<xaab>", "<aaab>", "<aaaaab>", "<abaab>", "<\u00e9aab>", "<aaxaab>"}) {
    EXPECT_TRUE(Matches(gbnf, each)) << each;
  }
  for (const char* each : {"<>", "<aa>", "<aab", "<aabaab>", "<aabx>"})
    EXPECT_FALSE(Matches(gbnf, each)) << each;
}

TEST_F(WriterTest, EqualRulesAreOneAndOthersGetNumbers) {
  GbnfWriter writer;
  EXPECT_EQ(writer.AddRule("a b!", "\"x\""), "a-b");
  EXPECT_EQ(writer.AddRule("a b", "\"x\""), "a-b");
  EXPECT_EQ(writer.AddRule("a b", "\"y\""), "a-b-1");
  EXPECT_EQ(writer.AddRule("a b", "\"z\""), "a-b-2");
  EXPECT_EQ(writer.AddRule("a b", "\"y\""), "a-b-1");
  EXPECT_EQ(writer.AddRule("", "\"y\""), "rule");
}

TEST_F(WriterTest, LiteralsHoldAnyText) {
  for (const std::string text : {"", "a\"b\\c\n\t\x01\x7f[]", "\u00e9\U0001F600"}) {
    EXPECT_TRUE(Matches("root ::= " + GbnfWriter::Literal(text), text)) << text;
  }
}

TEST_F(WriterTest, SchemasAreRulesAmongOthers) {
  GbnfWriter writer;
  const auto one =
      ParseJson(R"({"type":"object","properties":{"x":{"$ref":"#/$defs/n"}},"required":["x"],
                                 "$defs":{"n":{"type":"integer"}}})",
                "one");
  const auto two =
      ParseJson(R"({"$defs":{"n":{"type":"boolean"}},"items":{"$ref":"#/$defs/n"}})", "two");
  const std::string first = writer.AddSchema("arguments", one);
  const std::string second = writer.AddSchema("arguments", two);
  writer.AddRule("root", "\"f\" " + first + " | \"g\" " + second);
  EXPECT_TRUE(Matches(writer.Source(), R"(f{"x":1})"));
  EXPECT_TRUE(Matches(writer.Source(), "g[true]"));
  EXPECT_FALSE(Matches(writer.Source(), R"(f{"x":true})"));
  EXPECT_FALSE(Matches(writer.Source(), "g[1]"));
}

}  // namespace
}  // namespace bloomery::text
