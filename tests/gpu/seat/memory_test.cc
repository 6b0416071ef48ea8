// Memory while a seat loads: what its plan says, and what is said where it is gone by then.
// BLOOMERY_TEST_MODEL names a file that is large beside what a driver takes by itself.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

uint64_t CardFree() {
  size_t free = 0;
  size_t total = 0;
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

// The least free of the card and the most held of the host while it lives, looked at all the time.
class Watch {
 public:
  Watch() : card_(CardFree()), host_(HostHeld()) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        card_ = std::min<uint64_t>(card_, CardFree());
        host_ = std::max<uint64_t>(host_, HostHeld());
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
  }
  void End() {
    thread_.request_stop();
    thread_.join();
  }
  uint64_t card() const { return card_; }
  uint64_t host() const { return host_; }

 private:
  std::atomic<uint64_t> card_;
  std::atomic<uint64_t> host_;
  std::jthread thread_;
};

TEST(CardMemory, ThePeakOfALoadIsThePlans) {
  const char* const model = std::getenv("BLOOMERY_TEST_MODEL");
  const std::string path = model == nullptr ? SeedlingPath() : model;
  constexpr uint64_t kOfDriver = uint64_t{384} << 20;  // what plans leave for code and graphs
  constexpr uint64_t kOfHost = uint64_t{256} << 20;    // the driver's and threads' own
  {
    const LoadedSeat first = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", 3));
  }
  for (const int32_t frames : {-1, 3}) {
    SCOPED_TRACE(frames);
    const uint64_t card_before = CardFree();
    const uint64_t host_before = HostHeld();
    Watch watch;
    const LoadedSeat loaded = LoadThroughPlugin(path, SplitOptions("CUDA0", frames));
    RunAll(*loaded.seat, LongIds(64), 64);
    watch.End();
    const uint64_t card = card_before - watch.card();
    const uint64_t host = watch.host() - host_before;
    const memory::Placement& placement = loaded.seat->placement();
    const uint64_t planned = placement.stages.front().plan.total();
    std::printf("frames %d: card %.1f MiB at most, plan %.1f; host %.1f, plan %.1f\n", frames,
                static_cast<double>(card) / 0x1p20, static_cast<double>(planned) / 0x1p20,
                static_cast<double>(host) / 0x1p20,
                static_cast<double>(placement.host.total()) / 0x1p20);
    EXPECT_GE(card, planned);
    EXPECT_LE(card, planned + kOfDriver);
    EXPECT_LE(host, placement.host.total() + kOfHost);
  }
}

TEST(CardMemory, WhatIsTakenBetweenPlanAndLoadIsNamedAndTheNextLoadWorks) {
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
