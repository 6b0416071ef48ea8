// What a seat is loaded with for given settings.
#include <gtest/gtest.h>

#include <utility>

#include "runtime/apps/seat_loading.h"
#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

exec::SeatOptions OptionsFor(int parallel, int ubatch, int32_t slot_context) {
  serve::ServeSettings settings;
  settings.parallel = parallel;
  settings.ubatch = ubatch;
  return ServedModel::OptionsOf(settings, slot_context);
}

TEST(SeatOptions, APassHoldsNoMoreRowsThanASlotButOneOfEverySlot) {
  EXPECT_EQ(OptionsFor(1, 512, 4096).rows_max, 512);
  EXPECT_EQ(OptionsFor(1, 512, 100).rows_max, 100);
  EXPECT_EQ(OptionsFor(16, 512, 2).rows_max, 16);
  EXPECT_EQ(OptionsFor(16, 8, 256).rows_max, 16);
}

TEST(SeatOptions, SlotsPlaneTypesKernelsAndMappingFollowTheSettings) {
  using enum serve::PlaneType;
  constexpr std::pair<serve::PlaneType, bl_dtype> kTypes[] = {
      {kF32, BL_F32}, {kF16, BL_F16}, {kQ8_0, BL_Q8_0}};
  for (const auto& [setting, type] : kTypes) {
    serve::ServeSettings settings;
    settings.type_k = setting;
    EXPECT_EQ(ServedModel::OptionsOf(settings, 64).k_type, type);
    EXPECT_EQ(ServedModel::OptionsOf(settings, 64).v_type, BL_F16);
    settings.type_v = setting;
    EXPECT_EQ(ServedModel::OptionsOf(settings, 64).v_type, type);
  }
  serve::ServeSettings settings;
  EXPECT_EQ(ServedModel::OptionsOf(settings, 64).kernels, "auto");
  EXPECT_EQ(ServedModel::OptionsOf(settings, 64).weight_source, memory::WeightSource::kAuto);
  settings.load_mode = exec::LoadMode::kMap;
  EXPECT_EQ(ServedModel::OptionsOf(settings, 64).weight_source, memory::WeightSource::kMap);
  settings.isa = "scalar";
  settings.load_mode = exec::LoadMode::kRead;
  settings.host_budget_bytes = 12345;
  settings.threads = 3;
  settings.parallel = 5;
  const exec::SeatOptions options = ServedModel::OptionsOf(settings, 64);
  EXPECT_EQ(options.slots, 5);
  EXPECT_EQ(options.slot_context, 64);
  EXPECT_EQ(options.kernels, "scalar");
  EXPECT_EQ(options.weight_source, memory::WeightSource::kRead);
  EXPECT_EQ(options.host_budget, 12345U);
  EXPECT_EQ(options.threads, 3);
}

TEST(SeatOptions, CardsTheirSharesAndMarginsFollowTheSettings) {
  serve::ServeSettings settings;
  settings.device = "CUDA1,CUDA0";
  settings.card_shares = {3, 1};
  settings.card_budget_bytes = 99;
  settings.fit_margin_bytes = 7;
  settings.fit_margins_bytes = {100};
  const exec::SeatOptions options = ServedModel::OptionsOf(settings, 64);
  EXPECT_EQ(options.device, "CUDA1,CUDA0");
  EXPECT_EQ(options.shares, (std::vector<double>{3, 1}));
  EXPECT_EQ(options.card_budget, 99U);
  EXPECT_EQ(exec::MarginOf(options, 1), 100U);
  EXPECT_EQ(exec::MarginOf(options, 0), 7U);
}

TEST(SeatOptions, AContextSmallerThanTheSlotsIsRefusedWithBothNumbers) {
  serve::ServeSettings settings;
  settings.context = 7;
  settings.parallel = 8;
  settings.plugin_dirs = {PLUGIN_DIR};
  const std::string mini = BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf";
  const test::Refusal refusal =
      test::RefusalOf([&] { const ServedModel model(settings, mini, "", ""); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_NE(refusal.message.find("--ctx-size 7"), std::string::npos);
  EXPECT_NE(refusal.message.find("8 slots"), std::string::npos);
}

}  // namespace
}  // namespace bloomery::apps
