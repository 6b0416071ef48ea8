// Saved states from anywhere: the bytes are a file that a slot or the prompt cache shall read. With
// the first byte's lowest bit the checksums are put right first, so that what lies behind them is
// reached. A file is refused with an Error or read whole; one that is read has what its header
// says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/state/state_file.h"

namespace {

using bloomery::state::Checksum;
using bloomery::state::kBlockRows;
using bloomery::state::StateFile;

constexpr uint64_t kRowBytes = 4;
constexpr int32_t kTokensMax = 600;
constexpr size_t kHeadBytes = 40;  // the layout of state_file.h

class OneFile final : public bloomery::FileSystem {
 public:
  explicit OneFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::shared_ptr<const bloomery::File> Open(const std::string& path) const override {
    return bloomery::MakeMemoryFile(path, bytes_);
  }
  bool Exists(const std::string&) const override { return true; }

 private:
  std::span<const std::byte> bytes_;
};

uint32_t Number(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

void Sign(std::string& bytes, size_t begin, size_t end, uint64_t seed) {
  const uint64_t sum = Checksum(std::as_bytes(std::span(bytes).subspan(begin, end - begin)), seed);
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
}

void PutChecksumsRight(std::string& bytes) {
  if (bytes.size() < kHeadBytes) return;
  const uint64_t first = Number(bytes, 24);
  const uint64_t tokens = Number(bytes, 28);
  const uint64_t header = kHeadBytes + Number(bytes, 12) + tokens * 4;
  if (header + 8 > bytes.size()) return;
  Sign(bytes, 0, header, 0x68656164);
  size_t at = header + 8;
  for (uint64_t row = first; row < tokens; row += kBlockRows) {
    const size_t size = std::min<uint64_t>(kBlockRows, tokens - row) * kRowBytes;
    if (at + size + 8 > bytes.size()) return;
    Sign(bytes, at, at + size, row + 1);
    at += size + 8;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) PutChecksumsRight(bytes);
  const bloomery::state::Identity identity{{"model", "a"}};
  try {
    const OneFile files(std::as_bytes(std::span(bytes)));
    const StateFile file(files, "folder/name",
                         {.identity = &identity, .row_bytes = kRowBytes, .tokens_max = kTokensMax});
    const auto tokens = static_cast<int32_t>(file.tokens().size());
    if (tokens > kTokensMax || file.first() < 0 || file.first() > tokens) std::abort();
    int32_t rows = 0;
    for (int32_t i = 0; i < file.blocks(); ++i) rows += file.Read(i)->rows();
    if (rows != tokens - file.first()) std::abort();
  } catch (const bloomery::Error&) {
    return 0;
  }
  return 0;
}
