// Files that misbehave on request, for tests of what reads them: a FaultyFileSystem wraps another
// one and gives out Files whose n-th read fails, tears, ends early or is delayed. Any thread may
// read. Mappings are refused, so that every byte goes through a read.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/file.h"

namespace bloomery::test {

enum class Fault {
  kNone,
  kFail,   // the read fails with EIO
  kShort,  // the read gives one byte, however many were asked for
  kTear,   // the second half of the bytes reads as zeros: a torn write, with no error at all
  kEnd,    // the file ends there: it was cut after it was opened
  kDelay,  // `on_delay` is called first; it may wait for the test
};

struct FaultPlan {
  Fault fault = Fault::kNone;
  int nth = 0;  // the read that is hit, counted over all files from 0; -1: every one
  std::function<void()> on_delay = {};
  int reads = 0;  // reads seen so far
};

class FaultyFile final : public File {
 public:
  FaultyFile(std::shared_ptr<const File> file, std::shared_ptr<FaultPlan> plan)
      : File(file->path()), file_(std::move(file)), plan_(std::move(plan)) {}

  uint64_t size() const override { return file_->size(); }
  std::unique_ptr<Mapping> Map(uint64_t, uint64_t) const override { return nullptr; }

 protected:
  size_t ReadSome(uint64_t offset, std::span<std::byte> out,
                  std::error_code& error) const override {
    // Files are read by several threads at a time.
    const int read = std::atomic_ref(plan_->reads).fetch_add(1);
    const bool hit = plan_->nth == -1 || plan_->nth == read;
    const Fault fault = hit ? plan_->fault : Fault::kNone;
    if (fault == Fault::kFail) {
      error = std::make_error_code(std::errc::io_error);
      return 0;
    }
    if (fault == Fault::kEnd) return 0;
    if (fault == Fault::kShort) out = out.first(1);
    if (fault == Fault::kDelay) plan_->on_delay();
    const size_t n = ReadSomeOf(*file_, offset, out, error);
    if (fault == Fault::kTear) std::fill(out.begin() + n / 2, out.begin() + n, std::byte{0});
    return n;
  }

 private:
  std::shared_ptr<const File> file_;
  std::shared_ptr<FaultPlan> plan_;
};

class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem(const FileSystem& files, FaultPlan plan)
      : files_(files), plan_(std::make_shared<FaultPlan>(std::move(plan))) {}

  std::shared_ptr<const File> Open(const std::string& path) const override {
    return std::make_shared<FaultyFile>(files_.Open(path), plan_);
  }
  bool Exists(const std::string& path) const override { return files_.Exists(path); }

  // Shared with the files given out: a test may change it on the way.
  FaultPlan& plan() const { return *plan_; }

 private:
  const FileSystem& files_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace bloomery::test
