#include "runtime/apps/folder/folder_map.h"

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

FolderMap One(const std::string& json) { return FolderMap::Parse(json, "m.json").front(); }

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
  const FolderMap map = One(kMap);
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
  const FolderMap map = One(kMap);
  const std::string sizes = R"({"n_layers": 1, "v": 10, "n_experts": 1, )";
  auto keys = map.Keys(Config(sizes + R"("in": {"width": 8}})"));
  ASSERT_EQ(keys.size(), 1U);  // the optional one is left out
  EXPECT_EQ(keys[0].first, "toy.width");
  EXPECT_EQ(std::get<uint64_t>(keys[0].second.data), 8U);
  keys = map.Keys(Config(sizes + R"("width": 4, "in": {"width": 8}, "base": 10000})"));
  EXPECT_EQ(std::get<uint64_t>(keys[0].second.data), 4U);
  EXPECT_EQ(std::get<double>(keys[1].second.data), 10000.0);
  const Refusal refusal = RefusalOf([&] { map.Keys(Config(sizes + R"("none": 0})")); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("config.json"), HasSubstr("'width' or 'in.width'")));
  EXPECT_THAT(RefusalOf([&] { map.Keys(Config(sizes + R"("width": 4294967296})")); }).message,
              HasSubstr("width"));
}

TEST(FolderMapTest, ConfigThatTheMapIsNotForIsRefusedByItsKey) {
  const FolderMap map = One(kMap);
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
  const FolderMap map = One(kMap);
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

// Hybrid models: kinds of layers, draft blocks behind them, other names, parts of tensors.
constexpr const char* kHybrid = R"([{
  "model_types": ["other"], "architectures": ["x"], "pre_tokenizer": "plain",
  "require": [{"config": "kind", "is": "x"}],
  "sizes": [{"size": "layers", "from": ["n"]}, {"size": "vocabulary", "from": ["v"]}],
  "keys": [{"key": "k", "type": "u32", "from": ["n"]}],
  "tensors": [{"name": "t", "from": "t", "ne": ["1"]}]
}, {
  "model_types": ["toy_hybrid"], "architectures": ["toy"],
  "pre_tokenizer": [{"pre": "marks", "has": "\\p{M}"}, {"pre": "plain"}],
  "inner": "text", "ignore": ["eye."],
  "rename": [{"from": "long.", "to": "short."}, {"from": "next.{d}.", "to": "at.{l}."}],
  "layer_kinds": {"from": ["kinds"], "interval": ["every"], "each": "full", "others": "linear"},
  "require": [{"config": "kind", "is": "x"}],
  "sizes": [{"size": "layers", "from": ["n"]}, {"size": "w", "from": ["w"]},
            {"size": "vocabulary", "from": ["v"]}, {"size": "e", "from": ["e"]},
            {"size": "drafts", "from": ["n_next"], "otherwise": 0, "with": "next.join"}],
  "keys": [{"key": "{arch}.blocks", "type": "u32", "value": "layers+drafts"},
           {"key": "{arch}.linear", "type": "flags", "is": "linear"},
           {"key": "{arch}.turned", "type": "u32", "from": ["w"], "times": ["part"]},
           {"key": "{arch}.sections", "type": "i32s", "from": ["sections"], "count": 4}],
  "tensors": [{"name": "blk.{l}.join", "from": "next.join", "ne": ["w"], "in": ["draft"]},
              {"name": "blk.{l}.norm", "from": "at.{l}.norm", "ne": ["w"], "change": "1+"},
              {"name": "blk.{l}.mix", "from": "at.{l}.mix", "ne": ["w", "2+2*w"], "in": ["linear"],
               "regroup": {"axis": 1, "first": "2", "block": "w", "groups": "1"}},
              {"name": "blk.{l}.up", "from": ["at.{l}.{e}.up", {"name": "at.{l}.both", "first": "w", "of": "2*w"}],
               "ne": ["w", "w", "e"], "in": ["full", "draft"]}]
}])";

TEST(FolderMapTest, HybridModelsHaveKindsOfLayersAndDraftBlocks) {
  const std::vector<FolderMap> maps = FolderMap::Parse(kHybrid, "m.json");
  ASSERT_EQ(maps.size(), 2U);
  const FolderMap& map = maps[1];
  const model::Metadata config = Config(
      R"({"text": {"n": 3, "w": 8, "v": 9, "e": 2, "every": 2, "part": 0.3, "sections": [1, 2],
          "n_next": 1}, "n": 7})");
  EXPECT_EQ(map.NameOf("long.x", config), "short.x");
  EXPECT_EQ(map.NameOf("next.1.norm", config), "at.4.norm");
  EXPECT_EQ(map.NameOf("next.x.norm", config), "next.x.norm");
  EXPECT_EQ(map.NameOf("eye.x", config), std::nullopt);
  // Without the tensor that draft blocks come with there are none, whatever the config counts.
  EXPECT_EQ(map.Tensors(config).size(), 3U + 2U + 1U);
  const auto has = [](const std::string& name) {
    return name == "next.join" || name.ends_with(".both");
  };
  const auto tensors = map.Tensors(config, has);
  std::vector<std::string> names;
  for (const MappedTensor& tensor : tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("blk.0.norm", "blk.0.mix", "blk.1.norm", "blk.1.up", "blk.2.norm",
                                 "blk.2.mix", "blk.3.join", "blk.3.norm", "blk.3.up"));
  EXPECT_EQ(tensors[0].change, FolderChange::kAddOne);
  EXPECT_EQ(tensors[1].regroup->first, 2U);
  EXPECT_EQ(tensors[1].regroup->block, 8U);
  EXPECT_THAT(tensors[8].sources, ElementsAre("at.3.both"));
  EXPECT_FALSE(tensors[8].stacked);
  EXPECT_EQ(tensors[8].first, 8U);
  EXPECT_EQ(tensors[8].of, 16U);
  EXPECT_THAT(map.Tensors(config)[3].sources, ElementsAre("at.1.0.up", "at.1.1.up"));

  model::Metadata keys("keys");
  for (auto& [key, value] : map.Keys(config, has)) keys.Add(key, std::move(value));
  EXPECT_EQ(keys.GetU64("toy.blocks"), 4U);
  EXPECT_THAT(keys.GetBoolArray("toy.linear"), ElementsAre(true, false, true, false));
  EXPECT_EQ(keys.GetU64("toy.turned"), 2U);  // 8 * 0.3, rounded down
  EXPECT_THAT(keys.GetI64Array("toy.sections"), ElementsAre(1, 2, 0, 0));
}

TEST(FolderMapTest, KindsOfLayersThatTheConfigGivesWrongAreRefused) {
  const FolderMap map = FolderMap::Parse(kHybrid, "m.json")[1];
  const auto refused = [&](const std::string& more) {
    const model::Metadata config = Config(R"({"n": 2, "w": 8, "v": 9, "e": 2, )" + more + "}");
    return RefusalOf([&] { map.Tensors(config); }).message;
  };
  EXPECT_THAT(refused(R"("kinds": ["full"])"), HasSubstr("has 1 values for 2 layers"));
  EXPECT_THAT(refused(R"("kinds": ["full", "odd"])"), HasSubstr("layer 1 is of the kind 'odd'"));
  EXPECT_THAT(refused(R"("every": 0)"), HasSubstr("'every' is 0"));
  EXPECT_THAT(refused(R"("odd": 0)"), HasSubstr("'every'"));
}

TEST(FolderMapTest, BadMapsOfHybridModelsAreRefusedWithTheField) {
  for (const auto& [what, with, said] :
       std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {R"("change": "1+")", R"("change": "2+")", "'change' must be"},
           {R"("otherwise": 0, "with")", R"("with")", "'with' needs an 'otherwise'"},
           {R"("value": "layers+drafts")", R"("optional": true)",
            "one of 'from', 'value' and 'is'"},
           {R"("type": "flags")", R"("type": "u32")", "'is' is of flags"},
           {R"("axis": 1)", R"("axis": 2)", "'axis' must be 0 or 1"},
           {R"("count": 4)", R"("count": -1)", "'count' must be a whole number"},
           {R"(, "first": "w", "of": "2*w"})", R"(, "of": "2*w"})", "no field 'first'"}}) {
    std::string map = kHybrid;
    const size_t at = map.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    map.replace(at, std::string(what).size(), with);
    EXPECT_THAT(RefusalOf([&] { FolderMap::Parse(map, "m.json"); }).message,
                AllOf(HasSubstr("map 1"), HasSubstr(said)));
  }
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
  const FolderMap map = One(Replaced(R"(["w", "10"])", R"(["v"])"));
  EXPECT_THAT(RefusalOf([&] {
                map.Tensors(Config(R"({"n_layers": 1, "width": 8, "v": 10, "n_experts": 1})"));
              }).message,
              HasSubstr("'v' is no size"));
}

}  // namespace
}  // namespace bloomery::apps
