#include "runtime/engine/checkpoint_files.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace bloomery::engine {
namespace {

bool Begins(std::span<const text::TokenId> front, std::span<const text::TokenId> tokens) {
  return front.size() <= tokens.size() && std::ranges::equal(front, tokens.first(front.size()));
}

}  // namespace

CheckpointFiles::CheckpointFiles(const state::DiskTier& disk, state::IoWorker& worker,
                                 uint64_t bytes_max)
    : disk_(disk), worker_(worker), bytes_max_(bytes_max) {
  Files own;
  for (state::DiskTier::Found& found : disk.ScanCheckpoints()) {
    counters_.bytes += found.bytes;
    Files& to = found.tokens.empty() ? files_ : own;
    to.push_back({std::move(found.name), found.bytes, std::move(found.tokens)});
  }
  files_.splice(files_.end(), own);
  MakeRoom(0);  // the limit may be smaller than it was
}

CheckpointFiles::Files::const_iterator CheckpointFiles::Find(
    std::span<const text::TokenId> tokens) const {
  auto best = files_.end();
  for (auto each = files_.begin(); each != files_.end(); ++each) {
    if (each->tokens.empty() || !Begins(each->tokens, tokens)) continue;
    if (best == files_.end() || each->tokens.size() > best->tokens.size()) best = each;
  }
  return best;
}

int32_t CheckpointFiles::Longest(std::span<const text::TokenId> tokens) const {
  const auto found = Find(tokens);
  return found == files_.end() ? 0 : static_cast<int32_t>(found->tokens.size());
}

void CheckpointFiles::Remove(Files::const_iterator at) {
  counters_.bytes -= at->bytes;
  worker_.Post([disk = &disk_, name = at->name]() -> state::IoWorker::Completion {
    disk->Remove(name);
    return {};
  });
  files_.erase(at);
}

bool CheckpointFiles::MakeRoom(uint64_t bytes) {
  if (bytes > bytes_max_) return false;
  while (counters_.bytes + bytes > bytes_max_) {
    if (files_.empty()) return false;  // what is being written takes it
    Remove(files_.begin());
    ++counters_.evicted_files;
  }
  return true;
}

void CheckpointFiles::Write(const CheckpointPtr& checkpoint) {
  unwritten_.push_back(checkpoint);
  Pump();
}

void CheckpointFiles::Pump() {
  while (!unwritten_.empty() && writing_bytes_ < limits::kStateWritesBytesMax) {
    CheckpointPtr next = unwritten_.front().lock();
    unwritten_.pop_front();
    if (next == nullptr || failures_in_a_row_ >= limits::kStateWriteFailuresMax) continue;
    const std::string name = disk_.CheckpointNameOf(next->tokens);
    const auto same = std::ranges::find(files_, name, &File::name);
    if (same != files_.end()) {
      files_.splice(files_.end(), files_, same);
      continue;
    }
    File file = {name, disk_.CheckpointFileBytes(next->length()), next->tokens};
    if (!MakeRoom(file.bytes)) continue;
    counters_.bytes += file.bytes;
    writing_bytes_ += file.bytes;
    worker_.Post([this, disk = &disk_, file = std::move(file),
                  next = std::move(next)]() -> state::IoWorker::Completion {
      bool written = false;
      try {
        disk->WriteCheckpoint(file.name, next->tokens, next->state);
        written = true;
      } catch (const Error& error) {
        LOG(WARNING) << "prompt cache: " << error.what();
      }
      return [this, file, written] { WriteDone(file, written); };
    });
  }
}

void CheckpointFiles::WriteDone(File file, bool written) {
  writing_bytes_ -= file.bytes;
  if (!written) {
    counters_.bytes -= file.bytes;
    ++counters_.write_failures;
    if (++failures_in_a_row_ == limits::kStateWriteFailuresMax) {
      LOG(ERROR) << "prompt cache: " << failures_in_a_row_
                 << " writes in a row failed; no more states are written to its folder";
    }
  } else {
    failures_in_a_row_ = 0;
    counters_.written_bytes += file.bytes;
    // The same may have been asked for twice while it was on its way.
    if (std::ranges::find(files_, file.name, &File::name) == files_.end()) {
      files_.push_back(std::move(file));
    } else {
      counters_.bytes -= file.bytes;
    }
  }
  Pump();
}

void CheckpointFiles::Load(std::span<const text::TokenId> tokens) {
  const auto found = Find(tokens);
  if (found == files_.end()) return;
  loading_ = true;
  files_.splice(files_.end(), files_, found);
  worker_.Post(
      [this, disk = &disk_, name = found->name,
       of = found->tokens]() -> state::IoWorker::Completion {
        CheckpointPtr loaded;
        try {
          auto read = std::make_shared<Checkpoint>();
          read->state = disk->ReadCheckpoint(name, of);
          read->tokens = of;
          loaded = std::move(read);
        } catch (const Error& error) {
          LOG(WARNING) << "prompt cache: not restored: " << error.what();
        } catch (const std::bad_alloc&) {
          LOG(WARNING) << "prompt cache: not restored: no memory";
        }
        return [this, name, loaded] { LoadDone(name, loaded); };
      },
      true);
}

void CheckpointFiles::LoadDone(const std::string& name, CheckpointPtr loaded) {
  loading_ = false;
  loaded_ = std::move(loaded);
  if (loaded_ != nullptr) {
    counters_.read_bytes += loaded_->state.size();
    return;
  }
  ++counters_.refused_files;
  const auto file = std::ranges::find(files_, name, &File::name);
  if (file != files_.end()) Remove(file);
}

CheckpointPtr CheckpointFiles::TakeLoaded() { return std::exchange(loaded_, nullptr); }

void CheckpointFiles::Forget(std::span<const text::TokenId> tokens, int32_t shared) {
  for (auto each = files_.cbegin(); each != files_.cend();) {
    const auto at = each++;
    if (at->tokens.size() > static_cast<size_t>(shared) && Begins(at->tokens, tokens)) Remove(at);
  }
}

void CheckpointFiles::WriteAll(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (writing_bytes_ > 0 || !unwritten_.empty()) {
    Pump();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !worker_.Drain(left)) return;
    worker_.RunCompletions();
  }
}

}  // namespace bloomery::engine
