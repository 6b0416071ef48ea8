// A file system whose files are strings, for tests. Files stay readable after the file system is
// gone. Single-threaded while files are added.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace bloomery::test {

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem() = default;
  MemoryFileSystem(const std::string& path, std::string bytes) { Put(path, std::move(bytes)); }

  void Put(const std::string& path, std::string bytes) {
    auto entry = std::make_shared<Entry>();
    entry->bytes = std::move(bytes);
    entry->file = MakeMemoryFile(path, std::as_bytes(std::span(entry->bytes)));
    entries_[path] = std::move(entry);
  }

  std::shared_ptr<const File> Open(const std::string& path) const override {
    const auto found = entries_.find(path);
    if (found == entries_.end()) throw Error(ErrorKind::kNoInput, "cannot open '" + path + "'");
    return {found->second, found->second->file.get()};
  }
  bool Exists(const std::string& path) const override { return entries_.contains(path); }

 private:
  struct Entry {
    std::string bytes;
    std::shared_ptr<const File> file;
  };
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace bloomery::test
