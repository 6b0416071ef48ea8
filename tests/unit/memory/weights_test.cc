#include "runtime/memory/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/model/gguf.h"
#include "tests/support/faulty_file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

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

TEST(Weights, ReadTensorsLieAsInTheFilesPagesAndTheirSumIsPlanned) {
  const model::ModelFile model = Mini();
  const std::vector<size_t> tensors = {6, 2, 5};
  uint64_t done = 0;
  uint64_t in_all = 0;
  const WeightStore store(model, tensors, WeightSource::kRead, [&](uint64_t d, uint64_t a) {
    EXPECT_GE(d, done);
    done = d;
    in_all = a;
  });
  EXPECT_EQ(done, in_all);
  EXPECT_EQ(store.report().bytes, in_all);
  uint64_t least = 0;
  for (const size_t index : tensors) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.Find(index)) % 4096,
              model.tensors()[index].offset % 4096);
    least += model.tensors()[index].bytes;
  }
  EXPECT_GE(in_all, least);
  EXPECT_GE(WeightStore::Bytes(model, tensors), in_all);
  EXPECT_LE(WeightStore::Bytes(model, tensors), least + 3 * 2 * 4096);
}

// A file of `bytes` bytes, byte i being i mod 251, and a model with tensors of I8 at odd places.
struct OddFile {
  test::TempDir folder;
  std::string path = folder.File("odd.bin");
  uint64_t size;

  explicit OddFile(uint64_t bytes) : size(bytes) {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i % 251);
    std::ofstream(path, std::ios::binary) << content;
  }

  static model::TensorInfo Tensor(const std::string& name, uint32_t file, uint64_t offset,
                                  uint64_t bytes) {
    return {.name = name,
            .type = model::TensorType::kI8,
            .ne = {bytes, 1, 1, 1},
            .n_dims = 1,
            .file = file,
            .offset = offset,
            .bytes = bytes};
  }
};

bool HoldsFileBytes(const std::byte* data, const model::TensorInfo& tensor) {
  for (uint64_t i = 0; i < tensor.bytes; ++i) {
    if (data[i] != static_cast<std::byte>((tensor.offset + i) % 251)) return false;
  }
  return true;
}

constexpr uint64_t kMiB = 1 << 20;

// Unaligned starts and ends, a gap of unread pages, a tensor over many reads, one at the very end,
// and a second file.
std::vector<model::TensorInfo> OddTensors(uint64_t size) {
  return {OddFile::Tensor("a", 0, 33, 70), OddFile::Tensor("b", 0, 103, 5000),
          OddFile::Tensor("far", 0, 3 * kMiB + 7, 5 * kMiB + 1),
          OddFile::Tensor("last", 0, size - 9, 9), OddFile::Tensor("other", 1, 4095, 2)};
}

TEST(Weights, OddPlacesSplitFilesAndTheFilesEndAreReadWholeDirectlyAndThroughTheCache) {
  const OddFile odd(9 * kMiB + 1234);
  for (const bool direct : {true, false}) {
    const test::FaultyFileSystem slow(RealFileSystem(), {});
    const FileSystem& files = direct ? RealFileSystem() : static_cast<const FileSystem&>(slow);
    const model::ModelFile model("test", model::Metadata("test"), OddTensors(odd.size),
                                 {files.Open(odd.path), files.Open(odd.path)});
    const std::vector<size_t> tensors = {4, 0, 1, 2, 3};
    const WeightStore store(model, tensors, WeightSource::kRead);
    for (const size_t index : tensors) {
      EXPECT_TRUE(HoldsFileBytes(store.Find(index), model.tensors()[index]))
          << model.tensors()[index].name;
    }
    if (!direct) {
      EXPECT_EQ(store.report().direct_bytes, 0U);
    }
    EXPECT_THAT(store.Line(), testing::HasSubstr("past the page cache"));
  }
}

TEST(Weights, AFailedReadEndsTheLoadNamingFileAndOffset) {
  const OddFile odd(9 * kMiB);
  for (const test::Fault fault : {test::Fault::kFail, test::Fault::kEnd}) {
    const test::FaultyFileSystem broken(RealFileSystem(), {.fault = fault, .nth = 2});
    const model::ModelFile model("test", model::Metadata("test"),
                                 {OddFile::Tensor("all", 0, 0, odd.size)}, {broken.Open(odd.path)});
    const std::vector<size_t> tensors = {0};
    const test::Refusal refusal =
        test::RefusalOf([&] { const WeightStore store(model, tensors, WeightSource::kRead); });
    EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
    EXPECT_THAT(refusal.message, testing::AllOf(testing::HasSubstr(odd.path),
                                                testing::ContainsRegex("at byte [0-9]+")));
  }
}

TEST(Weights, AFileCutAfterItWasOpenedIsRefusedWithTheOffset) {
  const OddFile odd(9 * kMiB);
  const model::ModelFile model("test", model::Metadata("test"),
                               {OddFile::Tensor("all", 0, 0, odd.size)},
                               {RealFileSystem().Open(odd.path)});
  std::filesystem::resize_file(odd.path, 5 * kMiB);
  const std::vector<size_t> tensors = {0};
  const test::Refusal refusal =
      test::RefusalOf([&] { const WeightStore store(model, tensors, WeightSource::kRead); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message,
              testing::AllOf(testing::HasSubstr(odd.path), testing::HasSubstr("the file ends")));
}

TEST(Weights, ShortReadsAreCompleted) {
  const OddFile odd(64);
  const test::FaultyFileSystem slow(RealFileSystem(), {.fault = test::Fault::kShort, .nth = -1});
  const model::ModelFile model("test", model::Metadata("test"), {OddFile::Tensor("all", 0, 3, 60)},
                               {slow.Open(odd.path)});
  const std::vector<size_t> tensors = {0};
  const WeightStore store(model, tensors, WeightSource::kRead);
  EXPECT_TRUE(HoldsFileBytes(store.Find(0), model.tensors()[0]));
}

}  // namespace
}  // namespace bloomery::memory
