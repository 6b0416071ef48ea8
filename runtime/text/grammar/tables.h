// Runs a GrammarProgram over bytes. A place is where an output stands in the grammar: the set of
// all (node, frame) pairs it may be at, a frame being where its rule was called from. Places,
// frames and the steps between them are found as they are needed and kept, so a step that was made
// before is a look-up. Rules that are called at one place share one frame, so the work is bounded
// by the program's size and the output's length, however ambiguous the grammar. One thread at a
// time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/text/grammar/grammar.h"
#include "runtime/text/grammar/program.h"

namespace bloomery::text {

using PlaceId = uint32_t;

class GrammarTables {
 public:
  struct Thread {
    uint32_t node;  // of kind kBytes or kToken
    uint32_t frame;
    auto operator<=>(const Thread&) const = default;
  };

  // The program must outlive the tables.
  explicit GrammarTables(const GrammarProgram& program);

  static constexpr PlaceId kDead = 0;  // nothing fits any more
  PlaceId start() const { return start_; }

  // Where `place` is after a byte.
  PlaceId Step(PlaceId place, uint8_t byte) {
    const PlaceId next = next_[places_[place].row + program_.classes[byte]];
    return next != kUnknown ? next : StepNew(place, byte);
  }
  // After a token's edges only, not its bytes. With named_only "any token but" does not count.
  PlaceId StepToken(PlaceId place, TokenId token, bool named_only);
  // Where an output stands that may be at either.
  PlaceId Join(PlaceId a, PlaceId b);
  // Every plain byte (token_trie.h) leads from `place` back to it.
  bool LoopsOnPlain(PlaceId place);

  bool accepting(PlaceId place) const { return places_[place].accepting; }
  std::span<const Thread> threads(PlaceId place) const;

  // The same place in these tables. Throws Error(kBadRequest) where it alone fills half of them.
  PlaceId Import(const GrammarTables& other, PlaceId place);

  // The work of new steps from here on is bounded by limits::kGrammarStepsMax; beyond it they
  // throw Error(kBadRequest), as where a place has more than limits::kGrammarThreadsMax threads.
  void BeginWork() { steps_left_ = kStepsMax; }

  // Memory in use, about, with what Note() was told.
  size_t bytes() const;
  std::shared_ptr<const TokenMask>& mask(PlaceId place) { return masks_[place]; }
  void Note(size_t more) { noted_bytes_ += more; }

 private:
  struct Return {
    uint32_t node;   // where the caller goes on
    uint32_t frame;  // the caller's own
    auto operator<=>(const Return&) const = default;
  };
  struct Frame {
    uint32_t first;  // into returns_
    uint32_t count;
  };
  struct Place {
    uint32_t first;  // into threads_
    uint32_t count;
    uint32_t row;  // into next_
    bool accepting;
    int8_t loops_on_plain;  // -1: not looked at
  };
  struct Call {
    uint32_t rank;
    uint32_t rule;
    Return back;
    auto operator<=>(const Call&) const = default;
  };
  // A set of (node, frame) pairs that is emptied in no time.
  class PairSet {
   public:
    void Clear();
    bool Insert(uint64_t key);  // false where it was in it

   private:
    void Grow();
    std::vector<uint64_t> keys_ = std::vector<uint64_t>(1024);
    std::vector<uint32_t> stamps_ = std::vector<uint32_t>(1024);
    uint32_t stamp_ = 1;
    size_t size_ = 0;
  };

  static const uint64_t kStepsMax;
  static constexpr PlaceId kUnknown = UINT32_MAX;
  static constexpr uint32_t kBottom = 0;  // the frame of the whole output: it returns nowhere

  PlaceId StepNew(PlaceId place, uint8_t byte);
  void BeginClosure();
  void Push(uint32_t node, uint32_t frame) { work_.push_back({node, frame}); }
  PlaceId Close();
  void Drain();
  void Enter(const Thread& at);
  void CallRules();
  uint32_t InternFrame();
  PlaceId InternPlace(bool accepting);
  void Spend(uint64_t steps);

  const GrammarProgram& program_;
  PlaceId start_ = kDead;
  uint64_t steps_left_ = 0;
  size_t noted_bytes_ = 0;

  std::vector<Place> places_;
  std::vector<Thread> threads_;
  std::vector<PlaceId> next_;  // a row of class_count for each place
  std::vector<std::shared_ptr<const TokenMask>> masks_;
  std::unordered_multimap<uint64_t, PlaceId> places_by_hash_;
  std::vector<Frame> frames_;
  std::vector<Return> returns_;
  std::unordered_multimap<uint64_t, uint32_t> frames_by_hash_;

  // Of one closure.
  std::vector<Thread> work_;
  std::vector<Thread> found_;
  std::vector<Call> calls_;  // a heap, the lowest rank first
  std::vector<Return> backs_;
  PairSet visited_;
  bool reached_end_ = false;
};

}  // namespace bloomery::text
