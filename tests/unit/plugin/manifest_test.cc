#include "runtime/plugin/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"

namespace bloomery::plugin {
namespace {

using test::RefusalOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kGood =
    R"({"name": "toy", "version": "1.20.3", "abi": "0.1", "architectures": ["toy", "toymoe"],
        "gpu_architectures": ["sm_90a"], "licence": "MIT"})";

std::string With(std::string_view from, std::string_view to) {
  std::string text(kGood);
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Manifest, EveryFieldIsRead) {
  const Manifest m = ParseManifest(kGood, "toy.json");
  EXPECT_EQ(m.name, "toy");
  EXPECT_EQ(m.version, "1.20.3");
  EXPECT_EQ(m.version_parts, (Version{{1, 20, 3}}));
  EXPECT_EQ(m.abi.major, 0);
  EXPECT_EQ(m.abi.minor, 1);
  EXPECT_THAT(m.architectures, ElementsAre("toy", "toymoe"));
  EXPECT_THAT(m.gpu_architectures, ElementsAre("sm_90a"));
  EXPECT_EQ(m.licence, "MIT");
}

TEST(Manifest, GpuArchitecturesMayBeAbsent) {
  EXPECT_TRUE(ParseManifest(With(R"("gpu_architectures": ["sm_90a"],)", ""), "toy.json")
                  .gpu_architectures.empty());
}

TEST(Manifest, VersionsCompareByNumber) {
  EXPECT_LT(*ParseVersion("1.9.0"), *ParseVersion("1.10.0"));
  EXPECT_LT(*ParseVersion("0.99.99"), *ParseVersion("1.0.0"));
  EXPECT_EQ(ParseVersion("1.2"), std::nullopt);
  EXPECT_EQ(ParseVersion("1.2.3.4"), std::nullopt);
  EXPECT_EQ(ParseVersion("1.2.x"), std::nullopt);
  EXPECT_EQ(ParseVersion("1.-2.3"), std::nullopt);
  EXPECT_EQ(ParseVersion("1.2.99999999999"), std::nullopt);
  EXPECT_EQ(ParseVersion(""), std::nullopt);
}

struct BadCase {
  const char* name;
  const char* from;
  const char* to;
  const char* field;
  const char* problem;
};

void PrintTo(const BadCase& c, std::ostream* out) { *out << c.name; }

class BadManifest : public testing::TestWithParam<BadCase> {};

TEST_P(BadManifest, IsRefusedWithFileAndField) {
  const BadCase& c = GetParam();
  const auto refusal = RefusalOf([&] { ParseManifest(With(c.from, c.to), "/p/toy.json"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("/p/toy.json"));
  EXPECT_THAT(refusal.message, HasSubstr(std::string("field '") + c.field + "'"));
  EXPECT_THAT(refusal.message, HasSubstr(c.problem));
}

INSTANTIATE_TEST_SUITE_P(
    , BadManifest,
    testing::Values(
        BadCase{"NameMissing", R"("name": "toy",)", "", "name", "missing"},
        BadCase{"NameEmpty", R"("name": "toy")", R"("name": "")", "name", "empty"},
        BadCase{"NameNumber", R"("name": "toy")", R"("name": 3)", "name", "not a string"},
        BadCase{"NameSlash", R"("name": "toy")", R"("name": "../toy")", "name", "other characters"},
        BadCase{"NameControl", R"("name": "toy")", R"("name": "t\u0001y")", "name", "control"},
        BadCase{"VersionShort", "1.20.3", "1.20", "version", "three numbers"},
        BadCase{"AbiWords", "\"0.1\"", "\"new\"", "abi", "two numbers"},
        BadCase{"AbiHuge", "\"0.1\"", "\"0.70000\"", "abi", "two numbers"},
        BadCase{"NoArchitecture", R"(["toy", "toymoe"])", "[]", "architectures",
                "missing or empty"},
        BadCase{"ArchitectureTwice", "toymoe", "toy", "architectures", "'toy' twice"},
        BadCase{"ArchitecturesText", R"(["toy", "toymoe"])", "\"toy\"", "architectures",
                "not an array"},
        BadCase{"GpuNumber", R"(["sm_90a"])", "[90]", "gpu_architectures", "not a string"},
        BadCase{"LicenceMissing", R"(, "licence": "MIT")", "", "licence", "missing"},
        BadCase{"Unknown", R"("licence": "MIT")", R"("licence": "MIT", "arch": "toy")", "arch",
                "not known"},
        BadCase{"Twice", R"("licence": "MIT")", R"("licence": "MIT", "name": "b")", "name",
                "given twice"}),
    [](const auto& i) { return i.param.name; });

TEST(Manifest, TextIsRefusedOneBytePastTheLimit) {
  const std::string longest(limits::kPluginTextBytesMax, 'a');
  EXPECT_EQ(ParseManifest(With("toymoe", longest), "toy.json").architectures[1], longest);
  EXPECT_THAT(RefusalOf([&] { ParseManifest(With("toymoe", longest + "a"), "toy.json"); }).message,
              HasSubstr("257 bytes"));
}

TEST(Manifest, ArchitecturesAreRefusedOnePastTheLimit) {
  const auto list = [](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += (i > 0 ? ", \"a" : "\"a") + std::to_string(i) + "\"";
    return "[" + text + "]";
  };
  const size_t max = limits::kPluginArchitecturesMax;
  EXPECT_EQ(ParseManifest(With(R"(["toy", "toymoe"])", list(max)), "m").architectures.size(), max);
  EXPECT_THAT(
      RefusalOf([&] { ParseManifest(With(R"(["toy", "toymoe"])", list(max + 1)), "m"); }).message,
      HasSubstr("65 items"));
}

TEST(Manifest, WhatIsNoJsonObjectIsRefusedWithThePath) {
  for (const char* text : {"", "[]", "{\"name\": ", "3", "{} x"}) {
    EXPECT_THAT(RefusalOf([&] { ParseManifest(text, "/p/toy.json"); }).message,
                HasSubstr("/p/toy.json"))
        << text;
  }
  const std::string large(limits::kManifestBytesMax + 1, ' ');
  EXPECT_THROW(ParseManifest(large, "m"), Error);
}

}  // namespace
}  // namespace bloomery::plugin
