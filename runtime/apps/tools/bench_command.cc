// bloomery bench: rows a second of prompts and single tokens, in the manner of llama-bench.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/apps/rates.h"
#include "runtime/apps/recommend.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/bench.h"
#include "runtime/apps/tools/bench_report.h"
#include "runtime/apps/tools/seat_flags.h"
#include "runtime/apps/tools/step_profile.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/exec/placing.h"
#include "runtime/memory/parallel_read.h"
#include "runtime/model/gguf.h"

namespace bloomery::apps {
namespace {

constexpr int64_t kRowsMax = 1 << 24;  // beyond any context; keeps sums inside an int32

struct BenchFlags {
  SeatFlags seat;
  std::vector<int64_t> prompts{512};
  std::vector<int64_t> tokens{128};
  std::vector<int64_t> depths{0};
  std::vector<int64_t> threads{0};
  std::vector<int64_t> slots{1};
  int64_t repetitions = 5;
  int64_t read_once = 0;
  std::string output = "md";
  std::string greedy;
};

std::vector<BenchCase> CasesOf(const BenchFlags& flags) {
  std::vector<BenchCase> cases;
  for (const int64_t depth : flags.depths) {
    for (const int64_t n : flags.prompts) {
      if (n > 0) cases.push_back({.prompt = n, .depth = depth});
    }
    for (const int64_t n : flags.tokens) {
      for (const int64_t slots : flags.slots) {
        if (n == 0) continue;
        cases.push_back(
            {.tokens = n, .depth = depth, .slots = slots, .greedy = !flags.greedy.empty()});
      }
    }
  }
  if (cases.empty()) throw Error(ErrorKind::kUsage, "-p 0 and -n 0 leave nothing to measure");
  return cases;
}

// Bytes that cost nothing to read: a read of them is the touching of the memory they go to.
class NoFile : public File {
 public:
  explicit NoFile(uint64_t size) : File("(no file)"), size_(size) {}
  uint64_t size() const override { return size_; }
  std::unique_ptr<Mapping> Map(uint64_t /*offset*/, uint64_t /*length*/) const override {
    return nullptr;
  }

 protected:
  size_t ReadSome(uint64_t /*offset*/, std::span<std::byte> out,
                  std::error_code& /*error*/) const override {
    constexpr size_t kPage = 4096;
    for (size_t at = 0; at < out.size(); at += kPage) out[at] = std::byte{1};
    return out.size();
  }

 private:
  uint64_t size_;
};

// Seconds until `bytes` of memory that was never used are there, asked for as loading does: huge
// pages, by as many threads. On a virtual machine the host may have to give them first.
double TouchOnce(uint64_t bytes) {
  const NoFile file(bytes);
  const memory::HostBuffer fresh(bytes, "memory to touch");
  const memory::ReadStretch stretch = {.file = &file, .offset = 0, .to = fresh.bytes()};
  return memory::ReadAll({&stretch, 1}).seconds;
}

// The floor of loading: the model's files read as loading reads them, but into a little memory
// again and again, so that nothing is paid for but the reading; and beside it what as much fresh
// memory costs without any reading. One JSON object a line.
void ReadOnce(const std::string& path, int64_t times) {
  constexpr uint64_t kRoom = uint64_t{64} << 20;  // more than all reads in flight
  const model::ModelFile model = model::OpenGguf(RealFileSystem(), path);
  const memory::HostBuffer room(kRoom, "room to read into");
  std::vector<memory::ReadStretch> stretches;
  for (const auto& file : model.files()) {
    for (uint64_t at = 0; at < file->size(); at += kRoom) {
      const uint64_t bytes = std::min(kRoom, file->size() - at);
      stretches.push_back({.file = file.get(), .offset = at, .to = room.bytes().first(bytes)});
    }
  }
  for (int64_t i = 0; i < times; ++i) {
    const memory::ReadReport report = memory::ReadAll(stretches);
    std::cout << "{\"read_once\":{\"bytes\":" << report.bytes
              << ",\"direct_bytes\":" << report.direct_bytes << ",\"seconds\":" << report.seconds
              << ",\"touch_seconds\":" << TouchOnce(report.bytes) << "}}" << std::endl;
  }
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The planner's model of one stream, by the rates that doctor keeps; 0 where it says nothing.
double Predicted(const BenchCase& what, const memory::Placement& placement,
                 const memory::SeatWork& work, const std::optional<memory::MachineRates>& rates) {
  if (!rates || what.slots > 1 || (what.prompt > 0 && what.depth > 0)) return 0;
  if (what.prompt == 0) {
    // Half of the tokens are behind the middle one.
    const auto depth = static_cast<int32_t>(what.depth + what.tokens / 2);
    return memory::Predict(placement, work, *rates, depth).decode;
  }
  const auto rows = static_cast<int32_t>(std::min<int64_t>(INT32_MAX, what.prompt));
  return memory::Predict(placement, work, *rates, 0, rows).prompt;
}

void BenchThreads(const BenchFlags& flags, const std::vector<BenchCase>& cases, int32_t threads,
                  bool first, const std::optional<memory::MachineRates>& rates) {
  int64_t rows_most = 0;
  int64_t slots_most = 1;
  for (const BenchCase& what : cases) {
    rows_most = std::max(rows_most, what.depth + what.rows());
    slots_most = std::max(slots_most, what.slots);
  }
  BenchSetting setting{.machine = DescribeMachine(), .build = Build()};
  const LoadedSeat loaded =
      LoadSeatOf(flags.seat, threads, rows_most, static_cast<int32_t>(slots_most));
  DescribeFile(*loaded.model, setting);
  const size_t cards = loaded.seat->placement().stages.size();
  setting.kernels = cards > 1 ? std::to_string(cards) + " x " : "";
  setting.kernels += loaded.seat->kernels();
  setting.threads = loaded.seat->threads();
  setting.ubatch = loaded.seat->placement().rows_max;
  setting.type_k = flags.seat.type_k;
  setting.type_v = flags.seat.type_v;
  const bool json = flags.output == "json";
  if (first && !json) std::cout << MarkdownHeader(setting);
  const bool steps = flags.output == "steps";
  StepProfile profile;
  const BenchMeter meter{
      .seconds = Now,
      .count =
          [&] {
            const exec::SeatCounters counters = loaded.seat->counters();
            const exec::ResidencyStatus residency = loaded.seat->ReadResidencyStatus();
            return BenchCount{.passes = counters.passes,
                              .weight_bytes = counters.weight_bytes_read,
                              .experts_picked = counters.experts_picked,
                              .expert_bytes = counters.expert_bytes,
                              .wait_seconds = counters.wait_seconds,
                              .picks = residency.counters.picks,
                              .card_picks = residency.counters.hits,
                              .moves = residency.counters.moves};
          },
      .read_rate = loaded.seat->MemoryReadMeter(),
      .timing = [&](bool on) { loaded.seat->SetObserver(on && steps ? &profile : nullptr); },
      .reset =
          [&] {
            if (loaded.seat->ReadResidencyStatus().policy) loaded.seat->RequestResidencyReset();
          },
      .dense_bytes = loaded.seat->DenseBytes()};
  const memory::SeatWork work = exec::WorkOf(loaded.instance->description());
  for (const BenchCase& what : cases) {
    BenchResult result =
        RunBench(*loaded.seat, what, static_cast<int32_t>(flags.repetitions), meter);
    result.predicted = Predicted(what, loaded.seat->placement(), work, rates);
    std::cout << (json ? JsonRow(setting, result) : MarkdownRow(setting, result));
    if (steps) std::cout << profile.Table();
    std::cout << std::flush;
    profile.Clear();
  }
}

}  // namespace

int BenchCommand(const std::vector<std::string>& argv) {
  BenchFlags flags;
  Arguments arguments(
      "bloomery bench",
      "Measures rows a second: of prompts (pp) and of single tokens (tg), each after "
      "a warm-up;\nbeside them the rate at which the same threads only read memory, and the "
      "tokens a second that\nreading each pass's dense weights and distinct experts once would "
      "allow.\nLists joined by commas are measured one after the other.");
  AddSeatFlags(arguments, flags.seat);
  arguments
      .Numbers({"-p", "--n-prompt"}, "N", "rows of a prompt; 0: none", 0, kRowsMax, &flags.prompts)
      .Numbers({"-n", "--n-gen"}, "N", "tokens one by one; 0: none", 0, kRowsMax, &flags.tokens)
      .Numbers({"-np", "--parallel"}, "N", "slots whose tokens are computed together", 1,
               limits::kSlotsMax, &flags.slots)
      .Numbers({"-d", "--n-depth"}, "N", "rows that are there before", 0, kRowsMax, &flags.depths)
      .Numbers({"-t", "--threads"}, "N", "threads; 0: one a physical core", 0, 1024, &flags.threads)
      .Number({"-r", "--repetitions"}, "N", "times each is measured", 1, 10000, &flags.repetitions)
      .Number({"--read-once"}, "N",
              "measure nothing but N times reading the whole file, as loading does", 0, 10000,
              &flags.read_once)
      .Text({"-o", "--output"}, "FORM",
            "md, json (one object a line), or steps: md, and where the time went", &flags.output)
      .Switch({"--greedy"}, "tokens are the model's choice, after a prompt of its own text", "yes",
              &flags.greedy);
  if (!arguments.Parse(argv)) return kExitOk;
  if (flags.output != "md" && flags.output != "json" && flags.output != "steps") {
    throw Error(ErrorKind::kUsage, "-o " + Printable(flags.output) + ": must be md, json or steps");
  }
  if (flags.read_once > 0) {
    ReadOnce(ModelPathOf(flags.seat), flags.read_once);
    return kExitOk;
  }
  const std::vector<BenchCase> cases = CasesOf(flags);
  const std::optional<memory::MachineRates> rates =
      ReadRates(RatesPath(Environment()), RatesKey(LookAtMachine()));
  for (size_t i = 0; i < flags.threads.size(); ++i) {
    BenchThreads(flags, cases, static_cast<int32_t>(flags.threads[i]), i == 0, rates);
  }
  return kExitOk;
}

}  // namespace bloomery::apps
