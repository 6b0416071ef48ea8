// What jinja2 answers (goldens.json, by make_goldens.py) against what we answer.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/jinja/json.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::jinja {
namespace {

// 2026-03-07 08:05:09, as in make_goldens.py.
constexpr int64_t kNow = 1772870709;

const rapidjson::Document& Goldens() {
  static const rapidjson::Document goldens = [] {
    std::ifstream file(std::string(BLOOMERY_SOURCE_DIR) + "/tests/unit/text/jinja/goldens.json");
    std::stringstream text;
    text << file.rdbuf();
    return ParseJson(text.str(), "goldens.json");
  }();
  return goldens;
}

// "output: …", "parse error" or "render error", with the message when `with_message`.
std::string Answer(const std::string& source, const Value& context, bool with_message) {
  const auto told = [&](const char* what, const Error& error) {
    return std::string(what) + (with_message ? ": " + std::string(error.what()) : "");
  };
  std::optional<Template> parsed;
  try {
    parsed = Template::Parse(source, "golden");
  } catch (const Error& error) {
    return told("parse error", error);
  }
  try {
    RenderOptions options;
    options.now_s = kNow;
    return "output: " + parsed->Render(context, options).text;
  } catch (const Error& error) {
    return told("render error", error);
  }
}

std::string Expected(const rapidjson::Value& golden) {
  if (golden.HasMember("output")) {
    return std::string("output: ") + golden["output"].GetString();
  }
  return std::string(golden["error"].GetString()) + " error";
}

std::string TemplateOf(const rapidjson::Value& golden) {
  if (golden.HasMember("template_of")) {
    return Goldens()["templates"][golden["template_of"].GetString()].GetString();
  }
  return golden["template"].GetString();
}

const char* ContextOf(const rapidjson::Value& golden) {
  return golden.HasMember("context") ? golden["context"].GetString() : "";
}

TEST(JinjaGoldens, EveryCaseAnswersAsJinja2) {
  std::map<std::string, Value> contexts;
  for (const auto& member : Goldens()["contexts"].GetObject()) {
    contexts[member.name.GetString()] = FromJson(member.value, Origin::kInput);
  }
  size_t cases = 0;
  for (const auto& golden : Goldens()["cases"].GetArray()) {
    const std::string source = TemplateOf(golden);
    const Value& context = contexts.at(ContextOf(golden));
    const std::string answer = Answer(source, context, false);
    EXPECT_EQ(answer, Expected(golden))
        << golden["name"].GetString() << "\n  " << source.substr(0, 200) << "\n  "
        << Answer(source, context, true).substr(0, 300);
    ++cases;
  }
  EXPECT_GE(cases, 1000u);
}

TEST(JinjaGoldens, RaisedMessagesReachTheError) {
  size_t raised = 0;
  for (const auto& golden : Goldens()["cases"].GetArray()) {
    if (!golden.HasMember("message")) {
      continue;
    }
    const Value context = FromJson(Goldens()["contexts"][ContextOf(golden)], Origin::kInput);
    const std::string answer = Answer(TemplateOf(golden), context, true);
    EXPECT_TRUE(answer.ends_with(std::string(": ") + golden["message"].GetString())) << answer;
    ++raised;
  }
  EXPECT_GE(raised, 5u);
}

}  // namespace
}  // namespace bloomery::jinja
