// Every limit of the template engine, at it and one past it, and the bombs they are there for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::jinja {
namespace {

using testing::HasSubstr;

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

std::string Render(const std::string& source, const RenderOptions& options = {},
                   const Value& context = Value::Dict({})) {
  return Template::Parse(source, "t").Render(context, options).text;
}

// The kind and message of the error, or "none" and the output's size.
std::pair<std::string, std::string> Outcome(const std::string& source,
                                            const RenderOptions& options = {},
                                            const Value& context = Value::Dict({})) {
  try {
    return {"none", std::to_string(Render(source, options, context).size())};
  } catch (const Error& error) {
    return {std::string(ErrorKindName(error.kind())), error.what()};
  }
}

std::string Parenthesized(int depth) {
  return "{{ " + Repeat("(", static_cast<size_t>(depth)) + "1" +
         Repeat(")", static_cast<size_t>(depth)) + " }}";
}

TEST(JinjaLimits, ParserDepthAtTheLimitParsesAndOnePastIsRefused) {
  // The print statement's expression is level one.
  EXPECT_EQ(Render(Parenthesized(limits::kJinjaDepthMax - 1)), "1");
  const auto [kind, message] = Outcome(Parenthesized(limits::kJinjaDepthMax));
  EXPECT_EQ(kind, "bad_model");
  EXPECT_THAT(message, HasSubstr("t:1:"));
  EXPECT_THAT(message, HasSubstr("nested deeper than 64"));
}

TEST(JinjaLimits, EveryWayToNestTheParserIsBounded) {
  constexpr size_t kDeep = 100'000;
  for (const auto& [open, middle, close] :
       {std::tuple<std::string, std::string, std::string>{"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "+", "1 }}"},
        {"", "{% if a %}", ""},
        {"", "{% for a in b %}", ""},
        {"", "{% macro a() %}", ""},
        {"", "{% set a %}", ""},
        {"{{ ", "a if b else ", "c }}"},
        {"{{ a ", "if b ", "}}"}}) {
    const auto [kind, message] = Outcome(open + Repeat(middle, kDeep / middle.size()) + close);
    EXPECT_EQ(kind, "bad_model") << middle;
    EXPECT_THAT(message, HasSubstr("deeper than 64")) << middle;
  }
}

TEST(JinjaLimits, EveryBracketIsBounded) {
  constexpr size_t kDeep = 20'000;
  struct Nesting {
    const char* before;
    const char* open;
    const char* close;
    const char* after;
  };
  for (const Nesting& n :
       {Nesting{"{{ ", "[", "]", " }}"}, Nesting{"{{ ", "{'a':", "}", " }}"},
        Nesting{"{{ ", "f(", ")", " }}"}, Nesting{"{{ ", "a[", "]", " }}"},
        Nesting{"{% set ", "(", ")", " = 1 %}"}, Nesting{"{{ a", "|f(b", ")", " }}"},
        Nesting{"{{ a ", "is f(b ", ")", " }}"}, Nesting{"{% filter f(", "[", "]", ") %}"},
        Nesting{"{% call f(", "(", ")", ") %}"}, Nesting{"{% with a = ", "(", ")", " %}"}}) {
    const auto [kind, message] =
        Outcome(n.before + Repeat(n.open, kDeep) + Repeat(n.close, kDeep) + n.after);
    EXPECT_EQ(kind, "bad_model") << n.open;
    EXPECT_THAT(message, HasSubstr("deeper than 64")) << n.before << n.open;
  }
}

TEST(JinjaLimits, LongChainsAreNotDepth) {
  EXPECT_EQ(Render("{{ 0" + Repeat(" + 1", 5000) + " }}"), "5000");
  EXPECT_EQ(Render("{{ 'a'" + Repeat("|string", 5000) + " }}"), "a");
  EXPECT_EQ(Render("{{ 'a'" + Repeat(" ~ 'b'", 50) + " }}").size(), 51u);
  EXPECT_EQ(Render("{{ 1" + Repeat(" and 1", 5000) + " }}"), "1");
  EXPECT_EQ(Render("{{ 1" + Repeat(" == 1", 5000) + " }}"), "True");
  EXPECT_EQ(Render("{% if false %}" + Repeat("{% elif false %}", 5000) + "{% else %}x{% endif %}"),
            "x");
}

TEST(JinjaLimits, SourceLengthAtTheLimitParsesAndOnePastIsRefused) {
  EXPECT_EQ(Render(std::string(limits::kJinjaSourceBytesMax, 'a')).size(),
            limits::kJinjaSourceBytesMax);
  EXPECT_EQ(Outcome(std::string(limits::kJinjaSourceBytesMax + 1, 'a')).first, "bad_model");
}

TEST(JinjaLimits, StepsAtTheLimitRenderAndOnePastIsRefused) {
  // Statements only: one step each, and none for expressions.
  RenderOptions options;
  options.steps_max = 10;
  EXPECT_EQ(Outcome(Repeat("a{# #}", 10), options).first, "none");
  const auto [kind, message] = Outcome(Repeat("a{# #}", 11), options);
  EXPECT_EQ(kind, "no_memory");
  EXPECT_THAT(message, HasSubstr("steps"));
  EXPECT_THAT(message, HasSubstr("t:1:61"));
}

TEST(JinjaLimits, EndlessWorkEndsByTheDefaultSteps) {
  for (const char* source :
       {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% for a in range(99999) %}{{ a }}{% endfor %}{% endmacro %}{% for i in "
        "range(99999) %}{% set x = m() %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set ns.x = (ns.x ~ "
        "ns.x)[:4000000] %}{% endfor %}",
        "{% set l = range(100000)|list %}{% for i in l %}{% set x = l|sort %}{% endfor %}",
        "{% set l = range(100000)|list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}",
        "{% set l = range(100000)|list %}{{ l|map('string')|unique|list|length }}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% if s.count('aab') %}{% endif "
        "%}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set n = 'b' ~ 'a' * 500000 %}{% for i in range(99999) %}{% "
        "if s.rfind(n) > 0 %}{% endif %}{% endfor %}",
        "{% set s = '你' * 1000000 %}{% for i in range(99999) %}{% if s[999999] == 'a' %}{% endif "
        "%}{% endfor %}",
        "{% set s = ' ' * 4000000 %}{% for i in range(99999) %}{% set x = s.strip() %}{% endfor "
        "%}"}) {
    const auto [kind, message] = Outcome(source);
    EXPECT_EQ(kind, "no_memory") << source;
    EXPECT_THAT(message, HasSubstr("steps")) << source;
  }
}

TEST(JinjaLimits, OutputAtTheLimitIsKeptAndOnePastIsRefused) {
  RenderOptions options;
  options.output_bytes_max = 1000;
  EXPECT_EQ(Outcome(std::string(1000, 'a'), options),
            std::make_pair(std::string("none"), std::string("1000")));
  EXPECT_EQ(Outcome("{{ 'a' * 1000 }}", options).first, "none");
  EXPECT_THAT(Outcome(std::string(1001, 'a'), options).second,
              HasSubstr("the output is longer than 1000 bytes"));
  EXPECT_THAT(Outcome("{{ 'a' * 1001 }}", options).second,
              HasSubstr("the output is longer than 1000 bytes"));
  // Text captured on the way is not output.
  EXPECT_EQ(Outcome("{% set x %}{{ 'a' * 1001 }}{% endset %}{{ x|length }}", options).second, "4");
}

TEST(JinjaLimits, DefaultOutputLimitHolds) {
  const std::string kib = std::to_string(limits::kJinjaOutputBytesMax / 1024);
  EXPECT_EQ(Outcome("{% for i in range(" + kib + ") %}{{ 'a' * 1024 }}{% endfor %}").second,
            std::to_string(limits::kJinjaOutputBytesMax));
  EXPECT_EQ(Outcome("{% for i in range(" + kib + ") %}{{ 'a' * 1024 }}{% endfor %}!").first,
            "no_memory");
}

TEST(JinjaLimits, ValueBytesAreCountedWhileAliveAndGivenBack) {
  RenderOptions options;
  options.value_bytes_max = 100'000;
  // A thousand texts of 10 kB one after the other fit; twenty at once do not.
  EXPECT_EQ(Outcome("{% for i in range(500) %}{% if ('a' * 10000)|length %}{% endif %}{% endfor %}",
                    options)
                .first,
            "none");
  const auto [kind, message] = Outcome(
      "{% set ns = namespace(l=[]) %}{% for i in range(20) %}{% set ns.l = ns.l + ['a' * 10000] "
      "%}{% endfor %}",
      options);
  EXPECT_EQ(kind, "no_memory");
  EXPECT_THAT(message, HasSubstr("limit 100000 bytes"));
}

TEST(JinjaLimits, SizeBombsAreRefusedBeforeTheyAllocate) {
  for (const char* source :
       {"{{ 'x' * 10 ** 18 }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ range(10 ** 12) }}",
        "{{ range(-9223372036854775807, 9223372036854775807) }}",
        "{{ range(100001) }}",
        "{% set s = 'a' * 100000 %}{{ s.replace('a', s) }}",
        "{% set s = 'a' * 1000000 %}{{ s.replace('', s) }}",
        "{{ 'a'.ljust(10 ** 15) }}",
        "{{ 'a'.zfill(10 ** 15) }}",
        "{{ 'a'|center(10 ** 15) }}",
        "{{ 'a\nb'|indent(10 ** 15) }}",
        "{{ [1]|batch(10 ** 15, 0)|list }}",
        "{{ [1]|slice(10 ** 15)|list }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
        "endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
        "endfor %}{{ ns.x|tojson }}",
        "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}{% "
        "set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set s = 'a' * 1000000 %}{{ [s] * 1000|int }}",
        "{% set ns = namespace(s='\"') %}{% for i in range(99) %}{% set ns.s = ns.s|tojson %}{% "
        "endfor %}"}) {
    EXPECT_EQ(Outcome(source).first, "no_memory") << source;
  }
}

TEST(JinjaLimits, FormatWidthsAreBounded) {
  EXPECT_EQ(Render("{{ ('%1048576d' % 1)|length }}"), "1048576");
  EXPECT_EQ(Outcome("{{ '%1048577d' % 1 }}").first, "bad_request");
  EXPECT_EQ(Outcome("{{ '%*d' % (99999999, 1) }}").first, "bad_request");
  EXPECT_EQ(Outcome("{{ '%99999999999999999999d' % 1 }}").first, "bad_request");
  EXPECT_EQ(Render("{{ ('%.1000000f' % 1.5)|length }}"), "402");
  EXPECT_EQ(Outcome("{{ [1]|tojson(indent=1025) }}").first, "bad_request");
}

TEST(JinjaLimits, RangeAtTheLimitAndOnePast) {
  EXPECT_EQ(Render("{{ range(100000)|length }}"), "100000");
  EXPECT_EQ(Outcome("{{ range(0, 100001) }}").first, "no_memory");
  EXPECT_EQ(Render("{{ range(0, 10 ** 18, 10 ** 14)|length }}"), "10000");
}

TEST(JinjaLimits, ValueNestingAtTheLimitAndOnePast) {
  const auto nested = [](int levels) {
    return "{% set ns = namespace(x=[]) %}{% for i in range(" + std::to_string(levels - 1) +
           ") %}{% set ns.x = [ns.x] %}{% endfor %}{{ (ns.x ~ '')|length }}";
  };
  EXPECT_EQ(Render(nested(limits::kJinjaValueDepthMax)),
            std::to_string(2 * limits::kJinjaValueDepthMax));
  const auto [kind, message] = Outcome(nested(limits::kJinjaValueDepthMax + 1));
  EXPECT_EQ(kind, "no_memory");
  EXPECT_THAT(message, HasSubstr("nested deeper than 128"));
}

TEST(JinjaLimits, ValuesFromOutsideAreNestedNoDeeper) {
  Value value = Value::List({});
  for (int i = 1; i < limits::kJinjaValueDepthMax; ++i) {
    value = Value::List({value});
  }
  EXPECT_THROW(Value::List({value}), Error);
  EXPECT_THROW(Value::Dict({{Value::Trusted("k"), value}}), Error);
}

TEST(JinjaLimits, MacroRecursionAtTheLimitAndOnePast) {
  const auto recursive = [](int calls) {
    return "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(" +
           std::to_string(calls) + ") }}";
  };
  EXPECT_EQ(Render(recursive(limits::kJinjaDepthMax)).size(),
            static_cast<size_t>(limits::kJinjaDepthMax));
  const auto [kind, message] = Outcome(recursive(limits::kJinjaDepthMax + 1));
  EXPECT_EQ(kind, "no_memory");
  EXPECT_THAT(message, HasSubstr("macro calls nest deeper than 64"));
}

TEST(JinjaLimits, RecursionWithDeepBodiesEndsBeforeTheStack) {
  // Each call goes through some 40 nodes: the node limit comes before the call limit.
  const std::string ifs = Repeat("{% if true %}", 40);
  const std::string ends = Repeat("{% endif %}", 40);
  const auto [kind, message] =
      Outcome("{% macro m() %}" + ifs + "{{ m() }}" + ends + "{% endmacro %}{{ m() }}");
  EXPECT_EQ(kind, "no_memory");
  EXPECT_THAT(message, HasSubstr("statements and expressions nest deeper than 1024"));
}

TEST(JinjaLimits, RecursiveLoopsAndCallersAreBounded) {
  EXPECT_EQ(Outcome("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").first, "no_memory");
  EXPECT_EQ(Outcome("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}").first,
            "bad_request");
  EXPECT_EQ(Outcome("{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}")
                .first,
            "no_memory");
}

TEST(JinjaLimits, CyclesThroughNamespacesEndAndAreFreed) {
  // Leaks would be seen by the address sanitizer.
  EXPECT_EQ(
      Render("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self.self is defined }}"),
      "True");
  EXPECT_EQ(Render("{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l }}"), "[<Namespace>]");
  EXPECT_EQ(Render("{% set ns = namespace() %}{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m "
                   "%}{{ ns.m() }}"),
            "<Namespace>");
  EXPECT_EQ(Render("{% set ns = namespace() %}{% for x in [1] %}{% set ns.loop = loop %}{{ "
                   "loop.changed(ns.loop) }}"
                   "{% endfor %}{{ ns.loop.changed(ns.loop) }}{{ ns.loop.index }}"),
            "TrueTrue1");
  EXPECT_EQ(Render("{% set ns = namespace(p=none) %}{% for i in range(50000) %}{% set ns.p = "
                   "namespace(p=ns.p) %}"
                   "{% endfor %}x"),
            "x");
}

TEST(JinjaLimits, IntegerOverflowIsNamed) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 4611686018427387904 * 2 }}", "{{ 2 ** 63 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ '9223372036854775808'|int }}",
        "{{ 1e300|int }}", "{{ [9223372036854775807, 1]|sum }}",
        "{{ (-9223372036854775807 - 1)|abs }}"}) {
    const auto [kind, message] = Outcome(source);
    EXPECT_EQ(kind, "bad_request") << source;
    EXPECT_THAT(message, HasSubstr("64")) << source;
  }
  EXPECT_EQ(Render("{{ (-9223372036854775807 - 1) % -1 }} {{ 2 ** 62 }} {{ -(2 ** 62) * 2 }}"),
            "0 4611686018427387904 -9223372036854775808");
  EXPECT_EQ(Outcome("{{ 9223372036854775808 }}").first, "bad_model");
}

}  // namespace
}  // namespace bloomery::jinja
