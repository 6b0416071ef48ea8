#include "runtime/model/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/model/json_metadata.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::model {
namespace {

using test::MemoryFileSystem;
using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A file with one-value F32 tensors of these names.
std::string Shard(const std::vector<std::string>& names) {
  std::vector<SafeTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, "F32", {1}, 0, 4});
  return SafetensorsHeader(tensors) + std::string(4 * names.size(), '\1');
}

MemoryFileSystem TwoShards(const std::string& index) {
  MemoryFileSystem files("m/config.json", R"({"layers": 2})");
  files.Put("m/one.safetensors", Shard({"a", "b"}));
  files.Put("m/two.safetensors", Shard({"c"}));
  files.Put("m/model.safetensors.index.json", index);
  return files;
}

constexpr const char* kIndex = R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                                                  "c": "two.safetensors"}})";

TEST(SafetensorsFolderTest, OneFileOrShardsGiveTheTensorsOfAll) {
  const MemoryFileSystem sharded = TwoShards(kIndex);
  const SafetensorsFolder folder(sharded, "m");
  EXPECT_EQ(folder.tensors().size(), 3U);
  EXPECT_EQ(folder.Find("c")->file->path(), "m/two.safetensors");
  EXPECT_EQ(folder.Find("d"), nullptr);
  EXPECT_EQ(folder.config().GetU64("layers"), 2U);
  EXPECT_EQ(folder.ReadText("none.txt", 10), std::nullopt);

  MemoryFileSystem single("m/config.json", "{}");
  single.Put("m/model.safetensors", Shard({"a"}));
  EXPECT_EQ(SafetensorsFolder(single, "m").tensors().size(), 1U);
}

TEST(SafetensorsFolderTest, FolderWithoutConfigOrTensorsIsNoInput) {
  MemoryFileSystem files("m/model.safetensors", Shard({"a"}));
  Refusal refusal = RefusalOf([&] { SafetensorsFolder(files, "m"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, HasSubstr("config.json"));
  refusal = RefusalOf([] { SafetensorsFolder(MemoryFileSystem("m/config.json", "{}"), "m"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, HasSubstr("model.safetensors"));
}

TEST(SafetensorsFolderTest, IndexAndShardsThatDisagreeAreRefusedByName) {
  struct Case {
    const char* index;
    const char* said;
  };
  const Case cases[] = {
      {R"({"weight_map": {"a": "three.safetensors"}})", "'three.safetensors' is not in the folder"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", "'../one.safetensors'"},
      {R"({"weight_map": {"a": ""}})", "no file of this folder"},
      {R"({"weight_map": {"a": 1}})", "the place of 'a' is no text"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})", "'a' is there twice"},
      {R"({"weight_map": {"a": "one.safetensors"}})", "'b' is not placed here"},
      {R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors",
                          "d": "two.safetensors"}})",
       "two.safetensors: no tensor 'd'"},
      {R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})",
       "one.safetensors: tensor 'b'"},
      {R"({"weight_map": []})", "no object 'weight_map'"},
      {"[]", "not a JSON object"},
      {"{", "index.json"},
  };
  for (const Case& c : cases) {
    const MemoryFileSystem files = TwoShards(c.index);
    const Refusal refusal = RefusalOf([&] { SafetensorsFolder(files, "m"); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel) << c.index;
    EXPECT_THAT(refusal.message, HasSubstr(c.said));
  }
}

TEST(SafetensorsFolderTest, ShardsAtTheLimitAreReadAndOneMoreIsRefused) {
  for (const uint64_t count : {limits::kModelShardsMax, limits::kModelShardsMax + 1}) {
    MemoryFileSystem files("m/config.json", "{}");
    std::string index;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string name = "t" + std::to_string(i);
      files.Put("m/" + name + ".safetensors", Shard({name}));
      index += (i == 0 ? "\"" : ", \"") + name + R"(": ")" + name + R"(.safetensors")";
    }
    files.Put("m/model.safetensors.index.json", R"({"weight_map": {)" + index + "}}");
    if (count <= limits::kModelShardsMax) {
      EXPECT_EQ(SafetensorsFolder(files, "m").tensors().size(), count);
    } else {
      EXPECT_THAT(RefusalOf([&] { SafetensorsFolder(files, "m"); }).message, HasSubstr("1025"));
    }
  }
}

TEST(JsonMetadata, InnerObjectsGetDottedKeysAndValuesKeepTheirKind) {
  const Metadata metadata = MetadataOfJson(
      ParseJson(R"({"big": 18446744073709551615, "low": -3, "real": 1e-6, "yes": true,
                    "text": "x", "none": null, "inner": {"deep": {"n": 7}},
                    "whole": [1, 2], "signed": [1, -2], "mixed": [1, 0.5], "flags": [true, false],
                    "texts": ["a", "bc"], "empty": [], "odd": [1, "a"]})",
                "test"),
      "c.json");
  EXPECT_EQ(metadata.GetU64("big"), UINT64_MAX);
  EXPECT_EQ(metadata.GetI64("low"), -3);
  EXPECT_EQ(metadata.GetF64("real"), 1e-6);
  EXPECT_TRUE(metadata.GetBool("yes"));
  EXPECT_EQ(metadata.GetString("text"), "x");
  EXPECT_EQ(metadata.GetU64("inner.deep.n"), 7U);
  EXPECT_THAT(metadata.GetU64Array("whole"), ElementsAre(1, 2));
  EXPECT_THAT(metadata.GetI64Array("signed"), ElementsAre(1, -2));
  EXPECT_THAT(metadata.GetF64Array("mixed"), ElementsAre(1.0, 0.5));
  EXPECT_THAT(metadata.GetBoolArray("flags"), ElementsAre(true, false));
  EXPECT_EQ(metadata.GetStringArray("texts").String(1), "bc");
  EXPECT_EQ(metadata.GetArray("empty").size(), 0U);
  EXPECT_FALSE(metadata.Has("none"));
  EXPECT_FALSE(metadata.Has("inner"));
  EXPECT_FALSE(metadata.Has("odd"));
}

TEST(JsonMetadata, KeyThatIsThereTwiceIsRefusedByName) {
  for (const char* json : {R"({"a": 1, "a": 1})", R"({"a.b": 1, "a": {"b": 2}})"}) {
    const Refusal refusal = RefusalOf(
        [&] { MetadataOfJson(ParseJson(json, "test", {.keep_repeated = true}), "c.json"); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message, AllOf(HasSubstr("c.json"), HasSubstr("'a")));
  }
}

}  // namespace
}  // namespace bloomery::model
