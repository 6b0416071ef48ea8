// Writers that are killed at random moments. BLOOMERY_KILLS says how often; 1,000 by hand, fewer in
// CI. What is checked after each: every file that is there is whole, and holds what its name says.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <utility>

#include "runtime/base/output_file.h"
#include "runtime/state/disk_tier.h"
#include "runtime/state/state_file.h"
#include "tests/support/temp_dir.h"

namespace bloomery::state {
namespace {

constexpr uint64_t kRowBytes = 512;
const Identity kIdentity{{"model", "m"}};

std::vector<Token> TokensOf(int seed) {
  std::vector<Token> tokens(128);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = seed * 1000 + static_cast<int>(i);
  return tokens;
}

std::shared_ptr<Block> BlockOf(const std::vector<Token>& tokens) {
  auto block = std::make_shared<Block>(128, kRowBytes);
  for (size_t i = 0; i < block->room().size() / sizeof(Token); ++i) {
    const Token value = tokens[i % tokens.size()] * 3 + static_cast<Token>(i);
    std::memcpy(block->room().data() + i * sizeof(Token), &value, sizeof(value));
  }
  return block;
}

// Writes blocks of the cache and a slot's file over and over until it is killed; says on `wrote`
// when it has written the first.
[[noreturn]] void WriteForEver(const std::string& folder, unsigned round, int wrote) {
  const DiskTier disk(RealFileSystem(), folder, kIdentity, kRowBytes);
  std::mt19937 random(round);
  for (;;) {
    const std::vector<Token> tokens = TokensOf(static_cast<int>(random() % 40));
    const std::shared_ptr<Block> block = BlockOf(tokens);
    disk.Write(disk.NameOf(tokens), tokens, 0, block);
    const BlockPtr shared = block;
    WriteStateFile(folder + "/slot.state", kIdentity, kRowBytes, tokens, 0, {&shared, 1});
    if (wrote >= 0) {
      [[maybe_unused]] const ssize_t said = ::write(wrote, "w", 1);
      ::close(std::exchange(wrote, -1));
    }
  }
}

void CheckFile(const StateFile& file) {
  const BlockPtr expected = BlockOf(file.tokens());
  EXPECT_TRUE(std::ranges::equal(file.Read(0)->bytes(), expected->bytes()));
}

TEST(StateCrash, AKilledWriterLeavesWholeFilesOnly) {
  const char* const asked = std::getenv("BLOOMERY_KILLS");
  const int kills = asked == nullptr ? 25 : std::atoi(asked);
  const test::TempDir folder;
  std::mt19937 random(7);
  const StateFileRules rules{.identity = &kIdentity, .row_bytes = kRowBytes, .tokens_max = 128};
  int files = 0;
  for (int round = 0; round < kills; ++round) {
    int wrote[2];
    ASSERT_EQ(::pipe(wrote), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForEver(folder.path(), static_cast<unsigned>(round), wrote[1]);
    ::close(wrote[1]);
    // Every other one is killed behind its first files, however long the machine takes to them, the
    // rest from their start on.
    char byte = 0;
    if (round % 2 == 0) {
      ASSERT_EQ(::read(wrote[0], &byte, 1), 1);
    }
    const timespec wait{.tv_sec = 0, .tv_nsec = static_cast<long>(random() % 6'000'000)};
    nanosleep(&wait, nullptr);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ::close(wrote[0]);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);

    const DiskTier disk(RealFileSystem(), folder.path(), kIdentity, kRowBytes);
    for (const DiskTier::Found& found : disk.Scan()) {
      ASSERT_FALSE(found.tokens.empty());
      CheckFile({RealFileSystem(), folder.File(found.name), rules});
      ++files;
    }
    const std::string slot = folder.File("slot.state");
    if (std::filesystem::exists(slot)) CheckFile({RealFileSystem(), slot, rules});
    for (const auto& left : std::filesystem::directory_iterator(folder.path())) {
      EXPECT_FALSE(left.path().filename().string().starts_with(OutputFile::kPartialPrefix));
    }
  }
  EXPECT_GT(files, kills);  // the writers did write
}

}  // namespace
}  // namespace bloomery::state
