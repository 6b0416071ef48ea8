#include "runtime/state/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::state {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRowBytes = 12;

BlockPtr MakeBlock(int32_t rows, int seed) {
  auto block = std::make_shared<Block>(rows, kRowBytes);
  for (size_t i = 0; i < block->room().size(); ++i) {
    block->room()[i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed)) & 0xFF);
  }
  return block;
}

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() : path_(folder_.File("some.state")) {
    std::iota(tokens_.begin(), tokens_.end(), 5);
    WriteStateFile(path_, identity_, kRowBytes, tokens_, 0, blocks_);
  }
  StateFile Open(const Identity& identity, int32_t tokens_max = 1000, uint64_t rows = kRowBytes) {
    return {RealFileSystem(),
            path_,
            {.identity = &identity, .row_bytes = rows, .tokens_max = tokens_max}};
  }
  void ReadAll() {
    const StateFile file = Open(identity_);
    for (int32_t i = 0; i < file.blocks(); ++i) file.Read(i);
  }
  std::string Bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  test::TempDir folder_;
  std::string path_;
  Identity identity_{{"model", "abc"}, {"numbers", "exact"}, {"build", "1"}};
  std::vector<Token> tokens_ = std::vector<Token>(300);
  std::vector<BlockPtr> blocks_{MakeBlock(128, 1), MakeBlock(128, 2), MakeBlock(44, 3)};
};

// Where the checksum is right: a first row behind tokens that are none.
TEST_F(StateFileTest, AFirstRowWithoutTokensIsADamagedHeader) {
  WriteStateFile(path_, identity_, kRowBytes, {}, 0, {});
  std::string bytes = Bytes();
  for (const uint32_t first : {0x80000000U, 0xFFFFFF80U, 128U}) {
    std::memcpy(bytes.data() + 24, &first, sizeof first);
    const size_t header = bytes.size() - 8;
    const uint64_t sum =
        Checksum(std::as_bytes(std::span(bytes).first(header)), uint64_t{0x68656164});
    std::memcpy(bytes.data() + header, &sum, sizeof sum);
    Put(bytes);
    EXPECT_THAT(test::RefusalOf([&] { Open(identity_); }).message, HasSubstr("damaged header"))
        << first;
  }
}

TEST(StateFileRoom, AFileThatWouldTakeTheDisksLastRoomIsRefused) {
  EXPECT_NO_THROW(RequireRoom("a", 100, kDiskBytesLeftMin + 100));
  for (const uint64_t available : {kDiskBytesLeftMin + 99, kDiskBytesLeftMin - 1, uint64_t{0}}) {
    const auto refusal = test::RefusalOf([&] { RequireRoom("a", 100, available); });
    EXPECT_EQ(refusal.kind, ErrorKind::kNoInput);
    EXPECT_THAT(refusal.message, HasSubstr("'a'"));
  }
  EXPECT_THROW(RequireRoom("a", UINT64_MAX, UINT64_MAX), Error);
}

TEST_F(StateFileTest, WhatIsReadIsWhatWasWritten) {
  const StateFile file = Open(identity_, 300);
  EXPECT_EQ(file.tokens(), tokens_);
  EXPECT_EQ(file.first(), 0);
  ASSERT_EQ(file.blocks(), 3);
  for (int32_t i = 0; i < 3; ++i) {
    const BlockPtr read = file.Read(i);
    EXPECT_TRUE(std::ranges::equal(read->bytes(), blocks_[static_cast<size_t>(i)]->bytes()));
  }
  EXPECT_EQ(file.bytes(), Bytes().size());
}

// Of the prompt cache: the state behind tokens whose rows lie elsewhere.
TEST_F(StateFileTest, ACheckpointAloneHasNoRows) {
  const std::vector<std::byte> state(100, std::byte{7});
  WriteStateFile(path_, identity_, kRowBytes, tokens_, 300, {}, state);
  const auto open = [&](uint64_t bytes) {
    return StateFile(RealFileSystem(), path_,
                     {.identity = &identity_,
                      .row_bytes = kRowBytes,
                      .tokens_max = 4096,
                      .checkpoint_bytes = bytes});
  };
  const StateFile file = open(100);
  EXPECT_TRUE(file.checkpoint_alone());
  EXPECT_EQ(file.blocks(), 0);
  EXPECT_EQ(file.first(), 300);
  EXPECT_EQ(file.tokens(), tokens_);
  EXPECT_EQ(file.ReadCheckpoint(), state);
  EXPECT_EQ(file.bytes(), Bytes().size());
  EXPECT_THAT(test::RefusalOf([&] { open(0); }).message, HasSubstr("has a checkpoint of 100"));
}

TEST_F(StateFileTest, AnEmptyStateIsAStateToo) {
  WriteStateFile(path_, identity_, kRowBytes, {}, 0, {});
  EXPECT_EQ(Open(identity_).blocks(), 0);
}

// Every byte matters: whatever single bit is turned, nothing is read as if it were whole.
TEST_F(StateFileTest, AnyDamagedByteIsRefused) {
  const std::string whole = Bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    Put(damaged);
    EXPECT_THAT(test::RefusalOf([&] { ReadAll(); }).message, HasSubstr("'some.state'")) << at;
  }
}

TEST_F(StateFileTest, AFileThatIsCutOffOrTooLongIsRefused) {
  const std::string whole = Bytes();
  for (size_t length = 0; length < whole.size(); length += 1 + length % 5) {
    Put(whole.substr(0, length));
    EXPECT_EQ(test::RefusalOf([&] { ReadAll(); }).kind, ErrorKind::kBadModel) << length;
  }
  Put(whole + "x");
  EXPECT_THAT(test::RefusalOf([&] { ReadAll(); }).message, HasSubstr("bytes instead of"));
}

TEST_F(StateFileTest, AStateOfAnotherModelOrBuildIsForeignByName) {
  Identity other = identity_;
  other[0].value = "abd";
  EXPECT_THAT(test::RefusalOf([&] { Open(other); }).message, HasSubstr("another model"));
  other = identity_;
  other[2].value = "12";
  EXPECT_THAT(test::RefusalOf([&] { Open(other); }).message, HasSubstr("another build"));
  other.pop_back();
  EXPECT_THROW(Open(other), ForeignStateError);
  EXPECT_THAT(test::RefusalOf([&] { Open(identity_, 299); }).message,
              HasSubstr("holds 300 tokens, the slot's context is 299"));
  EXPECT_THAT(test::RefusalOf([&] { Open(identity_, 300, 13); }).message,
              HasSubstr("rows of another length"));
}

}  // namespace
}  // namespace bloomery::state
