#include "runtime/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/refusal.h"

namespace bloomery {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::HasSubstr;

std::string RoundTrip(std::string_view text) { return WriteJson(ParseJson(text, "test")); }

std::string MessageFor(std::string_view text) {
  return RefusalOf([&] { ParseJson(text, "request body"); }).message;
}

std::string Nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, MembersKeepTheirOrder) {
  EXPECT_EQ(RoundTrip(R"( {"b": 1, "a": [true, null, "x"], "c": 2} )"),
            R"({"b":1,"a":[true,null,"x"],"c":2})");
}

// As nlohmann's ordered objects, which llama-server parses with.
TEST(Json, OfARepeatedNameTheLastValueCountsAtTheFirstPlace) {
  EXPECT_EQ(RoundTrip(R"({"b":1,"a":2,"b":3,"c":4,"a":5,"b":6})"), R"({"b":6,"a":5,"c":4})");
  EXPECT_EQ(RoundTrip(R"([{"x":{"y":[1],"y":null}},{"":1,"":[{"z":1,"z":2}]}])"),
            R"([{"x":{"y":null}},{"":[{"z":2}]}])");
  EXPECT_EQ(RoundTrip(R"({"a name too long to lie in the node":1,)"
                      R"("a name too long to lie in the node":"a text too long for that, too"})"),
            R"({"a name too long to lie in the node":"a text too long for that, too"})");
  EXPECT_EQ(WriteJson(ParseJson(R"({"b":1,"b":2})", "test", {.keep_repeated = true})),
            R"({"b":1,"b":2})");
}

TEST(Json, ManyRepeatedNamesTakeNoLongTime) {
  std::string text = "{\"a\":0";
  for (int i = 0; i < 300000; ++i) text += ",\"a\":1";
  EXPECT_EQ(RoundTrip(text + "}"), R"({"a":1})");  // quadratic work would take hours
}

TEST(Json, ValuesAndNamesAreCountedToTheLimit) {
  // Seven: the object, two names, three numbers and an array.
  const std::string_view text = R"({"a":1,"b":[2,3]})";
  EXPECT_EQ(WriteJson(ParseJson(text, "test", {.nodes_max = 7})), text);
  const Refusal refusal = RefusalOf([&] { ParseJson(text, "test", {.nodes_max = 6}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest);
  EXPECT_NE(refusal.message.find("more than 6 values and names"), std::string::npos)
      << refusal.message;
  EXPECT_NE(refusal.message.find("byte 14"), std::string::npos) << refusal.message;
}

TEST(Json, SixtyFourBitIntegersAreExact) {
  const std::string text = "[18446744073709551615,-9223372036854775808,9007199254740993]";
  EXPECT_EQ(RoundTrip(text), text);
  EXPECT_EQ(ParseJson(text, "test")[0].GetUint64(), UINT64_MAX);
}

TEST(Json, DoublesAreCorrectlyRounded) {
  // Halfway cases that a fast path without enough digits gets wrong.
  const auto value = [](std::string_view text) { return ParseJson(text, "test").GetDouble(); };
  EXPECT_EQ(value("0.3"), 0.3);
  EXPECT_EQ(value("9007199254740993.0"), 9007199254740992.0);
  EXPECT_EQ(value("1.00000000000000011102230246251565404236316680908203126"),
            1.0 + std::numeric_limits<double>::epsilon());
  EXPECT_EQ(value("5e-324"), 5e-324);
  EXPECT_EQ(value("123456789012345678901234567890"), 123456789012345678901234567890.0);
}

// The library's own reader counts the leading zeros of 0, which has no end.
TEST(Json, ZeroWithAnExponentIsZero) {
  for (const char* text :
       {"0E99", "0e23", "-0E99", "0.0e200", "0.000e-99", "-0", "-0.0", "0e-400"}) {
    EXPECT_EQ(ParseJson(text, "number").GetDouble(), 0.0) << text;
  }
}

TEST(Json, NumbersBeyondDoublesAreRefusedAndThoseBelowAreZero) {
  for (const std::string& text :
       {std::string("1e309"), std::string("-1e400"), "1" + std::string(400, '0'),
        "1" + std::string(400, '0') + "e-50", std::string("1.8e308")}) {
    EXPECT_THROW(ParseJson(text, "number"), Error) << text;
  }
  for (const std::string& text :
       {std::string("1e-400"), std::string("-1e-99999999999999999999"),
        "0." + std::string(400, '0') + "1", "0." + std::string(400, '0') + "1e50"}) {
    EXPECT_EQ(ParseJson(text, "number").GetDouble(), 0.0) << text;
  }
  EXPECT_EQ(ParseJson("5e-324", "number").GetDouble(), 5e-324);
  EXPECT_EQ(ParseJson("1.7976931348623157e308", "number").GetDouble(), 1.7976931348623157e308);
  EXPECT_EQ(ParseJson("18446744073709551616", "number").GetDouble(), 18446744073709551616.0);
  EXPECT_EQ(ParseJson("-9223372036854775809", "number").GetDouble(), -9223372036854775808.0);
  EXPECT_EQ(ParseJson("18446744073709551615", "number").GetUint64(), UINT64_MAX);
}

TEST(Json, DepthAtTheLimitIsReadAndOnePastItRefused) {
  EXPECT_NO_THROW(ParseJson(Nested(limits::kJsonDepthMax), "test"));
  const Refusal refusal =
      RefusalOf([] { ParseJson(Nested(limits::kJsonDepthMax + 1), "request body"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("request body"), HasSubstr("more than 64")));
  // Depth is nesting, not a count.
  EXPECT_NO_THROW(ParseJson("[" + std::string("[],[],[],") + "[]]", "test", {.depth_max = 2}));
}

TEST(Json, VeryDeepTextDoesNotUseTheStack) {
  EXPECT_NO_THROW(ParseJson(Nested(1'000'000), "test", {.depth_max = 1'000'000}));
}

TEST(Json, SizeAtTheLimitIsReadAndOnePastItRefused) {
  EXPECT_NO_THROW(ParseJson("[1]", "test", {.bytes_max = 3}));
  EXPECT_THAT(RefusalOf([] { ParseJson("[1] ", "test", {.bytes_max = 3}); }).message,
              AllOf(HasSubstr("4 bytes"), HasSubstr("3")));
}

TEST(Json, RefusalNamesByteLineAndColumn) {
  EXPECT_THAT(MessageFor("{\"a\": 1,\n  \"b\": x}"),
              AllOf(HasSubstr("request body"), HasSubstr("byte 16 (line 2, column 8)")));
  EXPECT_THAT(MessageFor(""), HasSubstr("byte 0 (line 1, column 1)"));
  EXPECT_EQ(RefusalOf([] { ParseJson("{", "m", {.kind = ErrorKind::kBadModel}); }).kind,
            ErrorKind::kBadModel);
}

TEST(Json, WhatIsNotOneValueIsRefused) {
  for (const std::string text : {"{} {}", "[1,]", "{'a':1}", "nul", "01", "1.", "+1", "NaN",
                                 "\"\\ud800\"", "\"\xff\"", "\"a\nb\"", "// c\n1"}) {
    EXPECT_THAT(MessageFor(text), HasSubstr("invalid JSON at byte")) << text;
  }
  EXPECT_THAT(MessageFor(std::string("{}\0{}", 5)), HasSubstr("zero byte"));
  EXPECT_THAT(MessageFor(std::string("{}\0", 3)), HasSubstr("zero byte"));
}

TEST(Json, EscapesAndZeroCharactersSurvive) {
  EXPECT_EQ(RoundTrip(R"(["\u00e9\n\"\\\u0000\ud83d\ude00"])"),
            "[\"\xC3\xA9\\n\\\"\\\\\\u0000\xF0\x9F\x98\x80\"]");
}

TEST(Json, HalfASurrogatePairIsRefused) {
  for (const char* half :
       {R"(["a\udc00"])", R"(["\udfffb"])", R"(["\ud800"])", R"({"\udc00":1})"}) {
    EXPECT_THROW(ParseJson(half, "half"), Error) << half;
  }
  EXPECT_EQ(RoundTrip(R"(["\ud7ff\ue000"])"), "[\"\xED\x9F\xBF\xEE\x80\x80\"]");
}

TEST(Json, WritingReplacesInvalidUtf8AndNonFiniteNumbers) {
  rapidjson::Document document(rapidjson::kObjectType);
  auto& allocator = document.GetAllocator();
  document.AddMember(rapidjson::Value(std::string("k\xff"), allocator),
                     rapidjson::Value(std::string("a\xE2\x82z"), allocator), allocator);
  document.AddMember("nan", std::nan(""), allocator);
  document.AddMember("inf", -INFINITY, allocator);
  document.AddMember("x", 0.1, allocator);
  EXPECT_EQ(WriteJson(document),
            "{\"k\xEF\xBF\xBD\":\"a\xEF\xBF\xBDz\",\"nan\":null,\"inf\":null,\"x\":0.1}");
}

TEST(Json, FindNonNullTakesNullForAbsent) {
  const rapidjson::Document document =
      ParseJson(R"({"a": 1, "none": null, "b\u0000c": 4, "false": false})", "test");
  ASSERT_NE(FindNonNull(document, "a"), nullptr);
  EXPECT_EQ(FindNonNull(document, "a")->GetInt(), 1);
  EXPECT_EQ(FindNonNull(document, "none"), nullptr);
  EXPECT_EQ(FindNonNull(document, "b"), nullptr);
  EXPECT_NE(FindNonNull(document, std::string_view("b\0c", 3)), nullptr);
  EXPECT_NE(FindNonNull(document, "false"), nullptr);
}

TEST(Json, WrongAccessIsAnInternalErrorAndNotTheEnd) {
  const rapidjson::Document document = ParseJson("\"text\"", "test");
  EXPECT_EQ(RefusalOf([&] { document.GetInt(); }).kind, ErrorKind::kInternal);
}

}  // namespace
}  // namespace bloomery
