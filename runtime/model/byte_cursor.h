// Reads a file from front to back for a format's reader, in windows, and words what goes wrong:
// every failure names the path, the subject being read and a byte offset. Private to this module.
// One thread; the file must outlive it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace bloomery::model {

class ByteCursor {
 public:
  explicit ByteCursor(const File& file);

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }

  const std::string& path() const { return file_.path(); }

  // What the next reads belong to, for messages: "metadata key 'general.name'".
  void SetSubject(std::string subject) { subject_ = std::move(subject); }
  const std::string& subject() const { return subject_; }

  // One little-endian number. `what` names it in messages: "the string's length".
  template <typename T>
  T Read(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    Read(std::as_writable_bytes(std::span(&value, 1)), what);
    return value;
  }

  // Fills `out`; refuses when the file ends before.
  void Read(std::span<std::byte> out, std::string_view what);

  // `bytes` bytes as a string. The caller has checked that so much memory may be taken.
  std::string ReadString(uint64_t bytes, std::string_view what);

  void Skip(uint64_t bytes, std::string_view what);

  // Back to a position that was read past.
  void Seek(uint64_t position) { position_ = position; }

  // Refuses when the file ends before `bytes` more bytes.
  void Require(uint64_t bytes, std::string_view what) const;

  // Throws Error(kBadModel, "<path>: <subject> at byte <at>: <problem>").
  [[noreturn]] void Refuse(uint64_t at, const std::string& problem) const;

 private:
  const File& file_;
  uint64_t size_;
  uint64_t position_ = 0;
  std::string subject_ = "header";
  std::vector<std::byte> window_;  // bytes of the file from window_at_
  uint64_t window_at_ = 0;
};

}  // namespace bloomery::model
