#include "runtime/apps/folder/folder_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using test::MemoryFileSystem;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two groups ("keys") of three blocks ("values") each: the folder has block j of group g at 3 g +
// j, the file at 2 j + g, so that from 0 1 2 3 4 5 come 0 3 1 4 2 5.
constexpr const char* kMap = R"({
  "model_types": ["toy_hub"], "architectures": ["toy"], "pre_tokenizer": "plain",
  "require": [{"config": "kind", "is": "x"}],
  "sizes": [{"size": "layers", "from": ["n"]}, {"size": "vocabulary", "from": ["n"]},
            {"size": "keys", "from": ["keys"]}],
  "keys": [{"key": "{arch}.n", "type": "u32", "from": ["n"]}],
  "tensors": [
    {"name": "one", "from": "one", "ne": ["6"], "regroup": {"block": "1", "groups": "keys"}},
    {"name": "pairs.weight", "from": "pairs", "ne": ["14", "2"],
     "regroup": {"axis": 0, "first": "2", "block": "2", "groups": "keys"}},
    {"name": "rows.weight", "from": "rows", "ne": ["2", "7"],
     "regroup": {"axis": 1, "first": "1", "block": "1", "groups": "keys"}},
    {"name": "blocks.weight", "from": "blocks", "ne": ["1", "12"],
     "regroup": {"axis": 1, "block": "2", "groups": "keys"}},
    {"name": "plus", "from": "plus", "ne": ["2"], "change": "1+"},
    {"name": "decay", "from": "decay", "ne": ["3"], "change": "-exp"},
    {"name": "gate.weight", "from": [{"name": "both", "first": "0", "of": "4"}], "ne": ["2", "2", "2"]},
    {"name": "up.weight", "from": [{"name": "both", "first": "2", "of": "4"}], "ne": ["2", "2", "2"]}
  ]})";

class Toy {
 public:
  Toy() : files_("m/config.json", R"({"n": 1, "keys": 2})") {
    files_.Put("m/tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
    Add("one", {6}, Counted(6));
    Add("pairs", {2, 14}, Counted(28));
    Add("rows", {7, 1, 2}, Counted(14));  // an axis of one more than the map says
    Add("blocks", {12, 1}, Counted(12));
    Add("plus", {2}, {-0.5F, 0.25F});
    Add("decay", {3}, {0.0F, 1.0F, -2.5F});
    Add("both", {2, 4, 2}, Counted(16));
  }

  void Config(const std::string& json) { files_.Put("m/config.json", json); }
  void Add(const std::string& name, const std::vector<uint64_t>& shape,
           const std::vector<float>& values) {
    tensors_.push_back({name, "F32", shape, 0, values.size() * sizeof(float)});
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }

  // Rows [first, first + rows) of the tensor, all of it where rows is 0.
  std::vector<float> Read(const std::string& name, uint64_t first = 0, uint64_t rows = 0) {
    files_.Put("m/model.safetensors", model::SafetensorsHeader(tensors_) + data_);
    const model::SafetensorsFolder folder(files_, "m");
    const FolderSource source(folder, FolderMap::Parse(kMap, "map").front());
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const SourceTensor& tensor = source.tensors()[i];
      if (tensor.name != name) continue;
      const uint64_t count = rows == 0 ? tensor.rows() - first : rows;
      std::vector<float> values(count * tensor.ne[0]);
      source.ReadRows(i, first, std::as_writable_bytes(std::span(values)));
      return values;
    }
    ADD_FAILURE() << name;
    return {};
  }

 private:
  static std::vector<float> Counted(int n) {
    std::vector<float> values;
    for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
    return values;
  }

  MemoryFileSystem files_;
  std::vector<model::SafeTensor> tensors_;
  std::string data_;
};

TEST(FolderSourceTest, BlocksOfGroupsComeOutInTurns) {
  Toy toy;
  EXPECT_THAT(toy.Read("one"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(toy.Read("pairs.weight", 1),
              ElementsAre(14, 15, 16, 17, 22, 23, 18, 19, 24, 25, 20, 21, 26, 27));
  EXPECT_THAT(toy.Read("rows.weight"), ElementsAre(0, 1, 2, 3, 8, 9, 4, 5, 10, 11, 6, 7, 12, 13));
  EXPECT_THAT(toy.Read("blocks.weight"), ElementsAre(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11));
  EXPECT_THAT(toy.Read("blocks.weight", 3, 4), ElementsAre(7, 2, 3, 8));  // from inside a block
}

TEST(FolderSourceTest, ValuesAreChangedAsTheMapSays) {
  Toy toy;
  EXPECT_THAT(toy.Read("plus"), ElementsAre(0.5F, 1.25F));
  EXPECT_THAT(toy.Read("decay"), ElementsAre(-1.0F, -static_cast<float>(std::exp(1.0)),
                                             -static_cast<float>(std::exp(-2.5))));
}

TEST(FolderSourceTest, HalvesOfAStackAreTensorsOfTheirOwn) {
  Toy toy;
  EXPECT_THAT(toy.Read("gate.weight"), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(toy.Read("up.weight"), ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_THAT(toy.Read("up.weight", 1, 2), ElementsAre(6, 7, 12, 13));
}

TEST(FolderSourceTest, EntriesThatAreNoWholeGroupsAreRefusedByName) {
  Toy toy;
  toy.Config(R"({"n": 1, "keys": 4})");
  EXPECT_THAT(RefusalOf([&] { toy.Read("one"); }).message,
              AllOf(HasSubstr("tensor 'one'"), HasSubstr("in 4 groups")));
}

}  // namespace
}  // namespace bloomery::apps
