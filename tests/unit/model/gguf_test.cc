#include "runtime/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/model/gguf_parser.h"
#include "tests/support/faulty_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::model {
namespace {

using test::Fault;
using test::FaultyFileSystem;
using test::GgufWriter;
using test::MemoryFileSystem;
using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr char kPath[] = "m.gguf";

// Bytes that differ at every position a test looks at.
std::string Pattern(size_t bytes, unsigned seed) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<char>((i * 7 + i / 256 * 13 + seed) % 256);
  return out;
}

GgufWriter Small(uint32_t version = 3) {
  GgufWriter writer(version);
  writer.Add("general.architecture", "toy")
      .AddTensor("a", {3}, kF32, Pattern(12, 1))
      .AddTensor("b", {64, 3, 2, 5}, kQ8_0, Pattern(64 / 32 * 34 * 3 * 2 * 5, 2))
      .AddTensor("c", {100'000}, kF32, Pattern(400'000, 3));
  return writer;
}

ModelFile Open(const std::string& bytes, const GgufOptions& options = {}) {
  return OpenGguf(MemoryFileSystem(kPath, bytes), kPath, options);
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class GgufVersions : public testing::TestWithParam<uint32_t> {};

TEST_P(GgufVersions, TensorsComeBackWithShapeTypeAndData) {
  const ModelFile model = Open(Small(GetParam()).Bytes());
  EXPECT_EQ(model.path(), kPath);
  ASSERT_EQ(model.tensors().size(), 3u);
  const TensorInfo& b = model.tensors()[model.GetTensorIndex("b")];
  EXPECT_EQ(b.type, TensorType::kQ8_0);
  EXPECT_EQ(b.n_dims, 4u);
  EXPECT_THAT(b.ne, ElementsAre(64, 3, 2, 5));
  EXPECT_EQ(b.rows(), 30u);
  EXPECT_EQ(b.row_bytes(), 68u);
  EXPECT_EQ(b.bytes, 2040u);
  EXPECT_THAT(model.tensors()[0].ne, ElementsAre(3, 1, 1, 1));
  EXPECT_EQ(model.tensor_bytes(), 12u + 2040 + 400'000);
  EXPECT_EQ(Text(model.ReadTensor(0)), Pattern(12, 1));
  EXPECT_EQ(Text(model.ReadTensor(1)), Pattern(2040, 2));
  EXPECT_EQ(Text(model.ReadTensor(2)), Pattern(400'000, 3));
}

INSTANTIATE_TEST_SUITE_P(Versions, GgufVersions, testing::Values(2, 3),
                         [](const auto& row) { return "v" + std::to_string(row.param); });

TEST(Gguf, MappedAndReadBytesAreEqual) {
  const test::TempDir folder;
  Small().WriteTo(folder.File("m.gguf"));
  const ModelFile model = OpenGguf(RealFileSystem(), folder.File("m.gguf"));
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const auto mapping = model.MapTensor(i);
    ASSERT_NE(mapping, nullptr);
    EXPECT_EQ(Text(mapping->bytes()), Text(model.ReadTensor(i))) << model.tensors()[i].name;
  }
}

TEST(Gguf, PartOfATensorIsReadAndPastItRefused) {
  const ModelFile model = Open(Small().Bytes());
  std::vector<std::byte> part(40);
  model.ReadTensor(1, 2'000, part);
  EXPECT_EQ(Text(part), Pattern(2040, 2).substr(2'000));
  const Refusal refusal = RefusalOf([&] { model.ReadTensor(1, 2'001, part); });
  EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("'b' has 2040 bytes"), HasSubstr("byte 2001")));
  EXPECT_EQ(RefusalOf([&] { model.ReadTensor(1, UINT64_MAX, part); }).kind, ErrorKind::kInternal);
}

TEST(Gguf, MissingTensorIsNamed) {
  const ModelFile model = Open(Small().Bytes());
  EXPECT_EQ(model.FindTensorIndex("d"), std::nullopt);
  EXPECT_EQ(model.FindTensorIndex("c"), 2u);
  EXPECT_EQ(RefusalOf([&] { model.GetTensorIndex("d"); }).message, "m.gguf: tensor 'd' is missing");
}

TEST(Gguf, AlignmentOfTheFileIsUsed) {
  for (const uint32_t alignment : {8u, 32u, 4096u}) {
    GgufWriter writer;
    writer.SetAlignment(alignment)
        .AddTensor("a", {3}, kF32, Pattern(12, 1))
        .AddTensor("b", {2}, kF32, Pattern(8, 2));
    const ModelFile model = Open(writer.Bytes());
    EXPECT_EQ(model.tensors()[0].offset % alignment, 0u);
    EXPECT_EQ(model.tensors()[1].offset - model.tensors()[0].offset,
              alignment == 8 ? 16 : alignment);
    EXPECT_EQ(Text(model.ReadTensor(1)), Pattern(8, 2));
  }
}

TEST(Gguf, FileWithoutTensorsOrWithoutTrailingPaddingIsFine) {
  const std::string header = GgufWriter().Add("a", uint8_t{1}).Bytes();
  EXPECT_EQ(Open(header).tensors().size(), 0u);
  EXPECT_EQ(Open(header.substr(0, 24 + 8 + 1 + 4 + 1)).metadata().GetU64("a"), 1u);
  // 12 bytes of data and 20 of padding.
  const std::string file = GgufWriter().AddTensor("a", {3}, kF32, Pattern(12, 1)).Bytes();
  EXPECT_EQ(Text(Open(file.substr(0, file.size() - 20)).ReadTensor(0)), Pattern(12, 1));
}

TEST(Gguf, NamesAtTheLimitAreRead) {
  const std::string key(limits::kMetadataKeyBytesMax, 'k');
  const std::string name(limits::kTensorNameBytesMax, 'n');
  const ModelFile model =
      Open(GgufWriter().Add(key, uint8_t{7}).AddTensor(name, {1}, kF32, Pattern(4, 0)).Bytes());
  EXPECT_EQ(model.metadata().GetU64(key), 7u);
  EXPECT_EQ(model.GetTensorIndex(name), 0u);
}

// Metadata.

bool Fits(const std::string& bytes, uint64_t limit) {
  try {
    Open(bytes, {.metadata_bytes_max = limit});
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNoMemory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("limit of " + std::to_string(limit) + " bytes"),
                                    HasSubstr(" at byte ")));
    return false;
  }
}

// The smallest limit under which the file opens.
uint64_t SmallestLimit(const std::string& bytes) {
  uint64_t low = 0;  // does not fit
  uint64_t high = 1 << 24;
  EXPECT_FALSE(Fits(bytes, low));
  EXPECT_TRUE(Fits(bytes, high));
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    (Fits(bytes, middle) ? high : low) = middle;
  }
  return high;
}

TEST(GgufMetadataLimit, CountsEveryByteOfKeysValuesAndNames) {
  const auto file = [](const std::string& key, const std::string& text, size_t numbers,
                       const std::string& name) {
    return GgufWriter()
        .Add(key, text)
        .AddArray("numbers", std::vector<uint32_t>(numbers, 9))
        .AddArray("strings", std::vector<std::string>(100, text))
        .AddTensor(name, {1}, kF32, Pattern(4, 0))
        .Bytes();
  };
  const uint64_t base = SmallestLimit(file("key", "text", 1000, "name"));
  // The payload, and a moderate amount for objects around it: three entries and a tensor.
  const uint64_t payload = 3 + 4 + 4000 + 100 * (4 + 8 + 8) + 4 + 14;
  EXPECT_GE(base, payload);
  EXPECT_LE(base, payload + 4 * 512);
  EXPECT_EQ(SmallestLimit(file("keyy", "text", 1000, "name")), base + 1);
  EXPECT_EQ(SmallestLimit(file("key", "textt", 1000, "name")), base + 101);
  EXPECT_EQ(SmallestLimit(file("key", "text", 1001, "name")), base + 4);
  EXPECT_EQ(SmallestLimit(file("key", "text", 1000, "namee")), base + 1);
}

TEST(GgufMetadataLimit, EachStringOfAnArrayCostsItsStoredBytesAndItsPlace) {
  const auto file = [](size_t strings) {
    return GgufWriter().AddArray("list", std::vector<std::string>(strings)).Bytes();
  };
  EXPECT_EQ(SmallestLimit(file(1001)), SmallestLimit(file(1)) + 1000 * (8 + 8));
}

TEST(GgufMetadataLimit, BudgetIsUsedToTheLastByteAndNotPastIt) {
  const auto memory = MakeMemoryFile(kPath, {});
  const ByteCursor cursor(*memory);
  MetadataBudget budget(10);
  budget.Charge(4, cursor);
  budget.Charge(6, cursor);
  budget.Charge(0, cursor);
  EXPECT_EQ(RefusalOf([&] { budget.Charge(1, cursor); }).message,
            "m.gguf: header at byte 0: metadata takes more than the limit of 10 bytes");
  EXPECT_EQ(RefusalOf([&] { budget.Charge(UINT64_MAX, cursor); }).kind, ErrorKind::kNoMemory);
}

TEST(GgufMetadataLimit, NamesTheKeyThatGoesPastIt) {
  const std::string file =
      GgufWriter().Add("small", uint8_t{1}).Add("large", std::string(5000, 'x')).Bytes();
  EXPECT_THAT(RefusalOf([&] { Open(file, {.metadata_bytes_max = 4000}); }).message,
              HasSubstr("m.gguf: metadata key 'large' at byte "));
}

TEST(GgufMetadataLimit, ManyTinyTensorsAreCountedToo) {
  GgufWriter writer;
  for (int i = 0; i < 1000; ++i) {
    writer.AddTensor("t" + std::to_string(i), {1}, kF32, Pattern(4, 0));
  }
  EXPECT_GE(SmallestLimit(writer.Bytes()), 1000 * sizeof(TensorInfo));
}

// Faults.

TEST(GgufFaults, ShortReadsGiveTheSameModel) {
  const MemoryFileSystem files(kPath, Small().Bytes());
  const FaultyFileSystem faulty(files, {.fault = Fault::kShort, .nth = -1});
  const ModelFile model = OpenGguf(faulty, kPath);
  EXPECT_EQ(Text(model.ReadTensor(1)), Pattern(2040, 2));
  EXPECT_EQ(model.MapTensor(1), nullptr);
}

// Enough metadata for several reads, and every one of them is made to fail once.
GgufWriter Large() {
  GgufWriter writer;
  writer.Add("general.architecture", "toy")
      .Add("text", std::string(200'000, 'x'))
      .AddArray("list", std::vector<std::string>(20'000, "word"))
      .AddTensor("a", {3}, kF32, Pattern(12, 1));
  return writer;
}

TEST(GgufFaults, EachReadThatFailsOrEndsEndsTheLoadNamingThePlace) {
  const MemoryFileSystem files(kPath, Large().Bytes());
  const FaultyFileSystem counting(files, {});
  OpenGguf(counting, kPath);
  const int reads = counting.plan().reads;
  ASSERT_GE(reads, 5);
  for (const Fault fault : {Fault::kFail, Fault::kEnd}) {
    for (int nth = 0; nth < reads; ++nth) {
      const FaultyFileSystem faulty(files, {.fault = fault, .nth = nth});
      const Refusal refusal = RefusalOf([&] { OpenGguf(faulty, kPath); });
      EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
      EXPECT_THAT(refusal.message,
                  AllOf(HasSubstr(kPath), HasSubstr(" at byte "),
                        HasSubstr(fault == Fault::kFail ? "Input/output error" : "the file ends")));
    }
  }
}

TEST(GgufFaults, TornReadsAreRefusedOrHarmless) {
  const MemoryFileSystem files(kPath, Large().Bytes());
  for (int nth = 0; nth < 8; ++nth) {
    const FaultyFileSystem faulty(files, {.fault = Fault::kTear, .nth = nth});
    try {
      const ModelFile model = OpenGguf(faulty, kPath);
      const MetadataArray& list = model.metadata().GetStringArray("list");
      for (uint64_t i = 0; i < list.size(); ++i) EXPECT_LE(list.String(i).size(), 12u);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(kPath));
    }
  }
}

TEST(GgufFaults, DelayedReadsChangeNothing) {
  const MemoryFileSystem files(kPath, Small().Bytes());
  int delays = 0;
  const FaultyFileSystem faulty(
      files, {.fault = Fault::kDelay, .nth = -1, .on_delay = [&delays] { ++delays; }});
  EXPECT_EQ(Text(OpenGguf(faulty, kPath).ReadTensor(0)), Pattern(12, 1));
  EXPECT_GE(delays, 2);
}

TEST(GgufFaults, FailedTensorReadNamesTheTensor) {
  const MemoryFileSystem files(kPath, Small().Bytes());
  const FaultyFileSystem faulty(files, {});
  const ModelFile model = OpenGguf(faulty, kPath);
  faulty.plan().fault = Fault::kFail;
  faulty.plan().nth = -1;
  const Refusal refusal = RefusalOf([&] { model.ReadTensor(1); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("tensor 'b'"), HasSubstr(kPath),
                                     HasSubstr("byte " + std::to_string(model.tensors()[1].offset)),
                                     HasSubstr("Input/output error")));
}

}  // namespace
}  // namespace bloomery::model
