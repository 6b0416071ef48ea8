// gpu_bench_split MODEL [frames …]: decode of one row and of eight slots, and a prompt, over banks
// split between card and host with so many frames each (-1: the whole card; -2: the same by six
// launches a layer, which split banks take, too), with what the host did of it. Tokens are random:
// routing without locality. PROMPT, UBATCH: rows of two prompts; SHARE: below; DECODE=0: prompts
// only.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/bench_passes.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

void Report(const exec::Seat& seat, const char* what, int32_t frames, int32_t rows, int32_t passes,
            double seconds, const exec::SeatCounters& before) {
  const exec::SeatCounters after = seat.counters();
  const double per_pass = 1e3 / passes;
  const double host_bytes = static_cast<double>(after.host_bytes - before.host_bytes);
  const double host_seconds = after.host_seconds - before.host_seconds;
  std::printf("| %s | %d | %.3f | %.1f | %.1f | %.1f | %.3f | %.1f |\n", what, frames,
              seconds * per_pass, rows * passes / seconds,
              static_cast<double>(after.hand_offs - before.hand_offs) / passes,
              static_cast<double>(after.host_experts - before.host_experts) / passes,
              host_seconds * per_pass, host_seconds > 0 ? host_bytes / host_seconds * 1e-9 : 0.0);
  std::fflush(stdout);
}

void Run(const char* path, int32_t frames, int32_t ubatch) {
  exec::SeatOptions options;
  options.slots = 8;
  options.slot_context = 4608;
  options.rows_max = ubatch;
  options.device = "CUDA0";
  options.card_frames = std::max(frames, -1);
  if (frames == -2) options.observe = {"layer.1.in"};
  // SHARE: prompts' experts all over the link, or all with the host, instead of as measured.
  const char* const share = std::getenv("SHARE");
  const std::string_view shared = share == nullptr ? "" : share;
  if (shared == "link") options.share_rates = memory::ShareRates{.copy_us = 0, .read_us = 1};
  if (shared == "host") options.share_rates = memory::ShareRates{.copy_us = 1e9, .read_us = 1};
  const double begin = Now();
  const LoadedSeat loaded = LoadThroughPlugin(path, options);
  BenchPasses bench(*loaded.seat);
  std::fprintf(stderr, "frames %d: loaded in %.2f s; %s\n", frames, Now() - begin,
               loaded.seat->LoadLine().c_str());
  std::fprintf(stderr, "%s\n", loaded.seat->PlanLine().c_str());
  bench.Prompt(64);
  const char* const decode = std::getenv("DECODE");
  for (const int32_t slots : {1, 8}) {
    if (decode != nullptr && std::string_view(decode) == "0") break;
    bench.Decode(slots, 8);
    const exec::SeatCounters before = loaded.seat->counters();
    const int32_t passes = 48;
    const double seconds = bench.Decode(slots, passes);
    Report(*loaded.seat, slots == 1 ? "decode" : "8 slots", frames, slots, passes, seconds, before);
  }
  const char* const prompt = std::getenv("PROMPT");
  for (const int32_t rows : {prompt == nullptr ? 512 : std::atoi(prompt), ubatch}) {
    bench.Prompt(rows);
    const exec::SeatCounters before = loaded.seat->counters();
    const double seconds = bench.Prompt(rows);
    Report(*loaded.seat, ("prompt " + std::to_string(rows)).c_str(), frames, rows, 1, seconds,
           before);
    if (rows == ubatch) break;
  }
}

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  const char* ubatch = std::getenv("UBATCH");
  try {
    std::printf(
        "| case | frames | ms a pass | tok/s | hand-offs | host experts | host ms | host GB/s |\n");
    std::printf("|---|---|---|---|---|---|---|---|\n");
    for (int i = 2; i < argc; ++i) {
      bloomery::test::Run(argv[1], std::atoi(argv[i]), ubatch == nullptr ? 512 : std::atoi(ubatch));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
