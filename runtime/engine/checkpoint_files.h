// Checkpoints in the prompt cache's folder, a file each, so that a model whose slots cannot be cut
// by position goes on from them after the server's end. Knows what files there are and by what
// tokens; the rows before them are blocks of the prompt cache, which knows nothing of these. Files
// are written behind and read on the I/O worker; past its limit the least recently used goes,
// another model's first. The engine's thread only. A failure costs reuse, never a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/checkpoints.h"
#include "runtime/state/disk_tier.h"
#include "runtime/state/io_worker.h"

namespace bloomery::engine {

class CheckpointFiles {
 public:
  // Takes up what the folder holds; `disk` and `worker` outlive this object.
  CheckpointFiles(const state::DiskTier& disk, state::IoWorker& worker, uint64_t bytes_max);

  // Writes it behind, where it is not there yet and is still held when its turn comes.
  void Write(const CheckpointPtr& checkpoint);
  // Tokens of the longest one that begins `tokens`; 0: there is none.
  int32_t Longest(std::span<const text::TokenId> tokens) const;
  // Begins to read that one. Until loading() is false again no further load may begin; then
  // TakeLoaded gives it, or null where it could not be read.
  void Load(std::span<const text::TokenId> tokens);
  bool loading() const { return loading_; }
  CheckpointPtr TakeLoaded();
  // Forgets those that begin `tokens` and are longer than `shared`.
  void Forget(std::span<const text::TokenId> tokens, int32_t shared);
  // Writes on at the end: until all is in the folder or `time` is over.
  void WriteAll(std::chrono::milliseconds time);

  struct Counters {
    uint64_t bytes = 0;  // gauge, other models' too
    uint64_t written_bytes = 0;
    uint64_t read_bytes = 0;
    uint64_t evicted_files = 0;
    uint64_t write_failures = 0;
    uint64_t refused_files = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct File {
    std::string name;
    uint64_t bytes = 0;
    std::vector<text::TokenId> tokens;  // empty: another model's
  };
  using Files = std::list<File>;  // the least recently used first

  Files::const_iterator Find(std::span<const text::TokenId> tokens) const;
  void Remove(Files::const_iterator at);
  bool MakeRoom(uint64_t bytes);
  void Pump();
  void WriteDone(File file, bool written);
  void LoadDone(const std::string& name, CheckpointPtr loaded);

  const state::DiskTier& disk_;
  state::IoWorker& worker_;
  const uint64_t bytes_max_;
  Files files_;
  std::deque<std::weak_ptr<const Checkpoint>> unwritten_;
  uint64_t writing_bytes_ = 0;
  int failures_in_a_row_ = 0;
  bool loading_ = false;
  CheckpointPtr loaded_;
  Counters counters_;
};

}  // namespace bloomery::engine
