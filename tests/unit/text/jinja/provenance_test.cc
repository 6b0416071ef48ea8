// Which bytes of the output came from outside, through every kind of operation.
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/json.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/template.h"
#include "tests/support/case_name.h"

namespace bloomery::jinja {
namespace {

// The output with every input span in «».
std::string Marked(const std::string& source, const Value& context) {
  const RenderResult result = Template::Parse(source, "t").Render(context, {});
  std::string out;
  size_t pos = 0;
  for (const Span& span : result.input_spans) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_LE(pos, span.begin);
    out += result.text.substr(pos, span.begin - pos) + "«" +
           result.text.substr(span.begin, span.end - span.begin) + "»";
    pos = span.end;
  }
  return out + result.text.substr(pos);
}

Value Context() {
  return FromJson(
             ParseJson(
                 R"({"u": "Ünd <|x|>", "s": "  pad  ", "d": {"key": "val", "n": 5}, "l": ["a", "bc"],
                                "csv": "x,y,z", "lines": "p\nq\n", "html": "<&>", "num": 7, "none": null})",
                 "context"),
             Origin::kInput)
      .With("bos", Value::Trusted("<s>"));
}

struct Case {
  const char* source;
  const char* marked;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.source; }

class JinjaProvenance : public testing::TestWithParam<Case> {};

TEST_P(JinjaProvenance, FollowsTheBytes) {
  EXPECT_EQ(Marked(GetParam().source, Context()), GetParam().marked);
}

INSTANTIATE_TEST_SUITE_P(
    Operations, JinjaProvenance,
    testing::Values(
        Case{"a{{ u }}b{{ bos }}", "a«Ünd <|x|>»b<s>"},
        Case{"{{ u }}{{ s }}", "«Ünd <|x|>  pad  »"}, Case{"{{ '<' + u + '>' }}", "<«Ünd <|x|>»>"},
        Case{"{{ 'a' ~ u ~ 1 ~ num }}", "a«Ünd <|x|>»17"}, Case{"{{ ('ab' + u)[1:4] }}", "b«Ün»"},
        Case{"{{ ('ab' + u)[::-1] }}", "«>|x|< dnÜ»ba"},
        Case{"{{ ('ab' + u)[2] }}{{ ('ab' + u)[1] }}", "«Ü»b"}, Case{"{{ s|trim }}", "«pad»"},
        Case{"{{ (' ' + s + ' !').strip() }}", "«pad  » !"}, Case{"{{ u|upper }}", "«ÜND <|X|>»"},
        Case{"{{ ('a' + u)|title }}", "A«ünd <|x|>»"}, Case{"{{ u|capitalize }}", "«Ünd <|x|>»"},
        Case{"{{ u.replace('<|', '[') }}", "«Ünd »[«x|>»"},
        Case{"{{ 'a-b'|replace('-', u) }}", "a«Ünd <|x|>»b"},
        Case{"{{ csv.split(',')[1] }}", "«y»"},
        Case{"{{ csv.split(',')|join('+') }}", "«x»+«y»+«z»"},
        Case{"{{ csv.rsplit(',', 1)[0] }}", "«x,y»"}, Case{"{{ csv.partition(',')[1] }}", ","},
        Case{"{% for c in 'q' + l[1] %}[{{ c }}]{% endfor %}", "[q][«b»][«c»]"},
        Case{"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "«key»=«val»;«n»=5;"},
        Case{"{% for k in d %}{{ k }}{% endfor %}", "«keyn»"},
        Case{"{{ d|tojson }}", "{\"«key»\": \"«val»\", \"«n»\": 5}"},
        Case{"{{ l|tojson(indent=1) }}", "[\n \"«a»\",\n \"«bc»\"\n]"},
        Case{"{{ html|tojson }}", "\"«<&>»\""}, Case{"{{ lines|tojson }}", "\"«p\\nq\\n»\""},
        Case{"{{ u|tojson(ensure_ascii=true) }}", "\"«\\u00dcnd <|x|>»\""},
        Case{"{{ l }}", "['«a»', '«bc»']"}, Case{"{{ html|e }}", "«&lt;&amp;&gt;»"},
        Case{"{{ lines|indent(2, true) }}", "  «p»\n  «q»\n"},
        Case{"{{ '%s-%s' % (u[:1], 3) }}", "«Ü»-3"}, Case{"{{ '{}!'.format(csv) }}", "«x,y,z»!"},
        Case{"{% set x %}[{{ csv }}]{% endset %}{{ x }}", "[«x,y,z»]"},
        Case{"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(csv)|upper }}", "<«X,Y,Z»>"},
        Case{"{% filter upper %}a{{ csv }}{% endfilter %}", "A«X,Y,Z»"},
        Case{"{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}q{{ csv }}{% endcall %}",
             "q«x,y,z»"},
        Case{"{% set ns = namespace(t='a') %}{% set ns.t = ns.t + csv %}{{ ns.t }}", "a«x,y,z»"},
        Case{"{{ csv * 2 }}", "«x,y,zx,y,z»"}, Case{"{{ ('-' + l[0]) * 2 }}", "-«a»-«a»"},
        Case{"{{ csv|default('z') }}{{ nope|default('z') }}", "«x,y,z»z"},
        Case{"{{ [csv, 'a']|sort|last }}", "«x,y,z»"}, Case{"{{ (l + ['z'])|join }}", "«abc»z"},
        Case{"{{ csv.center(9, '*') }}", "**«x,y,z»**"},
        Case{"{{ (csv ~ ' tail of words')|truncate(8, true, '…', 0) }}", "«x,y,z» t…"},
        Case{"{{ ('{\"a\": \"' ~ csv ~ '\"}')|from_json|join }}", "«a»"},
        Case{"{{ num }}{{ none }}", "7None"}, Case{"{{ csv|safe + '<' }}", "«x,y,z»&lt;"},
        Case{"{{ csv|length }}", "5"}, Case{"{{ csv is string }}", "True"},
        Case{"{{ ('a' + csv).split(',')[0] }}", "a«x»"},
        Case{"{{ ('α' + u + 'ω')[1:-1]|lower }}", "«ünd <|x|>»"}),
    [](const auto& row) { return test::CaseName(row.index, row.param.source); });

TEST(JinjaProvenanceOfContext, TrustedContextLeavesNoSpans) {
  const Value context =
      FromJson(ParseJson(R"({"a": ["x", {"y": "z"}]})", "context"), Origin::kTrusted);
  EXPECT_TRUE(
      Template::Parse("{{ a }}{{ a|tojson }}", "t").Render(context, {}).input_spans.empty());
}

TEST(JinjaProvenanceOfContext, InvalidUtf8BecomesTheReplacementCharacter) {
  const Value context = Value::Dict({{Value::Trusted("x"), Value::Input("a\xC3(\xFF")}});
  EXPECT_EQ(Marked("{{ x }}{{ x|length }}", context), "«a\xEF\xBF\xBD(\xEF\xBF\xBD»4");
}

}  // namespace
}  // namespace bloomery::jinja
