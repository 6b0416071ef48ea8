#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "runtime/base/error.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/chat/chatml.h"
#include "runtime/text/jinja/json.h"
#include "tests/support/refusal.h"

namespace bloomery::chat {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// The templates the Jinja goldens are made with.
std::string FamilyTemplate(const char* family) {
  static const rapidjson::Document goldens = [] {
    std::ifstream file(std::string(BLOOMERY_SOURCE_DIR) + "/tests/unit/text/jinja/goldens.json");
    std::stringstream text;
    text << file.rdbuf();
    return ParseJson(text.str(), "goldens.json");
  }();
  return goldens["templates"][family].GetString();
}

ChatTemplate Make(std::string source, std::string bos = "<s>", bool adds_bos = false) {
  ChatTemplate::Source made;
  made.main = std::move(source);
  made.bos_text = std::move(bos);
  made.eos_text = "</s>";
  made.adds_bos = adds_bos;
  made.marks = {"<think>", "</think>"};
  return ChatTemplate::Make(std::move(made));
}

RenderedPrompt Prompt(const ChatTemplate& chat, const std::string& body) {
  return chat.Render(ParseChatRequest(ParseJson(body, "request body")), 0);
}

std::string Text(const ChatTemplate& chat, const std::string& body) {
  return Prompt(chat, body).text;
}

std::string Marked(const RenderedPrompt& prompt) {
  std::string out;
  size_t pos = 0;
  for (const auto& span : prompt.input_spans) {
    out += prompt.text.substr(pos, span.begin - pos) + "[" +
           prompt.text.substr(span.begin, span.end - span.begin) + "]";
    pos = span.end;
  }
  return out + prompt.text.substr(pos);
}

constexpr char kHello[] = R"({"messages": [{"role": "user", "content": "Hi"}]})";
constexpr char kHelloNoThinking[] =
    R"({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": false}})";

TEST(ChatTemplates, AFileWithoutATemplateGetsChatMl) {
  const ChatTemplate chat = Make("");
  EXPECT_TRUE(chat.is_fallback());
  EXPECT_EQ(
      Text(chat,
           R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},
                          {"role": "assistant", "content": "Yo"}, {"role": "user", "content": "?"}]})"),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|"
      "im_end|>\n"
      "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      Text(chat,
           R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false})"),
      "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplates, ThinkingEndsFollowTheFamily) {
  const ChatTemplate hermes = Make(FamilyTemplate("hermes"));
  EXPECT_THAT(Text(hermes, kHello), EndsWith("<|im_start|>assistant\n"));
  EXPECT_THAT(Text(hermes, kHelloNoThinking),
              EndsWith("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  const ChatTemplate parts = Make(FamilyTemplate("parts"));
  EXPECT_THAT(Text(parts, kHello), EndsWith("<|im_start|>assistant\n<think>\n"));
  EXPECT_THAT(Text(parts, kHelloNoThinking),
              EndsWith("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  const ChatTemplate glm = Make(FamilyTemplate("glm"));
  EXPECT_THAT(Text(glm, kHello), EndsWith("<|assistant|><think>"));
  EXPECT_THAT(Text(glm, kHelloNoThinking), EndsWith("<|assistant|><think></think>"));
}

TEST(ChatTemplates, TheParserStartsInsideWhenThePromptEndsInAnOpenTag) {
  EXPECT_FALSE(Prompt(Make(FamilyTemplate("hermes")), kHello).starts_in_reasoning);
  EXPECT_TRUE(Prompt(Make(FamilyTemplate("parts")), kHello).starts_in_reasoning);
  EXPECT_FALSE(Prompt(Make(FamilyTemplate("parts")), kHelloNoThinking).starts_in_reasoning);
  EXPECT_TRUE(Prompt(Make(FamilyTemplate("glm")), kHello).starts_in_reasoning);
  // A user who writes the tag does not open the span.
  const ChatTemplate bare = Make("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_FALSE(Prompt(bare, R"({"messages": [{"role": "user", "content": "<think>"}]})")
                   .starts_in_reasoning);
}

TEST(ChatTemplates, EffortNoneGivesTheSamePromptAsThinkingOff) {
  for (const char* family : {"hermes", "parts", "glm", "chatml"}) {
    const ChatTemplate chat = Make(FamilyTemplate(family));
    EXPECT_EQ(
        Text(chat,
             R"({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none"})"),
        Text(chat, kHelloNoThinking))
        << family;
  }
}

TEST(ChatTemplates, EffortAndKwargsReachTheTemplate) {
  const ChatTemplate chat = Make(
      "{{ reasoning_effort }},{{ reasoning_strength }},{{ extra }},{{ clear_thinking }},"
      "{{ preserve_thinking }},{{ tools is defined }},{{ messages[0].content }}");
  EXPECT_EQ(
      Text(
          chat,
          R"({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "high", "tools": [],
                           "chat_template_kwargs": {"extra": [1], "preserve_reasoning": true}})"),
      "high,high,[1],False,True,False,Hi");
  // The request's own variables are not the client's to replace.
  EXPECT_EQ(
      Text(
          chat,
          R"({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"messages": []}})"),
      ",,,True,,False,Hi");
}

TEST(ChatTemplates, ALeadingBosIsDroppedWhenTheTokenizerAddsIt) {
  const char* source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(Text(Make(source), kHello), "<s>Hi");
  const RenderedPrompt dropped = Prompt(Make(source, "<s>", true), kHello);
  EXPECT_EQ(Marked(dropped), "[Hi]");
}

TEST(ChatTemplates, DeveloperBecomesSystemUnlessTheTemplateSpeaksInChannels) {
  const char* body =
      R"({"messages": [{"role": "developer", "content": "D"}, {"role": "user", "content": "Hi"}]})";
  EXPECT_EQ(Text(Make("{% for m in messages %}{{ m.role }} {{ m.content }};{% endfor %}"), body),
            "system D;user Hi;");
  EXPECT_EQ(
      Text(
          Make("{% for m in messages %}{{ m.role }} {{ m.content }};{% endfor %}{# <|channel|> #}"),
          body),
      "developer D;user Hi;");
}

TEST(ChatTemplates, ASystemMessageIsFoldedWhenTheTemplateHasNoPlaceForIt) {
  const ChatTemplate chat = Make(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% "
      "endif %}"
      "<{{ m.role }}>{{ m.content }}{% endfor %}");
  EXPECT_FALSE(chat.caps().supports_system_role);
  EXPECT_EQ(
      Text(
          chat,
          R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]})"),
      "<user>S\nHi");
}

TEST(ChatTemplates, PartsAreJoinedForStringTemplatesAndKeptForTypedOnes) {
  const char* body =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})";
  EXPECT_THAT(Text(Make(""), body), HasSubstr("user\na\nb<|im_end|>"));
  const ChatTemplate parts = Make(FamilyTemplate("parts"));
  EXPECT_TRUE(parts.caps().supports_typed_content);
  EXPECT_THAT(Text(parts, body), HasSubstr("user\nab<|im_end|>"));
  const ChatTemplate typed_only =
      Make("{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}");
  EXPECT_FALSE(typed_only.caps().supports_string_content);
  EXPECT_EQ(Text(typed_only, kHello), "(Hi)");
}

TEST(ChatTemplates, StringArgumentsBecomeObjectsWhereTheTemplateWantsThem) {
  const char* body =
      R"({"messages": [{"role": "user", "content": "w"}, {"role": "assistant", "content": null, "tool_calls":
          [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": \"x\"}"}}]},
          {"role": "tool", "content": "r", "tool_call_id": "c"}]})";
  const ChatTemplate coder = Make(FamilyTemplate("coder"));
  EXPECT_TRUE(coder.caps().supports_object_arguments);
  EXPECT_THAT(Text(coder, body),
              HasSubstr("<function=f>\n<parameter=b>\n1\n</parameter>\n<parameter=a>\nx\n</"
                        "parameter>\n</function>"));
  const ChatTemplate hermes = Make(FamilyTemplate("hermes"));
  EXPECT_THAT(Text(hermes, body),
              HasSubstr("{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}"));
}

TEST(ChatTemplates, CapsAreProbed) {
  for (const char* family : {"hermes", "coder", "inline", "parts", "glm", "deepseek", "chatml"}) {
    const TemplateCaps caps = Make(FamilyTemplate(family)).caps();
    EXPECT_TRUE(caps.supports_string_content) << family;
    EXPECT_TRUE(caps.supports_system_role) << family;
    EXPECT_TRUE(caps.supports_tools) << family;
    EXPECT_TRUE(caps.supports_tool_calls) << family;
    EXPECT_TRUE(caps.supports_parallel_tool_calls) << family;
    EXPECT_TRUE(caps.supports_object_arguments) << family;
  }
  EXPECT_TRUE(Make(FamilyTemplate("parts")).caps().supports_preserve_reasoning);
  EXPECT_FALSE(Make(FamilyTemplate("coder")).caps().supports_enable_thinking);
  EXPECT_TRUE(Make(FamilyTemplate("glm")).caps().supports_enable_thinking);
  EXPECT_TRUE(Make(FamilyTemplate("inline")).caps().supports_enable_thinking);
  EXPECT_TRUE(Make(FamilyTemplate("inline")).caps().supports_typed_content);
  const TemplateCaps plain = Make("").caps();
  EXPECT_TRUE(plain.supports_system_role);
  EXPECT_FALSE(plain.supports_tools || plain.supports_tool_calls || plain.supports_typed_content ||
               plain.supports_enable_thinking || plain.supports_preserve_reasoning);
}

TEST(ChatTemplates, ABrokenTemplateEndsTheLoad) {
  EXPECT_THAT([] { Make("{% if %}"); },
              testing::ThrowsMessage<Error>(HasSubstr("template chat_template:1:7:")));
  EXPECT_THAT([] { Make("{{ raise_exception('never') }}"); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("fails on one user message: template chat_template:1:19: never")));
}

// llama-server's names of templates, taken for texts, made such ones.
TEST(ChatTemplates, ATemplateThatWritesNoContentEndsTheLoad) {
  for (const char* source :
       {"llama3", "{{ bos_token }}hello", "{% for m in messages %}{{ m.role }}{% endfor %}",
        "{% if messages %}{% endif %}"}) {
    const auto refusal = test::RefusalOf([&] { Make(source); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel) << source;
    EXPECT_THAT(refusal.message, HasSubstr("writes no message's content")) << source;
  }
  EXPECT_EQ(Text(Make("{% for m in messages %}{{ m.content|upper }}{% endfor %}"), kHello), "HI");
}

TEST(ChatTemplates, TheOneWithANameIsTheOneOfFilesWithoutATemplate) {
  const ChatTemplate named = Make(std::string(kChatMl));
  EXPECT_FALSE(named.is_fallback());
  EXPECT_EQ(Text(named, kHello), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplates, ARefusalByTheTemplateIsTheClientsError) {
  const ChatTemplate chat = Make(FamilyTemplate("parts"));
  try {
    Text(chat, R"({"messages": [{"role": "system", "content": "S"}]})");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    EXPECT_THAT(error.what(), HasSubstr("No user query found in messages."));
  }
}

TEST(ChatTemplates, UserTextIsMarkedAndMarkupIsNot) {
  EXPECT_EQ(
      Marked(Prompt(Make(""), R"({"messages": [{"role": "user", "content": "<|im_end|>\n"}]})")),
      "<|im_start|>[user]\n[<|im_end|>\n]<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplates, ATrailingAssistantMessageIsPrefilled) {
  const ChatTemplate chatml = Make("");
  const char* body =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]})";
  EXPECT_EQ(Marked(Prompt(chatml, body)),
            "<|im_start|>[user]\n[Hi]<|im_end|>\n<|im_start|>assistant\n[Well, ]");
  ChatRequest request = ParseChatRequest(ParseJson(body, "request body"));
  request.continue_final = Continue::kNever;
  EXPECT_THAT(chatml.Render(request, 0).text,
              EndsWith("assistant\nWell, <|im_end|>\n<|im_start|>assistant\n"));
}

TEST(ChatTemplates, PrefillClosesAnOpenSpanOrContinuesInsideIt) {
  const ChatTemplate parts = Make(FamilyTemplate("parts"));
  const RenderedPrompt content = Prompt(
      parts,
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"}]})");
  EXPECT_THAT(content.text, EndsWith("<think>\n\n</think>\n\nA"));
  EXPECT_FALSE(content.starts_in_reasoning);
  const RenderedPrompt reasoning = Prompt(
      parts,
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "I am"}]})");
  EXPECT_THAT(reasoning.text, EndsWith("<think>\nI am"));
  EXPECT_TRUE(reasoning.starts_in_reasoning);
  const RenderedPrompt opened = Prompt(
      Make(FamilyTemplate("hermes")),
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "I am", "content": "x"}],
          "continue_final_message": "reasoning_content"})");
  EXPECT_THAT(opened.text, EndsWith("<|im_start|>assistant\n<think>\nI am"));
  EXPECT_TRUE(opened.starts_in_reasoning);
}

TEST(ChatTemplates, TheToolUseVariantServesRequestsWithTools) {
  ChatTemplate::Source source;
  source.main = "main {{ messages[0].content }}";
  source.tool_use = "tools {{ tools[0].function.name }}";
  const ChatTemplate chat = ChatTemplate::Make(source);
  EXPECT_EQ(Text(chat, kHello), "main Hi");
  EXPECT_EQ(
      Text(
          chat,
          R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]})"),
      "tools f");
}

}  // namespace
}  // namespace bloomery::chat
