// A file that appears whole or not at all: bytes go to a temporary name in the same folder, and
// Commit gives them the real one in a single rename. Owns the descriptor and the temporary file,
// which the destructor removes when nothing was committed; RemovePartialFiles removes those of
// processes that were killed. One thread. Never reads, never seeks.
//
//   OutputFile out("model.gguf");
//   out.Write(bytes);
//   out.Commit();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bloomery {

class OutputFile {
 public:
  // How names of temporary files begin; then the process, a dash and a number.
  static constexpr std::string_view kPartialPrefix = ".partial-";
  // Removes the temporary files in `folder` whose processes are gone.
  static void RemovePartialFiles(const std::string& folder);

  // Makes the temporary file. Throws Error(kNoInput) naming the path and the reason.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  // Bytes written so far.
  uint64_t size() const { return size_; }

  // Appends. Throws Error(kNoInput) naming path, place and reason (a full disk).
  void Write(std::span<const std::byte> bytes);

  // Makes the bytes durable and gives the file its name, durably too, replacing what had it. Once.
  void Commit();

 private:
  [[noreturn]] void Fail(const std::string& what, int error_number) const;

  std::string path_;
  std::string temporary_;  // empty once committed
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace bloomery
