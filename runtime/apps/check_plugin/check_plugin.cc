#include "runtime/apps/check_plugin/check_plugin.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/apps/check_plugin/child_process.h"
#include "runtime/apps/check_plugin/token_run.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

using check::Check;
using check::Subject;

constexpr int kUsageExit = 64;
constexpr int kTimeLimitSecondsMax = 3600;
constexpr int32_t kGuessesMax = 7;  // as many as a server takes

constexpr std::string_view kUsage =
    "usage: bloomery check-plugin PATH [--model FILE] [--json] [--filter TEXT]\n"
    "                             [--seed NUMBER] [--time-limit SECONDS] [--in-process] [--list]\n"
    "       bloomery check-plugin PATH --model FILE --tokens ID,… [--observe NAME]… [--draft N]\n"
    "  PATH          the plugin's shared object, its manifest beside it\n"
    "  --model       a model the plugin serves; without it the tests that need one are skipped\n"
    "  --json        the report as one JSON object\n"
    "  --filter      only tests whose name contains TEXT\n"
    "  --seed        of what tests choose at random, 0 … 2^64-1 (default 1): a report says it, "
    "and\n"
    "                the same seed chooses the same\n"
    "  --time-limit  seconds for one test (default 30)\n"
    "  --in-process  run in this process, for a debugger: a crash ends everything\n"
    "  --tokens      no tests: run these tokens and print their logits as JSON, to compare with\n"
    "                another implementation; --observe: and this exported value (layer.0.in);\n"
    "                what is no number is null, and named in the token's \"not_finite\";\n"
    "                --draft: and N guesses of the model's own draft head behind each token, 1 … "
    "7\n"
    "  --list        print the names of the tests and stop\n";

struct Options {
  Subject subject;
  bool json = false;
  bool in_process = false;
  bool list = false;
  bool help = false;
  std::string filter;
  check::TokenRun token_run;    // where it has tokens
  std::string run_one;          // hidden: what a child of ours does
  int time_limit_seconds = 30;  // the slowest takes well under one; busy machines are slower
};

// The option's value: the next word.
std::string ValueOf(std::span<const std::string> args, size_t& i) {
  if (i + 1 >= args.size()) throw Error(ErrorKind::kUsage, args[i] + " needs a value");
  return args[++i];
}

// The option's value as a number in low … high.
template <class Number>
Number NumberOf(std::span<const std::string> args, size_t& i, Number low, Number high) {
  const std::string& option = args[i];
  const std::string text = ValueOf(args, i);
  Number value{};
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at != text.data() + text.size() || value < low || value > high) {
    throw Error(ErrorKind::kUsage, option + " '" + text + "' is not a number of " +
                                       std::to_string(low) + " … " + std::to_string(high));
  }
  return value;
}

std::vector<int32_t> TokensOf(const std::string& text) {
  std::vector<int32_t> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int32_t token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc() || (next != end && *next != ',')) {
      throw Error(ErrorKind::kUsage, "--tokens '" + text + "' is no list such as 3,4,5");
    }
    tokens.push_back(token);
    if (next == end) return tokens;
    at = next + 1;
  }
}

Options ParseOptions(std::span<const std::string> args) {
  Options options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--model") {
      options.subject.model_path = ValueOf(args, i);
    } else if (arg == "--filter") {
      options.filter = ValueOf(args, i);
    } else if (arg == "--run-one") {
      options.run_one = ValueOf(args, i);
    } else if (arg == "--time-limit") {
      options.time_limit_seconds = NumberOf<int>(args, i, 1, kTimeLimitSecondsMax);
    } else if (arg == "--seed") {
      options.subject.seed = NumberOf<uint64_t>(args, i, 0, UINT64_MAX);
    } else if (arg == "--tokens") {
      options.token_run.tokens = TokensOf(ValueOf(args, i));
    } else if (arg == "--observe") {
      options.token_run.observe.push_back(ValueOf(args, i));
    } else if (arg == "--draft") {
      options.token_run.guesses = NumberOf<int32_t>(args, i, 1, kGuessesMax);
    } else if (arg == "--help" || arg == "-h") {
      options.help = true;
      return options;
    } else if (arg == "--json") {
      options.json = true;
    } else if (arg == "--in-process") {
      options.in_process = true;
    } else if (arg == "--list") {
      options.list = true;
    } else if (arg.starts_with("-")) {
      throw Error(ErrorKind::kUsage, "unknown option " + arg);
    } else if (options.subject.path.empty()) {
      options.subject.path = arg;
    } else {
      throw Error(ErrorKind::kUsage, "more than one path: " + arg);
    }
  }
  if (!options.token_run.tokens.empty() && options.subject.model_path.empty()) {
    throw Error(ErrorKind::kUsage, "--tokens needs --model");
  }
  if (options.token_run.guesses > 0 && options.token_run.tokens.empty()) {
    throw Error(ErrorKind::kUsage, "--draft needs --tokens");
  }
  if (options.subject.path.empty() && !options.list) {
    throw Error(ErrorKind::kUsage, "which plugin? give the path of its shared object");
  }
  return options;
}

std::vector<Check> AllChecks() {
  std::vector<Check> all;
  for (const auto& topic :
       {check::BinaryChecks(), check::LoadChecks(), check::ProbeChecks(), check::InstanceChecks(),
        check::LifecycleChecks(), check::ThreadChecks(), check::ImportChecks(), check::FileChecks(),
        check::BuildChecks(), check::KernelChecks(), check::StateChecks(), check::DraftChecks(),
        check::ChatChecks()}) {
    all.insert(all.end(), topic.begin(), topic.end());
  }
  return all;
}

enum class Verdict { kPass, kFail, kSkip };
constexpr std::string_view kVerdictNames[] = {"pass", "fail", "skip"};

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string text;
};

Outcome RunHere(const Check& test, const Subject& subject) {
  try {
    test.run(subject);
    return {Verdict::kPass, ""};
  } catch (const check::NotApplicable& e) {
    return {Verdict::kSkip, e.what()};
  } catch (const std::exception& e) {
    return {Verdict::kFail, e.what()};
  } catch (...) {
    return {Verdict::kFail, "the plugin threw an exception across the ABI"};
  }
}

// The child's side: runs one test and says how it went through the report pipe.
int ReportOne(const Check& test, const Subject& subject) {
  const Outcome outcome = RunHere(test, subject);
  std::string line(kVerdictNames[static_cast<size_t>(outcome.verdict)]);
  line += "\n" + outcome.text;
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(check::kReportFd, line.data() + done, line.size() - done);
    if (n <= 0) return 1;
    done += static_cast<size_t>(n);
  }
  return 0;
}

Outcome Judge(const check::ChildResult& child, int limit_seconds) {
  if (child.timed_out) {
    return {Verdict::kFail,
            "ran longer than " + std::to_string(limit_seconds) + " s; ended by force"};
  }
  const std::string output =
      child.output.empty() ? "" : "; it wrote: " + Printable(child.output, 300);
  if (child.signal != 0) {
    return {Verdict::kFail, std::string("crashed: ") + ::strsignal(child.signal) + output};
  }
  const size_t line = child.report.find('\n');
  if (line == std::string::npos) {
    return {Verdict::kFail, "the process ended by itself (exit code " +
                                std::to_string(child.exit_code) + "): a plugin must not exit" +
                                output};
  }
  const std::string_view name = std::string_view(child.report).substr(0, line);
  const auto found = std::ranges::find(kVerdictNames, name);
  Outcome outcome{static_cast<Verdict>(found - std::begin(kVerdictNames)),
                  child.report.substr(line + 1)};
  if (outcome.verdict != Verdict::kFail && child.exit_code != 0) {
    return {Verdict::kFail, "the process ended with code " + std::to_string(child.exit_code) +
                                " after the test" + output};
  }
  if (outcome.verdict == Verdict::kPass && !child.output.empty()) {
    return {Verdict::kFail,
            "wrote to stdout or stderr; log through the host: " + Printable(child.output, 300)};
  }
  return outcome;
}

Outcome RunApart(std::span<const std::string> self, const Check& test, const Options& options) {
  std::vector<std::string> command(self.begin(), self.end());
  command.push_back(options.subject.path);
  if (!options.subject.model_path.empty()) {
    command.insert(command.end(), {"--model", options.subject.model_path});
  }
  command.insert(command.end(), {"--seed", std::to_string(options.subject.seed)});
  command.insert(command.end(), {"--run-one", test.name});
  return Judge(check::RunChild(command, std::chrono::seconds(options.time_limit_seconds)),
               options.time_limit_seconds);
}

Outcome RunOne(std::span<const std::string> self, const Check& test, const Options& options) {
  if (test.needs_model && options.subject.model_path.empty()) {
    return {Verdict::kSkip, "no --model"};
  }
  return options.in_process ? RunHere(test, options.subject) : RunApart(self, test, options);
}

std::string AbiText() { return std::to_string(BL_ABI_MAJOR) + "." + std::to_string(BL_ABI_MINOR); }

class Report {
 public:
  Report(const Options& options, std::ostream& out) : options_(options), out_(out) {
    document_.SetObject();
    tests_.SetArray();
  }
  void Add(const Check& test, const Outcome& outcome) {
    ++counts_[static_cast<size_t>(outcome.verdict)];
    const std::string verdict(kVerdictNames[static_cast<size_t>(outcome.verdict)]);
    if (!options_.json) {
      out_ << verdict << "  " << test.name;
      if (!outcome.text.empty()) out_ << ": " << outcome.text;
      out_ << "\n" << std::flush;
      return;
    }
    auto& allocator = document_.GetAllocator();
    rapidjson::Value item(rapidjson::kObjectType);
    item.AddMember("name", rapidjson::Value(test.name, allocator), allocator);
    item.AddMember("result", rapidjson::Value(verdict, allocator), allocator);
    item.AddMember("text", rapidjson::Value(outcome.text, allocator), allocator);
    tests_.PushBack(item, allocator);
  }
  int Finish() {
    const size_t passed = counts_[0], failed = counts_[1], skipped = counts_[2];
    if (!options_.json) {
      out_ << options_.subject.path << ": " << passed << " passed, " << failed << " failed, "
           << skipped << " skipped (seed " << options_.subject.seed << ")\n";
    } else {
      auto& allocator = document_.GetAllocator();
      document_.AddMember("plugin", rapidjson::Value(options_.subject.path, allocator), allocator);
      document_.AddMember("abi", rapidjson::Value(AbiText(), allocator), allocator);
      document_.AddMember("model", rapidjson::Value(options_.subject.model_path, allocator),
                          allocator);
      document_.AddMember("seed", options_.subject.seed, allocator);
      document_.AddMember("passed", uint64_t{passed}, allocator);
      document_.AddMember("failed", uint64_t{failed}, allocator);
      document_.AddMember("skipped", uint64_t{skipped}, allocator);
      document_.AddMember("tests", tests_, allocator);
      out_ << WriteJson(document_) << "\n";
    }
    return failed == 0 ? 0 : 1;
  }

 private:
  const Options& options_;
  std::ostream& out_;
  rapidjson::Document document_;
  rapidjson::Value tests_;
  size_t counts_[3] = {0, 0, 0};
};

int Run(std::span<const std::string> self, const Options& options, std::ostream& out) {
  std::vector<Check> checks = AllChecks();
  if (!options.run_one.empty()) {
    const auto same = [&](const Check& c) { return c.name == options.run_one; };
    const auto found = std::ranges::find_if(checks, same);
    if (found == checks.end()) throw Error(ErrorKind::kUsage, "no test " + options.run_one);
    return ReportOne(*found, options.subject);
  }
  std::erase_if(checks, [&](const Check& c) {
    return std::string_view(c.name).find(options.filter) == std::string_view::npos;
  });
  if (options.list) {
    for (const Check& test : checks) out << test.name << (test.needs_model ? " (model)\n" : "\n");
    return 0;
  }
  if (!options.token_run.tokens.empty()) {
    check::WriteTokenRun(options.subject, options.token_run, out);
    return 0;
  }
  if (checks.empty()) throw Error(ErrorKind::kUsage, "no test contains '" + options.filter + "'");
  if (!std::filesystem::exists(options.subject.path)) {
    throw Error(ErrorKind::kUsage, options.subject.path + " does not exist");
  }
  Report report(options, out);
  for (const Check& test : checks) report.Add(test, RunOne(self, test, options));
  return report.Finish();
}

}  // namespace

int CheckPluginMain(std::span<const std::string> self, std::span<const std::string> args,
                    std::ostream& out, std::ostream& err) {
  try {
    const Options options = ParseOptions(args);
    if (options.help) {
      out << kUsage;
      return 0;
    }
    return Run(self, options, out);
  } catch (const Error& e) {
    err << "check-plugin: " << e.what() << "\n";
    if (e.kind() == ErrorKind::kUsage) {
      err << kUsage;
      return kUsageExit;
    }
    return 1;
  }
}

}  // namespace bloomery::apps
