#include "runtime/plugin/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::plugin {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

void Write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string Json(const std::string& name) {
  return R"({"name": ")" + name +
         R"(", "version": "0.1.0", "abi": "0.1", "architectures": ["a"], "licence": "MIT"})";
}

void AddPlugin(const std::string& folder, const std::string& name) {
  Write(folder + "/lib" + name + ".so", "not loaded here");
  Write(folder + "/" + name + ".json", Json(name));
}

std::vector<std::string> Names(const Discovery& d) {
  std::vector<std::string> names;
  for (const Candidate& c : d.candidates) names.push_back(c.manifest.name);
  return names;
}

std::string VerdictOn(const Discovery& d, const std::string& path) {
  for (const Verdict& v : d.verdicts) {
    if (v.path == path) return v.text;
  }
  return "";
}

TEST(SearchList, IsFlagThenEnvironmentThenBesideTheExecutable) {
  const std::vector<std::string> flags = {"/f"};
  const auto list = SearchList(flags, "/a::/b:", "/opt/b/bin/server");
  std::vector<std::string> paths;
  for (const auto& folder : list) paths.push_back(folder.origin + " " + folder.path);
  EXPECT_THAT(paths, ElementsAre("--plugin-dir /f", "BLOOMERY_PLUGIN_PATH /a",
                                 "BLOOMERY_PLUGIN_PATH /b", "default /opt/b/plugins"));
  EXPECT_EQ(SearchList({}, "", "/x/bin/s").size(), 1u);
}

TEST(Discovery, FindsPluginsInAFolderAndItsSubfoldersInOrder) {
  const test::TempDir dir;
  AddPlugin(dir.File("zeta"), "zeta");
  AddPlugin(dir.File("alpha"), "alpha");
  AddPlugin(dir.path(), "direct");
  const std::vector<SearchFolder> folders = {{dir.path(), "--plugin-dir"}};
  const Discovery d = Discover(folders);
  EXPECT_THAT(Names(d), ElementsAre("direct", "alpha", "zeta"));
  EXPECT_EQ(VerdictOn(d, dir.path()), "3 plugins");
}

TEST(Discovery, DoesNotLookDeeperThanSubfolders) {
  const test::TempDir dir;
  AddPlugin(dir.File("a/b"), "deep");
  const std::vector<SearchFolder> folders = {{dir.path(), "x"}};
  EXPECT_TRUE(Discover(folders).candidates.empty());
  EXPECT_EQ(VerdictOn(Discover(folders), dir.path()), "no plugin here");
}

TEST(Discovery, AFolderListedTwiceIsSearchedOnce) {
  const test::TempDir dir;
  AddPlugin(dir.File("a"), "a");
  const std::vector<SearchFolder> folders = {
      {dir.path(), "x"}, {dir.path() + "/../" + fs::path(dir.path()).filename().string(), "y"}};
  const Discovery d = Discover(folders);
  EXPECT_EQ(d.candidates.size(), 1u);
  EXPECT_EQ(d.folders.size(), 1u);
}

TEST(Discovery, AMissingFolderIsAVerdict) {
  const std::vector<SearchFolder> folders = {{"/nowhere/plugins", "x"}};
  EXPECT_THAT(VerdictOn(Discover(folders), "/nowhere/plugins"), HasSubstr("No such file"));
}

TEST(Discovery, AFolderThatAFlagNamesMustBeThere) {
  const std::vector<std::string> flags = {"/nowhere/plugins"};
  const auto refusal = test::RefusalOf([&] { Discover(SearchList(flags, "", "/x/bin/s")); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, HasSubstr("--plugin-dir: the folder '/nowhere/plugins'"));
  // Not so those that nobody wrote for this start.
  EXPECT_TRUE(Discover(SearchList({}, "/nowhere/plugins", "/x/bin/s")).candidates.empty());
}

TEST(Discovery, AManifestWithoutItsBinaryIsAWarningAndOtherJsonIsNot) {
  const test::TempDir dir;
  AddPlugin(dir.path(), "whole");
  Write(dir.File("alone.json"), Json("alone"));
  Write(dir.File("seat.models.json"), "[]");
  Write(dir.File("notes.json"), "{}");
  const std::vector<SearchFolder> folders = {{dir.path(), "x"}};
  const Discovery d = Discover(folders);
  EXPECT_THAT(Names(d), ElementsAre("whole"));
  EXPECT_EQ(VerdictOn(d, dir.File("alone.json")), "no binary libalone.so beside it");
  EXPECT_EQ(std::ranges::count_if(d.verdicts, &Verdict::skipped), 1);
}

TEST(Discovery, ABinaryWithoutManifestIsAVerdictNamingIt) {
  const test::TempDir dir;
  Write(dir.File("toy/libtoy.so"), "x");
  Write(dir.File("toy/readme.txt"), "x");
  const std::vector<SearchFolder> folders = {{dir.path(), "x"}};
  const Discovery d = Discover(folders);
  EXPECT_TRUE(d.candidates.empty());
  EXPECT_THAT(VerdictOn(d, dir.File("toy/libtoy.so")), HasSubstr("no manifest toy.json"));
}

TEST(Discovery, ABadManifestIsAVerdictAndOthersAreFound) {
  const test::TempDir dir;
  AddPlugin(dir.File("good"), "good");
  AddPlugin(dir.File("bad"), "bad");
  Write(dir.File("bad/bad.json"), R"({"name": "bad"})");
  const std::vector<SearchFolder> folders = {{dir.path(), "x"}};
  const Discovery d = Discover(folders);
  EXPECT_THAT(Names(d), ElementsAre("good"));
  EXPECT_THAT(VerdictOn(d, dir.File("bad/libbad.so")), HasSubstr("field 'version': missing"));
}

// Opening a FIFO waits for its other end, for ever where nobody writes.
TEST(Discovery, WhatIsNoFileIsAVerdictAndNobodyWaitsForIt) {
  const test::TempDir dir;
  AddPlugin(dir.path(), "good");
  for (const char* name : {"piped", "folder"}) {
    Write(dir.path() + "/lib" + name + ".so", "not loaded here");
  }
  ASSERT_EQ(::mkfifo((dir.path() + "/piped.json").c_str(), 0600), 0);
  fs::create_directory(dir.path() + "/folder.json");
  ASSERT_EQ(::mkfifo((dir.path() + "/libpipe.so").c_str(), 0600), 0);
  fs::create_directory(dir.path() + "/libdir.so");
  Write(dir.path() + "/pipe.json", Json("pipe"));
  Write(dir.path() + "/dir.json", Json("dir"));
  const std::vector<SearchFolder> folders{{dir.path(), "test"}};
  const Discovery found = Discover(folders);
  EXPECT_THAT(Names(found), ElementsAre("good"));
  for (const char* name : {"piped", "folder", "pipe", "dir"}) {
    const std::string path = dir.path() + "/lib" + name + ".so";
    EXPECT_THAT(VerdictOn(found, path), HasSubstr("not a regular file")) << name;
    EXPECT_TRUE(std::ranges::any_of(found.verdicts, [&](const Verdict& verdict) {
      return verdict.path == path && verdict.skipped;
    })) << name;
  }
}

TEST(Discovery, AFolderOfTooManyEntriesIsAVerdict) {
  const test::TempDir dir;
  for (size_t i = 0; i < limits::kPluginFolderEntriesMax; ++i) {
    Write(dir.File("many/f" + std::to_string(i)), "");
  }
  const std::vector<SearchFolder> folders = {{dir.File("many"), "x"}};
  EXPECT_EQ(VerdictOn(Discover(folders), dir.File("many")), "no plugin here");
  Write(dir.File("many/one-more"), "");
  EXPECT_EQ(VerdictOn(Discover(folders), dir.File("many")), "Argument list too long");
}

TEST(Discovery, TextNamesEveryFolderAndVerdict) {
  const test::TempDir dir;
  AddPlugin(dir.File("a"), "toy");
  const std::vector<SearchFolder> folders = {{dir.path(), "--plugin-dir"}, {"/nowhere", "default"}};
  const std::string text = Describe(Discover(folders));
  EXPECT_THAT(text, HasSubstr(dir.path() + " (--plugin-dir)"));
  EXPECT_THAT(text, HasSubstr("/nowhere (default)"));
  EXPECT_THAT(text, HasSubstr("libtoy.so: toy 0.1.0 for a"));
  EXPECT_THAT(text, HasSubstr("/nowhere: No such file"));
}

}  // namespace
}  // namespace bloomery::plugin
