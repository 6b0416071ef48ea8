#include "runtime/apps/seat_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using testing::HasSubstr;

constexpr const char* kMini = BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf";

serve::ServeSettings Settings() {
  serve::ServeSettings settings;
  settings.plugin_dirs = {PLUGIN_DIR};
  settings.threads = 1;
  settings.ubatch = 4;
  return settings;
}

TEST(SlotContext, IsWhatWasAskedForAndNeverMoreThanTheTrainedOne) {
  EXPECT_EQ(SlotContext(0, 4096), 4096);
  EXPECT_EQ(SlotContext(100, 4096), 100);
  EXPECT_EQ(SlotContext(4096, 4096), 4096);
  EXPECT_EQ(SlotContext(4097, 4096), 4096);
  EXPECT_EQ(SlotContext(4097, 0), 4097);
  EXPECT_THAT(test::RefusalOf([] { SlotContext(0, 0); }).message, HasSubstr("--ctx-size"));
}

TEST(ServedModel, ALargeContextIsCappedAtTheTrainedOneInEverySlot) {
  serve::ServeSettings settings = Settings();
  settings.context = 1000000;
  settings.parallel = 2;
  const ServedModel model(settings, kMini, "", "");
  const int64_t trained = model.seat().model.context_trained;
  EXPECT_GT(trained, 0);
  EXPECT_EQ(model.seat().engine->limits().slot_context, trained);
  settings.context = 128;
  EXPECT_EQ(ServedModel(settings, kMini, "", "").seat().engine->limits().slot_context, 64);
  settings.context = 0;
  EXPECT_EQ(ServedModel(settings, kMini, "", "").seat().engine->limits().slot_context, trained);
}

TEST(ServedModel, APlanOverTheBudgetIsRefusedWithItsTerms) {
  serve::ServeSettings settings = Settings();
  settings.host_budget_bytes = 1024;
  const test::Refusal refusal =
      test::RefusalOf([&] { const ServedModel model(settings, kMini, "", ""); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, HasSubstr("planes k"));
  EXPECT_THAT(refusal.message, HasSubstr("mapped, held as page cache"));
}

}  // namespace
}  // namespace bloomery::apps
