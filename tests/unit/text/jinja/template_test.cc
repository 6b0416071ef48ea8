// Errors with their places, what is refused on purpose, values, and concurrent renders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::jinja {
namespace {

using testing::HasSubstr;

std::string ParseErrorOf(const std::string& source) {
  try {
    Template::Parse(source, "chat");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
    return error.what();
  }
  return "parsed";
}

std::string RenderErrorOf(const std::string& source, const Value& context = Value::Dict({})) {
  try {
    return "rendered: " + Template::Parse(source, "chat").Render(context, {}).text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    return error.what();
  }
}

TEST(JinjaErrors, ParseErrorsNameTheTemplateLineColumnAndWhat) {
  EXPECT_EQ(ParseErrorOf("a\n  {% nosuch x %}"), "template chat:2:6: unknown statement 'nosuch'");
  EXPECT_EQ(ParseErrorOf("{{ a|nosuch }}"), "template chat:1:6: no filter named 'nosuch'");
  EXPECT_EQ(ParseErrorOf("{{ a is nosuch }}"), "template chat:1:6: no test named 'nosuch'");
  EXPECT_EQ(ParseErrorOf("\n\n{{ 1 + }}"), "template chat:3:8: expected an expression, found '}}'");
  EXPECT_EQ(ParseErrorOf("{% if a %}\nx"),
            "template chat:2:1: the body of 'if' that begins here has no 'endif'");
  EXPECT_EQ(ParseErrorOf("{{ 'abc }}"), "template chat:1:4: string literal without an end");
  EXPECT_EQ(ParseErrorOf("x {{ a ? b }}"), "template chat:1:8: unexpected character '?'");
  EXPECT_EQ(ParseErrorOf("{% break %}"), "template chat:1:4: 'break' outside a loop");
}

TEST(JinjaErrors, InheritanceIsRefusedByName) {
  for (const char* word : {"include", "import", "from", "extends", "block", "autoescape"}) {
    EXPECT_EQ(ParseErrorOf("{% " + std::string(word) + " 'x' %}"),
              "template chat:1:4: the statement '" + std::string(word) +
                  "' is not supported in chat templates");
  }
}

TEST(JinjaErrors, RenderErrorsNameThePlaceAndTheVariable) {
  EXPECT_EQ(RenderErrorOf("a\n {{ nosuch(1) }}"), "template chat:2:11: 'nosuch' is undefined");
  EXPECT_EQ(RenderErrorOf("{{ a.b.c }}", Value::Dict({{Value::Trusted("a"), Value::Dict({})}})),
            "template chat:1:7: 'b' is undefined");
  EXPECT_EQ(
      RenderErrorOf("{{ a['role'] + 'x' }}", Value::Dict({{Value::Trusted("a"), Value::Dict({})}})),
      "template chat:1:14: 'role' is undefined");
  EXPECT_EQ(RenderErrorOf("{{ 1 + 'a' }}"),
            "template chat:1:6: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(RenderErrorOf("\n{{ raise_exception('No user.') }}"), "template chat:2:19: No user.");
  EXPECT_EQ(RenderErrorOf("{% if true %}{{ 1|nosuch }}{% endif %}"),
            "template chat:1:19: no filter named 'nosuch'");
}

TEST(JinjaErrors, MalformedTemplatesAreRefusedAndNothingElse) {
  // Cut and mangled forms of one template that uses most syntax: each parses or is refused with a
  // place.
  const std::string whole =
      "{% macro m(a, b=[1, {'k': (2, 3)}]) -%} {{ a|default('x', true) ~ b[0:1] }} {%- endmacro %}"
      "{% for k, v in d.items() if v is not none recursive %}{{ loop.index }}{% else %}{# c #}{% "
      "endfor %}"
      "{% set ns = namespace(x='q\\n') %}{% call(z) m(1, *l, **kw) %}{{ z }}{% endcall %}"
      "{% filter upper|trim %}{% raw %}{{{% endraw %}{% endfilter %}{{ 1.5e3 if a.0 else -2 ** 3 "
      "// 4 }}";
  ASSERT_NO_THROW(Template::Parse(whole, "chat"));
  size_t refused = 0;
  const auto attempt = [&refused](const std::string& source) {
    try {
      Template::Parse(source, "chat");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
      EXPECT_THAT(error.what(), testing::StartsWith("template chat:"));
      ++refused;
    }
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    attempt(whole.substr(0, i));
    attempt(whole.substr(i));
    attempt(whole.substr(0, i) + whole.substr(i + 1));
    for (const char c : {'{', '}', '%', '(', ']', '\'', '|', '.', ',', '\xFF', '\0'}) {
      attempt(whole.substr(0, i) + c + whole.substr(i));
    }
  }
  EXPECT_GT(refused, 3000u);
}

TEST(JinjaRender, MutationIsHiddenAsInTheSandbox) {
  for (const char* source : {"{{ [1].append(2) }}", "{{ {}.update({'a': 1}) }}",
                             "{{ {'pop': 1}.pop }}x{{ {}.pop('a') }}"}) {
    EXPECT_THAT(RenderErrorOf(source), HasSubstr("is undefined")) << source;
  }
}

TEST(JinjaRender, TimeComesFromTheOptionsOnly) {
  RenderOptions options;
  options.now_s = 951827696;  // 2000-02-29 12:34:56
  const auto shown = Template::Parse("{{ strftime_now('%d %B %Y, %H:%M:%S') }}", "t")
                         .Render(Value::Dict({}), options);
  EXPECT_EQ(shown.text, "29 February 2000, 12:34:56");
  EXPECT_THAT(RenderErrorOf("{{ strftime_now('" + std::string(257, 'x') + "') }}"),
              HasSubstr("256"));
}

TEST(JinjaRender, IteratorsHaveNoLength) {
  EXPECT_THAT(RenderErrorOf("{{ [1]|map('abs')|length }}"), HasSubstr("has no len()"));
}

TEST(JinjaRender, OneTemplateRendersOnManyThreadsAtOnce) {
  const Template shared = Template::Parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}"
      "{{ m.role|upper }}:{{ m.content|trim }}{{ loop.changed(m.role) }}\n{% endfor %}{{ ns.n }}",
      "t");
  const Value context = FromJson(
      ParseJson(
          R"({"messages": [{"role": "user", "content": " a "}, {"role": "user", "content": "b"}]})",
          "context"),
      Origin::kInput);
  const std::string expected = "USER:aTrue\nUSER:bFalse\n3";
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        wrong[t] += shared.Render(context, {}).text == expected ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(JinjaValue, DictsKeepOrderAndTheLastOfRepeatedKeys) {
  const Value dict = FromJson(ParseJson(R"({"b": 1, "a": 2, "b": 3})", "json"), Origin::kInput);
  EXPECT_EQ(ToJson(dict), R"({"b": 3, "a": 2})");
  EXPECT_EQ(ToJson(dict.With("a", Value(9)).With("c", Value(None{}))),
            R"({"b": 3, "a": 9, "c": null})");
  EXPECT_EQ(ToJson(dict.Without("b")), R"({"a": 2})");
  EXPECT_EQ(dict.Get("a").AsInt(), 2);
  EXPECT_TRUE(dict.Get("z").is_undefined());
}

TEST(JinjaValue, LargeDictsAreIndexed) {
  std::vector<Value::DictEntry> entries;
  for (int i = 0; i < 1000; ++i) {
    entries.emplace_back(Value::Trusted("k" + std::to_string(i % 500)), Value(i));
  }
  const Value dict = Value::Dict(std::move(entries));
  ASSERT_EQ(dict.Entries().size(), 500u);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(dict.Get("k" + std::to_string(i)).AsInt(), i + 500);
  }
  EXPECT_TRUE(dict.Get("k500").is_undefined());
}

TEST(JinjaValue, NumbersBeyond64BitsBecomeFloats) {
  const Value list = FromJson(
      ParseJson("[18446744073709551615, -9223372036854775808, 1e2]", "json"), Origin::kInput);
  EXPECT_EQ(ToJson(list), "[1.8446744073709552e+19, -9223372036854775808, 100.0]");
}

TEST(JinjaValue, TryParseJsonAnswersUndefinedForAnythingElse) {
  EXPECT_EQ(ToJson(TryParseJson(R"({"a": [1]})", Origin::kInput)), R"({"a": [1]})");
  EXPECT_TRUE(TryParseJson("{", Origin::kInput).is_undefined());
  EXPECT_TRUE(TryParseJson("{} x", Origin::kInput).is_undefined());
  EXPECT_TRUE(TryParseJson(std::string(100'000, '['), Origin::kInput).is_undefined());
}

}  // namespace
}  // namespace bloomery::jinja
