#include "runtime/apps/tools/folder_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/model/json_metadata.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMap = R"({
  "model_types": ["toy_hub"], "architectures": ["toy"], "pre_tokenizer": "plain",
  "require": [{"config": "good", "is": true, "present": true}, {"config": "odd", "is": []},
              {"config": "kind", "is": "x"}, {"config": "step", "is": 1}],
  "sizes": [{"size": "layers", "from": ["n_layers"]}, {"size": "w", "from": ["width", "in.width"]},
            {"size": "experts", "from": ["n_experts"]},
            {"size": "vocabulary", "from": ["v"]}],
  "keys": [{"key": "{arch}.width", "type": "u32", "from": ["width", "in.width"]},
           {"key": "{arch}.base", "type": "f32", "from": ["base"], "optional": true}],
  "tensors": [{"name": "embd", "from": "hub.embed", "ne": ["w", "10"]},
              {"name": "blk.{l}.x", "from": "hub.{l}.{e}.x", "ne": ["w", "2*w", "experts"]},
              {"name": "blk.{l}.y", "from": "hub.{l}.y", "ne": ["w"]},
              {"name": "out", "from": "hub.head", "ne": ["w", "10"], "unless": "tied"}]})";

model::Metadata Config(const std::string& json) {
  return model::MetadataOfJson(ParseJson(json, "test"), "config.json");
}

std::string Replaced(const std::string& what, const std::string& with) {
  std::string map = kMap;
  const size_t at = map.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return map.replace(at, what.size(), with);
}

TEST(FolderMapTest, TensorsComeInFileOrderWithTheirSources) {
  const FolderMap map = FolderMap::Parse(kMap, "m.json");
  EXPECT_EQ(map.architecture(), "toy");
  const auto tensors = map.Tensors(
      Config(R"({"n_layers": 2, "in": {"width": 8}, "v": 10, "n_experts": 1, "tied": true})"));
  ASSERT_EQ(tensors.size(), 6U);
  EXPECT_THAT(tensors[0].sources, ElementsAre("hub.embed"));
  EXPECT_EQ(tensors[3].name, "blk.1.x");
  EXPECT_THAT(tensors[3].ne, ElementsAre(8, 16, 1));
  EXPECT_THAT(tensors[3].sources, ElementsAre("hub.1.0.x"));
  EXPECT_TRUE(tensors[3].stacked);  // also of one expert
  EXPECT_FALSE(tensors[4].stacked);
  EXPECT_EQ(tensors[5].name, "out");
  EXPECT_TRUE(tensors[5].skipped);
}

TEST(FolderMapTest, KeysComeFromTheFirstNameTheConfigHas) {
  const FolderMap map = FolderMap::Parse(kMap, "m.json");
  auto keys = map.Keys(Config(R"({"in": {"width": 8}})"));
  ASSERT_EQ(keys.size(), 1U);  // the optional one is left out
  EXPECT_EQ(keys[0].first, "toy.width");
  EXPECT_EQ(std::get<uint64_t>(keys[0].second.data), 8U);
  keys = map.Keys(Config(R"({"width": 4, "in": {"width": 8}, "base": 10000})"));
  EXPECT_EQ(std::get<uint64_t>(keys[0].second.data), 4U);
  EXPECT_EQ(std::get<double>(keys[1].second.data), 10000.0);
  const Refusal refusal = RefusalOf([&] { map.Keys(Config("{}")); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("config.json"), HasSubstr("'width' or 'in.width'")));
  EXPECT_THAT(RefusalOf([&] { map.Keys(Config(R"({"width": 4294967296})")); }).message,
              HasSubstr("width"));
}

TEST(FolderMapTest, ConfigThatTheMapIsNotForIsRefusedByItsKey) {
  const FolderMap map = FolderMap::Parse(kMap, "m.json");
  map.Check(Config(R"({"good": true, "odd": [], "kind": "x", "step": 1})"));
  map.Check(Config(R"({"good": true})"));
  for (const auto& [json, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{}", "'good' is not true"},
           {R"({"good": false})", "'good' is not true"},
           {R"({"good": true, "odd": [3]})", "'odd' is not []"},
           {R"({"good": true, "kind": "y"})", "'kind' is not 'x'"},
           {R"({"good": true, "step": 2})", "'step' is not 1"}}) {
    const Refusal refusal = RefusalOf([&] { map.Check(Config(json)); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported) << json;
    EXPECT_THAT(refusal.message, HasSubstr(said));
  }
}

TEST(FolderMapTest, SizesBeyondReasonAreRefused) {
  const FolderMap map = FolderMap::Parse(kMap, "m.json");
  for (const char* json : {R"({"n_layers": 0, "width": 8, "v": 10, "n_experts": 1})",
                           R"({"n_layers": 4097, "width": 8, "v": 10, "n_experts": 1})",
                           R"({"n_layers": 1, "width": 8, "v": 10, "n_experts": 65537})",
                           R"({"n_layers": 2049, "width": 8, "v": 10, "n_experts": 512})",
                           R"({"n_layers": 1, "width": 4294967296, "v": 10, "n_experts": 1})"}) {
    EXPECT_EQ(RefusalOf([&] { map.Tensors(Config(json)); }).kind, ErrorKind::kBadModel) << json;
  }
  // 2048 stacks of 512: as many as there may be.
  const char* most = R"({"n_layers": 2048, "width": 8, "v": 10, "n_experts": 512})";
  EXPECT_EQ(map.Tensors(Config(most)).size(), 2 * 2048U + 2);
}

TEST(FolderMapTest, BadMapsAreRefusedWithTheField) {
  for (const auto& [what, with, said] :
       std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {R"("model_types")", R"("types")", "unknown field 'types'"},
           {R"({"size": "layers", "from": ["n_layers"]},)", "", "no size 'layers'"},
           {R"("type": "u32")", R"("type": "u33")", "key 0: 'type'"},
           {R"("is": true)", R"("is": 1.5)", "requirement 0: 'is'"},
           {R"("present": true)", R"("present": 1)", "'present' must be true or false"},
           {R"(["w", "2*w", "experts"])", R"(["experts"])", "tensor 1: 'ne'"},
           {R"(["w", "2*w", "experts"])", R"([])", "tensor 1: 'ne'"},
           {R"("tensors")", R"("tensors": [], "x")", "unknown field 'x'"}}) {
    const Refusal refusal = RefusalOf([&] { FolderMap::Parse(Replaced(what, with), "m.json"); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message, AllOf(HasSubstr("m.json"), HasSubstr(said)));
  }
  const FolderMap map = FolderMap::Parse(Replaced(R"(["w", "10"])", R"(["v"])"), "m.json");
  EXPECT_THAT(RefusalOf([&] {
                map.Tensors(Config(R"({"n_layers": 1, "width": 8, "v": 10, "n_experts": 1})"));
              }).message,
              HasSubstr("'v' is no size"));
}

}  // namespace
}  // namespace bloomery::apps
