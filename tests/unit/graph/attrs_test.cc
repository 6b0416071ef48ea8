#include "runtime/graph/attrs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/graph/abi.h"
#include "tests/support/refusal.h"

namespace bloomery::graph {
namespace {

bl_attr Raw(const char* key, bl_attr_type type, const void* value, uint64_t count = 1) {
  auto attr = MakeAbi<bl_attr>();
  attr.key = key;
  attr.type = type;
  attr.count = count;
  attr.value = value;
  return attr;
}

TEST(Attrs, ValuesOfEveryTypeAreCopiedAndReadBack) {
  std::array<int64_t, 3> ne = {4, 5, 6};
  double eps = 0.5;
  std::array<const char*, 1> kind = {"neox"};
  const uint8_t yes = 1;
  const std::array raw = {Raw("ne", BL_ATTR_I64, ne.data(), 3), Raw("eps", BL_ATTR_F64, &eps),
                          Raw("kind", BL_ATTR_STR, kind.data()), Raw("yes", BL_ATTR_BOOL, &yes)};
  const Attrs attrs(raw);
  ne = {0, 0, 0};
  eps = 9.0;
  EXPECT_THAT(attrs.I64s("ne"), testing::ElementsAre(4, 5, 6));
  EXPECT_EQ(attrs.F64("eps"), 0.5);
  EXPECT_EQ(attrs.Str("kind"), "neox");
  EXPECT_TRUE(attrs.Bool("yes"));
  EXPECT_EQ(attrs.I64("absent", 7), 7);
  EXPECT_EQ(attrs.Str("absent", "else"), "else");
}

TEST(Attrs, TheAbiFormSaysTheSame) {
  const double eps = 0.25;
  const std::array<const char*, 2> names = {"a", "b"};
  const std::array raw = {Raw("eps", BL_ATTR_F64, &eps),
                          Raw("names", BL_ATTR_STR, names.data(), 2)};
  const AbiAttrs abi{Attrs(raw)};
  ASSERT_EQ(abi.view().size(), 2U);
  EXPECT_STREQ(abi.view()[0].key, "eps");
  EXPECT_EQ(*static_cast<const double*>(abi.view()[0].value), 0.25);
  ASSERT_EQ(abi.view()[1].count, 2U);
  EXPECT_STREQ(static_cast<const char* const*>(abi.view()[1].value)[1], "b");
}

TEST(Attrs, BrokenAttributesAreRefusedByName) {
  const int64_t one = 1;
  const std::array<const char*, 1> null_text = {nullptr};
  const auto refused = [](const bl_attr& attr) {
    return test::RefusalOf([&] { Attrs({&attr, 1}); }).message;
  };
  EXPECT_THAT(refused(Raw(nullptr, BL_ATTR_I64, &one)), testing::HasSubstr("no key"));
  EXPECT_THAT(refused(Raw("a", 9, &one)), testing::HasSubstr("'a' has the unknown type 9"));
  EXPECT_THAT(refused(Raw("a", BL_ATTR_I64, nullptr)), testing::HasSubstr("'a' has a null value"));
  EXPECT_THAT(refused(Raw("a", BL_ATTR_STR, null_text.data())),
              testing::HasSubstr("'a' holds a null string"));
  EXPECT_THAT(refused(Raw("a", BL_ATTR_I64, &one, kAttrValuesMax + 1)),
              testing::HasSubstr("at most 4096"));
  const std::array twice = {Raw("a", BL_ATTR_I64, &one), Raw("a", BL_ATTR_I64, &one)};
  EXPECT_THAT(test::RefusalOf([&] { Attrs{twice}; }).message,
              testing::HasSubstr("'a' is given twice"));
}

}  // namespace
}  // namespace bloomery::graph
