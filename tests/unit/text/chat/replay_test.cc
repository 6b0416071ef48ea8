// An earlier turn that a client sends back renders to the text it was generated as, so that the
// prompt cache keeps matching: in every template, and however the client writes the arguments.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "runtime/text/chat/call_arguments.h"
#include "runtime/text/chat/chat_template.h"
#include "tests/unit/text/chat/turns.h"

namespace bloomery::chat {
namespace {

constexpr const char* kTools = R"([
  {"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"},"where":{"type":"object"}}}}},
  {"type":"function","function":{"name":"map","parameters":{"type":"object","properties":{}}}}])";

std::string FamilyTemplate(const std::string& family) {
  std::ifstream file(std::string(BLOOMERY_SOURCE_DIR) + "/tests/unit/text/jinja/goldens.json");
  std::stringstream text;
  text << file.rdbuf();
  return ParseJson(text.str(), "goldens.json")["templates"][family.c_str()].GetString();
}

// Our own form of the DSML conversation, as the family's templates lay it out.
constexpr const char* kDsmlTemplate =
    R"({%- set dsml_token = '｜DSML｜' -%}{{ bos_token }}
{%- if tools %}{% for tool in tools %}{{ tool.function | tojson }}{{ '\n' }}{% endfor %}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'tool' -%}{{ '<｜User｜><tool_result>' + m.content + '</tool_result>' }}
{%- elif m.role == 'assistant' -%}{{ '<｜Assistant｜><think>' + (m.reasoning_content or '') + '</think>' + m.content }}
{%- if m.tool_calls -%}
{{ '\n\n<' + dsml_token + 'tool_calls>\n' }}
{%- for call in m.tool_calls -%}
{{ '<' + dsml_token + 'invoke name="' + call.function.name + '">\n' }}
{%- set arguments = call.function.arguments -%}
{%- if arguments is string %}{% set arguments = arguments | from_json %}{% endif -%}
{%- for key, value in arguments.items() -%}
{{ '<' + dsml_token + 'parameter name="' + key + '" string="' + ('true' if value is string else 'false') + '">' }}
{{- value if value is string else value | tojson }}{{ '</' + dsml_token + 'parameter>\n' }}
{%- endfor -%}
{{ '</' + dsml_token + 'invoke>\n' }}
{%- endfor -%}
{{ '</' + dsml_token + 'tool_calls>' }}
{%- endif -%}<｜end▁of▁sentence｜>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<｜Assistant｜><think>{% endif -%})";

#define D(tag) "<｜DSML｜" tag
#define E(tag) "</｜DSML｜" tag ">"

struct Family {
  const char* name;
  const char* answer;  // behind the generation prompt, in the template's own layout
};

const Family kFamilies[] = {
    {"hermes",
     "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"weather\", "
     "\"arguments\": "
     "{\"city\": \"Köln \\\"x\\\"\", \"days\": 2, \"where\": {\"b\": 1, \"a\": [1, "
     "2]}}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"map\", \"arguments\": {}}\n</tool_call>"},
    // Spacing that no template has, and numbers that none would write so.
    {"hermes",
     "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
     "{\"city\":\"a\" "
     ",\"where\":{\"x\":1.50,\"y\" : [ ]}}}\n</tool_call>"},
    {"coder",
     "Let me "
     "see.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</"
     "parameter>\n"
     "<parameter=days>\n2\n</parameter>\n<parameter=where>\n{\"b\": "
     "1}\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=map>\n</function>\n</tool_call>"},
    {"inline",
     "<think>hm</think>Let me "
     "see.<tool_call><function=weather><parameter=city>New\nYork\n</parameter>"
     "<parameter=days>2</parameter><parameter=where>{\"b\": 1}</parameter></function></tool_call>"
     "<tool_call><function=map></function></tool_call>"},
    {"parts",
     "hm\n</think>\n\nLet me "
     "see.\n\n<tool_call>\n<function=weather>\n<parameter=where>\n"
     "{\"b\":1,\"a\":[1,2]}\n</parameter>\n<parameter=city>\n7\n</parameter>\n</"
     "function>\n"
     "</tool_call>\n<tool_call>\n<function=map>\n</function>\n</tool_call>"},
    {"glm",
     "hm</think>\nLet me "
     "see.\n<tool_call>weather<arg_key>city</arg_key><arg_value>Ulm</arg_value>"
     "<arg_key>where</arg_key><arg_value>{\"b\":  "
     "1}</arg_value></tool_call>\n<tool_call>map"
     "</tool_call>"},
    {"dsml",
     "hm</think>Let me see.\n\n" D("tool_calls>") "\n" D(
         "invoke "
         "name=\"weather\">") "\n" D("parame"
                                     "ter "
                                     "name="
                                     "\"city"
                                     "\" "
                                     "string"
                                     "=\"tru"
                                     "e\">") "5" E("parameter") "\n" D("parameter name=\"days\" "
                                                                       "string=\"false\">") "5" E("paramete"
                                                                                                  "r") "\n" E("invoke") "\n" D("invoke name=\"map\">") "\n" E("invoke") "\n" E("tool"
                                                                                                                                                                               "_cal"
                                                                                                                                                                               "l"
                                                                                                                                                                               "s")},
};

std::string Json(std::string_view text) {
  return WriteJson(rapidjson::Value(
      rapidjson::StringRef(text.data(), static_cast<rapidjson::SizeType>(text.size()))));
}

// How a client writes arguments back.
enum class Form { kAsSent, kCompactText, kObject };

std::string ArgumentsAs(Form form, const std::string& arguments) {
  if (form == Form::kAsSent) return Json(arguments);
  const std::string compact = WriteJson(ParseJson(arguments, "arguments"));
  return form == Form::kObject ? compact : Json(compact);
}

class Replay : public testing::TestWithParam<Form> {};

TEST_P(Replay, RendersToWhatWasGenerated) {
  for (const Family& family : kFamilies) {
    ChatTemplate::Source source;
    source.main = std::string(family.name) == "dsml" ? kDsmlTemplate : FamilyTemplate(family.name);
    source.bos_text = "<s>";
    source.eos_text = "</s>";
    source.marks = {"<think>", "</think>"};
    const ChatTemplate chat = ChatTemplate::Make(source);
    const auto render = [&](const std::string& messages, CallMemory& memory) {
      rapidjson::Document body = ParseJson(R"({"messages":[{"role":"user","content":"How?"})" +
                                               messages + R"(],"tools":)" + kTools + "}",
                                           "body");
      memory.Restore(body);
      return chat.Render(ParseChatRequest(body), 0);
    };
    CallMemory memory;
    const RenderedPrompt first = render("", memory);

    OutputFormat format;
    format.marks = source.marks;
    format.starts_in_reasoning = first.starts_in_reasoning;
    format.syntax = ChooseToolSyntax("", source.main);
    format.tools = test::Tools(kTools);
    format.memory = &memory;
    const AssistantTurn turn = test::ReadInPieces(format, family.answer, 4).turn;
    ASSERT_FALSE(turn.calls.empty()) << family.name << turn.content;

    std::string calls;
    std::string results;
    for (const auto& call : turn.calls) {
      calls += std::string(calls.empty() ? "" : ",") + R"({"id":")" + call.id +
               R"(","type":"function","function":{"name":")" + call.name + R"(","arguments":)" +
               ArgumentsAs(GetParam(), call.arguments) + "}}";
      results += R"(,{"role":"tool","tool_call_id":")" + call.id + R"(","content":"fine"})";
    }
    const std::string reasoning =
        turn.reasoning.empty() ? "" : R"("reasoning_content":)" + Json(turn.reasoning) + ",";
    const std::string content = turn.content.empty() ? "null" : Json(turn.content);
    const std::string second =
        render(",{\"role\":\"assistant\"," + reasoning + "\"content\":" + content +
                   ",\"tool_calls\":[" + calls + "]}" + results,
               memory)
            .text;
    const std::string generated = first.text + family.answer;
    EXPECT_EQ(second.substr(0, generated.size()), generated) << family.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Replay,
                         testing::Values(Form::kAsSent, Form::kCompactText, Form::kObject));

TEST(CallMemory, RestoresOnlyWhatMeansTheSame) {
  CallMemory memory;
  memory.Remember("call_a", "{\"x\" : 1, \"y\":[2]}");
  const auto restored = [&](const std::string& id, const std::string& arguments) {
    rapidjson::Document body =
        ParseJson(R"({"messages":[{"tool_calls":[{"id":")" + id +
                      R"(","function":{"name":"f","arguments":)" + arguments + "}}]}]}",
                  "body");
    memory.Restore(body);
    return WriteJson(body["messages"][0]["tool_calls"][0]["function"]["arguments"]);
  };
  const std::string written = R"("{\"x\" : 1, \"y\":[2]}")";
  EXPECT_EQ(restored("call_a", R"({"y":[2],"x":1})"), written);
  EXPECT_EQ(restored("a", R"("{\"x\":1,\"y\":[2]}")"), written);
  EXPECT_EQ(restored("call_a", R"({"x":2,"y":[2]})"), R"({"x":2,"y":[2]})");
  EXPECT_EQ(restored("call_b", R"({"x":1,"y":[2]})"), R"({"x":1,"y":[2]})");
  EXPECT_EQ(restored("call_a", R"("no JSON")"), R"("no JSON")");
  EXPECT_EQ(restored("call_a", "7"), "7");
}

TEST(CallMemory, TakesBodiesOfAnyForm) {
  CallMemory memory;
  memory.Remember("a", "{}");
  for (const char* text :
       {"7", "{}", R"({"messages":7})",
        R"({"messages":[7,{"tool_calls":7},{"tool_calls":[7,{}]}]})",
        R"({"messages":[{"tool_calls":[{"id":7,"function":7},{"id":"a","function":{}}]}]})"}) {
    rapidjson::Document body = ParseJson(text, "body");
    memory.Restore(body);
    EXPECT_EQ(WriteJson(body), text);
  }
}

TEST(CallMemory, ForgetsTheOldestWhenItIsFull) {
  CallMemory memory(30);
  const auto knows = [&](const std::string& id) {
    rapidjson::Document body = ParseJson(
        R"({"messages":[{"tool_calls":[{"id":")" + id + R"(","function":{"arguments":{}}}]}]})",
        "body");
    memory.Restore(body);
    return body["messages"][0]["tool_calls"][0]["function"]["arguments"].IsString();
  };
  memory.Remember("a", "{        }");  // 11 bytes each
  memory.Remember("b", "{        }");
  EXPECT_TRUE(knows("a"));
  memory.Remember("c", "{        }");
  EXPECT_TRUE(knows("a"));
  EXPECT_FALSE(knows("b"));
  EXPECT_TRUE(knows("c"));
  memory.Remember("d", "{" + std::string(40, ' ') + "}");
  EXPECT_FALSE(knows("d"));
  EXPECT_TRUE(knows("c"));
}

TEST(ArgumentsAsWritten, KeepTheirTextWhereItIsOneObject) {
  EXPECT_TRUE(ArgumentsAsWritten("[1]").is_undefined());
  EXPECT_TRUE(ArgumentsAsWritten(" ").is_undefined());
  EXPECT_TRUE(ArgumentsAsWritten("{\"a\":").is_undefined());
  // Twice the same name: no text, but the value.
  EXPECT_EQ(ArgumentsAsWritten("{\"a\":[ 1],\"a\":[ 2]}").Entries().size(), 1U);
}

}  // namespace
}  // namespace bloomery::chat
