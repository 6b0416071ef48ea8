#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bloomery/attrs.hpp>

namespace bloomery::sdk {
namespace {

TEST(Attrs, EveryTypeIsReadBackAsItWasWritten) {
  Attrs attrs;
  attrs.I64("n", -3).F64("eps", 1e-6).Str("kind", "neox").Bool("yes", true).I64s("ne", {4, 5});
  const Attrs copy = attrs;  // independent of the original
  const RawAttrs raw(copy);
  const AttrReader reader(raw.data(), raw.size());
  EXPECT_EQ(reader.size(), 5u);
  EXPECT_EQ(reader.I64("n"), -3);
  EXPECT_EQ(reader.F64("eps"), 1e-6);
  EXPECT_EQ(reader.Str("kind"), "neox");
  EXPECT_EQ(reader.Bool("yes"), true);
  EXPECT_EQ(reader.I64("ne"), 4);
  EXPECT_EQ(reader[4].count, 2u);
  EXPECT_EQ(static_cast<const int64_t*>(reader[4].value)[1], 5);
}

TEST(Attrs, AnotherTypeOrKeyCountsAsAbsent) {
  const RawAttrs raw(Attrs().I64("n", 1));
  const AttrReader reader(raw.data(), raw.size());
  EXPECT_EQ(reader.F64("n"), std::nullopt);
  EXPECT_EQ(reader.Str("n"), std::nullopt);
  EXPECT_EQ(reader.Bool("n"), std::nullopt);
  EXPECT_EQ(reader.I64("m"), std::nullopt);
}

TEST(Attrs, AnEmptyListIsNull) {
  const RawAttrs raw{Attrs()};
  EXPECT_EQ(raw.data(), nullptr);
  EXPECT_EQ(AttrReader(raw.data(), raw.size()).I64("n"), std::nullopt);
}

TEST(Attrs, ListsOfALaterMinorAreSteppedByTheirSize) {
  struct Longer {
    bl_attr attr;
    uint64_t appended;
  } items[2] = {};
  const int64_t values[2] = {7, 8};
  const char* keys[2] = {"a", "b"};
  for (int i = 0; i < 2; ++i) {
    items[i].attr = {sizeof(Longer), BL_ATTR_I64, keys[i], 1, &values[i]};
    items[i].appended = 999;
  }
  EXPECT_EQ(AttrReader(&items[0].attr, 2).I64("b"), 8);
}

}  // namespace
}  // namespace bloomery::sdk
