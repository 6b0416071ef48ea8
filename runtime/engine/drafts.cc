#include "runtime/engine/drafts.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::engine {
namespace {

double Seconds(Clock::Duration time) { return std::chrono::duration<double>(time).count(); }

// Longer matches are right more often.
int32_t TrustOf(int32_t match) {
  if (match <= Lookup::kMatchMin) return 0;
  return match <= 4 ? 1 : (match < Lookup::kMatchMax ? 2 : 3);
}

void CheckOptions(const DraftOptions& options) {
  constexpr int32_t kMost = limits::kWindowRowsMax - 1;
  if (options.tokens_max < 1 || options.tokens_max > kMost) {
    throw Error(ErrorKind::kUsage, "--draft-max: " + std::to_string(options.tokens_max) +
                                       " is not from 1 to " + std::to_string(kMost));
  }
  if (!(options.p_min >= 0 && options.p_min <= 1)) {
    throw Error(ErrorKind::kUsage,
                "--draft-p-min: " + std::to_string(options.p_min) + " is not from 0 to 1");
  }
  if (options.tokens_min < 0 || options.tokens_min > options.tokens_max) {
    throw Error(ErrorKind::kUsage, "--draft-min: " + std::to_string(options.tokens_min) +
                                       " is not from 0 to --draft-max, " +
                                       std::to_string(options.tokens_max));
  }
}

}  // namespace

std::string_view DraftKindName(DraftKind kind) {
  switch (kind) {
    case DraftKind::kOff:
      return "off";
    case DraftKind::kLookup:
      return "lookup";
    case DraftKind::kMtp:
      return "mtp";
  }
  return "unknown";
}

Drafts::Drafts(exec::PassRunner& runner, const DraftOptions& options, const Clock& clock)
    : runner_(runner), options_(options), clock_(clock), context_(runner.limits().slot_context) {
  CheckOptions(options);
  const exec::SeatLimits& limits = runner.limits();
  const std::string flag = "--draft " + std::string(DraftKindName(options.kind));
  if (options.kind == DraftKind::kMtp && !limits.drafts) {
    throw Error(ErrorKind::kUnsupported,
                flag + ": the model is not loaded with a draft head of its own");
  }
  if (limits.window_rows <= options.tokens_max) {
    throw Error(ErrorKind::kUnsupported,
                flag + ": what runs the passes verifies " + std::to_string(limits.window_rows - 1) +
                    " tokens of drafts at most; lower --draft-max, start with --draft off, or "
                    "with --device none");
  }
  const bool lookup = options.kind == DraftKind::kLookup;
  own_.reserve(static_cast<size_t>(limits.slots));
  for (int32_t slot = 0; slot < limits.slots; ++slot) {
    own_.push_back({.lookup = Lookup(lookup ? context_ + 1 : 0), .guess = {}});
    own_.back().guess.reserve(static_cast<size_t>(options.tokens_max));
  }
  candidates_.reserve(own_.size() * static_cast<size_t>(options.tokens_max));
  rows_.reserve(own_.size());
}

std::span<const text::TokenId> Drafts::Of(int32_t slot) const {
  const Own& own = own_[static_cast<size_t>(slot)];
  return std::span(own.guess).first(static_cast<size_t>(own.verify));
}

int32_t Drafts::Room(const Slot& slot) const {
  const int32_t remaining = slot.choice().remaining();
  int32_t room = std::min(options_.tokens_max, context_ - slot.length() - 2);
  if (remaining >= 0) room = std::min(room, remaining - 1);
  return std::max(room, 0);
}

void Drafts::Make(std::span<Slot> slots, int32_t rows_max) {
  const Clock::TimePoint began = clock_.Now();
  candidates_.clear();
  int32_t decoding = 0;
  for (Slot& slot : slots) {
    Own& own = OwnOf(slot);
    own.guess.clear();
    own.verify = 0;
    if (slot.state() != SlotState::kGenerating) continue;
    ++decoding;
    if (rows_max == 0) continue;
    if (options_.kind == DraftKind::kLookup) {
      LookUp(slot);
    } else {
      Offer(slot, Room(slot));
    }
  }
  if (candidates_.empty()) return;
  Choose(slots, decoding, rows_max);
  if (options_.kind == DraftKind::kMtp) RunSteps(slots);
  counters_.seconds += Seconds(clock_.Now() - began);
}

void Drafts::LookUp(Slot& slot) {
  Own& own = OwnOf(slot);
  const std::span<const text::TokenId> tokens = slot.tokens();
  const int64_t id_task = slot.generation()->id_task();
  if (own.id_task != id_task) {
    own.lookup.Set(tokens);
    own.id_task = id_task;
  }
  // The index is what the slot holds and, behind it, the token that was drawn.
  for (size_t i = static_cast<size_t>(own.lookup.size()); i < tokens.size(); ++i) {
    own.lookup.Push(tokens[i]);
  }
  if (own.lookup.size() == slot.length()) own.lookup.Push(slot.choice().last_token());
  own.trust = TrustOf(own.lookup.Draft(Room(slot), &own.guess));
  Offer(slot, static_cast<int32_t>(own.guess.size()));
}

// `count` rows of the slot are candidates.
void Drafts::Offer(const Slot& slot, int32_t count) {
  if (count < options_.tokens_min) return;
  double p = 1;
  for (int32_t depth = 0; depth < count; ++depth) {
    p *= width_.Acceptance(OwnOf(slot).trust, depth);
    candidates_.push_back({.slot = slot.id(), .depth = depth, .p = p});
  }
}

// The best candidates; of one slot always the first ones, as each is less probable than the one
// before.
void Drafts::Choose(std::span<Slot> slots, int32_t decoding, int32_t rows_max) {
  std::ranges::sort(candidates_, [](const DraftCandidate& a, const DraftCandidate& b) {
    return a.p != b.p ? a.p > b.p : a.depth < b.depth || (a.depth == b.depth && a.slot < b.slot);
  });
  const auto most = std::min(candidates_.size(), static_cast<size_t>(rows_max));
  const auto offered = std::span(candidates_).first(most);
  const auto chosen =
      options_.measured ? static_cast<size_t>(width_.Choose(decoding, offered)) : offered.size();
  for (const DraftCandidate& each : offered.first(chosen)) {
    ++own_[static_cast<size_t>(each.slot)].verify;
  }
  for (const Slot& slot : slots) {
    Own& own = OwnOf(slot);
    if (own.verify < options_.tokens_min) own.verify = 0;
  }
}

void Drafts::RunSteps(std::span<Slot> slots) {
  int32_t depth = 0;
  while (Step(slots, depth)) ++depth;
  for (const Slot& slot : slots) {
    Own& own = OwnOf(slot);
    own.verify = std::min(own.verify, static_cast<int32_t>(own.guess.size()));
    if (own.verify < options_.tokens_min) own.verify = 0;
  }
}

// The next token of each draft that should have one; false where none should.
bool Drafts::Step(std::span<Slot> slots, int32_t depth) {
  rows_.clear();
  for (const Slot& slot : slots) {
    const Own& own = OwnOf(slot);
    if (own.verify <= depth || own.guess.size() != static_cast<size_t>(depth)) continue;
    rows_.push_back({.slot = slot.id(),
                     .depth = depth,
                     .token = depth == 0 ? slot.choice().last_token() : own.guess.back()});
  }
  if (rows_.empty()) return false;
  const Clock::TimePoint began = clock_.Now();
  try {
    const std::span<const exec::Drafted> drafted = runner_.RunDraft(rows_, options_.p_min > 0);
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (options_.p_min > 0 && drafted[i].probability < options_.p_min) continue;
      own_[static_cast<size_t>(rows_[i].slot)].guess.push_back(drafted[i].token);
    }
  } catch (const Error& error) {
    LOG(WARNING) << "a step of drafts failed: " << error.what();
    return false;
  }
  width_.LearnStep(Seconds(clock_.Now() - began));
  return true;
}

void Drafts::Drew(int32_t slot, int32_t count, text::TokenId token) {
  const Own& own = own_[static_cast<size_t>(slot)];
  const auto depth = static_cast<size_t>(count - 1);
  // The first guess is judged though no row verified what comes behind it.
  const bool judged = depth < static_cast<size_t>(own.verify) || (depth == 0 && !own.guess.empty());
  if (judged) width_.LearnToken(own.trust, count - 1, own.guess[depth] == token);
}

void Drafts::Count(int32_t verified, int32_t accepted) {
  ++counters_.drafts;
  counters_.tokens += static_cast<uint64_t>(verified);
  counters_.accepted += static_cast<uint64_t>(accepted);
  for (int32_t i = 0; i < accepted; ++i) ++counters_.accepted_at[static_cast<size_t>(i)];
}

void Drafts::PassTook(int32_t rows, Clock::Duration time) { width_.LearnPass(rows, Seconds(time)); }

}  // namespace bloomery::engine
