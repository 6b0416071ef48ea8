// Files and plugins that do not fit together, given to a program: it refuses, and names what does
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "runtime/apps/check_plugin/child_process.h"
#include "tests/abi/fake_model.h"
#include "tests/support/temp_dir.h"

namespace bloomery {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BadInputTest : public testing::Test {
 protected:
  std::string AddPlugin(const std::string& group, const std::string& seat) {
    fs::copy(fs::path(ABI_PLUGINS) / group / seat, dir_.path() + "/" + seat,
             fs::copy_options::recursive);
    return dir_.path() + "/" + seat + "/lib" + seat + ".so";
  }
  // What the program says of the model, which it must refuse.
  std::string RefusalOfModel(const std::string& model, std::string plugins = "") {
    if (plugins.empty()) plugins = dir_.path();
    const auto done = apps::check::RunChild(std::vector<std::string>{RUN_SEAT, plugins, model},
                                            std::chrono::seconds(60));
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_EQ(done.signal, 0);
    return done.output;
  }
  std::string FakeFile(const std::string& without = "", const std::string& extra = "") {
    const std::string path = dir_.File("fake.gguf");
    test::FakeModel({}, without, extra).WriteTo(path);
    return path;
  }
  // A model that was trained, with the tensor `from` called `to`, a name of the same length.
  std::string RenamedTensor(const std::string& from, const std::string& to) {
    std::ifstream in(std::string(BLOOMERY_SOURCE_DIR) + "/tests/data/mini/qwen3moe/model.gguf",
                     std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    std::string text = bytes.str();
    EXPECT_EQ(from.size(), to.size());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string path = dir_.File("model.gguf");
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Seats() { return std::string(BLOOMERY_BINARY_DIR) + "/plugins"; }

  test::TempDir dir_;
};

TEST_F(BadInputTest, AnArchitectureThatTwoPluginsClaimIsRefusedNamingBoth) {
  const std::string one = AddPlugin("good", "fake");
  const std::string other = AddPlugin("twin", "fake_twin");
  const std::string text = RefusalOfModel(FakeFile());
  EXPECT_THAT(text, HasSubstr("two plugins claim " + dir_.path() + "/fake.gguf"));
  EXPECT_THAT(text, HasSubstr("architecture 'fake'"));
  EXPECT_THAT(text, HasSubstr(one));
  EXPECT_THAT(text, HasSubstr(other));
}

TEST_F(BadInputTest, APluginForAnotherAbiIsRefusedWithBothVersions) {
  const std::string binary = AddPlugin("flawed", "other_abi");
  // The manifest is this ABI's, so that the binary itself is asked.
  const std::string text = RefusalOfModel(FakeFile());
  EXPECT_THAT(text, HasSubstr("plugin " + binary + " was built for plugin ABI 0.99"));
  EXPECT_THAT(text, HasSubstr("this host has 0.1"));
  EXPECT_THAT(text, HasSubstr("rebuild the plugin"));
}

TEST_F(BadInputTest, AMissingTensorIsRefusedByName) {
  AddPlugin("good", "fake");
  EXPECT_THAT(RefusalOfModel(FakeFile("blk.1.k.weight")),
              HasSubstr("tensor 'blk.1.k.weight' is missing"));
}

TEST_F(BadInputTest, AnUnknownTensorIsRefusedByName) {
  AddPlugin("good", "fake");
  EXPECT_THAT(RefusalOfModel(FakeFile("", "blk.0.extra.weight")),
              HasSubstr("'blk.0.extra.weight'"));
}

TEST_F(BadInputTest, ATrainedModelWithoutATensorIsRefusedByName) {
  const std::string text = RefusalOfModel(
      RenamedTensor("blk.1.ffn_up_exps.weight", "blk.1.ffn_uq_exps.weight"), Seats());
  EXPECT_THAT(text, HasSubstr("blk.1.ffn_up_exps.weight"));
  EXPECT_THAT(text, HasSubstr("is missing"));
}

TEST_F(BadInputTest, ATrainedModelWithATensorTooManyIsRefusedByName) {
  // The head is the embedding where there is no output.weight.
  const std::string text = RefusalOfModel(RenamedTensor("output.weight", "outpux.weight"), Seats());
  EXPECT_THAT(text, HasSubstr("'outpux.weight'"));
}

}  // namespace
}  // namespace bloomery
