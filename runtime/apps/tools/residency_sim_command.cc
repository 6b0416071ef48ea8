// bloomery residency-sim: what residency policies make of a routing trace.
#include <array>
#include <cstdio>
#include <iostream>

#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/residency/simulation.h"
#include "runtime/serve/json_value.h"

namespace bloomery::apps {
namespace {

using memory::SimulationResult;
using serve::Json;

constexpr std::string_view kBelady = "belady";

struct Flags {
  std::string trace;
  std::vector<std::string> policies;
  std::vector<int64_t> frames{32};
  int64_t moves = 0;
  int64_t texts = 0;
  std::string json;
  std::string stay;
  memory::SimulationOptions options;
};

std::string Usage(const std::string& name) {
  return "--policy " + Printable(name) + ": must be off, payback, lru, lfu or belady";
}

// All of the traces, each from the seed on.
SimulationResult Play(std::vector<memory::RoutingTrace>& traces, const std::string& name,
                      const memory::SimulationOptions& options) {
  const auto kind = memory::ResidencyKindOf(name);
  if (name != kBelady && !kind) throw Error(ErrorKind::kUsage, Usage(name));
  SimulationResult sum;
  for (memory::RoutingTrace& trace : traces) {
    const SimulationResult result =
        name == kBelady ? SimulateBelady(trace, options) : Simulate(trace, *kind, options);
    sum.name = result.name;
    sum.Add(result);
  }
  return sum;
}

Json RowJson(const SimulationResult& result, uint32_t frames) {
  return Json::Object({{"policy", result.name},
                       {"frames", frames},
                       {"decode_passes", result.decode.passes},
                       {"decode_rows", result.decode.rows},
                       {"decode_reads", result.decode.reads},
                       {"decode_hits", result.decode.hits},
                       {"decode_hit_rate", result.decode.HitRate()},
                       {"prompt_rows", result.prompt.rows},
                       {"prompt_hit_rate", result.prompt.HitRate()},
                       {"moves", result.moves},
                       {"stayed", result.stayed},
                       {"decode_rows_per_second", result.DecodeRate()}});
}

void PrintRow(const SimulationResult& result, uint32_t frames, double static_rate) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "| %-7s | %6u | %6.2f | %6.2f | %9llu | %8.1f | %5.2f |",
                result.name.c_str(), frames, 100 * result.decode.HitRate(),
                100 * result.prompt.HitRate(), static_cast<unsigned long long>(result.moves),
                result.DecodeRate(), static_rate > 0 ? result.DecodeRate() / static_rate : 0);
  std::cout << line.data() << '\n';
}

void Report(const memory::RoutingTrace& trace, const Flags& flags) {
  const memory::TraceStatistics statistics = StatisticsOf(trace);
  std::vector<memory::RoutingTrace> traces{trace};
  if (flags.texts > 0) traces = trace.Texts(static_cast<uint64_t>(flags.texts));
  if (traces.empty()) throw Error(ErrorKind::kUsage, "--texts: the trace has no prompt");
  if (!flags.json.empty()) {
    std::cout << Json::Object({{"passes", statistics.passes},
                               {"rows", statistics.rows},
                               {"banks", trace.banks().size()},
                               {"busiest_eighth", statistics.busiest_eighth},
                               {"repeated", statistics.repeated}})
                     .Text()
              << '\n';
  } else {
    std::array<char, 200> line{};
    std::snprintf(line.data(), line.size(),
                  "%llu passes, %llu rows, %zu banks; decode: the busiest eighth of experts has "
                  "%.1f %% of picks, the row before had %.1f %%\n\n",
                  static_cast<unsigned long long>(statistics.passes),
                  static_cast<unsigned long long>(statistics.rows), trace.banks().size(),
                  100 * statistics.busiest_eighth, 100 * statistics.repeated);
    std::cout << line.data();
  }
  if (flags.json.empty()) {
    std::cout
        << "| policy  | frames | decode hits % | prompt hits % | moves | decode t/s | x off |\n"
        << "|---|---:|---:|---:|---:|---:|---:|\n";
  }
  for (const int64_t frames : flags.frames) {
    memory::SimulationOptions options = flags.options;
    options.frames = static_cast<uint32_t>(frames);
    options.stay = !flags.stay.empty();
    options.moves_max = static_cast<int32_t>(flags.moves);
    const double static_rate = Play(traces, "off", options).DecodeRate();
    for (const std::string& policy : flags.policies) {
      const SimulationResult result = Play(traces, policy, options);
      if (flags.json.empty()) {
        PrintRow(result, options.frames, static_rate);
      } else {
        std::cout << RowJson(result, options.frames).Text() << '\n';
      }
    }
  }
  std::cout << std::flush;
}

}  // namespace

int ResidencySimCommand(const std::vector<std::string>& argv) {
  Flags flags;
  memory::ResidencyRates& rates = flags.options.rates;
  memory::StepRates& step = flags.options.step;
  constexpr double kMost = 1e9;
  Arguments arguments(
      "bloomery residency-sim",
      "Plays a routing trace (bloomery-serve --routing-trace) to residency policies: what share\n"
      "of the experts read was on the card, how many moved, and how fast decoding would be with\n"
      "the costs given. Belady's row is the bound of whoever loads what was missed, or leaves it\n"
      "to the host; its moves are free. docs/residency.md has the model.");
  arguments.Positional("TRACE", "the file", &flags.trace)
      .Required()
      .Numbers({"--frames"}, "N,...", "experts of each bank on the card", 0, UINT16_MAX,
               &flags.frames)
      .Texts({"--policy"}, "NAME",
             "off, payback, lru, lfu or belady; may be repeated; all where none is given",
             &flags.policies)
      .Number({"--moves"}, "N", "moves at a boundary; 0: what the link carries beside a pass", 0,
              memory::ResidencyOptions::kMovesMax, &flags.moves)
      .Number({"--texts"}, "N",
              "each prompt begins a text, played from the seed on, of which the first N decode "
              "passes count; 0: the trace is one",
              0, INT32_MAX, &flags.texts)
      .Switch({"--stay"}, "experts that a prompt brings to the card may stay (payback)", "yes",
              &flags.stay)
      .Real({"--host-us"}, "US", "the host computing an expert", 0, kMost, &rates.host_us)
      .Real({"--card-us"}, "US", "the card computing an expert", 0, kMost, &rates.card_us)
      .Real({"--copy-us"}, "US", "an expert over the link", 0, kMost, &rates.copy_us)
      .Real({"--copy-weight"}, "W", "part of a copy's time by which a pass gets longer", 0, 100,
            &rates.copy_weight)
      .Real({"--begin-us"}, "US", "beginning a move, before a pass", 0, kMost, &rates.begin_us)
      .Real({"--layer-us"}, "US", "a layer beside its experts", 0, kMost, &step.layer_us)
      .Real({"--hand-off-us"}, "US", "a layer's hand-off to the host", 0, kMost, &step.hand_off_us)
      .Real({"--head-us"}, "US", "a pass beside its layers", 0, kMost, &step.head_us)
      .Switch({"--json"}, "a JSON object a row", "yes", &flags.json);
  if (!arguments.Parse(argv)) return kExitOk;
  if (flags.policies.empty()) flags.policies = {"off", "payback", "lru", "lfu", "belady"};
  for (const std::string& policy : flags.policies) {
    if (policy != kBelady && !memory::ResidencyKindOf(policy)) {
      throw Error(ErrorKind::kUsage, Usage(policy));
    }
  }
  memory::TraceReader reader(RealFileSystem().Open(flags.trace));
  const memory::RoutingTrace trace(reader);
  Report(trace, flags);
  return kExitOk;
}

}  // namespace bloomery::apps
