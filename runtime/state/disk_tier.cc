#include "runtime/state/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/output_file.h"
#include "runtime/base/utf8.h"
#include "runtime/state/disk_check.h"

namespace bloomery::state {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPathBytes = 4096;  // of a path in messages: all of it
constexpr std::string_view kBlock = ".block";
constexpr std::string_view kCheckpoint = ".mark";

constexpr std::string_view kInUse =
    "is in use by another server; give each server a folder of its own";

[[noreturn]] void RefuseFolder(const std::string& folder, const std::string& why) {
  throw Error(ErrorKind::kUsage,
              "the folder of the prompt cache, '" + Printable(folder, kPathBytes) + "': " + why);
}

}  // namespace

DiskTier::DiskTier(const FileSystem& files, std::string folder, Identity identity,
                   uint64_t row_bytes, uint64_t checkpoint_bytes)
    : files_(files),
      folder_(std::move(folder)),
      identity_(std::move(identity)),
      identity_text_(IdentityText(identity_)),
      row_bytes_(row_bytes),
      checkpoint_bytes_(checkpoint_bytes) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) RefuseFolder(folder_, "cannot be made: " + error.message());
  lock_ = open((folder_ + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    RefuseFolder(folder_, "cannot be written to: " + std::generic_category().message(errno));
  }
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    RefuseFolder(folder_, std::string(kInUse));
  }
  OutputFile::RemovePartialFiles(folder_);
}

void CheckDiskFolder(const std::string& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  const bool made = fs::exists(at, error);
  // The folder, or the one that it would be made in.
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, error)) {
    RefuseFolder(folder, "cannot be made: '" + Printable(at.string()) + "' is no folder");
  }
  if (access(at.c_str(), W_OK | X_OK) != 0) {
    RefuseFolder(folder, (made ? "cannot be written to: " : "cannot be made: ") +
                             std::generic_category().message(errno));
  }
  const int lock = open((at / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  if (!made || lock < 0) return;
  const bool free = flock(lock, LOCK_EX | LOCK_NB) == 0;
  close(lock);
  if (!free) RefuseFolder(folder, std::string(kInUse));
}

DiskTier::~DiskTier() { close(lock_); }

StateFileRules DiskTier::RulesOf(Kind kind) const {
  return {.identity = &identity_,
          .row_bytes = row_bytes_,
          .tokens_max = limits::kSlotContextMax,
          .checkpoint_bytes = kind == Kind::kCheckpoint ? checkpoint_bytes_ : 0};
}

std::vector<DiskTier::Found> DiskTier::Scan() const {
  std::vector<Found> found;
  // Without checkpoints of its own a model's blocks share the folder's limit with those of others.
  if (checkpoint_bytes_ == 0) Scan(Kind::kCheckpoint, &found);
  Scan(Kind::kBlock, &found);
  return found;
}

std::vector<DiskTier::Found> DiskTier::ScanCheckpoints() const {
  std::vector<Found> found;
  Scan(Kind::kCheckpoint, &found);
  return found;
}

void DiskTier::Scan(Kind kind, std::vector<Found>* found) const {
  struct File {
    fs::file_time_type written;
    std::string name;
  };
  std::vector<File> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code gone;
    const fs::file_time_type written = entry.last_write_time(gone);
    if (name.ends_with(kind == Kind::kBlock ? kBlock : kCheckpoint) && !gone)
      names.push_back({written, name});
  }
  if (error) RefuseFolder(folder_, "cannot be read: " + error.message());
  std::ranges::sort(names, [](const File& a, const File& b) {
    return a.written != b.written ? a.written < b.written : a.name < b.name;
  });
  const StateFileRules rules = RulesOf(kind);
  for (const File& each : names) {
    Found block;
    block.name = each.name;
    try {
      block.bytes = files_.Open(PathOf(each.name))->size();
      const StateFile file(files_, PathOf(each.name), rules);
      if (kind == Kind::kBlock ? file.blocks() != 1 : !file.checkpoint_alone()) {
        throw Error(ErrorKind::kBadModel, "'" + each.name + "' is not what its name says");
      }
      block.tokens = file.tokens();
      block.first = file.first();
    } catch (const ForeignStateError&) {
      // Another model's: it may be served here again, and goes first where room is needed.
      block.tokens.clear();
    } catch (const Error& damaged) {
      LOG(WARNING) << "prompt cache: removed " << damaged.what();
      Remove(each.name);
      continue;
    }
    found->push_back(std::move(block));
  }
}

std::string DiskTier::NameOf(std::span<const Token> tokens) const {
  return Digest(std::as_bytes(std::span(identity_text_)), tokens) + std::string(kBlock);
}

uint64_t DiskTier::FileBytes(int32_t first, int32_t tokens) const {
  return StateFileBytes(identity_text_.size(), row_bytes_, first, tokens);
}

uint64_t DiskTier::Write(const std::string& name, std::span<const Token> tokens, int32_t first,
                         const BlockPtr& block) const {
  return WriteStateFile(PathOf(name), identity_, row_bytes_, tokens, first, {&block, 1});
}

StateFile DiskTier::Open(const std::string& name, std::span<const Token> tokens, int32_t first,
                         Kind kind) const {
  StateFile file(files_, PathOf(name), RulesOf(kind));
  if (file.first() != first || !std::ranges::equal(file.tokens(), tokens)) {
    throw Error(ErrorKind::kBadModel, "'" + Printable(name) + "' holds another text");
  }
  return file;
}

BlockPtr DiskTier::Read(const std::string& name, std::span<const Token> tokens,
                        int32_t first) const {
  return Open(name, tokens, first, Kind::kBlock).Read(0);
}

std::string DiskTier::CheckpointNameOf(std::span<const Token> tokens) const {
  return Digest(std::as_bytes(std::span(identity_text_)), tokens) + std::string(kCheckpoint);
}

uint64_t DiskTier::CheckpointFileBytes(int32_t tokens) const {
  return StateFileBytes(identity_text_.size(), row_bytes_, tokens, tokens, checkpoint_bytes_);
}

uint64_t DiskTier::WriteCheckpoint(const std::string& name, std::span<const Token> tokens,
                                   std::span<const std::byte> checkpoint) const {
  return WriteStateFile(PathOf(name), identity_, row_bytes_, tokens,
                        static_cast<int32_t>(tokens.size()), {}, checkpoint);
}

std::vector<std::byte> DiskTier::ReadCheckpoint(const std::string& name,
                                                std::span<const Token> tokens) const {
  return Open(name, tokens, static_cast<int32_t>(tokens.size()), Kind::kCheckpoint)
      .ReadCheckpoint();
}

void DiskTier::Remove(const std::string& name) const { unlink(PathOf(name).c_str()); }

}  // namespace bloomery::state
