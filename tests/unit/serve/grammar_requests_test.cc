// Requests that say what form the output must have: grammar, json_schema, response_format, lazy
// grammars, in the native and the OpenAI routes, over a runner whose logits are noise where its
// script does not fit.
#include <gmock/gmock.h>

#include "runtime/serve/grammar_fields.h"
#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GrammarRequestTest : public ServedTest {
 protected:
  GrammarRequestTest() { limits_.slot_context = 1024; }

  std::string Complete(const std::string& fields, const std::string& path = "/completion") {
    const auto result = PostJson(path, R"({"prompt":"x","n_predict":400,)" + fields + "}");
    if (path == "/completion") return TextOf(result, "content");
    return TextOf(result["choices"][0], "text");
  }
  std::string Chat(const std::string& fields) {
    const auto result =
        PostJson("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"x"}],"max_tokens":400,)" + fields + "}");
    return TextOf(result["choices"][0]["message"], "content");
  }
  void Refuses(const std::string& fields, const std::string& named) {
    EXPECT_THAT(ErrorOf(Post("/completion", R"({"prompt":"x",)" + fields + "}"), 400,
                        "invalid_request_error"),
                HasSubstr(named))
        << fields;
  }
  void ChatRefuses(const std::string& fields, const std::string& named) {
    EXPECT_THAT(ErrorOf(Post("/v1/chat/completions",
                             R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}"),
                        400, "invalid_request_error"),
                HasSubstr(named))
        << fields;
  }
};

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
        "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":
        {"enum":["a","b"]},"maxItems":3}},"required":["name","age"]})";

void ExpectPerson(const std::string& text) {
  SCOPED_TRACE(text);
  const auto person = ParseJson(text, "answer");
  ASSERT_TRUE(person.IsObject());
  EXPECT_TRUE(person["name"].IsString());
  ASSERT_TRUE(person["age"].IsInt());
  EXPECT_GE(person["age"].GetInt(), 0);
  EXPECT_LE(person["age"].GetInt(), 150);
  if (!person.HasMember("tags")) return;
  EXPECT_LE(person["tags"].Size(), 3u);
  for (const auto& tag : person["tags"].GetArray()) {
    EXPECT_TRUE(tag == "a" || tag == "b");
  }
}

TEST_F(GrammarRequestTest, AGrammarIsTheWholeAnswer) {
  Start();
  for (const char* path : {"/completion", "/v1/completions"}) {
    for (const char* rest :
         {R"(,"temperature":0)", R"(,"temperature":1,"seed":3)", R"(,"seed":4,"top_k":0)"}) {
      EXPECT_EQ(Complete(R"("grammar":"root ::= \"a\"{5,5}")" + std::string(rest), path), "aaaaa");
    }
  }
  EXPECT_EQ(Chat(R"("grammar":"root ::= \"a\"{5,5}")"), "aaaaa");
  const auto result =
      PostJson("/completion", R"({"prompt":"x","grammar":"root ::= \"a\"{5,5}","n_predict":64})");
  EXPECT_EQ(TextOf(result, "stop_type"), "eos");
  EXPECT_EQ(TextOf(result["generation_settings"], "grammar"), "root ::= \"a\"{5,5}");
}

TEST_F(GrammarRequestTest, WhatTheModelWouldSayAnywayIsLeftAsItIs) {
  Start();
  EXPECT_EQ(Complete(R"("grammar":"root ::= [A-Z] [a-z .A-Z]*","temperature":0)"), kScript);
}

TEST_F(GrammarRequestTest, SchemasMakeDocumentsThatParseAndFit) {
  Start();
  for (int seed = 0; seed < 20; ++seed) {
    const std::string with_seed = R"(,"temperature":1.5,"seed":)" + std::to_string(seed);
    ExpectPerson(Complete(R"("json_schema":)" + std::string(kPerson) + with_seed));
    ExpectPerson(Complete(R"("response_format":{"type":"json_schema","json_schema":{"schema":)" +
                              std::string(kPerson) + "}}" + with_seed,
                          "/v1/completions"));
  }
}

TEST_F(GrammarRequestTest, ResponseFormatOfAChat) {
  Start();
  EXPECT_EQ(
      Chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"const":"42"}}},
                    "chat_template_kwargs":{"enable_thinking":false})"),
      "\"42\"");
  EXPECT_EQ(Chat(R"("response_format":{"type":"text"},"temperature":0)"), kScript);
  const std::string object =
      Chat(R"("response_format":{"type":"json_object","schema":{"required":["a"],"properties":{"a":
              {"type":"integer"}}}},"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_TRUE(ParseJson(object, "answer")["a"].IsInt()) << object;
}

TEST_F(GrammarRequestTest, ThinkingThatIsAskedForComesBeforeTheForm) {
  Say("<think>\nhm\n</think>\n\n{\"a\": 1}");
  Start();
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],"temperature":0,
      "max_tokens":300,"response_format":{"type":"json_schema","json_schema":{"schema":
      {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}})";
  const auto asked = PostJson("/v1/chat/completions",
                              body + R"(,"chat_template_kwargs":{"enable_thinking":true}})");
  const auto& message = asked["choices"][0]["message"];
  EXPECT_EQ(TextOf(message, "reasoning_content"), "hm");
  EXPECT_EQ(TextOf(message, "content"), "{\"a\": 1}");
  // Else the answer is the form at once, whatever the model would rather do.
  const auto plain = PostJson("/v1/chat/completions", body + "}");
  EXPECT_FALSE(plain["choices"][0]["message"].HasMember("reasoning_content"));
  const std::string text = TextOf(plain["choices"][0]["message"], "content");
  EXPECT_TRUE(ParseJson(text, "answer")["a"].IsNumber()) << text;
}

TEST_F(GrammarRequestTest, ALazyGrammarConstrainsFromItsTriggerOn) {
  Start();
  const std::string answer = Complete(
      R"("temperature":0,"grammar":"root ::= \"Japan was \" [0-9]{4} \".\"","grammar_lazy":true,
         "grammar_triggers":[{"type":"word","value":"Japan"}])");
  EXPECT_THAT(answer, ::testing::MatchesRegex("The capital of Japan was [0-9][0-9][0-9][0-9]\\."));
  // Numbers as llama-server's own clients send them; a trigger that never comes.
  EXPECT_EQ(Complete(R"("temperature":0,"grammar":"root ::= \"x\"","grammar_lazy":true,
                        "grammar_triggers":[{"type":1,"value":"Kyoto!!"}])"),
            kScript);
}

TEST_F(GrammarRequestTest, BadFieldsAreRefusedByNameWithLineAndColumn) {
  Start();
  Refuses(R"("grammar":"root ::= (\n  \"a\"")", "grammar: line 2, column 6: expected ')'");
  Refuses(R"("grammar":5)", "Field 'grammar'");
  Refuses(R"("grammar":"root ::= root")", "left-recursive");
  Refuses(R"("json_schema":{"type":"hiccup"})",
          "Field 'json_schema': JSON schema: line 1, column 1 (#): unknown type");
  Refuses(R"("json_schema":{"pattern":"^(a$"})", "line 1, column 12 (#/pattern)");
  Refuses(R"("json_schema":5)", "a schema must be an object");
  Refuses(R"("grammar":"root ::= \"a\"","grammar_lazy":true)", "grammar_lazy");
  Refuses(R"("grammar_triggers":[{"type":"sometimes","value":"x"}])", "grammar_triggers");
  Refuses(R"("grammar_triggers":[{"type":"word"}])", "grammar_triggers");
  Refuses(R"("grammar_triggers":[{"type":"token","token":99999999}])", "grammar_triggers");
  Refuses(
      R"("grammar":"root ::= \"a\"","grammar_lazy":true,"grammar_triggers":[{"type":"pattern","value":"a("}])",
      "grammar_triggers");
  Refuses(R"("grammar_triggers":[{"type":"word","value":"<|im_end|>"}])", "preserved_tokens");
  Refuses(R"("preserved_tokens":[{}])", "preserved_tokens");
  ChatRefuses(R"("grammar":"root ::= \"a\"","json_schema":{})", "grammar");
  ChatRefuses(R"("grammar":"root ::= \"a\"","response_format":{"type":"json_object"})", "grammar");
  ChatRefuses(R"("response_format":{"type":"sound"})", "response_format");
  ChatRefuses(R"("response_format":{"type":"json_schema","json_schema":{"schema":123}})", "schema");
  ChatRefuses(
      R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"hiccup"}}})",
      "hiccup");
}

TEST_F(GrammarRequestTest, NativelyTheGrammarWinsOverTheSchema) {
  Start();
  EXPECT_EQ(Complete(R"("grammar":"root ::= \"a\"","json_schema":{})"), "a");
}

TEST_F(GrammarRequestTest, ChoicesAreConstrainedEachOnItsOwn) {
  Start();
  const auto result =
      PostJson("/v1/completions", R"({"prompt":"x","n":2,"max_tokens":100,"temperature":2,
      "top_k":0,"grammar":"root ::= [0-9]{3} | [a-f]{3}"})");
  for (const auto& choice : result["choices"].GetArray()) {
    EXPECT_EQ(TextOf(choice, "text").size(), 3u);
  }
}

TEST_F(GrammarRequestTest, IgnoreEosEndsWhereTheGrammarEnds) {
  Start();
  EXPECT_EQ(Complete(R"("grammar":"root ::= \"ab\"","ignore_eos":true)"), "ab");
}

TEST_F(GrammarRequestTest, ProbabilitiesAreOfTheWholeRowUnlessTheyAreOfWhatWasLeft) {
  Start();
  const auto raw =
      PostJson("/completion", R"({"prompt":"x","n_predict":3,"n_probs":2,"temperature":0,
      "grammar":"root ::= [0-9]+"})");
  const auto& first = raw["completion_probabilities"][0];
  EXPECT_EQ(first["top_logprobs"][0]["id"].GetInt(), script_[0])
      << "what the model would have said";
  EXPECT_LT(first["logprob"].GetDouble(), first["top_logprobs"][0]["logprob"].GetDouble());
  const auto post =
      PostJson("/completion", R"({"prompt":"x","n_predict":1,"n_probs":5,"temperature":1,
      "post_sampling_probs":true,"top_k":0,"top_p":1,"min_p":0,"grammar":"root ::= [0-4]"})");
  double sum = 0.0;
  for (const auto& entry : post["completion_probabilities"][0]["top_probs"].GetArray()) {
    EXPECT_THAT(TextOf(entry, "token"), ::testing::MatchesRegex("[0-4]"));
    sum += entry["prob"].GetDouble();
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

TEST_F(GrammarRequestTest, TheServersDefaultAppliesWhereTheRequestSaysNothing) {
  settings_.json_schema = R"({"const":7})";
  FixGrammarDefault(settings_);
  Start();
  EXPECT_EQ(Complete(R"("temperature":0)"), "7");
  EXPECT_EQ(Complete(R"("grammar":"root ::= \"b\"")"), "b");
  EXPECT_EQ(Complete(R"("grammar":"","temperature":0)"), kScript);
}

TEST(GrammarDefaults, BadOnesAreRefusedByFlag) {
  ServeSettings settings;
  settings.json_schema = "{\"type\":\"hiccup\"}";
  try {
    FixGrammarDefault(settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), StartsWith("--json-schema: JSON schema: line 1"));
  }
}

}  // namespace
}  // namespace bloomery::serve
