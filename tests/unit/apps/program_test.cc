// Exit codes, and where settings come from.
#include "runtime/apps/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/apps/dry_run.h"
#include "runtime/base/limits.h"
#include "runtime/plugin/select.h"
#include "runtime/serve/http_server.h"
#include "runtime/state/disk_tier.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

// Sets or, with null, unsets a variable for as long as it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedVariable() { Set(old_ ? old_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void Set(const char* value) {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

// The codes of docs/serving.md.
TEST(ExitCodes, EveryKindOfErrorHasTheDocumentedOne) {
  constexpr std::pair<ErrorKind, int> kCodes[] = {
      {ErrorKind::kUsage, 64},      {ErrorKind::kBadModel, 65},   {ErrorKind::kUnsupported, 65},
      {ErrorKind::kNoInput, 66},    {ErrorKind::kNoMemory, 78},   {ErrorKind::kBadRequest, 1},
      {ErrorKind::kContextFull, 1}, {ErrorKind::kUnavailable, 1}, {ErrorKind::kCancelled, 1},
      {ErrorKind::kInternal, 1},    {ErrorKind::kDevice, 69},     {ErrorKind::kDownload, 74},
  };
  for (const auto& [kind, code] : kCodes) {
    EXPECT_EQ(ExitCodeOf(Error(kind, "")), code) << ErrorKindName(kind);
  }
  EXPECT_EQ(ExitCodeOf(serve::BindError("")), 71);
  EXPECT_EQ(ExitCodeOf(plugin::NoPluginError(ErrorKind::kBadModel, "")), 2);
  EXPECT_EQ(ExitCodeOf(std::runtime_error("")), 1);
}

// A command of its own ends it: the second signal is what a hurried user sends, not a copy of the
// first.
TEST(Stops, ASecondSignalAtOnceIsTheFirstAgain) {
  const auto stop = [](std::chrono::milliseconds apart) {
    HoldStopSignals();
    ::kill(::getpid(), SIGTERM);
    WaitForStop();
    std::this_thread::sleep_for(apart);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(apart.count() < 100 ? 1 : 20));
    ::_exit(kExitOk);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(stop(std::chrono::milliseconds(1)), ::testing::ExitedWithCode(kExitOk), "");
  EXPECT_EXIT(stop(std::chrono::milliseconds(400)), ::testing::ExitedWithCode(kExitFail),
              "second signal");
}

// What a dry run and a start look at alike.
TEST(NamedPlaces, WhatAStartCouldNotUseIsRefusedAndNothingIsMade) {
  const test::TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  const auto refusal = [&](const std::function<void(serve::ServeSettings&)>& set) {
    serve::ServeSettings settings;
    set(settings);
    return test::RefusalOf([&] { CheckNamedPlaces(settings); });
  };
  using S = serve::ServeSettings;
  EXPECT_EQ(refusal([](S& s) { s.slot_save_path = "/nope"; }).kind, ErrorKind::kUsage);
  const auto page = refusal([&](S& s) { s.page_folder = dir.File("file"); });
  EXPECT_EQ(page.kind, ErrorKind::kUsage);
  EXPECT_NE(page.message.find("--path: there is no folder"), std::string::npos);
  for (const char* name : {"file", "file/below/it"}) {
    const auto cache = refusal([&](S& s) { s.cache_disk = dir.File(name); });
    EXPECT_EQ(cache.kind, ErrorKind::kUsage) << name;
    EXPECT_NE(cache.message.find("is no folder"), std::string::npos) << cache.message;
  }
  const auto no_room = refusal([&](S& s) {
    s.cache_disk = dir.path();
    s.cache_ram_mib = 0;
  });
  EXPECT_NE(no_room.message.find("--cache-ram 0"), std::string::npos);
  for (const char* name : {"nope/trace", "."}) {
    const auto trace = refusal([&](S& s) { s.routing_trace = dir.File(name); });
    EXPECT_EQ(trace.kind, ErrorKind::kNoInput) << name;
    EXPECT_EQ(trace.message.find("--routing-trace: cannot write"), 0U) << trace.message;
  }
  S good;
  good.page_folder = dir.path();
  good.slot_save_path = dir.path();
  good.cache_disk = dir.File("made/later");
  good.routing_trace = dir.File("trace");
  CheckNamedPlaces(good);
  EXPECT_FALSE(std::filesystem::exists(dir.File("made")));
  EXPECT_FALSE(std::filesystem::exists(dir.File("trace")));
}

TEST(NamedPlaces, ACacheOfAnotherServerIsSaid) {
  const test::TempDir dir;
  const state::DiskTier tier(RealFileSystem(), dir.path(), {}, 1);
  serve::ServeSettings settings;
  settings.cache_disk = dir.path();
  EXPECT_NE(test::RefusalOf([&] { CheckNamedPlaces(settings); }).message.find("in use"),
            std::string::npos);
}

std::string Document(const char* name) {
  return ReadWholeFile(RealFileSystem(), std::string(BLOOMERY_SOURCE_DIR) + "/docs/" + name,
                       1 << 20);
}

TEST(ExitCodes, TheDocumentsHoldTheTable) {
  const std::string serving = Document("serving.md");
  const std::string agents = Document("agents.md");
  for (const ExitRow& row : ExitRows()) {
    const std::string code = "| " + std::to_string(row.code) + " | ";
    const std::string next = row.next.empty() ? "" : "`" + std::string(row.next) + "`";
    EXPECT_NE(serving.find(code + std::string(row.when) + " |\n"), std::string::npos) << row.name;
    EXPECT_NE(agents.find(code + "`" + std::string(row.name) + "` | " + std::string(row.when) +
                          " | " + next + " |\n"),
              std::string::npos)
        << row.name;
    EXPECT_EQ(&ExitRowOf(row.code), &row);
  }
}

TEST(ExitCodes, AnErrorThatKnowsWhatToRunNextSaysSoOnALineOfItsOwn) {
  testing::internal::CaptureStderr();
  RunProgram("toy", []() -> int { throw Error(ErrorKind::kNoInput, "gone", "toy list"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "toy: gone\ntoy: next: toy list\n");
}

TEST(ExitCodes, AProgramsFailureIsPrintedWithItsNameAndBecomesACode) {
  testing::internal::CaptureStderr();
  const int code =
      RunProgram("toy", []() -> int { throw Error(ErrorKind::kNoInput, "no such file"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "toy: no such file\n");
  EXPECT_EQ(code, 66);
  EXPECT_EQ(RunProgram("toy", [] { return 3; }), 3);
}

class Sources : public testing::Test {
 protected:
  serve::FlagSources Of(std::vector<std::string> arguments) const {
    return SourcesOf(std::move(arguments), files_);
  }
  // What --parallel becomes from the sources.
  int Parallel(std::vector<std::string> arguments) const {
    return serve::ParseFlags(Of(std::move(arguments))).settings.parallel;
  }

  test::MemoryFileSystem files_;
  ScopedVariable config_{"BLOOMERY_CONFIG", nullptr};
  ScopedVariable xdg_{"XDG_CONFIG_HOME", nullptr};
  ScopedVariable home_{"HOME", "/folder/toy"};
  ScopedVariable parallel_{"LLAMA_ARG_N_PARALLEL", nullptr};
};

TEST_F(Sources, WithoutAnyFileThereAreArgumentsAndEnvironment) {
  const serve::FlagSources sources = Of({"--parallel", "3"});
  EXPECT_EQ(sources.arguments, (std::vector<std::string>{"--parallel", "3"}));
  EXPECT_EQ(sources.environment.at("HOME"), "/folder/toy");
  EXPECT_TRUE(sources.settings.empty());
}

TEST_F(Sources, TheUsersFileComesAfterTheSystemsAndBeforeTheCommandLine) {
  files_.Put("/etc/bloomery/serve.ini", "parallel = 2");
  EXPECT_EQ(Parallel({}), 2);
  files_.Put("/folder/toy/.config/bloomery/serve.ini", "parallel = 5");
  EXPECT_EQ(Parallel({}), 5);
  EXPECT_EQ(Parallel({"--parallel", "7"}), 7);
}

TEST_F(Sources, EachFileKeepsItsName) {
  files_.Put("/etc/bloomery/serve.ini", "parallel = many");
  files_.Put("/folder/toy/.config/bloomery/serve.ini", "parallel = 5");
  const serve::FlagSources sources = Of({});
  ASSERT_EQ(sources.settings.size(), 2U);
  EXPECT_EQ(sources.settings[0].name, "/etc/bloomery/serve.ini");
  EXPECT_EQ(sources.settings[1].name, "/folder/toy/.config/bloomery/serve.ini");
}

TEST_F(Sources, XdgConfigHomeIsTakenInPlaceOfHome) {
  files_.Put("/folder/toy/.config/bloomery/serve.ini", "parallel = 5");
  files_.Put("/xdg/bloomery/serve.ini", "parallel = 6");
  const ScopedVariable xdg("XDG_CONFIG_HOME", "/xdg");
  EXPECT_EQ(Parallel({}), 6);
}

TEST_F(Sources, ANamedFileReplacesBothOthers) {
  files_.Put("/etc/bloomery/serve.ini", "parallel = 2");
  files_.Put("/folder/toy/.config/bloomery/serve.ini", "parallel = 5");
  files_.Put("mine.ini", "predict = 9");
  EXPECT_EQ(Parallel({"--config", "mine.ini"}), 1);
  const ScopedVariable config("BLOOMERY_CONFIG", "mine.ini");
  EXPECT_EQ(Parallel({}), 1);
}

TEST_F(Sources, ANamedFileThatIsNotThereIsNoInput) {
  const test::Refusal refusal = test::RefusalOf([&] { Of({"--config", "mine.ini"}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_NE(refusal.message.find("mine.ini"), std::string::npos);
}

TEST_F(Sources, AByteOrderMarkBeforeAFileIsNoPartOfIt) {
  files_.Put("mine.ini", "\xEF\xBB\xBFparallel = 9");
  EXPECT_EQ(Parallel({"--config", "mine.ini"}), 9);
  files_.Put("/etc/bloomery/serve.ini", "\xEF\xBB\xBFparallel = 8");
  EXPECT_EQ(Parallel({}), 8);
  files_.Put("keys", "\xEF\xBB\xBFkey\n");
  files_.Put("chat", "\xEF\xBB\xBF{{ x }}");
  serve::ServeSettings settings;
  settings.api_key_file = "keys";
  settings.chat_template_file = "chat";
  ReadNamedFiles(settings, files_);
  EXPECT_EQ(settings.api_keys, std::vector<std::string>{"key"});
  EXPECT_EQ(settings.chat_template, "{{ x }}");
}

TEST_F(Sources, AFileAtTheLimitIsReadAndOnePastItIsAFileThatCannotBe) {
  std::string text = "parallel = 4\n";
  text.resize(limits::kNamedFileBytesMax, '\n');
  files_.Put("mine.ini", text);
  EXPECT_EQ(Parallel({"--config", "mine.ini"}), 4);
  files_.Put("mine.ini", text + "\n");
  const test::Refusal refusal = test::RefusalOf([&] { Of({"--config", "mine.ini"}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_NE(refusal.message.find("'mine.ini' has 4194305 bytes, at most 4194304"),
            std::string::npos)
      << refusal.message;
}

TEST_F(Sources, AKeyFileGivesItsLinesAndOneWithoutAnyIsRefused) {
  files_.Put("keys", "# of the team\nfirst\r\n\n second\n");
  serve::ServeSettings settings;
  settings.api_key_file = "keys";
  ReadNamedFiles(settings, files_);
  EXPECT_EQ(settings.api_keys, (std::vector<std::string>{"first", " second"}));
  files_.Put("keys", "# none\n\n");
  settings.api_keys.clear();
  EXPECT_EQ(test::RefusalOf([&] { ReadNamedFiles(settings, files_); }).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace bloomery::apps
