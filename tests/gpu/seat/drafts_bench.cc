// What a pass takes by the rows of its windows, and a step of a model's own draft head: what drafts
// can bring on a card is decided by these. Prints one table a model.
//
//   gpu_bench_drafts MODEL [head] [slots]
//
// Ids are without a pattern, so every row picks experts of its own: passes of a text that repeats
// itself cost no more.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/exec/seat.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

constexpr int kPasses = 41;
constexpr int32_t kBefore = 512;  // rows that a slot holds

class Ids {
 public:
  int32_t Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<int32_t>((state_ >> 8U) % 900) + 3;
  }

 private:
  uint32_t state_ = 1;
};

template <class Work>
double MedianMs(const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < kPasses; ++i) {
    const auto began = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    times.push_back(took.count());
  }
  std::ranges::nth_element(times, times.begin() + kPasses / 2);
  return times[kPasses / 2];
}

// Passes of a window of `rows` rows in each of `slots` slots, taken back after each.
double PassMs(exec::Seat& seat, int32_t slots, int32_t rows, Ids& ids) {
  std::vector<exec::PassRow> pass;
  return MedianMs([&] {
    pass.clear();
    for (int32_t slot = 0; slot < slots; ++slot) {
      for (int32_t i = 0; i < rows; ++i) {
        pass.push_back({.slot = slot,
                        .index = kBefore + i,
                        .token = ids.Next(),
                        .logits = true,
                        .keep = i + 1 < rows});
      }
    }
    seat.Run(pass);
    for (int32_t slot = 0; slot < slots; ++slot) seat.Cut(slot, kBefore);
  });
}

void Measure(const std::string& path, bool head, int32_t slots) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context = 1024;
  options.rows_max = kBefore;
  options.window_rows = limits::kWindowRowsMax;
  options.drafts = head;
  options.device = "CUDA0";
  const LoadedSeat loaded = LoadThroughPlugin(path, options);
  exec::Seat& seat = *loaded.seat;
  Ids ids;
  // One row more than is kept: a state is held behind the row that a cut goes back to.
  for (int32_t slot = 0; slot < slots; ++slot) {
    std::vector<exec::PassRow> rows;
    for (int32_t i = 0; i < kBefore; ++i) {
      rows.push_back({.slot = slot, .index = i, .token = ids.Next()});
    }
    seat.Run(rows);
  }
  std::printf("| %s, rows of a window | ms a pass | to one row | tokens a pass to break even |\n",
              path.c_str());
  std::printf("|---|---|---|---|\n");
  double one = 0;
  for (int32_t used = 1; used <= slots; used *= 2) {
    for (int32_t rows = 1; rows <= 8 && rows * used <= 8; ++rows) {
      const double ms = PassMs(seat, used, rows, ids);
      if (rows == 1) one = ms;
      std::printf("| %d of %d slots | %.3f | %.2f | %.2f |\n", rows, used, ms, ms / one,
                  ms / one * used);
    }
  }
  if (!head) return;
  for (const bool sure : {false, true}) {
    const double ms = MedianMs([&] {
      const exec::DraftRow row = {.slot = 0, .depth = 0, .token = ids.Next()};
      seat.RunDraft({&row, 1}, sure);
    });
    std::printf("| a step of the head%s | %.3f | | |\n", sure ? ", with its probability" : "", ms);
  }
}

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: gpu_bench_drafts MODEL [head] [slots]\n");
    return 64;
  }
  try {
    bool head = false;
    int32_t slots = 1;
    for (int i = 2; i < argc; ++i) {
      if (std::string_view(argv[i]) == "head") {
        head = true;
      } else {
        slots = std::atoi(argv[i]);
      }
    }
    bloomery::test::Measure(argv[1], head, slots);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
