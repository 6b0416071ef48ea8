#include "runtime/memory/host_memory.h"

#include <gtest/gtest.h>

#include <map>

namespace bloomery::memory {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<HostLimit> Available(const Files& files) {
  return AvailableHostMemory([&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return std::nullopt;
    return found->second;
  });
}

const Files kMachine = {
    {"/proc/meminfo", "MemTotal:       16000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n"}};

Files With(Files files) {
  files.insert(kMachine.begin(), kMachine.end());
  return files;
}

void ExpectLimit(const std::optional<HostLimit>& limit, uint64_t bytes, const char* source) {
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->bytes, bytes);
  EXPECT_EQ(limit->source, source);
}

TEST(HostMemory, AllOfTheMachineIsMemTotal) {
  const auto of = [](const std::string& text) {
    return MachineMemory([&](const std::string&) { return std::optional(text); });
  };
  EXPECT_EQ(of("MemFree: 10 kB\nMemTotal:       16000 kB\n"), 16000U * 1024);
  EXPECT_EQ(of("MemTotal: much\n"), 0U);
  EXPECT_EQ(MachineMemory([](const std::string&) { return std::optional<std::string>(); }), 0U);
}

TEST(HostMemory, WithoutGroupsItIsMemAvailable) {
  ExpectLimit(Available(kMachine), 8000 * 1024, "MemAvailable");
}

TEST(HostMemory, WithoutAnyNumberNothingIsSaid) {
  EXPECT_FALSE(Available({}).has_value());
  EXPECT_FALSE(Available({{"/proc/meminfo", "MemAvailable: much\n"}}).has_value());
}

TEST(HostMemory, AVersion2GroupLeavesItsLimitLessWhatCannotBeReclaimed) {
  ExpectLimit(Available(With({{"/proc/self/cgroup", "0::/jobs/7\n"},
                              {"/sys/fs/cgroup/jobs/7/memory.max", "5000\n"},
                              {"/sys/fs/cgroup/jobs/7/memory.current", "3000\n"},
                              {"/sys/fs/cgroup/jobs/7/memory.stat",
                               "anon 1200\nfile 1800\ninactive_file 1500\nactive_file 300\n"}})),
              5000 - (3000 - 1500), "control group /jobs/7");
}

TEST(HostMemory, AnAncestorsSmallerLimitHolds) {
  ExpectLimit(Available(With({{"/proc/self/cgroup", "0::/jobs/7\n"},
                              {"/sys/fs/cgroup/jobs/7/memory.max", "max\n"},
                              {"/sys/fs/cgroup/jobs/7/memory.current", "10\n"},
                              {"/sys/fs/cgroup/jobs/memory.max", "900\n"},
                              {"/sys/fs/cgroup/jobs/memory.current", "1000\n"}})),
              0, "control group /jobs");
}

TEST(HostMemory, AVersion1GroupThatIsNotSeenHereIsTheMountsRoot) {
  ExpectLimit(Available(With({{"/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/abc\n"},
                              {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"},
                              {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n"},
                              {"/sys/fs/cgroup/memory/memory.stat",
                               "inactive_file 1\ntotal_inactive_file 500\n"}})),
              7000 - 3500, "control group /");
}

TEST(HostMemory, Version1sHugeNumberIsNoLimit) {
  ExpectLimit(
      Available(With({{"/proc/self/cgroup", "3:memory:/\n"},
                      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n"}})),
      8000 * 1024, "MemAvailable");
}

TEST(HostMemory, TheRunningSystemSaysSomething) {
  const auto limit = AvailableHostMemory();
  ASSERT_TRUE(limit.has_value());
  EXPECT_GT(limit->bytes, 0U);
}

}  // namespace
}  // namespace bloomery::memory
