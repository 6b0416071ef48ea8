#include "runtime/hub/model_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/refusal.h"

namespace bloomery::hub {
namespace {

using ::testing::HasSubstr;

std::vector<ModelSet> Sets(std::initializer_list<const char*> paths) {
  std::vector<HubFile> files;
  for (const char* path : paths) files.push_back({.path = path, .bytes = 10});
  return SetsOf(files);
}

Reference Of(const char* quant) { return {.owner = "o", .name = "n", .quant = quant}; }

TEST(ModelSetTest, ShardsAreOneSetInOrderAndWhatOnlyGoesWithAModelIsNone) {
  const auto sets = Sets({"m-00002-of-00002.gguf", "m-00001-of-00002.gguf", "mmproj-m.gguf",
                          "m.imatrix.gguf", "mtp-m.gguf", "README.md", "m-0001-of-0002.gguf"});
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0].name, "m");
  EXPECT_EQ(sets[0].files[0].path, "m-00001-of-00002.gguf");
  EXPECT_EQ(sets[0].Bytes(), 20U);
  EXPECT_TRUE(sets[0].Complete());
  EXPECT_EQ(sets[1].name, "m-0001-of-0002");  // four digits are a name
}

TEST(ModelSetTest, AQuantMatchesWholeBetweenSeparatorsWithoutCase) {
  const auto sets = Sets({"a-Q6_K.gguf", "a-Q6_K_L.gguf", "Q8_0/a.gguf", "a-UD-Q4_K_XL.gguf"});
  const auto match = [&](const char* quant) {
    std::string names;
    for (const ModelSet& set : sets) names += MatchesQuant(set, quant) ? set.name + " " : "";
    return names;
  };
  EXPECT_EQ(match("q6_k"), "a-Q6_K ");
  EXPECT_EQ(match("Q6_K_L"), "a-Q6_K_L ");
  EXPECT_EQ(match("Q8_0"), "Q8_0/a ");
  EXPECT_EQ(match("UD-Q4_K_XL"), "a-UD-Q4_K_XL ");
  EXPECT_EQ(match("Q4_K_XL"), "a-UD-Q4_K_XL ");
  EXPECT_EQ(match("Q6"), "");
}

TEST(ModelSetTest, OneSetNeedsNoQuantSeveralDo) {
  const auto one = Sets({"a-Q6_K.gguf"});
  EXPECT_EQ(PickSet(one, Of(""), "").name, "a-Q6_K");
  const auto two = Sets({"a-Q6_K.gguf", "b/a-Q6_K.gguf"});
  for (const char* quant : {"", "Q6_K", "Q4_0"}) {
    const auto refusal = test::RefusalOf([&] { PickSet(two, Of(quant), ""); });
    EXPECT_EQ(refusal.kind, ErrorKind::kDownload);
    EXPECT_THAT(refusal.message, HasSubstr("b/a-Q6_K.gguf"));
  }
  EXPECT_EQ(PickSet(two, Of(""), "b/a-Q6_K.gguf").name, "b/a-Q6_K");
}

TEST(ModelSetTest, MissingAndRepeatedShardsRefuseTheSet) {
  const auto sets = Sets({"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"});
  EXPECT_THAT(test::RefusalOf([&] { PickSet(sets, Of(""), ""); }).message,
              HasSubstr("of 3 shards only 2"));
  EXPECT_THAT(
      test::RefusalOf([] { Sets({"m-00001-of-00002.gguf", "m-00001-of-00002.GGUF"}); }).message,
      HasSubstr("twice"));
}

// Once taken for a model in one file, and fetched as a whole one.
TEST(ModelSetTest, AShardOfASetThatCannotBeIsNoModel) {
  for (const char* path : {"x-00001-of-99999.gguf", "x-00000-of-00000.gguf",
                           "x-00007-of-00003.gguf", "x-00000-of-00002.gguf"}) {
    const auto sets = Sets({path});
    ASSERT_EQ(sets.size(), 1U) << path;
    EXPECT_FALSE(sets[0].Complete()) << path;
    for (const char* file : {"", path}) {
      EXPECT_THAT(test::RefusalOf([&] { PickSet(sets, Of(""), file); }).message,
                  HasSubstr("numbered as no set is"))
          << path;
    }
  }
  EXPECT_TRUE(Sets({"x-00001-of-00001.gguf"})[0].Complete());
}

TEST(ModelSetTest, AListingOfManyIsNamedInPart) {
  std::vector<HubFile> files;
  for (int i = 0; i < 1000; ++i) {
    files.push_back({.path = "m" + std::to_string(i) + ".gguf", .bytes = 1});
  }
  const auto sets = SetsOf(files);
  const std::string message = test::RefusalOf([&] { PickSet(sets, Of(""), ""); }).message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 41);
  EXPECT_THAT(message, HasSubstr("and 960 more"));
}

TEST(ModelSetTest, SizesThatCannotBeAreRefused) {
  std::vector<HubFile> files{{.path = "m-00001-of-00002.gguf", .bytes = UINT64_MAX},
                             {.path = "m-00002-of-00002.gguf", .bytes = 2}};
  EXPECT_EQ(test::RefusalOf([&] { SetsOf(files).front().Bytes(); }).kind, ErrorKind::kDownload);
}

}  // namespace
}  // namespace bloomery::hub
