// Memory while a seat loads: what its plan says, and what is said where it is gone by then.
// BLOOMERY_TEST_MODEL names a file that is large beside what a driver takes by itself.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

uint64_t CardFree(const std::string& card = "CUDA0") {
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(cudaSetDevice(std::stoi(card.substr(4))), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

// What the process holds that is no file's: KiB lines of its status.
uint64_t HostHeld() {
  std::ifstream status("/proc/self/status");
  uint64_t bytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("RssAnon:") && !line.starts_with("RssShmem:")) continue;
    bytes += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) << 10;
  }
  return bytes;
}

// The least free of each card and the most held of the host while it lives, looked at all the time.
class Watch {
 public:
  explicit Watch(std::span<const std::string> cards) : host_(HostHeld()) {
    for (const std::string& card : cards) free_[card] = CardFree(card);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (auto& [card, free] : free_) free = std::min(free, CardFree(card));
        host_ = std::max(host_, HostHeld());
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
  }
  // What is seen is there from then on.
  void End() {
    thread_.request_stop();
    thread_.join();
  }
  const std::map<std::string, uint64_t>& free() const { return free_; }
  uint64_t host() const { return host_; }

 private:
  std::map<std::string, uint64_t> free_;  // by card
  uint64_t host_;
  std::jthread thread_;
};

class CardMemory : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardMemory, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardMemory, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardMemory, ThePeakOfALoadIsThePlans) {
  const char* const model = std::getenv("BLOOMERY_TEST_MODEL");
  const std::string path = model == nullptr ? SeedlingPath() : model;
  constexpr uint64_t kOfDriver = uint64_t{384} << 20;  // what plans leave for code and graphs
  constexpr uint64_t kOfHost = uint64_t{256} << 20;    // the driver's and threads' own
  {
    const LoadedSeat first = LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 3)));
  }
  const std::vector<std::string> cards = CardsOfStages(GetParam().stages());
  for (const int32_t frames : {-1, 3}) {
    SCOPED_TRACE(frames);
    std::map<std::string, uint64_t> before;
    for (const std::string& card : cards) before[card] = CardFree(card);
    const uint64_t host_before = HostHeld();
    Watch watch(cards);
    const LoadedSeat loaded = LoadThroughPlugin(path, Placed(SplitOptions("CUDA0", frames)));
    RunAll(*loaded.seat, LongIds(64), 64);
    watch.End();
    const uint64_t host = watch.host() - host_before;
    const memory::Placement& placement = loaded.seat->placement();
    ASSERT_EQ(placement.stages.size(), cards.size());
    std::map<std::string, uint64_t> planned;  // several stages may lie on one card
    std::map<std::string, uint64_t> driver;
    for (const memory::PlacedStage& stage : placement.stages) {
      planned[stage.device] += stage.plan.total();
      driver[stage.device] += kOfDriver;
    }
    for (const auto& [card, free] : watch.free()) {
      const uint64_t taken = before[card] - free;
      std::printf("frames %d: %s %.1f MiB at most, plan %.1f\n", frames, card.c_str(),
                  static_cast<double>(taken) / 0x1p20, static_cast<double>(planned[card]) / 0x1p20);
      EXPECT_GE(taken, planned[card]) << card;
      EXPECT_LE(taken, planned[card] + driver[card]) << card;
    }
    std::printf("host %.1f, plan %.1f\n", static_cast<double>(host) / 0x1p20,
                static_cast<double>(placement.host.total()) / 0x1p20);
    EXPECT_LE(host, placement.host.total() + kOfHost);
  }
}

TEST_F(CardMemory, WhatIsTakenBetweenPlanAndLoadIsNamedAndTheNextLoadWorks) {
  exec::SeatOptions options = SplitOptions("CUDA0", 3);
  void* taken = nullptr;
  options.planned = [&](const memory::Placement& placement) {
    EXPECT_TRUE(placement.Fits());
    // Whole granules, down to less than the seat's own.
    ASSERT_EQ(cudaMalloc(&taken, CardFree() - (uint64_t{4} << 20)), cudaSuccess);
  };
  const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(SeedlingPath(), options); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory) << refusal.message;
  EXPECT_NE(refusal.message.find("taken it since the plan"), std::string::npos) << refusal.message;
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
  options.planned = nullptr;
  const LoadedSeat loaded = LoadThroughPlugin(SeedlingPath(), options);
  EXPECT_EQ(RunAll(*loaded.seat, LongIds(20), 20).size(), 20U);
}

}  // namespace
}  // namespace bloomery::test
