#include "runtime/plugin/host_services.h"

#include <bloomery/text.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace bloomery::plugin {
namespace {

TEST(HostServices, MemoryIsAlignedCountedAndEndsAtTheBudget) {
  HostServices host("toy", 1000, {});
  const bl_host& h = host.raw();
  void* a = h.alloc(h.self, 600, 4096);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 4096, 0u);
  std::memset(a, 1, 600);
  EXPECT_EQ(host.bytes(), 600u);
  EXPECT_EQ(h.alloc(h.self, 401, 1), nullptr);
  void* b = h.alloc(h.self, 400, 1);
  EXPECT_NE(b, nullptr);
  EXPECT_EQ(h.alloc(h.self, 1, 1), nullptr);
  h.free(h.self, a);
  EXPECT_EQ(host.bytes(), 400u);
  h.free(h.self, b);
  EXPECT_EQ(host.bytes(), 0u);
}

TEST(HostServices, OddRequestsGiveNull) {
  HostServices host("toy", UINT64_MAX, {});
  const bl_host& h = host.raw();
  EXPECT_EQ(h.alloc(h.self, 0, 8), nullptr);
  EXPECT_EQ(h.alloc(h.self, 8, 0), nullptr);
  EXPECT_EQ(h.alloc(h.self, 8, 3), nullptr);
  EXPECT_EQ(h.alloc(h.self, 8, 8192), nullptr);
  EXPECT_EQ(h.alloc(h.self, UINT64_MAX, 64), nullptr);
  EXPECT_EQ(host.bytes(), 0u);
}

TEST(HostServices, FreeingWhatTheHostDidNotGiveIsSurvived) {
  HostServices host("toy", 100, {});
  int foreign = 0;
  host.raw().free(host.raw().self, &foreign);
  host.raw().free(host.raw().self, nullptr);
  void* p = host.raw().alloc(host.raw().self, 10, 8);
  host.raw().free(host.raw().self, p);
  host.raw().free(host.raw().self, p);
  EXPECT_EQ(host.bytes(), 0u);
}

TEST(HostServices, TheLastReasonCountsAndIsOneLine) {
  HostServices host("toy", 100, {});
  host.raw().fail(host.raw().self, BL_REFUSED, "first");
  host.raw().fail(host.raw().self, BL_BAD_DATA, "two\nlines");
  EXPECT_EQ(host.reason().status, BL_BAD_DATA);
  EXPECT_EQ(host.reason().text.find('\n'), std::string::npos);
  host.raw().fail(host.raw().self, BL_REFUSED, nullptr);
  EXPECT_EQ(host.reason().text, "");
}

TEST(HostServices, OnlyTheTextExtensionIsKnownAndOnlyOnceItIsSet) {
  HostServices host("toy", 100, {});
  const bl_host& h = host.raw();
  const bl_text_1 table{};
  EXPECT_EQ(h.get_extension(h.self, BL_EXT_TEXT_1), nullptr);
  host.SetTextExtension(&table);
  EXPECT_EQ(h.get_extension(h.self, BL_EXT_TEXT_1), &table);
  EXPECT_EQ(h.get_extension(h.self, "bloomery.text/2"), nullptr);
  EXPECT_EQ(h.get_extension(h.self, nullptr), nullptr);
}

bl_status Mark(void* context, int32_t i) {
  (*static_cast<std::vector<int>*>(context))[static_cast<size_t>(i)] += 1;
  return i == 5 ? BL_BAD_DATA : BL_OK;
}

TEST(HostServices, ParallelForRunsEveryPieceAndGivesAFailureBack) {
  for (const bool threads : {false, true}) {
    HostServices::ParallelFor pool;
    if (threads) {
      pool = [](int32_t n, const std::function<void(int32_t)>& fn) {
        std::vector<std::jthread> workers;
        for (int32_t i = 0; i < n; ++i) workers.emplace_back([&fn, i] { fn(i); });
      };
    }
    HostServices host("toy", 100, pool);
    std::vector<int> hits(8, 0);
    EXPECT_EQ(host.raw().parallel_for(host.raw().self, 8, Mark, &hits), BL_BAD_DATA);
    EXPECT_THAT(hits, testing::Each(1));
    EXPECT_EQ(host.raw().parallel_for(host.raw().self, 5, Mark, &hits), BL_OK);
    EXPECT_EQ(host.raw().parallel_for(host.raw().self, -1, Mark, &hits), BL_REFUSED);
    EXPECT_EQ(host.raw().parallel_for(host.raw().self, 1, nullptr, &hits), BL_REFUSED);
  }
}

}  // namespace
}  // namespace bloomery::plugin
