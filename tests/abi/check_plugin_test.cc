// check-plugin passes sound plugins and fails each flawed one in the test that is about its flaw.
#include "runtime/apps/check_plugin/check_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "tests/abi/fake_model.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Result {
  int code = 0;
  std::string out, err;
  std::map<std::string, std::string> results;  // by test name
  std::map<std::string, std::string> texts;
};

Result Check(std::vector<std::string> args) {
  const std::vector<std::string> self = {CHECK_PLUGIN};
  std::ostringstream out, err;
  Result run;
  run.code = CheckPluginMain(self, args, out, err);
  run.out = out.str();
  run.err = err.str();
  return run;
}

Result CheckJson(std::vector<std::string> args) {
  args.push_back("--json");
  Result run = Check(std::move(args));
  const rapidjson::Document report = ParseJson(run.out, "report");
  for (const auto& test : report["tests"].GetArray()) {
    run.results[test["name"].GetString()] = test["result"].GetString();
    run.texts[test["name"].GetString()] = test["text"].GetString();
  }
  return run;
}

std::string Flawed(const std::string& name) {
  return std::string(ABI_PLUGINS) + "/flawed/" + name + "/lib" + name + ".so";
}
const std::string kFake = std::string(ABI_PLUGINS) + "/good/fake/libfake.so";

// A sanitizer turns the signal into a report and an exit code of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kCrash = "Sanitizer";
#else
constexpr const char* kCrash = "crashed: Segmentation fault";
#endif

struct Flaw {
  const char* plugin;
  const char* test;  // that must fail
  const char* text;  // part of what it says
};

void PrintTo(const Flaw& flaw, std::ostream* out) { *out << flaw.plugin; }

const Flaw kFlaws[] = {
    Flaw{"second_symbol", "binary.exports_one_symbol", "bloomery_extra"},
    Flaw{"no_symbol", "binary.exports_one_symbol", "does not export bloomery_plugin"},
    Flaw{"foreign_library", "binary.needs_the_c_library_only", "libabi_foreign.so"},
    Flaw{"foreign_library", "binary.has_no_run_path", "run path"},
    Flaw{"other_version", "manifest.agrees_with_the_binary", "'9.9.9'"},
    Flaw{"other_abi", "load.passes_the_version_gate_in_time", "built for plugin ABI 0.99"},
    Flaw{"null_function", "load.passes_the_version_gate_in_time", "bl_plugin.describe is null"},
    Flaw{"sets_environment", "load.leaves_no_trace", "BLOOMERY_FLAWED"},
    Flaw{"starts_thread", "load.leaves_no_trace", "number of threads"},
    Flaw{"obliging", "extension.unknown_ids_are_null", "unknown extension"},
    Flaw{"throws", "probe.refuses_an_empty_model", ""},
    Flaw{"crashes", "probe.refuses_an_empty_model", kCrash},
    Flaw{"hangs", "probe.refuses_an_empty_model", "ran longer than 1 s"},
    Flaw{"exits", "probe.refuses_an_empty_model", "the process ended by itself"},
    Flaw{"prints", "probe.refuses_an_empty_model", "wrote to stdout or stderr"},
    Flaw{"silent", "probe.refuses_an_empty_model", "gave no reason"},
    Flaw{"claims_all", "probe.refuses_a_foreign_architecture", "probe claims"},
    Flaw{"half_made", "create.refuses_a_model_without_keys", "left an instance"},
    Flaw{"restless", "describe.is_stable", "another pointer"},
    Flaw{"wrong_size", "describe.fits_the_file", "field size: 8"},
    Flaw{"foreign_operator", "describe.fits_the_file", "fake.<something>"},
    Flaw{"hoards", "instance.returns_its_memory", "100 bytes of the host are still held"},
    Flaw{"deaf_build", "build.passes_failures_on", "returned BL_OK"},
    Flaw{"deaf_build", "build.exports_logits", "exports no 'logits'"},
    Flaw{"fickle_build", "build.is_deterministic", "two builds differ"},
    Flaw{"spills", "kernels.stay_inside_their_buffers", ""},
    Flaw{"mixes_rows", "kernels.keep_rows_apart", "other bits alone"},
    Flaw{"bad_manifest", "manifest.reads", "colour"},
    Flaw{"goes_global", "load.stays_local", "into the global scope"},
    Flaw{"odd_table", "table.is_complete", "bl_plugin.size is"},
    Flaw{"half_marked", "extension.chat_is_sane", "one reasoning mark"},
    Flaw{"shy", "probe.claims_the_model", "not today"},
    Flaw{"moody", "probe.leaves_no_state", "'not again'"},
    Flaw{"curious", "probe.reads_metadata_only", "reads tensor data"},
    Flaw{"brittle", "create.survives_each_missing_key", kCrash},
    Flaw{"mislabels", "create.reports_when_memory_is_refused", "status 6"},
    Flaw{"counts_lives", "instance.two_live_apart", "describe the model differently"},
    Flaw{"builds_few", "build.is_accepted_for_every_row_count", "512 rows is not accepted"},
    Flaw{"idle_plane", "build.uses_every_plane", "plane 4 'k'"},
    Flaw{"deaf_head", "draft.builds_for_every_row_count", "exports no 'logits'"},
    Flaw{"forgetful_head", "draft.uses_every_plane", "plane 4 'hidden' is not written"},
    Flaw{"meddling_head", "draft.leaves_logits_alone", "logits of row 0 are others"},
    Flaw{"keeps_order", "kernels.do_not_depend_on_order", "order of its pieces"},
    Flaw{"allocates", "kernels.allocate_and_lock_nothing", "allocates in a pass"},
    Flaw{"locks", "kernels.allocate_and_lock_nothing", "takes a lock"},
    Flaw{"untrue_kernel", "kernels.agree_with_each_other", "give different bits"},
    Flaw{"untrue_kernel", "kernels.equal_their_expansion", "the logits of row 0 are others"},
    Flaw{"needs_describe", "lifecycle.destroys_without_describe", kCrash},
    Flaw{"probe_disturbs", "lifecycle.probes_between_calls", "probing changed what describe"},
    Flaw{"builds_upwards", "lifecycle.builds_in_any_order", "fewer rows than the last time"},
    Flaw{"progress_elsewhere", "threads.call_the_host_as_allowed",
         "bl_host.progress was called in create from another thread"},
    Flaw{"reads_model_elsewhere", "threads.read_the_model_on_the_load_thread",
         "functions of bl_model from another thread"},
    Flaw{"keeps_thread", "threads.are_the_hosts", "threads more than before"},
    Flaw{"thread_bound", "threads.any_may_ask_for_extensions", "other tables"},
    Flaw{"takes_heap", "memory.what_grows_is_the_hosts", "2097152 bytes at once"},
    Flaw{"reads_environment", "calls.touch_nothing_outside", "getenv(\"HOME\")"},
    Flaw{"opens_file", "calls.touch_nothing_outside", "fopen(\"/dev/null\")"},
    Flaw{"keeps_thread", "calls.touch_nothing_outside", "pthread_create"},
    Flaw{"all_optional", "file.a_missing_tensor_is_refused_by_name", "no graph can be built"},
    Flaw{"unchecked_shapes", "file.a_misshapen_tensor_is_refused_by_name", "is accepted"},
    Flaw{"ignores_all", "file.an_unknown_tensor_is_refused_by_name", "is accepted"},
    Flaw{"mixes_rows", "state.batches_equal_single_rows", "the logits of row 0 are others"},
    Flaw{"remembers_farthest", "state.cut_rows_never_happened", "that were cut off again"},
    Flaw{"remembers_farthest", "state.a_pass_taken_back_never_happened", "taken back"},
    Flaw{"trusts_history", "state.restored_rows_never_left", "restored into another slot"},
    Flaw{"peeks_slot", "state.slots_are_apart", "beside rows of another slot"},
    Flaw{"misrecorded", "chat.answers_parse_as_recorded", "recording 1: content"},
    Flaw{"misrecorded", "chat.requests_render_as_recorded", "recording 0: the prompt"},
    Flaw{"no_request", "chat.answers_parse_as_recorded", "recording 0: request_json is null"},
    Flaw{"no_request", "chat.requests_render_as_recorded", "recording 0: request_json is null"},
    Flaw{"no_function", "chat.answers_parse_as_recorded", "tool call 0 has no object 'function'"},
};

class CheckPlugin : public testing::Test {
 protected:
  CheckPlugin() { test::FakeModel().WriteTo(model_); }
  test::TempDir dir_;
  std::string model_ = dir_.File("fake.gguf");
};

TEST_F(CheckPlugin, TheFakePluginPassesEveryTest) {
  const Result run = CheckJson({kFake, "--model", model_});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_GE(run.results.size(), 50u);
  for (const auto& [name, result] : run.results) {
    EXPECT_EQ(result, name.starts_with("draft.") ? "skip" : "pass") << name << run.texts.at(name);
  }
}

// The fake plugin has no draft head; this one is it with a sound one.
TEST_F(CheckPlugin, ASoundDraftHeadPasses) {
  const Result run = CheckJson({Flawed("sound_head"), "--model", model_, "--filter", "draft."});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.results.size(), 3u);
  for (const auto& [name, result] : run.results) {
    EXPECT_EQ(result, "pass") << name << run.texts.at(name);
  }
}

TEST_F(CheckPlugin, WithoutAModelTheTestsThatNeedOneAreSkippedAndCounted) {
  const Result run = Check({kFake});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("skip  build.is_deterministic: no --model"));
  EXPECT_THAT(run.out,
              testing::MatchesRegex("(.|\n)*1[5-9] passed, 0 failed, [1-9][0-9] skipped.*\n"));
}

TEST_F(CheckPlugin, TheSeedIsReportedAndChoosesTheSame) {
  // Which tensor is looked at first depends on the seed; the refusal names it.
  const auto text = [&](const char* seed) {
    return CheckJson(
        {Flawed("all_optional"), "--model", model_, "--filter", "file.a_missing", "--seed", seed});
  };
  const Result one = text("7"), again = text("7");
  EXPECT_THAT(one.out, HasSubstr("\"seed\":7"));
  EXPECT_EQ(one.texts, again.texts);
  std::set<std::string> tensors;
  for (const char* seed : {"1", "2", "3", "4", "18446744073709551615"}) {
    tensors.insert(text(seed).texts.at("file.a_missing_tensor_is_refused_by_name"));
  }
  EXPECT_GT(tensors.size(), 1u);
}

TEST_F(CheckPlugin, EveryTestHasAPluginThatFailsIt) {
  std::set<std::string> failed;
  for (const Flaw& flaw : kFlaws) failed.insert(flaw.test);
  std::istringstream list(Check({"--list"}).out);
  for (std::string line; std::getline(list, line);) {
    const std::string name = line.substr(0, line.find(' '));
    EXPECT_TRUE(failed.contains(name)) << name;
  }
}

TEST_F(CheckPlugin, RunsInOneProcessWhenAsked) {
  const Result run = Check({kFake, "--in-process", "--model", model_, "--filter", "describe."});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("2 passed, 0 failed, 0 skipped"));
}

TEST_F(CheckPlugin, FilterAndListChooseByName) {
  EXPECT_THAT(Check({kFake, "--filter", "binary."}).out, HasSubstr("3 passed"));
  const Result list = Check({"--list", "--filter", "probe."});
  EXPECT_THAT(list.out, HasSubstr("probe.refuses_an_empty_model\n"));
  EXPECT_THAT(list.out, HasSubstr("probe.claims_the_model (model)\n"));
}

TEST_F(CheckPlugin, RunsTokensAndPrintsLogitsAndObservations) {
  const Result run = Check({kFake, "--model", model_, "--tokens", "5,6"});
  ASSERT_EQ(run.code, 0) << run.err;
  const rapidjson::Document report = ParseJson(run.out, "token run");
  const auto& rows = report["rows"];
  ASSERT_EQ(rows.Size(), 2u);
  EXPECT_EQ(rows[1]["token"].GetInt(), 6);
  EXPECT_EQ(rows[1]["logits"].Size(), 48u);
  EXPECT_NE(rows[0]["logits"][0].GetDouble(), rows[1]["logits"][0].GetDouble());
  EXPECT_THAT(Check({kFake, "--model", model_, "--tokens", "48"}).err,
              HasSubstr("48 is outside of a vocabulary of 48"));
}

TEST_F(CheckPlugin, LogitsThatAreNoNumbersAreNullAndSaidToBeSo) {
  // The head is the table: the largest floats, with the signs of token 5, make token 7's logit
  // beside it more than a float holds.
  std::string bytes = test::FakeModel().Bytes();
  const std::string table = test::FakeValues(uint64_t{64} * 48, 1);
  const size_t at = bytes.find(table);
  ASSERT_NE(at, std::string::npos);
  for (size_t i = 0; i < 64; ++i) {
    float value = 0;
    std::memcpy(&value, &table[(5 * 64 + i) * sizeof(float)], sizeof(float));
    value = std::copysign(std::numeric_limits<float>::max(), value);
    std::memcpy(&bytes[at + (7 * 64 + i) * sizeof(float)], &value, sizeof(float));
  }
  const std::string model = dir_.File("large.gguf");
  std::ofstream(model, std::ios::binary) << bytes;
  const Result run = Check({kFake, "--model", model, "--tokens", "5"});
  ASSERT_EQ(run.code, 0) << run.err;
  const rapidjson::Document report = ParseJson(run.out, "token run");
  const auto& row = report["rows"][0];
  EXPECT_TRUE(row["logits"][7].IsNull());
  EXPECT_TRUE(row["logits"][8].IsNumber());
  ASSERT_TRUE(row.HasMember("not_finite")) << run.out;
  EXPECT_EQ(WriteJson(row["not_finite"]), R"(["logits"])");
  const Result sound = Check({kFake, "--model", model_, "--tokens", "5"});
  EXPECT_THAT(sound.out, Not(HasSubstr("not_finite")));
}

TEST_F(CheckPlugin, BadCommandLinesAreRefusedWithTheUsage) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{},
        {"--frobnicate"},
        {kFake, "--model"},
        {kFake, "other"},
        {kFake, "--tokens", "1"},
        {kFake, "--model", "x", "--tokens", "1,,2"},
        {kFake, "--draft", "1"},
        {kFake, "--model", "x", "--tokens", "1", "--draft", "8"},
        {kFake, "--time-limit", "0"},
        {kFake, "--time-limit", "3601"},
        {kFake, "--filter", "zzz"},
        {"/nowhere/libx.so"}}) {
    const Result run = Check(args);
    EXPECT_EQ(run.code, 64);
    EXPECT_THAT(run.err, HasSubstr("usage: bloomery check-plugin"));
  }
}

TEST_F(CheckPlugin, SaysItsOptionsWhereAsked) {
  const Result run = Check({"--help"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("usage: bloomery check-plugin"));
}

// What a head guesses stands in abi.glm4moe; a model without one says so.
TEST_F(CheckPlugin, GuessesNeedADraftHead) {
  const Result run = Check({kFake, "--model", model_, "--tokens", "5", "--draft", "1"});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("holds no draft head"));
}

class FlawedPlugin : public CheckPlugin, public testing::WithParamInterface<Flaw> {};

TEST_P(FlawedPlugin, FailsTheTestThatIsAboutIt) {
  const Flaw& flaw = GetParam();
  // The limit shortens what hangs; nothing else comes near it.
  const Result run = CheckJson({Flawed(flaw.plugin), "--model", model_, "--filter", flaw.test,
                                "--time-limit", std::string(flaw.plugin) == "hangs" ? "1" : "60"});
  EXPECT_EQ(run.code, 1) << run.out;
  ASSERT_TRUE(run.results.contains(flaw.test)) << run.out;
  EXPECT_EQ(run.results.at(flaw.test), "fail");
  EXPECT_THAT(run.texts.at(flaw.test), HasSubstr(flaw.text));
}

INSTANTIATE_TEST_SUITE_P(, FlawedPlugin, testing::ValuesIn(kFlaws), [](const auto& i) {
  std::string name = std::string(i.param.plugin) + "_" + i.param.test;
  for (char& c : name) c = c == '.' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace bloomery::apps
