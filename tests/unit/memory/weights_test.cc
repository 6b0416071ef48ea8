#include "runtime/memory/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/model/gguf.h"
#include "tests/support/faulty_file.h"
#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

model::ModelFile Mini() {
  return model::OpenGguf(RealFileSystem(),
                         BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf");
}

TEST(Weights, ReadAndMappedHoldTheFilesBytesAndOnlyTheAskedTensors) {
  const model::ModelFile model = Mini();
  const std::vector<size_t> tensors = {0, 3, 7, model.tensors().size() - 1};
  for (const WeightSource source : {WeightSource::kRead, WeightSource::kMap}) {
    const WeightStore store(model, tensors, source);
    for (const size_t index : tensors) {
      const std::vector<std::byte> expected = model.ReadTensor(index);
      ASSERT_NE(store.Find(index), nullptr);
      EXPECT_EQ(std::memcmp(store.Find(index), expected.data(), expected.size()), 0);
    }
    EXPECT_EQ(store.Find(1), nullptr);
  }
}

TEST(Weights, ATensorThatCannotBeMappedIsRefusedByNameAndReadWhenAskedFor) {
  const test::FaultyFileSystem unmappable(RealFileSystem(), {});
  const model::ModelFile model =
      model::OpenGguf(unmappable, BLOOMERY_SOURCE_DIR "/tests/data/mini/qwen3moe/model.gguf");
  const std::vector<size_t> tensors = {3};
  const test::Refusal refusal =
      test::RefusalOf([&] { const WeightStore store(model, tensors, WeightSource::kMap); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, testing::HasSubstr(model.tensors()[3].name));
  EXPECT_THAT(refusal.message, testing::HasSubstr("--no-mmap"));
  EXPECT_NE(WeightStore(model, tensors, WeightSource::kRead).Find(3), nullptr);
}

TEST(Weights, ReadTensorsStartOnACacheLineAndTheirSumIsPlanned) {
  const model::ModelFile model = Mini();
  const std::vector<size_t> tensors = {2, 5, 6};
  uint64_t done = 0;
  uint64_t in_all = 0;
  const WeightStore store(model, tensors, WeightSource::kRead, [&](uint64_t d, uint64_t a) {
    EXPECT_GT(d, done);
    done = d;
    in_all = a;
  });
  EXPECT_EQ(done, WeightStore::Bytes(model, tensors));
  EXPECT_EQ(in_all, done);
  for (const size_t index : tensors) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.Find(index)) % 64, 0U);
  }
}

}  // namespace
}  // namespace bloomery::memory
