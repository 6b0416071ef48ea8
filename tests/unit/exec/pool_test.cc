#include "runtime/exec/cpu/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "kernels-common/cpu/fp_environment.h"
#include "tests/support/temp_dir.h"

namespace bloomery::exec {
namespace {

class FakeStep : public ops::Step {
 public:
  FakeStep(int32_t tasks, std::function<bl_status(int32_t, ops::Worker*)> run)
      : tasks_(tasks), run_(std::move(run)) {}
  int32_t Tasks() const override { return tasks_; }
  bl_status Run(int32_t task, ops::Worker* worker) const override { return run_(task, worker); }

 private:
  int32_t tasks_;
  std::function<bl_status(int32_t, ops::Worker*)> run_;
};

TEST(Pool, EveryTaskRunsOnceWhateverTheNumbers) {
  for (const int32_t threads : {1, 2, 5}) {
    Pool pool(threads, 64, false);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 200; ++round) {
      const int32_t tasks = round % 17;
      std::vector<std::atomic<int>> times(static_cast<size_t>(tasks));
      const FakeStep step(tasks, [&](int32_t task, ops::Worker*) {
        times[static_cast<size_t>(task)].fetch_add(1);
        return BL_OK;
      });
      EXPECT_EQ(pool.Run(step).status, BL_OK);
      for (const auto& count : times) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(Pool, StepsFollowEachOtherStrictly) {
  Pool pool(4, 64, false);
  // Each step reads what every task of the one before it wrote, without a fence of its own.
  std::vector<int32_t> values(64, 0);
  for (int32_t round = 1; round <= 300; ++round) {
    std::atomic<int> wrong{0};
    const FakeStep step(8, [&](int32_t task, ops::Worker*) {
      for (int32_t i = task * 8; i < task * 8 + 8; ++i) {
        if (values[static_cast<size_t>(i)] != round - 1) wrong.fetch_add(1);
        values[static_cast<size_t>(i)] = round;
      }
      return BL_OK;
    });
    pool.Run(step);
    ASSERT_EQ(wrong.load(), 0);
    for (const int32_t value : values) ASSERT_EQ(value, round);
  }
}

TEST(Pool, ALateStepComesBackInTimeAndThePoolTakesNoneBeforeItIsIdle) {
  using namespace std::chrono_literals;
  Pool pool(3, 64, false);
  std::atomic<bool> go{false};
  const std::thread::id own = std::this_thread::get_id();
  const FakeStep stalls(64, [&](int32_t, ops::Worker*) -> bl_status {
    // The caller leaves tasks to the others; one of them stalls.
    if (std::this_thread::get_id() == own) {
      std::this_thread::sleep_for(1ms);
    } else {
      while (!go.load()) std::this_thread::sleep_for(1ms);
    }
    return BL_OK;
  });
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const StepFailure failure = pool.RunUntil(now() + 100ms, stalls);
  EXPECT_TRUE(failure.late);
  EXPECT_FALSE(pool.WaitUntilIdle(now() + 10ms));
  const FakeStep fine(4, [](int32_t, ops::Worker*) { return BL_OK; });
  EXPECT_NE(pool.Run(fine).status, BL_OK);
  go = true;
  EXPECT_TRUE(pool.WaitUntilIdle(now() + 10s));
  EXPECT_EQ(pool.Run(fine).status, BL_OK);
  EXPECT_FALSE(pool.RunUntil(now() + 10s, fine).late);
}

TEST(Pool, ThreadsThatStayAwakeDoNotPark) {
  using namespace std::chrono_literals;
  Pool pool(3, 64, false);
  const auto parked = [&](int32_t count) {
    for (int round = 0; round < 2000 && pool.parked() != count; ++round) {
      std::this_thread::sleep_for(1ms);
    }
    return pool.parked() == count;
  };
  EXPECT_TRUE(parked(2));
  pool.StayAwake(true);
  EXPECT_TRUE(parked(0));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(pool.parked(), 0);
  pool.StayAwake(false);
  EXPECT_TRUE(parked(2));
}

TEST(Pool, AFailureGivesTheStatusAndTheLowestRow) {
  Pool pool(3, 64, false);
  const FakeStep failing(32, [](int32_t task, ops::Worker* worker) -> bl_status {
    if (task % 3 != 2) return BL_OK;
    worker->failed_row = 100 + task;
    return BL_BAD_DATA;
  });
  const StepFailure failure = pool.Run(failing);
  EXPECT_EQ(failure.status, BL_BAD_DATA);
  EXPECT_EQ(failure.row, 102);
  const FakeStep fine(4, [](int32_t, ops::Worker*) { return BL_OK; });
  EXPECT_EQ(pool.Run(fine).status, BL_OK);
  EXPECT_EQ(pool.Run(fine).row, -1);
}

TEST(Pool, ANegativeOrHugeTaskCountIsAFailureNotACrash) {
  Pool pool(2, 64, false);
  for (const int32_t tasks : {-1, Pool::kTasksMax + 1}) {
    const FakeStep step(tasks, [](int32_t, ops::Worker*) { return BL_OK; });
    EXPECT_EQ(pool.Run(step).status, BL_INTERNAL);
  }
  std::atomic<int32_t> done{0};
  const FakeStep most(Pool::kTasksMax, [&](int32_t, ops::Worker*) {
    done.fetch_add(1, std::memory_order_relaxed);
    return BL_OK;
  });
  EXPECT_EQ(pool.Run(most).status, BL_OK);
  EXPECT_EQ(done.load(), Pool::kTasksMax);
}

TEST(Pool, AStepEndsWhenItsLastTaskHasEndedNotWhenItHasBegun) {
  Pool pool(2, 64, false);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> inside{0};
    std::atomic<int> ended{0};
    // One task each; the worker's is still busy when the caller has nothing left to do.
    const FakeStep step(2, [&](int32_t, ops::Worker*) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) {
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      }
      ended.fetch_add(1);
      return BL_OK;
    });
    pool.Run(step);
    ASSERT_EQ(ended.load(), 2);
  }
}

TEST(Pool, ALateThreadRunsEachStepsOwnTasksOnce) {
  // Steps of two tasks leave the other threads with shares of none, while one of many begins.
  Pool pool(4, 64, false);
  using Counts = std::array<std::atomic<int>, 64>;
  Counts few_times{};
  Counts many_times{};
  const auto counting = [](int32_t tasks, Counts& times) {
    return FakeStep(tasks, [&times](int32_t task, ops::Worker*) {
      times[static_cast<size_t>(task)].fetch_add(1, std::memory_order_relaxed);
      return BL_OK;
    });
  };
  constexpr int kFew = 2;
  const FakeStep few = counting(kFew, few_times);
  const FakeStep many = counting(64, many_times);
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    pool.Run(few);
    pool.Run(many);
  }
  for (size_t task = 0; task < many_times.size(); ++task) {
    EXPECT_EQ(few_times[task].load(), task < kFew ? kRounds : 0) << task;
    EXPECT_EQ(many_times[task].load(), kRounds) << task;
  }
}

TEST(Pool, TheRestOfASlowThreadsShareIsTakenByTheOthers) {
  Pool pool(3, 64, false);
  constexpr int32_t kTasks = 12;
  for (int round = 0; round < 50; ++round) {
    std::atomic<int32_t> ended{0};
    // The first task of the last thread's share holds whoever runs it until all others have ended.
    const FakeStep step(kTasks, [&](int32_t task, ops::Worker*) {
      if (task == 8) {
        while (ended.load() < kTasks - 1) std::this_thread::yield();
      }
      ended.fetch_add(1);
      return BL_OK;
    });
    pool.Run(step);
    ASSERT_EQ(ended.load(), kTasks);
  }
}

// True when all threads of this process but the calling one sleep in the kernel.
bool OthersSleep() {
  const std::string self = std::to_string(gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    // "tid (name) S …"
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos || stat[name_end + 2] != 'S') return false;
  }
  return true;
}

TEST(Pool, ParkedWorkersWakeForTheNextStep) {
  Pool pool(2, 64, false);
  std::atomic<bool> met{false};
  // Two tasks that wait for each other need two threads; the worker is parked before each round.
  for (int round = 0; round < 3; ++round) {
    // Announced first, asleep a moment later: only then is it the call that wakes.
    while (pool.parked() == 0 || !OthersSleep()) std::this_thread::yield();
    std::atomic<int> inside{0};
    met = false;
    const FakeStep step(2, [&](int32_t, ops::Worker*) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
      met = true;
      return BL_OK;
    });
    pool.Run(step);
    EXPECT_TRUE(met.load());
  }
}

TEST(Pool, EachWorkerHasScratchOfItsOwnAndTheNumericEnvironment) {
  Pool pool(4, 4096, true);
  std::atomic<int> wrong{0};
  const FakeStep step(64, [&](int32_t task, ops::Worker* worker) {
    if (worker->scratch.size() < 4096 || !kernels::FpEnvironmentIsDefault()) wrong.fetch_add(1);
    auto* values = reinterpret_cast<volatile int32_t*>(worker->scratch.data());
    for (int i = 0; i < 1000; ++i) values[i] = task;
    for (int i = 0; i < 1000; ++i) {
      if (values[i] != task) wrong.fetch_add(1);
    }
    worker->weight_bytes_read += 10;
    worker->experts_picked += 2;
    worker->expert_bytes += 7;
    return BL_OK;
  });
  pool.Run(step);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pool.counts().weight_bytes_read, 640U);
  EXPECT_EQ(pool.counts().experts_picked, 128U);
  EXPECT_EQ(pool.counts().expert_bytes, 448U);
}

TEST(DefaultThreads, AControlGroupsQuotaIsRoundedUpAndItsAbsenceIsNoLimit) {
  EXPECT_EQ(ProcessorsOf("200000 100000"), 2);
  EXPECT_EQ(ProcessorsOf("150000 100000"), 2);
  EXPECT_EQ(ProcessorsOf("50000 100000"), 1);
  EXPECT_EQ(ProcessorsOf("max 100000"), 0);
  EXPECT_EQ(ProcessorsOf(""), 0);
  EXPECT_EQ(ProcessorsOf("-1 100000"), 0);
  EXPECT_EQ(ProcessorsOf("9223372036854775807 1"), 0);
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), static_cast<int32_t>(PhysicalCores().size()));
}

// A folder as the kernel's /sys/devices/system/cpu, with each CPU's siblings; "" for none.
struct CpuFolder {
  test::TempDir folder;

  explicit CpuFolder(const std::vector<std::string>& siblings) {
    for (size_t cpu = 0; cpu < siblings.size(); ++cpu) {
      if (siblings[cpu].empty()) continue;
      const std::string path = folder.File("cpu" + std::to_string(cpu) + "/topology");
      std::filesystem::create_directories(path);
      std::ofstream(path + "/thread_siblings_list") << siblings[cpu] << '\n';
    }
  }
  std::vector<int> Cores(const std::vector<int>& allowed) const {
    return CoresAmong(allowed, folder.path());
  }
};

TEST(PhysicalCores, OneOfTheSiblingsThatAreAllowedStandsForACore) {
  using testing::ElementsAre;
  // Siblings far apart, as servers number them; then next to each other.
  const CpuFolder apart({"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"});
  EXPECT_THAT(apart.Cores({0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(apart.Cores({4, 6, 7}), ElementsAre(4, 6, 7));
  EXPECT_THAT(apart.Cores({1, 4, 5}), ElementsAre(1, 4));
  const CpuFolder beside({"0-1", "0-1", "2-3", "2-3"});
  EXPECT_THAT(beside.Cores({0, 1, 2, 3}), ElementsAre(0, 2));
  EXPECT_THAT(beside.Cores({1, 2, 3}), ElementsAre(1, 2));
}

TEST(PhysicalCores, ACpuSetOfOneCpuIsOneCoreAndACpuWithoutSiblingListCounts) {
  using testing::ElementsAre;
  const CpuFolder folder({"0-1", "0-1", "", "3"});
  EXPECT_THAT(folder.Cores({1}), ElementsAre(1));
  EXPECT_THAT(folder.Cores({1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(CoresAmong(std::array{5, 9}, folder.folder.File("nowhere")), ElementsAre(5, 9));
}

TEST(PhysicalCores, AtLeastOneAndNoneTwice) {
  std::vector<int> cores = PhysicalCores();
  ASSERT_FALSE(cores.empty());
  std::sort(cores.begin(), cores.end());
  EXPECT_EQ(std::adjacent_find(cores.begin(), cores.end()), cores.end());
}

}  // namespace
}  // namespace bloomery::exec
