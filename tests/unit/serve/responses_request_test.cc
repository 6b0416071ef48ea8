// OpenAI's responses request, translated: what each form of it becomes, and what is refused.
#include "runtime/serve/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;

std::string Translated(const std::string& text) {
  rapidjson::Document body = ParseJson(text, "body");
  TranslateResponses(body);
  return WriteJson(body);
}

std::string Input(const std::string& input) {
  rapidjson::Document body = ParseJson(R"({"input":)" + input + "}", "body");
  TranslateResponses(body);
  return WriteJson(body["messages"]);
}

void Refuses(const std::string& body, const std::string& named) {
  const test::Refusal refusal = test::RefusalOf([&] { Translated(body); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest) << body;
  EXPECT_THAT(refusal.message, HasSubstr(named)) << body;
}

TEST(ResponsesRequest, InstructionsAndATextAreASystemAndAUserMessage) {
  EXPECT_EQ(Translated(R"({"instructions":"Be brief.","input":"Hi"})"),
            R"({"messages":[{"role":"system","content":"Be brief."},)"
            R"({"role":"user","content":"Hi"}]})");
}

TEST(ResponsesRequest, ItemsOfTheAssistantInARowAreOneMessage) {
  EXPECT_EQ(
      Input(
          R"([{"role":"user","content":[{"type":"input_text","text":"Look"}]},)"
          R"({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm"}]},)"
          R"({"type":"message","id":"msg_1","role":"assistant","status":"completed",)"
          R"("content":[{"type":"output_text","text":"I look.","annotations":[]}]},)"
          R"({"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{\"a\":1}"},)"
          R"({"type":"function_call","call_id":"c2","name":"list","arguments":"{}"},)"
          R"({"type":"function_call_output","call_id":"c1","output":"21"},)"
          R"({"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"x"}]}])"),
      R"([{"role":"user","content":"Look"},{"role":"assistant","reasoning_content":"Hm",)"
      R"("content":"I look.","tool_calls":[{"id":"c1","type":"function","function":)"
      R"({"name":"read","arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":)"
      R"({"name":"list","arguments":"{}"}}]},{"role":"tool","content":"21","tool_call_id":"c1"},)"
      R"({"role":"tool","content":"x","tool_call_id":"c2"}])");
}

TEST(ResponsesRequest, TwoTextsOfOneTurnBecomeItsParts) {
  EXPECT_EQ(Input(R"([{"role":"assistant","content":"A"},{"role":"assistant","content":"B"}])"),
            R"([{"role":"assistant","content":[{"type":"text","text":"A"},)"
            R"({"type":"text","text":"B"}]}])");
}

TEST(ResponsesRequest, DevelopersRefusalsAndImagesAreTaken) {
  EXPECT_EQ(Input(R"([{"role":"developer","content":"A"}])"),
            R"([{"role":"developer","content":"A"}])");
  EXPECT_EQ(Input(R"([{"role":"assistant","content":[{"type":"refusal","refusal":"No"}]}])"),
            R"([{"role":"assistant","content":"No"}])");
  EXPECT_THAT(
      Input(R"([{"role":"user","content":[{"type":"input_image","image_url":"http://a"}]}])"),
      HasSubstr(R"("image_url":{"url":"http://a"})"));
}

TEST(ResponsesRequest, FunctionsAreToolsAndOthersAreLeftOut) {
  EXPECT_EQ(Translated(R"({"input":"x","tools":[{"type":"web_search"},{"type":"function",)"
                       R"("name":"read","description":"Reads","parameters":{"type":"object"},)"
                       R"("strict":true}],"tool_choice":{"type":"function","name":"read"}})"),
            R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",)"
            R"("function":{"name":"read","description":"Reads","parameters":{"type":"object"}}}],)"
            R"("tool_choice":{"type":"function","function":{"name":"read"}}})");
}

TEST(ResponsesRequest, SettingsGetTheirNamesAndOthersStay) {
  EXPECT_EQ(
      Translated(R"({"model":"m","input":"x","max_output_tokens":7,"reasoning":{"effort":"low",)"
                 R"("summary":"auto"},"temperature":0.5,"store":false,"previous_response_id":"",)"
                 R"("include":["reasoning.encrypted_content"],"metadata":{},"stream":true})"),
      R"({"model":"m","temperature":0.5,"stream":true,)"
      R"("messages":[{"role":"user","content":"x"}],"max_tokens":7,"reasoning_effort":"low"})");
}

TEST(ResponsesRequest, TextFormatBecomesAResponseFormat) {
  EXPECT_THAT(Translated(R"({"input":"x","text":{"verbosity":"low","format":{"type":"json_schema",)"
                         R"("name":"n","schema":{"type":"object"},"strict":true}}})"),
              HasSubstr(R"("response_format":{"type":"json_schema","json_schema":{"name":"n",)"
                        R"("schema":{"type":"object"},"strict":true}})"));
  EXPECT_THAT(Translated(R"({"input":"x","text":{"format":{"type":"text"}}})"),
              HasSubstr(R"("response_format":{"type":"text"})"));
}

TEST(ResponsesRequest, WhatIsKeptElsewhereIsRefusedByName) {
  Refuses(R"({"input":"x","previous_response_id":"resp_1"})", "'previous_response_id'");
  Refuses(R"({"input":"x","conversation":"c"})", "'conversation'");
  Refuses(R"({"input":"x","prompt":{"id":"p"}})", "'prompt'");
  Refuses(R"({"input":"x","store":true})", "'store'");
  Refuses(R"({"input":"x","background":true})", "'background'");
  Refuses(R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0]");
  Refuses(R"({"input":[{"role":"user","content":[{"type":"input_file"}]}]})", "files");
  Refuses(R"({"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]})",
          "file_id");
  Refuses(R"({"input":"x","include":"message.output_text.logprobs"})", "'include'");
}

TEST(ResponsesRequest, WhatHasAWrongFormIsRefusedByItsPlace) {
  Refuses("[]", "object");
  Refuses("{}", "'input'");
  Refuses(R"({"input":7})", "'input'");
  Refuses(R"({"input":[7]})", "input[0]");
  Refuses(R"({"input":[{"role":"user"}]})", "input[0].content");
  Refuses(R"({"input":[{"role":"x","content":"a"}]})", "input[0].role");
  Refuses(R"({"input":[{"role":"user","content":[{"type":"x"}]}]})", "input[0].content[0].type");
  Refuses(R"({"input":[{"type":"web_search_call"}]})", "web_search_call");
  Refuses(R"({"input":[{"type":"function_call","name":"a","arguments":"{}"}]})", "call_id");
  Refuses(R"({"input":[{"type":"function_call_output","call_id":"a"}]})", "output");
  Refuses(R"({"input":"x","instructions":[]})", "'instructions'");
  Refuses(R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name");
  Refuses(R"({"input":"x","tool_choice":{"type":"file_search"}})", "tool_choice.type");
  Refuses(R"({"input":"x","max_output_tokens":0})", "'max_output_tokens'");
  Refuses(R"({"input":"x","reasoning":"high"})", "'reasoning'");
  Refuses(R"({"input":"x","text":{"format":"json"}})", "text.format");
}

}  // namespace
}  // namespace bloomery::serve
