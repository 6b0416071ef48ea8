// Plugins that crash, hang, end the process, throw, lie about sizes or write where they may not:
// each ends as a refusal or a failed pass that names the plugin and the call, and this process,
// which stands for the server, lives. Where it cannot live, its last words name them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/apps/check_plugin/child_process.h"
#include "runtime/exec/seat.h"
#include "runtime/exec/trial_build.h"
#include "runtime/model/gguf.h"
#include "runtime/plugin/select.h"
#include "tests/abi/fake_model.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::plugin {
namespace {

namespace fs = std::filesystem;
using test::RefusalOf;
using testing::HasSubstr;

class EvilTest : public testing::Test {
 protected:
  // A copy each: a library that is loaded already would not be loaded again.
  explicit EvilTest(const std::string& deed = "") {
    fs::copy(fs::path(ABI_PLUGINS) / "evil/evil", dir_.path() + "/evil",
             fs::copy_options::recursive);
    ::setenv("EVIL", deed.c_str(), 1);
  }
  ~EvilTest() override { ::unsetenv("EVIL"); }

  std::string binary() const { return dir_.path() + "/evil/libevil.so"; }
  Discovery Find() const { return Discover({{{dir_.path(), "test"}}}); }
  static model::ModelFile Open() {
    const test::MemoryFileSystem files("m.gguf", test::FakeModel().Bytes());
    return model::OpenGguf(files, "m.gguf");
  }
  // As the server does.
  Selection Choose(const model::ModelFile& model) const {
    const TrialOptions trial = {.limit = std::chrono::seconds(hangs_ ? 3 : 20),
                                .build = exec::BuildForTrial};
    return Select(model, Find(), &trial);
  }

  test::TempDir dir_;
  bool hangs_ = false;
};

TEST_F(EvilTest, WithoutADeedItServes) {
  const model::ModelFile model = Open();
  EXPECT_EQ(Choose(model).plugin.name, "fake");
}

TEST_F(EvilTest, AnEvilPluginIsPassedOverForASoundOne) {
  ::setenv("EVIL", "crash_in_create", 1);
  fs::copy(fs::path(ABI_PLUGINS) / "good/fake", dir_.path() + "/fake", fs::copy_options::recursive);
  const model::ModelFile model = Open();
  const Selection chosen = Choose(model);
  EXPECT_THAT(chosen.plugin.path, HasSubstr("/fake/libfake.so"));
  ASSERT_EQ(chosen.others.size(), 1u);
  EXPECT_THAT(chosen.others[0].text, HasSubstr("libevil.so, create: crashed"));
}

// Only an instance that is asked for drafts describes and builds them.
TEST_F(EvilTest, WhatDraftsReachIsTriedWhereTheyAreAskedFor) {
  const model::ModelFile model = Open();
  for (const char* deed : {"", "crash_in_draft_describe", "crash_in_draft_build"}) {
    ::setenv("EVIL", deed, 1);
    const TrialOptions without = exec::TrialOf(0);
    EXPECT_EQ(Select(model, Find(), &without).plugin.name, "fake");
    const TrialOptions with = exec::TrialOf(3);
    const auto refusal = RefusalOf([&] {
      Select(model, Find(), &with);
      throw Error(ErrorKind::kInternal, "chosen");
    });
    const std::string call = std::string(deed).substr(std::string(deed).rfind('_') + 1);
    EXPECT_THAT(refusal.message,
                HasSubstr(call.empty() ? "chosen" : binary() + ", " + call + ": crashed: "));
  }
}

struct Deed {
  const char* deed;
  const char* says;  // after the path, where it begins with a comma
};
void PrintTo(const Deed& deed, std::ostream* out) { *out << deed.deed; }

// What ends the process of a trial.
class FatalDeed : public EvilTest, public testing::WithParamInterface<Deed> {
 protected:
  FatalDeed() : EvilTest(GetParam().deed) {
    hangs_ = std::string_view(GetParam().deed).find("hang") != std::string_view::npos;
  }
};

TEST_P(FatalDeed, IsARefusalThatNamesPluginAndCall) {
  const model::ModelFile model = Open();
  const auto refusal = RefusalOf([&] { Choose(model); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr(binary() + GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    , FatalDeed,
    testing::Values(Deed{"crash_in_load", ", load: crashed: "}, Deed{"abort_in_load", ", load: "},
                    Deed{"throw_in_load", ", load: "},
                    Deed{"exit_in_load", ", load: ended the process with code"},
                    Deed{"hang_in_load", ", load: did not return within 3 s"},
                    Deed{"crash_in_probe", ", probe: crashed: "},
                    // A signal without a description.
                    Deed{"realtime_in_probe", ", probe: crashed: signal 34"},
                    Deed{"exit_in_probe", ", probe: ended the process with code"},
                    Deed{"hang_in_probe", ", probe: did not return within 3 s"},
                    Deed{"closehang_in_probe", ", probe: did not return within 3 s"},
                    Deed{"overwrite_in_probe", ", probe: "},
                    Deed{"throw_in_probe", ", probe: threw an exception across the ABI"},
                    Deed{"crash_in_create", ", create: crashed: "},
                    Deed{"abort_in_create", ", create: "},
                    Deed{"exit_in_create", ", create: ended the process with code"},
                    Deed{"overwrite_in_create", ", create: "},
                    Deed{"hang_in_describe", ", describe: did not return within 3 s"},
                    Deed{"crash_in_describe", ", describe: crashed: "},
                    Deed{"crash_in_build", ", build: crashed: "},
                    Deed{"exit_in_build", ", build: ended the process with code"},
                    Deed{"hang_in_build", ", build: did not return within 3 s"},
                    Deed{"crash_in_destroy", ", destroy: crashed: "},
                    // Reading what it gave is the call of describe, too.
                    Deed{"wild_pointer_in_seat", ", describe: crashed: "}),
    [](const auto& i) { return std::string(i.param.deed); });

// What the host sees by itself: the plugin is chosen, and its instance refused.
class SeenDeed : public EvilTest, public testing::WithParamInterface<Deed> {
 protected:
  SeenDeed() : EvilTest(GetParam().deed) {}
};

TEST_P(SeenDeed, IsARefusalThatNamesPluginAndCall) {
  const model::ModelFile model = Open();
  const Selection chosen = Choose(model);
  const auto refusal = RefusalOf([&] {
    Instance instance(chosen.plugin, model, {});
    exec::BuildForTrial(instance);
  });
  EXPECT_THAT(refusal.message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    , SeenDeed,
    testing::Values(
        Deed{"throw_in_create", "libevil.so, create: threw an exception across the ABI"},
        Deed{"throw_in_describe", "libevil.so, describe: threw an exception across the ABI"},
        Deed{"throw_in_build", "libevil.so, build: threw an exception across the ABI"},
        Deed{"small_size_in_seat", "plugin 'fake': seat, field size: 4"},
        Deed{"huge_size_in_seat", "plugin 'fake': seat, field size: 1073741824"},
        Deed{"wrong_size_in_weights", "plugin 'fake': seat, weight 0, field size: 12"},
        Deed{"huge_count_in_seat", "4294967295 items"}),
    [](const auto& i) { return std::string(i.param.deed); });

const exec::SeatOptions kOptions{
    .slots = 1, .slot_context = 128, .rows_max = 8, .threads = 2, .pin = false};

TEST_F(EvilTest, AKernelThatFailsOrThrowsCostsThePassAndNotTheSeat) {
  for (const char* deed : {"throw_in_run", "fail_in_run"}) {
    ::setenv("EVIL", "", 1);
    const model::ModelFile model = Open();
    const Selection chosen = Choose(model);
    Instance instance(chosen.plugin, model, exec::InstanceOptionsOf(kOptions));
    const auto seat = exec::LoadSeat(model, instance, kOptions);
    const exec::PassRow row{.slot = 0, .index = 0, .token = 5, .logits = true};
    seat->Run({&row, 1});
    const std::vector<float> sound(seat->Logits(0).begin(), seat->Logits(0).end());
    seat->Cut(0, 0);
    ::setenv("EVIL", deed, 1);
    const auto refusal = RefusalOf([&] { seat->Run({&row, 1}); });
    EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
    EXPECT_THAT(refusal.message, HasSubstr("operator fake.scale"));
    EXPECT_THAT(refusal.message, HasSubstr("its kernel failed with status"));
    ::setenv("EVIL", "", 1);
    seat->Cut(0, 0);
    seat->Run({&row, 1});
    EXPECT_TRUE(std::ranges::equal(seat->Logits(0), sound));
  }
}

// The whole server: it listens and has threads when it tries a plugin.
TEST_F(EvilTest, TheServerRefusesTheModelAndNamesPluginAndCall) {
  const std::string model = dir_.File("fake.gguf");
  test::FakeModel().WriteTo(model);
  const std::vector<std::string> command = {
      BLOOMERY_SERVE, "--host", "127.0.0.1",    "--port",   "0",
      "-m",           model,    "--plugin-dir", dir_.path()};
  for (const char* deed : {"crash_in_load", "exit_in_create", "abort_in_build"}) {
    ::setenv("EVIL", deed, 1);
    const auto done = apps::check::RunChild(command, std::chrono::seconds(60));
    EXPECT_EQ(done.exit_code, 65) << done.output;
    const std::string call = std::string(deed).substr(std::string(deed).rfind('_') + 1);
    EXPECT_THAT(done.output, HasSubstr(binary() + ", " + call + ": "));
    EXPECT_THAT(done.output, HasSubstr("tried in a process of its own; the plugin is broken"));
  }
  std::vector<std::string> drafting = command;
  drafting.insert(drafting.end(), {"--device", "none", "--draft", "mtp"});
  for (const char* deed : {"crash_in_draft_describe", "exit_in_draft_build"}) {
    ::setenv("EVIL", deed, 1);
    const auto done = apps::check::RunChild(drafting, std::chrono::seconds(60));
    EXPECT_EQ(done.exit_code, 65) << done.output;
    EXPECT_THAT(done.output, HasSubstr("tried in a process of its own; the plugin is broken"));
  }
}

// A process that a kernel ends cannot live; a program of the bundle says who it was.
TEST_F(EvilTest, TheLastWordsOfAProcessNameTheKernelThatEndedIt) {
  const std::string model = dir_.File("fake.gguf");
  test::FakeModel().WriteTo(model);
  const std::vector<std::string> command = {RUN_SEAT, dir_.path(), model};
  ::setenv("EVIL", "exit_in_run", 1);
  const auto ended = apps::check::RunChild(command, std::chrono::seconds(60));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("the call run of its kernel of plugin fake.scale ended the "
                                      "process: the plugin is broken"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ::setenv("EVIL", "crash_in_run", 1);
  const auto crashed = apps::check::RunChild(command, std::chrono::seconds(60));
  EXPECT_EQ(crashed.signal, SIGSEGV);
  EXPECT_THAT(crashed.output, HasSubstr("ended by: Segmentation fault, in the call run of its "
                                        "kernel of plugin fake.scale: the plugin is broken"));
#endif
}

}  // namespace
}  // namespace bloomery::plugin
