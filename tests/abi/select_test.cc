// Loading and choosing plugins that were built for it.
#include "runtime/plugin/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/abi/fake_model.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::plugin {
namespace {

namespace fs = std::filesystem;
using test::RefusalOf;
using testing::HasSubstr;

model::ModelFile Open(const std::string& architecture = "fake") {
  const test::MemoryFileSystem files("m.gguf", test::FakeModel({}, "", "", architecture).Bytes());
  return model::OpenGguf(files, "m.gguf");
}

Discovery Find(const std::vector<std::string>& groups) {
  std::vector<SearchFolder> folders;
  for (const std::string& group : groups) {
    folders.push_back(
        {group.front() == '/' ? group : std::string(ABI_PLUGINS) + "/" + group, "test"});
  }
  return Discover(folders);
}

// A copy of a built plugin in a folder of its own, so that a test can spoil it.
std::string CopyOf(const std::string& group, const std::string& seat, const test::TempDir& dir) {
  fs::copy(fs::path(ABI_PLUGINS) / group / seat, dir.path() + "/" + seat,
           fs::copy_options::recursive);
  return dir.path() + "/" + seat + "/lib" + seat + ".so";
}

TEST(Select, TheOnlyClaimantServes) {
  const Selection chosen = Select(Open(), Find({"good"}));
  EXPECT_EQ(chosen.plugin.name, "fake");
  EXPECT_EQ(chosen.plugin.version, "0.1.0");
  EXPECT_EQ(chosen.score, 50);
  EXPECT_TRUE(chosen.others.empty());
}

TEST(Select, TheHighestScoreWinsOverAHigherVersion) {
  const Selection chosen = Select(Open(), Find({"good", "newer", "better"}));
  EXPECT_EQ(chosen.plugin.name, "fake_better");
  EXPECT_EQ(chosen.others.size(), 2u);
}

TEST(Select, ThenTheHighestVersionWins) {
  const Selection chosen = Select(Open(), Find({"good", "newer", "twin"}));
  EXPECT_EQ(chosen.plugin.name, "fake_newer");
}

TEST(Select, ATieIsRefusedNamingBoth) {
  const auto refusal = RefusalOf([] { Select(Open(), Find({"good", "twin"})); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("libfake.so"));
  EXPECT_THAT(refusal.message, HasSubstr("libfake_twin.so"));
}

// A copy of a plugin that is installed, too; and one whose score and version are lower.
TEST(Select, AFolderThatAFlagNamesGoesBeforeTheOthers) {
  const test::TempDir dir;
  const std::string binary = CopyOf("good", "fake", dir);
  const std::string built(ABI_PLUGINS);
  for (const char* others : {"/good", "/newer", "/better"}) {
    const std::vector<SearchFolder> folders = {{dir.path(), "--plugin-dir", true},
                                               {built + others, "default"}};
    EXPECT_EQ(Select(Open(), Discover(folders)).plugin.path, binary) << others;
  }
  const std::vector<SearchFolder> both = {{built + "/good", "--plugin-dir", true},
                                          {built + "/twin", "--plugin-dir", true}};
  EXPECT_EQ(RefusalOf([&] { Select(Open(), Discover(both)); }).kind, ErrorKind::kBadModel);
}

TEST(Select, AnUnclaimedArchitectureIsRefusedWithEveryFolderAndVerdict) {
  const auto refusal = RefusalOf([] { Select(Open("other"), Find({"good", "/nowhere"})); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("no plugin claims m.gguf, architecture 'other'"));
  EXPECT_THAT(refusal.message, HasSubstr("/good (test)"));
  EXPECT_THAT(refusal.message, HasSubstr("fake 0.1.0 for fake"));
  EXPECT_THAT(refusal.message, HasSubstr("/nowhere: No such file"));
}

TEST(Select, WithNoPluginAtAllTheLoadIsRefused) {
  const test::TempDir empty;
  EXPECT_THAT(RefusalOf([&] { Select(Open(), Find({empty.path()})); }).message,
              HasSubstr("no plugin here"));
}

TEST(Select, APluginThatDoesNotLoadIsReportedWithPathReasonAndSearchList) {
  const test::TempDir dir;
  const std::string binary = CopyOf("good", "fake", dir);
  fs::resize_file(binary, 4096);
  const auto refusal = RefusalOf([&] { Select(Open(), Find({dir.path()})); });
  EXPECT_THAT(refusal.message, HasSubstr(binary + ": cannot be loaded: "));
  EXPECT_THAT(refusal.message, HasSubstr("file too short"));
  EXPECT_THAT(refusal.message, HasSubstr("searched:\n  " + dir.path()));
}

TEST(Select, APluginThatDoesNotLoadIsPassedOverForOneThatDoes) {
  const test::TempDir dir;
  fs::resize_file(CopyOf("newer", "fake_newer", dir), 4096);
  const Selection chosen = Select(Open(), Find({dir.path(), "good"}));
  EXPECT_EQ(chosen.plugin.name, "fake");
  ASSERT_EQ(chosen.others.size(), 1u);
  EXPECT_THAT(chosen.others[0].text, HasSubstr("cannot be loaded"));
}

TEST(Select, AManifestOfAnotherAbiIsRefusedBeforeLoading) {
  const test::TempDir dir;
  const std::string binary = CopyOf("good", "fake", dir);
  std::ofstream(dir.File("fake/fake.json"))
      << R"({"name": "fake", "version": "0.1.0", "abi": "0.7", "architectures": ["fake"],
             "licence": "MIT"})";
  fs::resize_file(binary, 10);  // would fail in another way if it were opened
  EXPECT_THAT(RefusalOf([&] { Select(Open(), Find({dir.path()})); }).message,
              HasSubstr("was built for plugin ABI 0.7, this host has 0.1"));
}

TEST(Select, AManifestThatDisagreesWithItsBinaryIsRefused) {
  const test::TempDir dir;
  CopyOf("good", "fake", dir);
  std::ofstream(dir.File("fake/fake.json"))
      << R"({"name": "fake", "version": "0.1.1", "abi": "0.1", "architectures": ["fake"],
             "licence": "MIT"})";
  EXPECT_THAT(RefusalOf([&] { Select(Open(), Find({dir.path()})); }).message,
              HasSubstr("disagree in version: '0.1.0' and '0.1.1'"));
}

TEST(LoadPlugin, ARefusedVersionPrintsBothVersionsAndThePath) {
  const std::string path = std::string(ABI_PLUGINS) + "/flawed/other_abi/libother_abi.so";
  const auto refusal = RefusalOf([&] { LoadPlugin(path); });
  EXPECT_THAT(refusal.message, HasSubstr(path));
  EXPECT_THAT(refusal.message, HasSubstr("ABI 0.99"));
  EXPECT_THAT(refusal.message, HasSubstr("this host has 0.1"));
}

TEST(LoadPlugin, ALibraryWithoutTheSymbolIsNoPlugin) {
  EXPECT_THAT(RefusalOf([] {
                LoadPlugin(std::string(ABI_PLUGINS) + "/flawed/no_symbol/libno_symbol.so");
              }).message,
              HasSubstr("does not export the symbol bloomery_plugin"));
  EXPECT_THAT(RefusalOf([] { LoadPlugin("/nowhere/libx.so"); }).message,
              HasSubstr("/nowhere/libx.so"));
}

// Mapping such a file works, and touching what is missing ends the process: found by this test.
TEST(LoadPlugin, ABinaryCutAnywhereIsRefusedAndNotMapped) {
  const test::TempDir dir;
  const std::string binary = CopyOf("good", "fake", dir);
  const uintmax_t whole = fs::file_size(binary);
  // Symbols for debuggers lie behind the last segment and are not needed to load.
  for (const uintmax_t bytes :
       {uintmax_t{0}, uintmax_t{3}, uintmax_t{64}, uintmax_t{100}, uintmax_t{4096}, whole / 3}) {
    fs::copy_file(fs::path(ABI_PLUGINS) / "good/fake/libfake.so", binary,
                  fs::copy_options::overwrite_existing);
    fs::resize_file(binary, bytes);
    const auto refusal = RefusalOf([&] { LoadPlugin(binary); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message, HasSubstr(binary + ": cannot be loaded: ")) << bytes;
  }
}

TEST(LoadPlugin, ATextFileIsRefused) {
  const test::TempDir dir;
  const std::string path = dir.File("libtext.so");
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_THAT(RefusalOf([&] { LoadPlugin(path); }).message, HasSubstr("not a 64-bit ELF file"));
}

TEST(LoadPlugin, ATableWithoutAFunctionIsRefusedByName) {
  EXPECT_THAT(RefusalOf([] {
                LoadPlugin(std::string(ABI_PLUGINS) + "/flawed/null_function/libnull_function.so");
              }).message,
              HasSubstr("bl_plugin.describe is null"));
}

TEST(LoadPlugin, StaysLoadedAfterTheHandleIsGone) {
  const std::string path = std::string(ABI_PLUGINS) + "/good/fake/libfake.so";
  const bl_plugin* table = LoadPlugin(path).table;
  EXPECT_STREQ(table->name, "fake");  // reading it would fault had it been unloaded
  EXPECT_EQ(LoadPlugin(path).table, table);
}

}  // namespace
}  // namespace bloomery::plugin
