#include "runtime/model/byte_cursor.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace bloomery::model {
namespace {

// 64 KiB: headers are read in a few calls, and a small model is not read whole.
constexpr uint64_t kWindowBytes = 64 << 10;

}  // namespace

ByteCursor::ByteCursor(const File& file) : file_(file), size_(file.size()) {}

void ByteCursor::Read(std::span<std::byte> out, std::string_view what) {
  Require(out.size(), what);
  while (!out.empty()) {
    if (position_ < window_at_ || position_ - window_at_ >= window_.size()) {
      if (out.size() >= kWindowBytes) {
        file_.ReadAt(position_, out);
        position_ += out.size();
        return;
      }
      window_.resize(std::min(kWindowBytes, remaining()));
      file_.ReadAt(position_, window_);
      window_at_ = position_;
    }
    const size_t from = position_ - window_at_;
    const size_t n = std::min(out.size(), window_.size() - from);
    std::memcpy(out.data(), window_.data() + from, n);
    out = out.subspan(n);
    position_ += n;
  }
}

std::string ByteCursor::ReadString(uint64_t bytes, std::string_view what) {
  Require(bytes, what);
  std::string text(bytes, '\0');
  Read(std::as_writable_bytes(std::span(text)), what);
  return text;
}

void ByteCursor::Skip(uint64_t bytes, std::string_view what) {
  Require(bytes, what);
  position_ += bytes;
}

void ByteCursor::Refuse(uint64_t at, const std::string& problem) const {
  throw Error(ErrorKind::kBadModel,
              file_.path() + ": " + subject_ + " at byte " + std::to_string(at) + ": " + problem);
}

void ByteCursor::Require(uint64_t bytes, std::string_view what) const {
  if (bytes <= remaining()) return;
  Refuse(position_, std::string(what) + " needs " + std::to_string(bytes) +
                        " bytes, but the file ends at byte " + std::to_string(size_));
}

}  // namespace bloomery::model
