// The production writer against the reader, and against the bytes an independent writer gives.
#include "runtime/model/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::model {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

using Axes = std::vector<uint64_t>;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Content(const std::string& path) {
  return ReadWholeFile(RealFileSystem(), path, uint64_t{1} << 30);
}

TEST(GgufWriterTest, GivesTheBytesOfTheFormat) {
  const test::TempDir folder;
  const std::string path = folder.File("m.gguf");
  GgufWriter writer(path);
  writer.Add("general.architecture", StringValue("toy"));
  writer.Add("n", U32Value(7));
  writer.Add("f", F32Value(0.5F));
  writer.Add("b", BoolValue(true));
  const std::vector<std::string> words{"a", "", "longer"};
  writer.Add("words", StringArrayValue(words));
  const std::vector<int32_t> numbers{-1, 2};
  writer.Add("numbers", I32ArrayValue(numbers));
  writer.AddTensor("w", TensorType::kF32, Axes{3});
  writer.AddTensor("q", TensorType::kQ8_0, Axes{32, 2});
  writer.BeginData();
  const std::string w(12, 'w');
  const std::string q(68, 'q');
  writer.WriteData(Bytes(w));
  writer.WriteData(Bytes(std::string_view(q).substr(0, 5)));  // a piece, then the rest
  writer.WriteData(Bytes(std::string_view(q).substr(5)));
  writer.Finish();

  const std::string expected = test::GgufWriter()
                                   .Add("general.architecture", "toy")
                                   .Add("n", uint32_t{7})
                                   .Add("f", 0.5F)
                                   .Add("b", true)
                                   .AddArray("words", words)
                                   .AddArray("numbers", numbers)
                                   .AddTensor("w", {3}, 0, w)
                                   .AddTensor("q", {32, 2}, 8, q)
                                   .Bytes();
  EXPECT_EQ(Content(path), expected);
}

TEST(GgufWriterTest, CopyOfAModelHasItsMetadataAndTensors) {
  const test::TempDir folder;
  const std::string source_path = BLOOMERY_SOURCE_DIR "/runtime/assets/seedling-Q4_K_M.gguf";
  const ModelFile source = OpenGguf(RealFileSystem(), source_path);
  const auto write = [&](const std::string& path) {
    GgufWriter writer(path);
    writer.AddAll(source.metadata());
    for (const TensorInfo& t : source.tensors()) {
      writer.AddTensor(t.name, t.type, std::span(t.ne).first(t.n_dims));
    }
    writer.BeginData();
    for (size_t i = 0; i < source.tensors().size(); ++i) writer.WriteData(source.ReadTensor(i));
    writer.Finish();
  };
  write(folder.File("a.gguf"));
  write(folder.File("b.gguf"));
  EXPECT_EQ(Content(folder.File("a.gguf")), Content(folder.File("b.gguf")));

  const ModelFile copy = OpenGguf(RealFileSystem(), folder.File("a.gguf"));
  ASSERT_EQ(copy.metadata().size(), source.metadata().size());
  for (size_t i = 0; i < source.metadata().size(); ++i) {
    EXPECT_EQ(copy.metadata().key(i), source.metadata().key(i));
    EXPECT_EQ(copy.metadata().value(i).kind, source.metadata().value(i).kind);
    EXPECT_TRUE(copy.metadata().value(i).data == source.metadata().value(i).data) << i;
  }
  ASSERT_EQ(copy.tensors().size(), source.tensors().size());
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    EXPECT_EQ(copy.tensors()[i].name, source.tensors()[i].name);
    EXPECT_EQ(copy.ReadTensor(i), source.ReadTensor(i)) << source.tensors()[i].name;
  }
}

TEST(GgufWriterTest, LaterValueOfAKeyTakesThePlaceOfTheEarlier) {
  const test::TempDir folder;
  GgufWriter writer(folder.File("m.gguf"));
  writer.Add("a", U32Value(1));
  writer.Add("b", U32Value(2));
  writer.Add("a", U32Value(3));
  writer.BeginData();
  writer.Finish();
  const ModelFile file = OpenGguf(RealFileSystem(), folder.File("m.gguf"));
  EXPECT_EQ(file.metadata().key(0), "a");
  EXPECT_EQ(file.metadata().GetU64("a"), 3u);
  EXPECT_EQ(file.metadata().size(), 2u);
}

TEST(GgufWriterTest, TensorThatCannotBeIsRefusedByName) {
  const test::TempDir folder;
  GgufWriter writer(folder.File("m.gguf"));
  writer.AddTensor("w", TensorType::kF32, Axes{4});
  const auto refusal = [&](std::string_view name, TensorType type, const Axes& ne) {
    const Refusal r = RefusalOf([&] { writer.AddTensor(name, type, ne); });
    EXPECT_EQ(r.kind, ErrorKind::kUsage);
    return r.message;
  };
  EXPECT_THAT(refusal("w", TensorType::kF32, {4}), HasSubstr("'w': the name is taken"));
  EXPECT_THAT(refusal("x", TensorType::kQ4_K, {128}), HasSubstr("'x': rows of 128 values"));
  EXPECT_THAT(refusal("x", TensorType::kF32, {4, 0}), HasSubstr("an axis of length 0"));
  EXPECT_THAT(refusal("x", TensorType::kF32, {}), HasSubstr("0 axes"));
  EXPECT_THAT(refusal("x", TensorType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}),
              HasSubstr("out of range"));
  EXPECT_THAT(refusal("", TensorType::kF32, {4}), HasSubstr("no name"));
}

TEST(GgufWriterTest, UnfinishedFileNeverAppears) {
  const test::TempDir folder;
  {
    GgufWriter writer(folder.File("m.gguf"));
    writer.AddTensor("w", TensorType::kF32, Axes{4});
    writer.BeginData();
    writer.WriteData(Bytes("12345678"));
    EXPECT_EQ(RefusalOf([&] { writer.Finish(); }).kind, ErrorKind::kInternal);
    EXPECT_EQ(RefusalOf([&] { writer.WriteData(Bytes("123456789")); }).kind, ErrorKind::kInternal);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace bloomery::model
