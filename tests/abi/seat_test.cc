// The fake plugin served by the CPU back end: its own operator's kernel runs among the host's.
#include "runtime/exec/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/abi/fake_model.h"
#include "tests/support/memory_files.h"

namespace bloomery::exec {
namespace {

const SeatOptions kOptions{.slots = 2,
                           .slot_context = 128,
                           .rows_max = 8,
                           .threads = 2,
                           .pin = false,
                           .k_type = BL_F32,
                           .v_type = BL_F32};

// Logits of each of `n` tokens, `batch` rows a pass.
std::vector<std::vector<float>> LogitsOf(const test::GgufWriter& writer, int32_t n, int32_t batch) {
  const test::MemoryFileSystem files("m.gguf", writer.Bytes());
  const model::ModelFile model = model::OpenGguf(files, "m.gguf");
  const auto loaded = plugin::LoadPlugin(std::string(ABI_PLUGINS) + "/good/fake/libfake.so");
  plugin::Instance instance(loaded, model, InstanceOptionsOf(kOptions));
  const auto seat = LoadSeat(model, instance, kOptions);
  std::vector<std::vector<float>> logits;
  for (int32_t done = 0; done < n; done += batch) {
    std::vector<PassRow> rows;
    for (int32_t i = done; i < std::min(n, done + batch); ++i) rows.push_back({0, i, 5 + i, true});
    seat->Run(rows);
    for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
      const auto row = seat->Logits(i);
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

TEST(FakeSeat, GivesTheSameBitsOneRowAtATimeAndInABatch) {
  const auto alone = LogitsOf(test::FakeModel(), 7, 1);
  EXPECT_EQ(alone, LogitsOf(test::FakeModel(), 7, 7));
  EXPECT_EQ(alone, LogitsOf(test::FakeModel(), 7, 3));
  ASSERT_EQ(alone.size(), 7u);
  EXPECT_EQ(alone[0].size(), 48u);
  EXPECT_NE(alone[0], alone[1]);
}

TEST(FakeSeat, ThePluginsOwnOperatorTakesPart) {
  // fake.scale by 0 hands zeros to the experts, which then add nothing; by the default it does not.
  const auto with_factor = [](float factor) {
    test::FakeModelShape shape;
    return LogitsOf(test::FakeModel(shape, "", "", "fake", factor), 2, 2);
  };
  EXPECT_NE(with_factor(0.5f), with_factor(0.0f));
  EXPECT_EQ(with_factor(0.5f), with_factor(0.5f));
}

}  // namespace
}  // namespace bloomery::exec
