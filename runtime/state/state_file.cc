#include "runtime/state/state_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "runtime/base/limits.h"
#include "runtime/base/output_file.h"
#include "runtime/base/utf8.h"

namespace bloomery::state {
namespace {

constexpr std::string_view kMagic = "BLMSTATE";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kChecksumBytes = sizeof(uint64_t);
constexpr uint64_t kHeaderSeed = 0x68656164;  // that no block can pass for a header, or another

struct Head {
  uint32_t version = kVersion;
  uint32_t identity_bytes = 0;
  uint64_t row_bytes = 0;
  uint32_t first = 0;
  uint32_t tokens = 0;
  uint32_t block_rows = kBlockRows;
  uint32_t checkpoint_bytes = 0;
};
static_assert(sizeof(Head) == 32);
constexpr uint64_t kHeadBytes = kMagic.size() + sizeof(Head);

constexpr uint64_t kCheckpointSeed = 0x6d61726b;

uint64_t BlockSeed(int32_t first_row) { return static_cast<uint64_t>(first_row) + 1; }

int32_t BlockCount(int32_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

template <typename T>
void Put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

uint64_t HeaderBytes(uint64_t identity_bytes, uint64_t tokens) {
  return kHeadBytes + identity_bytes + tokens * sizeof(Token) + kChecksumBytes;
}

}  // namespace

uint64_t StateFileBytes(uint64_t identity_bytes, uint64_t row_bytes, int32_t first, int32_t tokens,
                        uint64_t checkpoint_bytes) {
  const auto rows = static_cast<uint64_t>(tokens - first);
  return HeaderBytes(identity_bytes, static_cast<uint64_t>(tokens)) + rows * row_bytes +
         static_cast<uint64_t>(BlockCount(tokens - first)) * kChecksumBytes +
         (checkpoint_bytes > 0 ? checkpoint_bytes + kChecksumBytes : 0);
}

void RequireRoom(const std::string& name, uint64_t bytes, uint64_t available) {
  if (available >= kDiskBytesLeftMin && available - kDiskBytesLeftMin >= bytes) return;
  throw Error(ErrorKind::kNoInput,
              "'" + name + "' would take " + std::to_string(bytes) + " of the disk's " +
                  std::to_string(available) + " free bytes, of which " +
                  std::to_string(kDiskBytesLeftMin) + " are left to others; make room");
}

uint64_t WriteStateFile(const std::string& path, const Identity& identity, uint64_t row_bytes,
                        std::span<const Token> tokens, int32_t first,
                        std::span<const BlockPtr> blocks, std::span<const std::byte> checkpoint) {
  const std::string names = IdentityText(identity);
  std::error_code unknown;
  const auto folder = std::filesystem::path(path).parent_path();
  const auto space = std::filesystem::space(folder.empty() ? "." : folder, unknown);
  if (!unknown) {
    RequireRoom(Printable(std::filesystem::path(path).filename().string()),
                StateFileBytes(names.size(), row_bytes, first, static_cast<int32_t>(tokens.size()),
                               checkpoint.size()),
                space.available);
  }
  std::string header(kMagic);
  Put(header, Head{.identity_bytes = static_cast<uint32_t>(names.size()),
                   .row_bytes = row_bytes,
                   .first = static_cast<uint32_t>(first),
                   .tokens = static_cast<uint32_t>(tokens.size()),
                   .checkpoint_bytes = static_cast<uint32_t>(checkpoint.size())});
  header += names;
  header.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  Put(header, Checksum(Bytes(header), kHeaderSeed));
  OutputFile out(path);
  out.Write(Bytes(header));
  int32_t row = first;
  for (const BlockPtr& block : blocks) {
    const uint64_t checksum = Checksum(block->bytes(), BlockSeed(row));
    out.Write(block->bytes());
    out.Write(std::as_bytes(std::span(&checksum, 1)));
    row += block->rows();
  }
  if (!checkpoint.empty()) {
    const uint64_t checksum = Checksum(checkpoint, kCheckpointSeed);
    out.Write(checkpoint);
    out.Write(std::as_bytes(std::span(&checksum, 1)));
  }
  out.Commit();
  return out.size();
}

StateFile::StateFile(const FileSystem& files, const std::string& path, const StateFileRules& rules)
    : file_(files.Open(path)),
      name_(Printable(std::filesystem::path(path).filename().string())),
      row_bytes_(rules.row_bytes) {
  std::array<std::byte, kHeadBytes> start{};
  if (file_->size() < kHeadBytes) Refuse("is cut off within its header");
  file_->ReadAt(0, start);
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) Refuse("is no saved state");
  Head head;
  std::memcpy(&head, start.data() + kMagic.size(), sizeof(head));
  if (head.version != kVersion) {
    throw ForeignStateError(ErrorKind::kBadModel,
                            "'" + name_ + "' is of version " + std::to_string(head.version) +
                                ", this server reads version " + std::to_string(kVersion));
  }
  if (head.identity_bytes > limits::kStateIdentityBytesMax ||
      head.tokens > limits::kSlotContextMax || head.first > head.tokens ||
      (head.first % kBlockRows != 0 && head.first != head.tokens) ||
      head.block_rows != kBlockRows) {
    Refuse("has a damaged header");
  }
  const uint64_t bytes = HeaderBytes(head.identity_bytes, head.tokens);
  if (file_->size() < bytes) Refuse("is cut off within its header");
  std::string header(bytes, '\0');
  file_->ReadAt(0, std::as_writable_bytes(std::span(header)));
  uint64_t checksum = 0;
  std::memcpy(&checksum, header.data() + bytes - kChecksumBytes, kChecksumBytes);
  const std::string_view checked = std::string_view(header).substr(0, bytes - kChecksumBytes);
  if (Checksum(Bytes(checked), kHeaderSeed) != checksum) Refuse("has a damaged header");
  const std::string foreign =
      IdentityDifference(*rules.identity, checked.substr(kHeadBytes, head.identity_bytes));
  if (!foreign.empty()) {
    throw ForeignStateError(ErrorKind::kBadModel,
                            "'" + name_ + "' cannot be used here: " + foreign);
  }
  if (head.row_bytes != rules.row_bytes) Refuse("has rows of another length");
  if (head.first == head.tokens && head.first > 0 && head.checkpoint_bytes == 0) {
    Refuse("has a damaged header");
  }
  if (head.checkpoint_bytes != (head.tokens > 0 ? rules.checkpoint_bytes : 0)) {
    Refuse("has a checkpoint of " + std::to_string(head.checkpoint_bytes) + " bytes instead of " +
           std::to_string(rules.checkpoint_bytes));
  }
  checkpoint_bytes_ = head.checkpoint_bytes;
  if (head.tokens > static_cast<uint32_t>(rules.tokens_max)) {
    Refuse("holds " + std::to_string(head.tokens) + " tokens, the slot's context is " +
           std::to_string(rules.tokens_max));
  }
  first_ = static_cast<int32_t>(head.first);
  tokens_.resize(head.tokens);
  // Without tokens there is no place to copy to.
  if (head.tokens > 0)
    std::memcpy(tokens_.data(), checked.data() + kHeadBytes + head.identity_bytes,
                head.tokens * sizeof(Token));
  blocks_at_ = bytes;
  const uint64_t whole = StateFileBytes(head.identity_bytes, row_bytes_, first_,
                                        static_cast<int32_t>(head.tokens), checkpoint_bytes_);
  if (file_->size() != whole) {
    Refuse("has " + std::to_string(file_->size()) + " bytes instead of " + std::to_string(whole));
  }
}

int32_t StateFile::blocks() const {
  return BlockCount(static_cast<int32_t>(tokens_.size()) - first_);
}

BlockPtr StateFile::Read(int32_t block) const {
  const int32_t row = first_ + block * kBlockRows;
  const int32_t rows = std::min(kBlockRows, static_cast<int32_t>(tokens_.size()) - row);
  auto read = std::make_shared<Block>(rows, row_bytes_);
  uint64_t at =
      blocks_at_ + static_cast<uint64_t>(block) * (kBlockRows * row_bytes_ + kChecksumBytes);
  file_->ReadAt(at, read->room());
  at += read->bytes().size();
  uint64_t checksum = 0;
  file_->ReadAt(at, std::as_writable_bytes(std::span(&checksum, 1)));
  if (Checksum(read->bytes(), BlockSeed(row)) != checksum) {
    Refuse("is damaged in the rows of positions " + std::to_string(row) + " to " +
           std::to_string(row + rows - 1));
  }
  return read;
}

std::vector<std::byte> StateFile::ReadCheckpoint() const {
  std::vector<std::byte> read(checkpoint_bytes_);
  if (read.empty()) return read;
  const uint64_t at = file_->size() - checkpoint_bytes_ - kChecksumBytes;
  file_->ReadAt(at, read);
  uint64_t checksum = 0;
  file_->ReadAt(at + checkpoint_bytes_, std::as_writable_bytes(std::span(&checksum, 1)));
  if (Checksum(read, kCheckpointSeed) != checksum) Refuse("is damaged in its checkpoint");
  return read;
}

void StateFile::Refuse(const std::string& why) const {
  throw Error(ErrorKind::kBadModel, "'" + name_ + "' " + why);
}

}  // namespace bloomery::state
