#include "runtime/text/grammar/tables.h"

#include <algorithm>
#include <functional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/grammar/token_trie.h"

namespace bloomery::text {
namespace {

using Kind = ProgramNode::Kind;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

template <class Pair>
uint64_t HashOf(std::span<const Pair> pairs, uint64_t seed) {
  uint64_t hash = Mix(seed, pairs.size());
  for (const Pair& pair : pairs) {
    hash = Mix(hash, static_cast<uint64_t>(pair.node) << 32 | pair.frame);
  }
  return hash;
}

template <class Value>
void SortUnique(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

[[noreturn]] void FailWork(const std::string& what) {
  throw Error(ErrorKind::kBadRequest,
              "grammar: " + what + "; write it with fewer ways to match the same text");
}

}  // namespace

const uint64_t GrammarTables::kStepsMax = limits::kGrammarStepsMax;

void GrammarTables::PairSet::Clear() {
  size_ = 0;
  if (++stamp_ == 0) {
    std::fill(stamps_.begin(), stamps_.end(), 0);
    stamp_ = 1;
  }
}

bool GrammarTables::PairSet::Insert(uint64_t key) {
  if (2 * size_ >= keys_.size()) Grow();
  const size_t mask = keys_.size() - 1;
  size_t at = Mix(0, key) & mask;
  while (stamps_[at] == stamp_) {
    if (keys_[at] == key) return false;
    at = (at + 1) & mask;
  }
  stamps_[at] = stamp_;
  keys_[at] = key;
  ++size_;
  return true;
}

void GrammarTables::PairSet::Grow() {
  std::vector<uint64_t> keys(2 * keys_.size());
  std::vector<uint32_t> stamps(2 * keys_.size());
  keys.swap(keys_);
  stamps.swap(stamps_);
  const uint32_t old = stamp_;
  stamp_ = 1;
  size_ = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (stamps[i] == old) Insert(keys[i]);
  }
}

GrammarTables::GrammarTables(const GrammarProgram& program) : program_(program) {
  frames_.push_back({0, 0});  // kBottom
  InternPlace(false);         // kDead: the first place, without threads
  BeginWork();
  BeginClosure();
  Push(program_.start, kBottom);
  start_ = Close();
}

std::span<const GrammarTables::Thread> GrammarTables::threads(PlaceId place) const {
  return std::span(threads_).subspan(places_[place].first, places_[place].count);
}

void GrammarTables::Spend(uint64_t steps) {
  if (steps_left_ < steps) FailWork("the work of one token is beyond the limit");
  steps_left_ -= steps;
}

void GrammarTables::BeginClosure() {
  work_.clear();
  found_.clear();
  calls_.clear();
  visited_.Clear();
  reached_end_ = false;
}

PlaceId GrammarTables::StepNew(PlaceId place, uint8_t byte) {
  BeginClosure();
  Spend(16);  // finding and keeping the new place
  for (const Thread& thread : threads(place)) {
    const ProgramNode& node = program_.nodes[thread.node];
    if (node.kind == Kind::kBytes && node.first <= byte && byte <= node.last) {
      Push(node.next, thread.frame);
    }
  }
  Spend(places_[place].count);
  const PlaceId next = Close();
  next_[places_[place].row + program_.classes[byte]] = next;
  return next;
}

PlaceId GrammarTables::StepToken(PlaceId place, TokenId token, bool named_only) {
  BeginClosure();
  for (const Thread& thread : threads(place)) {
    const ProgramNode& node = program_.nodes[thread.node];
    if (node.kind != Kind::kToken) continue;
    if (node.negated ? named_only || node.other == static_cast<uint32_t>(token)
                     : node.other != static_cast<uint32_t>(token)) {
      continue;
    }
    Push(node.next, thread.frame);
  }
  Spend(places_[place].count);
  return Close();
}

PlaceId GrammarTables::Join(PlaceId a, PlaceId b) {
  if (a == kDead || a == b) return b;
  if (b == kDead) return a;
  found_.assign(threads(a).begin(), threads(a).end());
  found_.insert(found_.end(), threads(b).begin(), threads(b).end());
  SortUnique(found_);
  return InternPlace(accepting(a) || accepting(b));
}

PlaceId GrammarTables::Close() {
  Drain();
  CallRules();
  SortUnique(found_);
  return InternPlace(reached_end_);
}

// Goes on from every pair of work_ as far as no byte is needed.
void GrammarTables::Drain() {
  while (!work_.empty()) {
    const Thread at = work_.back();
    work_.pop_back();
    if (!visited_.Insert(static_cast<uint64_t>(at.node) << 32 | at.frame)) continue;
    Spend(1);
    Enter(at);
  }
}

void GrammarTables::Enter(const Thread& at) {
  const ProgramNode& node = program_.nodes[at.node];
  const Frame frame = frames_[at.frame];
  switch (node.kind) {
    case Kind::kBytes:
      if (node.first > node.last) return;
      [[fallthrough]];
    case Kind::kToken:
      if (found_.size() >= limits::kGrammarThreadsMax) FailWork("too many ways to go on");
      found_.push_back(at);
      return;
    case Kind::kSplit:
      Push(node.next, at.frame);
      Push(node.other, at.frame);
      return;
    case Kind::kAccept:
      if (at.frame == kBottom) reached_end_ = true;
      Spend(frame.count);
      for (uint32_t i = 0; i < frame.count; ++i) {
        Push(returns_[frame.first + i].node, returns_[frame.first + i].frame);
      }
      return;
    case Kind::kCall: {
      const ProgramRule& rule = program_.rules[node.other];
      if (rule.nullable) Push(node.next, at.frame);
      // A call that is a rule's last part returns to where the rule returns, so that lists written
      // with recursion at their end do not pile up frames. Frames with many returns are not copied.
      constexpr uint32_t kReturnsCopiedMax = 4;
      const bool last = program_.nodes[node.next].kind == Kind::kAccept && at.frame != kBottom &&
                        frame.count <= kReturnsCopiedMax;
      const auto call = [&](const Return& back) {
        calls_.push_back({rule.rank, node.other, back});
        std::push_heap(calls_.begin(), calls_.end(), std::greater<>());
      };
      if (!last) return call({node.next, at.frame});
      for (uint32_t i = 0; i < frame.count; ++i) call(returns_[frame.first + i]);
      return;
    }
  }
}

// In the order of ranks: when a rule's turn comes, all that call it here have been found.
void GrammarTables::CallRules() {
  while (!calls_.empty()) {
    const uint32_t rule = calls_.front().rule;
    backs_.clear();
    while (!calls_.empty() && calls_.front().rule == rule) {
      backs_.push_back(calls_.front().back);
      std::pop_heap(calls_.begin(), calls_.end(), std::greater<>());
      calls_.pop_back();
    }
    SortUnique(backs_);
    if (backs_.size() > limits::kGrammarThreadsMax) FailWork("too many ways to go on");
    Push(program_.rules[rule].start, InternFrame());
    Drain();
  }
}

uint32_t GrammarTables::InternFrame() {
  const uint64_t hash = HashOf(std::span<const Return>(backs_), 1);
  const auto [begin, end] = frames_by_hash_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Frame& frame = frames_[entry->second];
    if (std::equal(backs_.begin(), backs_.end(), returns_.begin() + frame.first,
                   returns_.begin() + frame.first + frame.count)) {
      return entry->second;
    }
  }
  const auto id = static_cast<uint32_t>(frames_.size());
  frames_.push_back({static_cast<uint32_t>(returns_.size()), static_cast<uint32_t>(backs_.size())});
  returns_.insert(returns_.end(), backs_.begin(), backs_.end());
  frames_by_hash_.emplace(hash, id);
  return id;
}

// The place of the threads in found_, which are sorted.
PlaceId GrammarTables::InternPlace(bool accepting) {
  const uint64_t hash = HashOf(std::span<const Thread>(found_), accepting ? 3 : 2);
  const auto [begin, end] = places_by_hash_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Place& place = places_[entry->second];
    if (place.accepting == accepting && std::ranges::equal(found_, threads(entry->second))) {
      return entry->second;
    }
  }
  const auto id = static_cast<PlaceId>(places_.size());
  places_.push_back({.first = static_cast<uint32_t>(threads_.size()),
                     .count = static_cast<uint32_t>(found_.size()),
                     .row = static_cast<uint32_t>(next_.size()),
                     .accepting = accepting,
                     .loops_on_plain = -1});
  threads_.insert(threads_.end(), found_.begin(), found_.end());
  next_.resize(next_.size() + program_.class_count, found_.empty() ? kDead : kUnknown);
  masks_.emplace_back();
  places_by_hash_.emplace(hash, id);
  return id;
}

bool GrammarTables::LoopsOnPlain(PlaceId place) {
  if (places_[place].loops_on_plain < 0) {
    bool loops = true;
    for (uint32_t byte = 0; byte < 128 && loops; ++byte) {
      if (IsPlainByte(static_cast<uint8_t>(byte))) {
        loops = Step(place, static_cast<uint8_t>(byte)) == place;
      }
    }
    places_[place].loops_on_plain = loops ? 1 : 0;
  }
  return places_[place].loops_on_plain == 1;
}

size_t GrammarTables::bytes() const {
  constexpr size_t kHashEntry = 48;  // a node of the table, its bucket and what malloc adds
  return noted_bytes_ + places_.size() * (sizeof(Place) + sizeof(masks_[0]) + kHashEntry) +
         threads_.size() * sizeof(Thread) + next_.size() * sizeof(PlaceId) +
         frames_.size() * (sizeof(Frame) + kHashEntry) + returns_.size() * sizeof(Return);
}

PlaceId GrammarTables::Import(const GrammarTables& other, PlaceId place) {
  // Callers' frames have lower numbers than the frames of what they called.
  std::vector<bool> wanted(other.frames_.size());
  uint32_t highest = 0;
  for (const Thread& thread : other.threads(place)) {
    wanted[thread.frame] = true;
    highest = std::max(highest, thread.frame);
  }
  for (uint32_t frame = highest; frame > kBottom; --frame) {
    if (!wanted[frame]) continue;
    const Frame& each = other.frames_[frame];
    for (uint32_t i = 0; i < each.count; ++i) wanted[other.returns_[each.first + i].frame] = true;
  }
  std::vector<uint32_t> moved(highest + 1, kBottom);
  for (uint32_t frame = kBottom + 1; frame <= highest; ++frame) {
    if (!wanted[frame]) continue;
    const Frame& each = other.frames_[frame];
    backs_.clear();
    for (uint32_t i = 0; i < each.count; ++i) {
      const Return& back = other.returns_[each.first + i];
      backs_.push_back({back.node, moved[back.frame]});
    }
    SortUnique(backs_);
    moved[frame] = InternFrame();
  }
  found_.clear();
  for (const Thread& thread : other.threads(place)) {
    found_.push_back({thread.node, moved[thread.frame]});
  }
  SortUnique(found_);
  const PlaceId id = InternPlace(other.accepting(place));
  if (bytes() > limits::kGrammarTablesBytesMax / 2) {
    throw Error(ErrorKind::kBadRequest, "grammar: the output is nested too deeply");
  }
  return id;
}

}  // namespace bloomery::text
