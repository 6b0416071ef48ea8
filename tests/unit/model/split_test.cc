// Split sets that are sound, and the limits around them; the broken ones are in the malformed
// corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::model {
namespace {

using test::GgufWriter;
using test::MemoryFileSystem;
using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;

std::string Data(char fill) { return std::string(16, fill); }

GgufWriter Shard(uint16_t no, uint16_t count, int32_t tensors) {
  GgufWriter writer;
  writer.Add("split.no", no).Add("split.count", count).Add("split.tensors.count", tensors);
  return writer;
}

TEST(Split, SetReadsAsOneModel) {
  const test::TempDir folder;
  Shard(0, 3, 4)
      .Add("general.architecture", "toy")
      .AddTensor("a", {4}, kF32, Data('a'))
      .AddTensor("b", {4}, kF32, Data('b'))
      .WriteTo(folder.File("set-00001-of-00003.gguf"));
  // As tools write them: no further metadata; here also another alignment, which is the file's own.
  Shard(1, 3, 4)
      .AddTensor("c", {4}, kF32, Data('c'))
      .WriteTo(folder.File("set-00002-of-00003.gguf"));
  Shard(2, 3, 4)
      .Add("extra", uint8_t{9})
      .SetAlignment(64)
      .AddTensor("d", {4}, kF32, Data('d'))
      .WriteTo(folder.File("set-00003-of-00003.gguf"));
  const ModelFile model = OpenGguf(RealFileSystem(), folder.File("set-00001-of-00003.gguf"));
  EXPECT_EQ(model.files().size(), 3u);
  EXPECT_EQ(model.metadata().GetString("general.architecture"), "toy");
  EXPECT_EQ(model.metadata().GetU64("extra"), 9u);
  EXPECT_EQ(model.metadata().GetU64("split.no"), 0u);
  ASSERT_EQ(model.tensors().size(), 4u);
  for (const char name : {'a', 'b', 'c', 'd'}) {
    const size_t i = model.GetTensorIndex(std::string(1, name));
    const auto bytes = model.ReadTensor(i);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), Data(name));
    const auto mapping = model.MapTensor(i);
    EXPECT_EQ(mapping->bytes()[15], static_cast<std::byte>(name));
  }
  EXPECT_EQ(model.tensors()[3].file, 2u);
}

TEST(Split, FirstFileMayHoldNoTensors) {
  MemoryFileSystem files("m-00001-of-00002.gguf", Shard(0, 2, 1).Bytes());
  files.Put("m-00002-of-00002.gguf", Shard(1, 2, 1).AddTensor("a", {4}, kF32, Data('a')).Bytes());
  EXPECT_EQ(OpenGguf(files, "m-00001-of-00002.gguf").tensors().size(), 1u);
}

TEST(Split, SetOfOneNeedsNoNumbersInItsName) {
  const MemoryFileSystem files("any.gguf",
                               Shard(0, 1, 1).AddTensor("a", {4}, kF32, Data('a')).Bytes());
  EXPECT_EQ(OpenGguf(files, "any.gguf").tensors().size(), 1u);
}

TEST(Split, CountAtTheLimitIsTriedAndOnePastItRefused) {
  const auto open = [](uint16_t count) {
    const std::string path = "m-00001-of-0" + std::to_string(count) + ".gguf";
    return RefusalOf([&] { OpenGguf(MemoryFileSystem(path, Shard(0, count, 1).Bytes()), path); });
  };
  EXPECT_THAT(open(limits::kModelShardsMax).message,
              HasSubstr("m-00002-of-01024.gguf' is missing"));
  EXPECT_THAT(open(limits::kModelShardsMax + 1).message, HasSubstr("the limit is 1024"));
}

TEST(Split, MetadataLimitCountsTheWholeSet) {
  const std::string text(3000, 'x');
  MemoryFileSystem files("m-00001-of-00002.gguf", Shard(0, 2, 0).Add("a", text).Bytes());
  files.Put("m-00002-of-00002.gguf", Shard(1, 2, 0).Add("b", text).Bytes());
  EXPECT_NO_THROW(OpenGguf(files, "m-00001-of-00002.gguf", {.metadata_bytes_max = 9000}));
  const Refusal refusal =
      RefusalOf([&] { OpenGguf(files, "m-00001-of-00002.gguf", {.metadata_bytes_max = 6000}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, HasSubstr("m-00002-of-00002.gguf: metadata key 'b'"));
}

}  // namespace
}  // namespace bloomery::model
