#include "runtime/memory/residency/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/memory/residency/routing.h"

namespace bloomery::memory {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TraceTest : public testing::Test {
 protected:
  // Two banks, one of a number of experts that is no power of two; three passes.
  std::string Written() {
    const std::string path = folder_.File("trace");
    TraceWriter writer(path, kBanks, 4, uint64_t{1} << 20);
    Append(writer, {0}, {1}, {{5, 127}, {6}});
    Append(writer, {2, 2, 63}, {1, 0, 1}, {{1, 2, 3, 4, 126, 0}, {0, 1, 2}});
    Append(writer, {1}, {}, {{0, 1}, {3}});
    writer.Finish();
    return ReadWholeFile(RealFileSystem(), path, 1 << 20);
  }

  static bool Append(TraceWriter& writer, const std::vector<uint8_t>& slots,
                     const std::vector<uint8_t>& kept,
                     const std::vector<std::vector<uint16_t>>& experts) {
    const std::vector<std::span<const uint16_t>> spans(experts.begin(), experts.end());
    return writer.Append(
        slots, {.rows = static_cast<int32_t>(slots.size()), .kept = kept, .experts = spans});
  }

  // Reads all of it; the refusal, or "".
  static std::string Refusal(const std::string& bytes) {
    try {
      TraceReader reader(MakeMemoryFile("t", std::as_bytes(std::span(bytes))));
      TracePass pass;
      while (reader.Next(&pass)) continue;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
      return error.what();
    }
    return {};
  }

  const std::vector<TraceBank> kBanks{{.layer = 0, .experts = 128, .used = 2},
                                      {.layer = 3, .experts = 7, .used = 1}};
  test::TempDir folder_;
};

TEST_F(TraceTest, WhatWasWrittenIsRead) {
  const std::string bytes = Written();
  TraceReader reader(MakeMemoryFile("t", std::as_bytes(std::span(bytes))));
  EXPECT_EQ(reader.banks(), kBanks);
  TracePass pass;
  ASSERT_TRUE(reader.Next(&pass));
  EXPECT_THAT(pass.slots, ElementsAre(0));
  EXPECT_THAT(pass.experts, ElementsAre(ElementsAre(5, 127), ElementsAre(6)));
  ASSERT_TRUE(reader.Next(&pass));
  EXPECT_EQ(pass.rows, 3);
  EXPECT_THAT(pass.slots, ElementsAre(2, 2, 63));
  EXPECT_THAT(pass.kept, ElementsAre(1, 0, 1));
  EXPECT_THAT(pass.experts, ElementsAre(ElementsAre(1, 2, 3, 4, 126, 0), ElementsAre(0, 1, 2)));
  EXPECT_FALSE(pass.Picks().Kept(1));
  ASSERT_TRUE(reader.Next(&pass));
  EXPECT_THAT(pass.kept, ElementsAre(1));
  EXPECT_FALSE(reader.Next(&pass));
  EXPECT_FALSE(reader.Next(&pass));
}

// Header 8 + 8 + 2 * 12 + 8; records of one row: 8 + (1 + 2 + 1) + 8; of three: 8 + (3 + 6 + 2) +
// 8; the last 8 + 8 + 8.
TEST_F(TraceTest, LayoutIsTheDocumentedOne) {
  const std::string bytes = Written();
  EXPECT_EQ(bytes.size(), 48U + 20 + 27 + 20 + 24);
  EXPECT_EQ(bytes.substr(0, 8), "BLRTRACE");
  EXPECT_EQ(bytes.substr(8, 8), std::string("\1\0\0\0\2\0\0\0", 8));
  EXPECT_EQ(bytes.substr(16, 12), std::string("\0\0\0\0\x80\0\0\0\2\0\0\0", 12));
  // 5 and 127 in seven bits each: 5 | 127 << 7 = 0x3f85; 6 in three bits.
  EXPECT_EQ(bytes.substr(48, 12), std::string("\1\0\0\0\4\0\0\0\x80\x85\x3f\x06", 12));
}

TEST_F(TraceTest, EveryDamagedByteIsRefusedWithItsRecordsOffset) {
  const std::string bytes = Written();
  ASSERT_EQ(Refusal(bytes), "");
  const std::vector<size_t> records{0, 48, 68, 95, 115, bytes.size()};
  for (size_t r = 0; r + 1 < records.size(); ++r) {
    for (size_t at = records[r]; at < records[r + 1]; ++at) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      const std::string refusal = Refusal(damaged);
      EXPECT_THAT(refusal, HasSubstr("routing trace 't', byte ")) << at;
      const size_t offset = std::stoul(refusal.substr(refusal.find("byte ") + 5));
      EXPECT_GE(offset, records[r]) << refusal;
    }
  }
  std::string damaged = bytes;
  damaged[58] ^= 1;
  EXPECT_THAT(Refusal(damaged), HasSubstr("byte 48: the record is damaged"));
}

TEST_F(TraceTest, EveryCutIsRefusedWithTheFilesEnd) {
  const std::string bytes = Written();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(Refusal(bytes.substr(0, size)),
                AllOf(HasSubstr("byte " + std::to_string(size) + ": the file ends inside")));
  }
  EXPECT_THAT(Refusal(bytes + "x"), HasSubstr("byte 139: 1 bytes after the last record"));
}

TEST_F(TraceTest, ALostRecordIsMissedAtTheEnd) {
  std::string bytes = Written();
  bytes.erase(48, 20);
  EXPECT_THAT(Refusal(bytes),
              HasSubstr("byte 95: the last record counts 3 passes, the file has 2"));
}

TEST_F(TraceTest, AnotherVersionIsRefusedByNumber) {
  std::string bytes = Written();
  bytes[8] = 2;
  EXPECT_THAT(Refusal(bytes), HasSubstr("byte 8: version 2; this program reads version 1"));
}

TEST_F(TraceTest, AFullFileTakesNoMoreAndIsWhole) {
  const std::string path = folder_.File("full");
  TraceWriter writer(path, kBanks, 4, 48 + 20 + 20 + 48);
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += Append(writer, {0}, {}, {{1, 2}, {3}}) ? 1 : 0;
  writer.Finish();
  const std::string bytes = ReadWholeFile(RealFileSystem(), path, 1 << 20);
  EXPECT_EQ(taken, 2);
  EXPECT_EQ(writer.passes(), 2);
  EXPECT_LE(bytes.size(), 48U + 20 + 20 + 48);
  EXPECT_EQ(Refusal(bytes), "");
}

TEST_F(TraceTest, PicksOfAnotherShapeAndBanksBeyondTheFormatAreRefused) {
  TraceWriter writer(folder_.File("a"), kBanks, 2, 1 << 20);
  EXPECT_THROW(Append(writer, {0}, {}, {{1}, {3}}), Error);
  EXPECT_THROW(Append(writer, {0, 0, 0}, {}, {{1, 1, 1, 1, 1, 1}, {3, 3, 3}}), Error);
  EXPECT_THROW(TraceWriter(folder_.File("b"), {}, 2, 1 << 20), Error);
  EXPECT_THROW(TraceWriter(folder_.File("c"), {{.experts = 4, .used = 5}}, 2, 1 << 20), Error);
}

}  // namespace
}  // namespace bloomery::memory
