// The prompt cache behind the slots: a prefix tree of blocks in host memory and, where a folder is
// given, in files. What conversations have in common is stored once. Owns the tree and its memory;
// copies rows out of slots only when told to and never puts any in. One thread (the engine's) calls
// it; files are written and read on the I/O worker, whose completions come back to that thread.
//
//        root ── "you are …" 128 ── 128 ──┬── 128 ── 40     a saved state is a path; only its
//                                         └── 128 ── 128    last block may be shorter
//
// A block leaves memory when room is needed and it is worth least: what computing it again costs,
// times how recently and often it was used, for each byte it takes (see BlockValue). Leaves go
// first, for a block is of no use without those before it. Blocks are written to the folder soon
// after they are saved, so one that leaves memory may still be read.
//
// All rows are of append planes today: any prefix of a path can be taken up. A plane that can only
// be taken up at certain positions brings a checkpoint of its own; it belongs to the block that
// ends where it was taken, and Find would offer no more rows than up to such a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/state/block.h"
#include "runtime/state/disk_tier.h"
#include "runtime/state/io_worker.h"

namespace bloomery::state {

// Sums since the start, and gauges.
struct CacheCounters {
  uint64_t ram_bytes = 0;   // gauge: of blocks and their tokens
  uint64_t ram_blocks = 0;  // gauge
  uint64_t ram_bytes_max = 0;
  uint64_t disk_bytes = 0;   // gauge: all blocks in the folder, other models' too
  uint64_t disk_blocks = 0;  // gauge: this model's
  uint64_t saved_rows = 0;   // copied out of slots
  uint64_t saved_bytes = 0;
  uint64_t evicted_blocks = 0;  // from memory
  uint64_t evicted_files = 0;
  uint64_t written_bytes = 0;  // to the folder
  uint64_t read_bytes = 0;     // from it
  uint64_t write_failures = 0;
  uint64_t refused_files = 0;  // damaged or gone when they were wanted
};

// What a block is worth keeping for, per byte. Attention makes a row dearer the further back it is:
// at kDoublePosition it costs twice as much as the first. `age`: uses of the cache since its last.
double BlockValue(int32_t first, int32_t rows, uint64_t bytes, uint32_t hits, uint64_t age);

class PromptCache {
 public:
  struct Options {
    uint64_t row_bytes = 0;      // of a slot's row
    uint64_t ram_bytes_max = 0;  // of blocks and their tokens; below one block nothing is ever kept
    DiskTier* disk = nullptr;    // with `worker`; both outlive this object
    IoWorker* worker = nullptr;
    uint64_t disk_bytes_max = 0;  // of the folder
  };

  // One block of a Match.
  struct Step {
    uint64_t id = 0;
    int32_t first = 0;       // position
    int32_t rows = 0;        // that the prompt has in common with it
    BlockPtr block;          // null: in the folder only
    bool from_disk = false;  // was read from there for this request
  };
  // The longest prefix held, block by block; the rows before the first null block are at hand.
  struct Match {
    std::vector<Step> steps;
    int32_t rows = 0;     // with what the folder holds
    int32_t at_hand = 0;  // in memory
  };

  // Fills `room` with rows [first, first + rows) of the slot being saved. May throw Error.
  using ReadRows = std::function<void(int32_t first, int32_t rows, std::span<std::byte> room)>;

  // Takes up what the folder holds.
  explicit PromptCache(const Options& options);
  ~PromptCache();

  Match Find(std::span<const Token> tokens);
  // The blocks at hand of `match` were taken up: they are worth more from now on.
  void Use(const Match& match);

  // Begins to read the blocks of `match` that are in the folder only, as many as memory may hold.
  // Until loading() is false again, no further load may begin; then Find finds them at hand.
  void Load(const Match& match, std::span<const Token> tokens);
  bool loading() const { return loads_left_ > 0; }
  // What was loaded stays at hand until here, whatever else needs room.
  void ReleaseLoaded() { loaded_.clear(); }

  // Saves a slot's state: `read` is called for the blocks that the tree lacks. Returns the rows
  // that were copied. Where memory runs out the state's front part is kept.
  int32_t Save(std::span<const Token> tokens, const ReadRows& read);

  // Forgets the state in memory and folder, as far as no other state shares its blocks.
  void Forget(std::span<const Token> tokens);

  // Writes on at the end: until all is in the folder or `time` is over.
  void WriteAll(std::chrono::milliseconds time);

  const CacheCounters& counters() const { return counters_; }

 private:
  struct Node;
  struct TokensLess;
  using Children = std::set<std::unique_ptr<Node>, TokensLess>;

  Node* Child(const Node& parent, std::span<const Token> rest, int32_t* common) const;
  Node* Covering(const Node& parent, std::span<const Token> piece) const;
  Node* Add(Node& parent, std::span<const Token> piece, int32_t first);
  Node* FindNode(uint64_t id) const;
  std::vector<Token> PathTokens(const Node& node) const;
  bool Fill(Node& node, const ReadRows& read);
  void Hold(Node& node, BlockPtr block);
  void DropBlock(Node& node);
  void DropFile(Node& node);
  // Removes the node and those before it that hold nothing and lead nowhere.
  void Prune(Node* node);
  // Of memory that a block of so many rows takes.
  uint64_t BlockBytes(size_t rows) const { return rows * (options_.row_bytes + sizeof(Token)); }
  bool MakeRoom(uint64_t bytes);
  bool MakeDiskRoom(uint64_t bytes, const Node& keep);
  Node* Cheapest(bool of_disk, const Node* keep) const;
  void AdoptFiles();
  void PumpWrites();
  void StartWrite(Node& node);
  void WriteDone(uint64_t id, const std::string& name, uint64_t bytes, bool written);
  void LoadDone(uint64_t id, BlockPtr block);

  Options options_;
  std::unique_ptr<Node> root_;
  std::unordered_map<uint64_t, Node*> nodes_;
  uint64_t next_id_ = 1;
  uint64_t now_ = 0;  // counts uses
  CacheCounters counters_;
  std::vector<BlockPtr> loaded_;
  size_t loads_left_ = 0;
  std::deque<DiskTier::Found> foreign_;  // other models' files, the oldest first
  std::deque<uint64_t> unwritten_;
  uint64_t writing_bytes_ = 0;
  int write_failures_in_a_row_ = 0;
};

}  // namespace bloomery::state
