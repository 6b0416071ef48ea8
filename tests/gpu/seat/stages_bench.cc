// gpu_bench_stages MODEL [shares …]: what a seat in stages on the cards of $BLOOMERY_TEST_CARDS
// takes for a pass beside the same seat on the first of them: one row, a row of each of eight
// slots, prompts of 512 and 4096 rows. Both are loaded at once and take turns, with the same
// tokens; the logits of the last row of every prompt and of every run of decode must have the same
// bits. `shares` of layers as --tensor-split takes them ("1,3"), an arm each; without: by room.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/bench_passes.h"
#include "tests/gpu/seat/cards.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

constexpr int32_t kSlots = 8;
constexpr int32_t kUbatch = 4096;
constexpr int32_t kRounds = 5;
constexpr int32_t kDecoded = 128;  // passes of one run

struct Case {
  const char* name;
  int32_t prompt;  // rows; 0: decode
  int32_t slots;   // of decode
  int32_t rows() const { return prompt > 0 ? prompt : slots; }
};
constexpr std::array<Case, 4> kCases = {
    {{"tg128", 0, 1}, {"8 slots", 0, kSlots}, {"pp512", 512, 0}, {"pp4096", kUbatch, 0}}};

exec::SeatOptions Options() {
  exec::SeatOptions options;
  options.slots = kSlots;
  options.slot_context = kUbatch + 512;
  options.rows_max = kUbatch;
  options.device = TestCards().front();
  return options;
}

size_t HashOfLogits(const exec::Seat& seat, int32_t row) {
  const std::span<const std::byte> bytes = std::as_bytes(seat.Logits(row));
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

struct Arm {
  explicit Arm(exec::Seat& seat) : passes(seat) {}
  BenchPasses passes;
  std::array<std::vector<double>, kCases.size()> seconds;  // of a pass
  std::vector<size_t> hashes;  // of the logits of the last row of each run

  void Measure(size_t which) {
    const Case& of = kCases.at(which);
    exec::Seat& seat = passes.seat();
    if (of.prompt > 0) {
      seconds.at(which).push_back(passes.Prompt(of.prompt));
    } else {
      for (int32_t slot = 0; slot < kSlots; ++slot) seat.Cut(slot, 0);
      passes.Decode(of.slots, 8);  // the first passes find clocks and caches cold
      seconds.at(which).push_back(passes.Decode(of.slots, kDecoded) / kDecoded);
    }
    hashes.push_back(HashOfLogits(seat, of.prompt > 0 ? 0 : of.slots - 1));
  }
  double Median(size_t which) {
    std::vector<double>& of = seconds.at(which);
    std::ranges::sort(of);
    return of[of.size() / 2];
  }
};

// Returns whether all bits were the same.
bool Compare(exec::Seat& one, exec::Seat& staged) {
  Arm a(one);
  Arm b(staged);
  for (int32_t round = 0; round <= kRounds; ++round) {
    for (size_t which = 0; which < kCases.size(); ++which) {
      for (Arm* arm : {&a, &b}) arm->Measure(which);
    }
    if (round > 0) continue;  // warms up
    for (Arm* arm : {&a, &b}) {
      for (std::vector<double>& of : arm->seconds) of.clear();
    }
  }
  size_t differ = 0;
  for (size_t i = 0; i < a.hashes.size(); ++i) differ += a.hashes[i] == b.hashes[i] ? 0 : 1;
  for (size_t which = 0; which < kCases.size(); ++which) {
    const double rows = kCases.at(which).rows();
    const double of_one = a.Median(which);
    const double of_staged = b.Median(which);
    std::printf("| %s | %zu | %s | %.1f | %.1f | %.3f | %+.1f | %.3f to %.3f | %.3f to %.3f |\n",
                staged.placement().device.c_str(), staged.placement().stages.size(),
                kCases.at(which).name, rows / of_one, rows / of_staged, of_one / of_staged,
                1e6 * (of_staged - of_one), 1e3 * a.seconds.at(which).front(),
                1e3 * a.seconds.at(which).back(), 1e3 * b.seconds.at(which).front(),
                1e3 * b.seconds.at(which).back());
  }
  if (differ > 0)
    std::printf("\n%zu of %zu runs have other bits than one card\n", differ, a.hashes.size());
  std::fflush(stdout);
  return differ == 0;
}

bool Run(const std::string& path, const std::vector<std::vector<double>>& arms) {
  const LoadedSeat one = LoadThroughPlugin(path, Options());
  std::fprintf(stderr, "%s\n", one.seat->PlanLine().c_str());
  std::printf(
      "| cards | stages | case | one card t/s | stages t/s | stages / one | a pass, us more | one: "
      "ms | stages: ms |\n|---|---|---|---|---|---|---|---|---|\n");
  bool same = true;
  for (const std::vector<double>& shares : arms) {
    exec::SeatOptions options = Options();
    if (shares.empty()) {
      options.device = Joined(TestCards());
    } else {
      options = WithShares(options, shares);
    }
    const double begin = Now();
    const LoadedSeat staged = LoadThroughPlugin(path, options);
    std::fprintf(stderr, "loaded in %.2f s; %s\n%s\n", Now() - begin,
                 staged.seat->LoadLine().c_str(), staged.seat->PlanLine().c_str());
    same = Compare(*one.seat, *staged.seat) && same;
  }
  return same;
}

std::vector<double> SharesOf(const std::string& text) {
  std::vector<double> shares;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) shares.push_back(std::stod(word));
  return shares;
}

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  try {
    std::vector<std::vector<double>> arms;
    for (int i = 2; i < argc; ++i) arms.push_back(bloomery::test::SharesOf(argv[i]));
    if (arms.empty()) arms.emplace_back();
    return bloomery::test::Run(argv[1], arms) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
