// A saved state as a file: the token ids from position 0, and the rows of a stretch of positions in
// blocks, each with a checksum. One format for a slot that a client saves (all rows) and for a
// block of the prompt cache (its own rows only). A file appears whole or not at all; what is
// damaged, cut off or foreign is refused by name and never half restored. Any thread, one at a time
// an object.
//
//   little-endian:  "BLMSTATE"  u32 version  u32 bytes of the identity  u64 bytes of a row
//                   u32 first row  u32 tokens  u32 rows of a block
//                   u32 bytes of the checkpoint (0: none)
//                   identity  tokens (i32 each)  u64 checksum of all that
//                   then for each block: its bytes, u64 checksum; so for the checkpoint behind the
//                   last row. A checkpoint alone (of the prompt cache) has no rows: its first row
//                   is behind its last token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/state/block.h"
#include "runtime/state/identity.h"

namespace bloomery::state {

// Bytes of a file with the rows [first, tokens) under an identity text of `identity_bytes`.
uint64_t StateFileBytes(uint64_t identity_bytes, uint64_t row_bytes, int32_t first, int32_t tokens,
                        uint64_t checkpoint_bytes = 0);

// Throws Error(kNoInput) naming `name` where a file of `bytes` would leave a disk with `available`
// free bytes less than kDiskBytesLeftMin: clients choose how many states are saved.
void RequireRoom(const std::string& name, uint64_t bytes, uint64_t available);
inline constexpr uint64_t kDiskBytesLeftMin = 256ull << 20;

// Writes `path`: blocks hold the rows from `first`, all but the last kBlockRows of them. Replaces
// what had the name, in one step. Returns the bytes written. Throws Error(kNoInput), also as
// RequireRoom does.
uint64_t WriteStateFile(const std::string& path, const Identity& identity, uint64_t row_bytes,
                        std::span<const Token> tokens, int32_t first,
                        std::span<const BlockPtr> blocks,
                        std::span<const std::byte> checkpoint = {});

// What a file must be to be read here.
struct StateFileRules {
  const Identity* identity = nullptr;
  uint64_t row_bytes = 0;
  int32_t tokens_max = 0;
  uint64_t checkpoint_bytes = 0;  // behind rows of a slot; 0: the model has none
};

// A sound file of another model, other planes, or another version of the server.
class ForeignStateError : public Error {
 public:
  using Error::Error;
};

class StateFile {
 public:
  // Reads and checks all but the blocks. Throws Error(kNoInput) where the file cannot be read, else
  // Error(kBadModel) whose text names the file (without its folder) and what is wrong; the foreign
  // is a ForeignStateError.
  StateFile(const FileSystem& files, const std::string& path, const StateFileRules& rules);

  const std::vector<Token>& tokens() const { return tokens_; }
  int32_t first() const { return first_; }
  bool checkpoint_alone() const { return first_ > 0 && blocks() == 0; }
  uint64_t bytes() const { return file_->size(); }
  int32_t blocks() const;
  // Reads a block and checks it. Throws as the constructor does.
  BlockPtr Read(int32_t block) const;
  // Reads the checkpoint and checks it; empty where the file has none.
  std::vector<std::byte> ReadCheckpoint() const;

 private:
  [[noreturn]] void Refuse(const std::string& why) const;

  std::shared_ptr<const File> file_;
  std::string name_;
  uint64_t row_bytes_;
  std::vector<Token> tokens_;
  int32_t first_ = 0;
  uint64_t blocks_at_ = 0;
  uint64_t checkpoint_bytes_ = 0;
};

}  // namespace bloomery::state
