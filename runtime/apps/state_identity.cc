#include "runtime/apps/state_identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "runtime/base/file.h"
#include "runtime/state/block.h"

namespace bloomery::apps {
namespace {

constexpr uint64_t kWholeBytesMax = uint64_t{256} << 20;  // a tenth of a second from the page cache
constexpr uint64_t kPartBytes = 4096;
constexpr size_t kReadBytes = size_t{1} << 20;

// Two chains of checksums, as one would leave chance collisions of 64 bits.
class Chain {
 public:
  void Add(std::span<const std::byte> bytes) {
    first_ = state::Checksum(bytes, first_);
    second_ = state::Checksum(bytes, second_ + 1);
  }
  void Add(uint64_t value) { Add(std::as_bytes(std::span(&value, 1))); }
  void Add(const File& file, uint64_t begin, uint64_t end) {
    while (begin < end) {
      const std::span<std::byte> part = std::span(buffer_).first(
          static_cast<size_t>(std::min<uint64_t>(kReadBytes, end - begin)));
      file.ReadAt(begin, part);
      Add(part);
      begin += part.size();
    }
  }
  std::string Text() const {
    std::array<char, 33> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                  static_cast<unsigned long long>(first_),
                  static_cast<unsigned long long>(second_));
    return digits.data();
  }

 private:
  uint64_t first_ = 1;
  uint64_t second_ = 2;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
};

uint64_t LastWritten(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return 0;
  return static_cast<uint64_t>(found.st_mtim.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(found.st_mtim.tv_nsec);
}

}  // namespace

std::string ModelDigest(const model::ModelFile& model) {
  uint64_t all = 0;
  for (const auto& file : model.files()) all += file->size();
  const bool whole = all <= kWholeBytesMax;
  Chain chain;
  for (size_t i = 0; i < model.files().size(); ++i) {
    const File& file = *model.files()[i];
    chain.Add(file.size());
    if (whole) {
      chain.Add(file, 0, file.size());
      continue;
    }
    chain.Add(LastWritten(file.path()));
    uint64_t start = file.size();
    for (const model::TensorInfo& tensor : model.tensors()) {
      if (tensor.file == i) start = std::min(start, tensor.offset);
    }
    chain.Add(file, 0, start);
  }
  if (whole) return chain.Text();
  for (const model::TensorInfo& tensor : model.tensors()) {
    const File& file = *model.files()[tensor.file];
    const uint64_t end = tensor.offset + tensor.bytes;
    const uint64_t part = std::min(tensor.bytes, kPartBytes);
    chain.Add(file, tensor.offset, tensor.offset + part);
    chain.Add(file, end - part, end);
  }
  return chain.Text();
}

state::Identity IdentityOf(const model::ModelFile& model, const exec::Seat& seat,
                           const std::vector<std::string>& programs) {
  // Kernels that keep every promise of bits give the same on every device.
  std::string numbers = "exact";
  if (!seat.inexact_operators().empty()) {
    numbers = std::string(seat.kernels());
    for (const std::string& op : seat.inexact_operators()) numbers += "," + op;
  }
  Chain build;
  for (const std::string& path : programs) {
    const auto file = RealFileSystem().Open(path);
    build.Add(*file, 0, file->size());
  }
  return {{"model", ModelDigest(model)}, {"numbers", numbers}, {"build", build.Text()}};
}

}  // namespace bloomery::apps
