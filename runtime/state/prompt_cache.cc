#include "runtime/state/prompt_cache.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <new>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace bloomery::state {
namespace {

// Where attention to what lies before costs a row as much as the rest of it: some ten thousand
// positions in the models we know; the choice between blocks needs no more than that.
constexpr double kDoublePosition = 16384;

size_t CommonRows(std::span<const Token> a, std::span<const Token> b) {
  const size_t most = std::min(a.size(), b.size());
  size_t rows = 0;
  while (rows < most && a[rows] == b[rows]) ++rows;
  return rows;
}

bool BeginsWith(std::span<const Token> tokens, std::span<const Token> front) {
  return tokens.size() >= front.size() && CommonRows(tokens, front) == front.size();
}

}  // namespace

double BlockValue(int32_t first, int32_t rows, uint64_t bytes, uint32_t hits, uint64_t age) {
  const double middle = first + rows / 2.0;
  const double cost = rows * (1 + middle / kDoublePosition);
  return cost * (1.0 + hits) / (1.0 + static_cast<double>(age)) / static_cast<double>(bytes);
}

// The order of tokens; no child's tokens begin another's, so a longest common prefix is beside the
// place where the wanted ones would stand.
struct PromptCache::TokensLess {
  using is_transparent = void;
  static std::span<const Token> Of(const std::unique_ptr<Node>& node);
  static std::span<const Token> Of(std::span<const Token> tokens) { return tokens; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return std::ranges::lexicographical_compare(Of(a), Of(b));
  }
};

struct PromptCache::Node {
  uint64_t id = 0;
  Node* parent = nullptr;
  int32_t first = 0;
  std::vector<Token> tokens;
  BlockPtr block;                   // null: not in memory
  std::weak_ptr<const Block> lent;  // what left memory, while somebody still has it
  uint64_t file_bytes = 0;          // 0: not in the folder
  bool writing = false;
  bool was_loaded = false;
  uint64_t last_used = 0;
  uint32_t hits = 0;
  int32_t blocks_below = 0;  // children in memory
  int32_t files_below = 0;   // children in the folder
  Children children;
};

std::span<const Token> PromptCache::TokensLess::Of(const std::unique_ptr<Node>& node) {
  return node->tokens;
}

PromptCache::PromptCache(const Options& options)
    : options_(options), root_(std::make_unique<Node>()) {
  assert(options_.row_bytes > 0);
  counters_.ram_bytes_max = options_.ram_bytes_max;
  if (options_.disk != nullptr) AdoptFiles();
}

PromptCache::~PromptCache() = default;

PromptCache::Node* PromptCache::FindNode(uint64_t id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second;
}

// The child that has most of `rest` in common; one at hand where two have equally much.
PromptCache::Node* PromptCache::Child(const Node& parent, std::span<const Token> rest,
                                      int32_t* common) const {
  Node* best = nullptr;
  size_t rows = 0;
  const auto look = [&](Node* node) {
    const size_t now = CommonRows(node->tokens, rest);
    const bool better = now > rows || (now == rows && best != nullptr && best->block == nullptr);
    if (now == 0 || !better) return;
    best = node;
    rows = now;
  };
  const auto after = parent.children.lower_bound(rest);
  if (after != parent.children.end()) look(after->get());
  if (after != parent.children.begin()) look(std::prev(after)->get());
  *common = static_cast<int32_t>(rows);
  return best;
}

// The child whose tokens begin with `piece`.
PromptCache::Node* PromptCache::Covering(const Node& parent, std::span<const Token> piece) const {
  const auto found = parent.children.lower_bound(piece);
  if (found == parent.children.end() || !BeginsWith((*found)->tokens, piece)) return nullptr;
  return found->get();
}

PromptCache::Match PromptCache::Find(std::span<const Token> tokens) {
  Match match;
  const Node* at = root_.get();
  for (;;) {
    int32_t common = 0;
    const Node* child = Child(*at, tokens.subspan(static_cast<size_t>(match.rows)), &common);
    if (child == nullptr) break;
    BlockPtr block = child->block != nullptr ? child->block : child->lent.lock();
    if (block == nullptr && child->file_bytes == 0) break;
    if (block != nullptr && match.at_hand == match.rows) match.at_hand += common;
    match.rows += common;
    match.steps.push_back({.id = child->id,
                           .first = child->first,
                           .rows = common,
                           .block = std::move(block),
                           .from_disk = child->was_loaded});
    if (common < kBlockRows) break;
    at = child;
  }
  return match;
}

void PromptCache::Use(const Match& match) {
  ++now_;
  for (const Step& step : match.steps) {
    Node* node = FindNode(step.id);
    if (step.block == nullptr || node == nullptr) return;
    node->last_used = now_;
    node->was_loaded = false;
    ++node->hits;
  }
}

int32_t PromptCache::Save(std::span<const Token> tokens, const ReadRows& read) {
  ++now_;
  Node* at = root_.get();
  int32_t copied = 0;
  for (size_t position = 0; position < tokens.size();) {
    const size_t rows = std::min<size_t>(kBlockRows, tokens.size() - position);
    const std::span<const Token> piece = tokens.subspan(position, rows);
    Node* child = Covering(*at, piece);
    if (child == nullptr) child = Add(*at, piece, static_cast<int32_t>(position));
    child->last_used = now_;
    const bool whole = child->tokens.size() == rows;
    if (child->block == nullptr && whole) {
      const bool filled = Fill(*child, read);
      if (filled) copied += static_cast<int32_t>(rows);
      if (!filled && child->file_bytes == 0) {
        Prune(child);
        break;
      }
    }
    if (!whole || rows < kBlockRows) break;
    at = child;
    position += rows;
  }
  PumpWrites();
  return copied;
}

// A new child takes the place of one whose tokens begin its own.
PromptCache::Node* PromptCache::Add(Node& parent, std::span<const Token> piece, int32_t first) {
  const auto after = parent.children.lower_bound(piece);
  if (after != parent.children.begin()) {
    Node& before = **std::prev(after);
    if (BeginsWith(piece, before.tokens)) {
      assert(before.children.empty());
      DropFile(before);
      DropBlock(before);
      nodes_.erase(before.id);
      parent.children.erase(std::prev(after));
    }
  }
  auto node = std::make_unique<Node>();
  node->id = next_id_++;
  node->parent = &parent;
  node->first = first;
  node->tokens.assign(piece.begin(), piece.end());
  Node* const added = node.get();
  nodes_[added->id] = added;
  parent.children.insert(std::move(node));
  return added;
}

// Copies the rows of a node; false where there is no room, or they cannot be had.
bool PromptCache::Fill(Node& node, const ReadRows& read) {
  const auto rows = static_cast<int32_t>(node.tokens.size());
  const uint64_t bytes = static_cast<uint64_t>(rows) * options_.row_bytes;
  if (!MakeRoom(BlockBytes(node.tokens.size()))) return false;
  std::shared_ptr<Block> block;
  try {
    block = std::make_shared<Block>(rows, options_.row_bytes);
    read(node.first, rows, block->room());
  } catch (const std::bad_alloc&) {
    LOG(WARNING) << "prompt cache: the machine gives no memory for " << bytes
                 << " more bytes; a state is not saved whole";
    return false;
  } catch (const Error& error) {
    LOG(WARNING) << "prompt cache: a state is not saved whole: " << error.what();
    return false;
  }
  Hold(node, std::move(block));
  counters_.saved_rows += static_cast<uint64_t>(rows);
  counters_.saved_bytes += bytes;
  if (options_.disk != nullptr && node.file_bytes == 0) unwritten_.push_back(node.id);
  return true;
}

void PromptCache::Hold(Node& node, BlockPtr block) {
  counters_.ram_bytes += BlockBytes(node.tokens.size());
  ++counters_.ram_blocks;
  ++node.parent->blocks_below;
  node.block = std::move(block);
}

void PromptCache::DropBlock(Node& node) {
  if (node.block == nullptr) return;
  counters_.ram_bytes -= BlockBytes(node.tokens.size());
  --counters_.ram_blocks;
  --node.parent->blocks_below;
  node.lent = node.block;
  node.block.reset();
}

void PromptCache::DropFile(Node& node) {
  if (node.file_bytes == 0) return;
  counters_.disk_bytes -= node.file_bytes;
  --counters_.disk_blocks;
  --node.parent->files_below;
  node.file_bytes = 0;
  options_.worker->Post([disk = options_.disk,
                         name = options_.disk->NameOf(PathTokens(node))]() -> IoWorker::Completion {
    disk->Remove(name);
    return {};
  });
}

void PromptCache::Prune(Node* node) {
  while (node != root_.get() && node->block == nullptr && node->file_bytes == 0 &&
         node->children.empty()) {
    Node* const parent = node->parent;
    nodes_.erase(node->id);
    parent->children.erase(parent->children.find(std::span<const Token>(node->tokens)));
    node = parent;
  }
}

std::vector<Token> PromptCache::PathTokens(const Node& node) const {
  std::vector<Token> tokens(static_cast<size_t>(node.first) + node.tokens.size());
  for (const Node* at = &node; at != root_.get(); at = at->parent) {
    std::ranges::copy(at->tokens, tokens.begin() + at->first);
  }
  return tokens;
}

// The least valuable leaf of a tier that no present use needs; null: there is none.
PromptCache::Node* PromptCache::Cheapest(bool of_disk, const Node* keep) const {
  Node* cheapest = nullptr;
  double least = 0;
  for (const auto& [id, node] : nodes_) {
    const bool leaf = of_disk ? node->file_bytes > 0 && node->files_below == 0
                              : node->block != nullptr && node->blocks_below == 0;
    if (!leaf || node->last_used == now_ || node == keep) continue;
    const double value =
        BlockValue(node->first, static_cast<int32_t>(node->tokens.size()),
                   BlockBytes(node->tokens.size()), node->hits, now_ - node->last_used);
    // Of equals the oldest, so that the choice does not depend on the map's order.
    if (cheapest == nullptr || value < least || (value == least && node->id < cheapest->id)) {
      cheapest = node;
      least = value;
    }
  }
  return cheapest;
}

// Blocks of the present use stay: a state that is larger than the limit keeps its front part.
bool PromptCache::MakeRoom(uint64_t bytes) {
  while (counters_.ram_bytes + bytes > options_.ram_bytes_max) {
    Node* const victim = Cheapest(false, nullptr);
    if (victim == nullptr) return false;
    DropBlock(*victim);
    ++counters_.evicted_blocks;
    Prune(victim);
  }
  return true;
}

bool PromptCache::MakeDiskRoom(uint64_t bytes, const Node& keep) {
  while (counters_.disk_bytes + bytes > options_.disk_bytes_max) {
    ++counters_.evicted_files;
    if (!foreign_.empty()) {
      counters_.disk_bytes -= foreign_.front().bytes;
      options_.worker->Post(
          [disk = options_.disk, name = foreign_.front().name]() -> IoWorker::Completion {
            disk->Remove(name);
            return {};
          });
      foreign_.pop_front();
      continue;
    }
    Node* const victim = Cheapest(true, keep.parent);
    if (victim == nullptr) {
      --counters_.evicted_files;
      return false;
    }
    DropFile(*victim);
    Prune(victim);
  }
  return true;
}

void PromptCache::Forget(std::span<const Token> tokens) {
  std::vector<Node*> path;
  const Node* at = root_.get();
  for (size_t position = 0; position < tokens.size();) {
    int32_t common = 0;
    Node* const child = Child(*at, tokens.subspan(position), &common);
    if (child == nullptr || static_cast<size_t>(common) < child->tokens.size()) break;
    path.push_back(child);
    position += static_cast<size_t>(common);
    at = child;
  }
  while (!path.empty() && path.back()->children.empty()) {
    DropFile(*path.back());
    DropBlock(*path.back());
    Prune(path.back());
    path.pop_back();
  }
}

// Folder.

void PromptCache::AdoptFiles() {
  for (DiskTier::Found& found : options_.disk->Scan()) {
    counters_.disk_bytes += found.bytes;
    if (found.tokens.empty()) {
      foreign_.push_back(std::move(found));
      continue;
    }
    const std::span<const Token> tokens = found.tokens;
    Node* at = root_.get();
    for (int32_t first = 0; at != nullptr && first <= found.first; first += kBlockRows) {
      const auto start = static_cast<size_t>(first);
      const std::span<const Token> piece =
          tokens.subspan(start, std::min<size_t>(kBlockRows, tokens.size() - start));
      Node* child = Covering(*at, piece);
      if (child == nullptr) child = Add(*at, piece, first);
      at = child->tokens.size() == piece.size() ? child : nullptr;
    }
    if (at == nullptr || at->file_bytes > 0) {  // a longer one has its place
      counters_.disk_bytes -= found.bytes;
      options_.disk->Remove(found.name);
      continue;
    }
    at->file_bytes = found.bytes;
    at->last_used = ++now_;
    ++at->parent->files_below;
    ++counters_.disk_blocks;
  }
  ++now_;
  // The limit may be smaller than it was.
  MakeDiskRoom(0, *root_);
}

void PromptCache::PumpWrites() {
  while (!unwritten_.empty() && writing_bytes_ < limits::kStateWritesBytesMax) {
    Node* const node = FindNode(unwritten_.front());
    unwritten_.pop_front();
    if (write_failures_in_a_row_ >= limits::kStateWriteFailuresMax) continue;
    if (node == nullptr || node->block == nullptr || node->file_bytes > 0 || node->writing) {
      continue;
    }
    StartWrite(*node);
  }
}

void PromptCache::StartWrite(Node& node) {
  std::vector<Token> tokens = PathTokens(node);
  const uint64_t bytes = options_.disk->FileBytes(node.first, static_cast<int32_t>(tokens.size()));
  if (!MakeDiskRoom(bytes, node)) return;
  node.writing = true;
  writing_bytes_ += bytes;
  counters_.disk_bytes += bytes;
  options_.worker->Post([this, disk = options_.disk, id = node.id, first = node.first, bytes,
                         block = node.block, tokens = std::move(tokens)]() -> IoWorker::Completion {
    const std::string name = disk->NameOf(tokens);
    bool written = false;
    try {
      disk->Write(name, tokens, first, block);
      written = true;
    } catch (const Error& error) {
      LOG(WARNING) << "prompt cache: " << error.what();
    }
    return [this, id, name, bytes, written] { WriteDone(id, name, bytes, written); };
  });
}

void PromptCache::WriteDone(uint64_t id, const std::string& name, uint64_t bytes, bool written) {
  writing_bytes_ -= bytes;
  Node* const node = FindNode(id);
  if (node != nullptr) node->writing = false;
  if (!written) {
    counters_.disk_bytes -= bytes;
    ++counters_.write_failures;
    if (++write_failures_in_a_row_ == limits::kStateWriteFailuresMax) {
      LOG(ERROR) << "prompt cache: " << write_failures_in_a_row_
                 << " writes in a row failed; nothing more is written to its folder";
    }
  } else {
    write_failures_in_a_row_ = 0;
    counters_.written_bytes += bytes;
    if (node != nullptr) {
      node->file_bytes = bytes;
      ++node->parent->files_below;
      ++counters_.disk_blocks;
    } else {  // forgotten meanwhile
      counters_.disk_bytes -= bytes;
      options_.worker->Post([disk = options_.disk, name]() -> IoWorker::Completion {
        disk->Remove(name);
        return {};
      });
    }
  }
  PumpWrites();
}

void PromptCache::WriteAll(std::chrono::milliseconds time) {
  if (options_.worker == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + time;
  while (writing_bytes_ > 0 || !unwritten_.empty()) {
    PumpWrites();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !options_.worker->Drain(left)) return;
    options_.worker->RunCompletions();
  }
}

void PromptCache::Load(const Match& match, std::span<const Token> tokens) {
  assert(!loading());
  loaded_.clear();
  ++now_;
  uint64_t bytes = 0;
  for (const Step& step : match.steps) {
    Node* const node = FindNode(step.id);
    assert(node != nullptr);
    node->last_used = now_;
    bytes += BlockBytes(node->tokens.size());
    if (bytes > options_.ram_bytes_max) return;
    if (step.block != nullptr) {
      loaded_.push_back(step.block);
      continue;
    }
    ++loads_left_;
    // Past the match a block may hold other tokens: its whole path is what its file must name.
    std::vector<Token> path = PathTokens(*node);
    assert(BeginsWith(path, tokens.first(static_cast<size_t>(step.first + step.rows))));
    options_.worker->Post(
        [this, disk = options_.disk, id = step.id, first = step.first,
         path = std::move(path)]() -> IoWorker::Completion {
          BlockPtr block;
          try {
            block = disk->Read(disk->NameOf(path), path, first);
          } catch (const Error& error) {
            LOG(WARNING) << "prompt cache: not restored: " << error.what();
          } catch (const std::bad_alloc&) {
            LOG(WARNING) << "prompt cache: not restored: no memory";
          }
          return [this, id, block] { LoadDone(id, block); };
        },
        true);
  }
}

void PromptCache::LoadDone(uint64_t id, BlockPtr block) {
  --loads_left_;
  Node* const node = FindNode(id);
  if (block == nullptr) {
    ++counters_.refused_files;
    if (node == nullptr) return;
    DropFile(*node);
    Prune(node);
    return;
  }
  counters_.read_bytes += block->bytes().size();
  loaded_.push_back(block);
  if (node == nullptr || node->block != nullptr) return;
  node->was_loaded = true;
  node->last_used = now_;
  node->lent = block;
  if (MakeRoom(BlockBytes(node->tokens.size()))) Hold(*node, std::move(block));
}

}  // namespace bloomery::state
