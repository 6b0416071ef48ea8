#include "runtime/model/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::model {
namespace {

using test::GgufWriter;
using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelFile Read(const GgufWriter& writer) {
  return OpenGguf(test::MemoryFileSystem("m.gguf", writer.Bytes()), "m.gguf");
}

class MetadataTest : public testing::TestWithParam<uint32_t> {};

TEST_P(MetadataTest, EveryValueKindComesBackExactly) {
  using std::numeric_limits;
  const std::string any_bytes("\x00\xff\xfe text", 8);
  GgufWriter writer(GetParam());
  writer.Add("u8", uint8_t{255})
      .Add("i8", int8_t{-128})
      .Add("u16", uint16_t{65535})
      .Add("i16", int16_t{-32768})
      .Add("u32", uint32_t{4294967295})
      .Add("i32", numeric_limits<int32_t>::min())
      .Add("u64", numeric_limits<uint64_t>::max())
      .Add("i64", numeric_limits<int64_t>::min())
      .Add("f32", 0.1f)
      .Add("f64", 0.1)
      .Add("yes", true)
      .Add("no", false)
      .Add("text", any_bytes)
      .Add("empty", "");
  const ModelFile model = Read(writer);
  EXPECT_EQ(model.format(), "GGUF v" + std::to_string(GetParam()));
  const Metadata& m = model.metadata();
  EXPECT_EQ(m.GetU64("u8"), 255u);
  EXPECT_EQ(m.GetI64("i8"), -128);
  EXPECT_EQ(m.GetU64("u16"), 65535u);
  EXPECT_EQ(m.GetI64("i16"), -32768);
  EXPECT_EQ(m.GetU64("u32"), 4294967295u);
  EXPECT_EQ(m.GetI64("i32"), -2147483648);
  EXPECT_EQ(m.GetU64("u64"), 18446744073709551615u);
  EXPECT_EQ(m.GetI64("i64"), numeric_limits<int64_t>::min());
  EXPECT_EQ(m.GetF64("f32"), double{0.1f});
  EXPECT_EQ(m.GetF64("f64"), 0.1);
  EXPECT_TRUE(m.GetBool("yes"));
  EXPECT_FALSE(m.GetBool("no"));
  EXPECT_EQ(m.GetString("text"), any_bytes);
  EXPECT_EQ(m.GetString("empty"), "");
  ASSERT_EQ(m.size(), 14u);
  EXPECT_EQ(m.key(0), "u8");
  EXPECT_EQ(m.key(13), "empty");
  EXPECT_EQ(m.value(9).kind, ValueKind::kF64);
}

TEST_P(MetadataTest, EveryArrayKindComesBackExactly) {
  GgufWriter writer(GetParam());
  writer.AddArray<uint8_t>("u8", {0, 255})
      .AddArray<int8_t>("i8", {-128, 127})
      .AddArray<uint16_t>("u16", {65535})
      .AddArray<int16_t>("i16", {-32768})
      .AddArray<uint32_t>("u32", {4294967295})
      .AddArray<int32_t>("i32", {-1, 7})
      .AddArray<uint64_t>("u64", {UINT64_MAX, 1})
      .AddArray<int64_t>("i64", {INT64_MIN})
      .AddArray<float>("f32", {0.1f, -INFINITY})
      .AddArray<double>("f64", {0.1})
      .AddArray<bool>("bool", {true, false, true})
      .AddArray<std::string>("string", {"a", "", std::string("\0\xff", 2)})
      .AddArray<std::string>("none", {});
  const ModelFile model = Read(writer);
  const Metadata& m = model.metadata();
  EXPECT_THAT(m.GetU64Array("u8"), ElementsAre(0, 255));
  EXPECT_THAT(m.GetI64Array("i8"), ElementsAre(-128, 127));
  EXPECT_THAT(m.GetU64Array("u16"), ElementsAre(65535));
  EXPECT_THAT(m.GetI64Array("i16"), ElementsAre(-32768));
  EXPECT_THAT(m.GetU64Array("u32"), ElementsAre(4294967295));
  EXPECT_THAT(m.GetI64Array("i32"), ElementsAre(-1, 7));
  EXPECT_THAT(m.GetU64Array("u64"), ElementsAre(UINT64_MAX, 1));
  EXPECT_THAT(m.GetI64Array("i64"), ElementsAre(INT64_MIN));
  EXPECT_THAT(m.GetF64Array("f32"), ElementsAre(double{0.1f}, -INFINITY));
  EXPECT_THAT(m.GetF64Array("f64"), ElementsAre(0.1));
  EXPECT_THAT(m.GetBoolArray("bool"), ElementsAre(true, false, true));
  const MetadataArray& strings = m.GetStringArray("string");
  ASSERT_EQ(strings.size(), 3u);
  EXPECT_EQ(strings.String(0), "a");
  EXPECT_EQ(strings.String(1), "");
  EXPECT_EQ(strings.String(2), std::string("\0\xff", 2));
  EXPECT_EQ(m.GetStringArray("none").size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Versions, MetadataTest, testing::Values(2, 3),
                         [](const auto& row) { return "v" + std::to_string(row.param); });

TEST(Metadata, MissingKeyIsNamedAndFindGivesNothing) {
  const ModelFile model = Read(GgufWriter().Add("a", uint8_t{1}));
  const Refusal refusal = RefusalOf([&] { model.metadata().GetU64("toy.block_count"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_EQ(refusal.message, "m.gguf: metadata key 'toy.block_count' is missing");
  EXPECT_EQ(model.metadata().FindU64("toy.block_count"), std::nullopt);
  EXPECT_EQ(model.metadata().FindU64("a"), 1u);
  EXPECT_EQ(model.metadata().Find("toy.block_count"), nullptr);
}

TEST(Metadata, WrongKindNamesKeyPlaceExpectedAndActual) {
  const ModelFile model = Read(GgufWriter()
                                   .Add("text", "x")
                                   .Add("float", 1.0f)
                                   .AddArray<uint32_t>("list", {1, 2})
                                   .Add("flag", true));
  const Metadata& m = model.metadata();
  // 24 bytes of header, then length and "text", then its type.
  EXPECT_THAT(
      RefusalOf([&] { m.GetU64("text"); }).message,
      HasSubstr("m.gguf: metadata key 'text' at byte 36: it is string, expected an integer"));
  EXPECT_THAT(RefusalOf([&] { m.FindString("float"); }).message,
              HasSubstr("is f32, expected string"));
  EXPECT_THAT(RefusalOf([&] { m.GetU64("float"); }).message, HasSubstr("expected an integer"));
  EXPECT_THAT(RefusalOf([&] { m.GetU64("list"); }).message, HasSubstr("is array of 2 u32"));
  EXPECT_THAT(RefusalOf([&] { m.GetU64("flag"); }).message, HasSubstr("is bool"));
  EXPECT_THAT(RefusalOf([&] { m.GetStringArray("list"); }).message,
              HasSubstr("is array of 2 u32, expected an array of string"));
  EXPECT_THAT(RefusalOf([&] { m.GetBoolArray("list"); }).message,
              HasSubstr("expected an array of bool"));
  EXPECT_THAT(RefusalOf([&] { m.GetU64Array("text"); }).message, HasSubstr("is string"));
  EXPECT_THAT(RefusalOf([&] { m.GetArray("text"); }).message, HasSubstr("expected array"));
  EXPECT_EQ(m.GetArray("list").At(1), Number(uint64_t{2}));
}

TEST(Metadata, NumbersConvertOnlyWhenExact) {
  const uint64_t past_double = (uint64_t{1} << 53) + 1;
  const ModelFile model = Read(GgufWriter()
                                   .Add("negative", int32_t{-5})
                                   .Add("positive", int32_t{5})
                                   .Add("huge", UINT64_MAX)
                                   .Add("past", past_double)
                                   .Add("edge", past_double - 1)
                                   .AddArray<int32_t>("list", {3, -4}));
  const Metadata& m = model.metadata();
  EXPECT_EQ(m.GetU64("positive"), 5u);
  EXPECT_EQ(m.GetF64("negative"), -5.0);
  EXPECT_EQ(m.GetF64("edge"), 9007199254740992.0);
  EXPECT_THAT(RefusalOf([&] { m.GetU64("negative"); }).message, HasSubstr("is -5 (i32)"));
  EXPECT_THAT(RefusalOf([&] { m.GetI64("huge"); }).message,
              HasSubstr("is 18446744073709551615 (u64)"));
  EXPECT_THAT(RefusalOf([&] { m.GetF64("past"); }).message, HasSubstr("expected a number"));
  EXPECT_THAT(RefusalOf([&] { m.GetU64Array("list"); }).message,
              AllOf(HasSubstr("'list'"), HasSubstr("holds -4 at index 1")));
}

}  // namespace
}  // namespace bloomery::model
