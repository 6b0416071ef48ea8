// The prompt cache's folder: one file a block, named by what it holds, and of a model whose rows
// alone are no state one a checkpoint. Owns the folder's lock and
// knows what lies in it at the start; afterwards it is told what to write, read and remove and
// keeps no account (PromptCache does). Files that are none of ours are left alone. The constructor
// and Scan belong to one thread, the rest to the I/O worker's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/state/block.h"
#include "runtime/state/identity.h"
#include "runtime/state/state_file.h"

namespace bloomery::state {

class DiskTier {
 public:
  struct Found {
    std::string name;
    uint64_t bytes = 0;
    std::vector<Token> tokens;  // all, from position 0; empty: of another model or build
    int32_t first = 0;          // position of the block's first row; of a checkpoint: behind all
  };

  // Makes the folder, locks it, and removes what a killed process left half written. Throws
  // Error(kUsage) where that cannot be done, or another server has the folder.
  // `checkpoint_bytes`: of a checkpoint; 0: the model has none.
  DiskTier(const FileSystem& files, std::string folder, Identity identity, uint64_t row_bytes,
           uint64_t checkpoint_bytes = 0);
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // The blocks in the folder, the oldest first; of a model without checkpoints other models' too.
  // Damaged ones are removed, with a warning.
  std::vector<Found> Scan() const;
  // The checkpoints, likewise.
  std::vector<Found> ScanCheckpoints() const;

  // Of the block that ends `tokens`, which begin at position 0.
  std::string NameOf(std::span<const Token> tokens) const;
  uint64_t FileBytes(int32_t first, int32_t tokens) const;

  // Returns the bytes written. Throws Error(kNoInput).
  uint64_t Write(const std::string& name, std::span<const Token> tokens, int32_t first,
                 const BlockPtr& block) const;
  // Throws what StateFile does, and Error(kBadModel) where the file holds other tokens.
  BlockPtr Read(const std::string& name, std::span<const Token> tokens, int32_t first) const;
  void Remove(const std::string& name) const;

  // The same of the checkpoint behind `tokens`.
  std::string CheckpointNameOf(std::span<const Token> tokens) const;
  uint64_t CheckpointFileBytes(int32_t tokens) const;
  uint64_t WriteCheckpoint(const std::string& name, std::span<const Token> tokens,
                           std::span<const std::byte> checkpoint) const;
  std::vector<std::byte> ReadCheckpoint(const std::string& name,
                                        std::span<const Token> tokens) const;

 private:
  enum class Kind { kBlock, kCheckpoint };
  void Scan(Kind kind, std::vector<Found>* found) const;
  StateFile Open(const std::string& name, std::span<const Token> tokens, int32_t first,
                 Kind kind) const;
  StateFileRules RulesOf(Kind kind) const;
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  const FileSystem& files_;
  std::string folder_;
  Identity identity_;
  std::string identity_text_;
  uint64_t row_bytes_;
  uint64_t checkpoint_bytes_;
  int lock_ = -1;
};

}  // namespace bloomery::state
