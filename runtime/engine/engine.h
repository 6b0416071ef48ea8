// The engine: requests in, events out. Owns one thread that runs passes, the seat's slots, and one
// bounded queue of waiting requests. Every public method may be called from any thread and none
// waits for a pass, except Stop. The engine samples, ends and releases text; it never parses a
// prompt, never talks HTTP, and never lets a request's failure end another's or the process.
//
//   engine::Engine engine(runner, tokenizer, {.ubatch_rows = 512});
//   auto generation = engine.Submit({.prompt = ids, .n_predict = 32});
//   while (auto event = generation->Pop()) { … }
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/engine/generation.h"
#include "runtime/engine/request.h"
#include "runtime/exec/pass.h"
#include "runtime/state/identity.h"
#include "runtime/state/prompt_cache.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::engine {

// What is kept of states beyond the slots (docs/serving.md, "The prompt cache").
struct CacheOptions {
  uint64_t ram_bytes = 0;     // of host memory; 0: off, and the folder with it
  std::string folder = {};    // files of the same states; "": none
  uint64_t folder_bytes = 0;  // the folder's limit
  // What a saved state belongs to beside the planes' layout: model, numerics, build.
  state::Identity identity = {};
};

enum class DraftKind { kOff, kLookup, kMtp };
std::string_view DraftKindName(DraftKind kind);  // "off", "lookup", "mtp"

// Guesses of the next tokens, verified in the pass that makes the next one (docs/drafts.md).
struct DraftOptions {
  DraftKind kind = DraftKind::kOff;
  int32_t tokens_max = 3;  // of a slot in one pass
  int32_t tokens_min = 0;  // fewer are not verified
  double p_min = 0;        // mtp: a draft ends before a token that is less probable
  bool measured = true;    // as many as pay by what passes of late took; false: all there are
};

struct EngineOptions {
  int32_t batch_rows = 2048;  // -b: prompt rows between two Progress events; bounds a pass as well
  int32_t ubatch_rows = 512;  // rows of one pass (the runner's rows_max bounds it too)
  int32_t n_predict = -1;     // -n: for requests that ask -1; -1 is unbounded
  int32_t queue_max = limits::kQueuedRequestsMax;  // requests that wait for a slot
  // What a pass may take, in milliseconds, in which a prompt is read while streams wait for their
  // next token: it then has as many rows of prompts as that allows, by the pace of the passes
  // before. 0: prompts fill every pass.
  int32_t decode_gap_ms = 250;
  // A free slot is preferred when more than this part of the prompt is its prefix; 0: never.
  double slot_similarity = 0.1;
  CacheOptions cache = {};
  DraftOptions draft = {};
  const Clock* clock = nullptr;  // null: SteadyClock. Must outlive the engine
};

// The prompt does not fit: kContextFull with the numbers.
class ContextError : public Error {
 public:
  enum class Counted { kAll, kAtLeast };  // kAtLeast: what comes behind them was not looked at

  ContextError(size_t n_prompt_tokens, int32_t n_ctx, Counted counted = Counted::kAll);
  int32_t n_prompt_tokens() const { return n_prompt_tokens_; }
  int32_t n_ctx() const { return n_ctx_; }  // the slot's context

 private:
  int32_t n_prompt_tokens_;
  int32_t n_ctx_;
};

// EngineOptions::queue_max requests wait already: kUnavailable, worth another try.
class QueueFullError : public Error {
 public:
  QueueFullError(size_t waiting, int32_t retry_after_s);
  // When about half of those that wait now will have begun, by the pace of late.
  int32_t retry_after_s() const { return retry_after_s_; }

 private:
  int32_t retry_after_s_;
};

// One slot as /slots shows it.
struct SlotInfo {
  int32_t id = 0;
  int32_t n_ctx = 0;
  bool is_processing = false;
  int32_t n_tokens = 0;  // tokens held, kept for reuse while idle
  // The last task; -1, zeros and null before the first.
  int64_t id_task = -1;
  std::shared_ptr<const GenerateRequest> request;
  int32_t n_prompt_tokens = 0;
  int32_t n_prompt_tokens_processed = 0;  // evaluated
  int32_t n_prompt_tokens_cache = 0;
  // The `next_token` object.
  bool has_next_token = false;
  bool has_new_line = false;
  int32_t n_remain = -1;  // -1 while idle or unbounded
  int32_t n_decoded = 0;  // 0 while idle
};

// A state's way to a file, back, or out of the slot. Waits until the slot is idle.
struct SlotAction {
  enum class Kind { kSave, kRestore, kErase };
  struct Result {
    int32_t tokens = 0;  // saved, restored or erased
    uint64_t bytes = 0;  // of the file
    double ms = 0;
    std::optional<Error> error = {};  // the rest means nothing then
  };
  Kind kind = Kind::kErase;
  int32_t slot = 0;
  std::string path = {};  // of the file; messages name only its last part
  // Called once, on the engine's thread: must not block, throw, or call the engine.
  std::function<void(const Result&)> done = {};
};

// Prompt tokens taken over, by where they were; sums since the start.
struct ReuseCounters {
  uint64_t own = 0;          // in the slot
  uint64_t other_slots = 0;  // in another one
  uint64_t memory = 0;       // in the prompt cache
  uint64_t folder = 0;       // in its folder
  uint64_t requests_reusing = 0;
  double save_seconds = 0;  // of the engine's thread: copying states out of slots
  double take_seconds = 0;  // finding and taking up
};

// Sums since the start.
struct DraftCounters {
  uint64_t drafts = 0;    // verified: one a slot and pass
  uint64_t tokens = 0;    // of them
  uint64_t accepted = 0;  // of those
  std::array<uint64_t, limits::kWindowRowsMax - 1> accepted_at = {};  // by place in the draft
  double seconds = 0;  // of the engine's thread, making them
};

// Counters since the start, and gauges. A request's numbers are in here before its last event is.
struct Metrics {
  uint64_t prompt_tokens = 0;         // evaluated
  uint64_t prompt_tokens_cached = 0;  // taken over instead
  double prompt_seconds = 0;
  uint64_t predicted_tokens = 0;
  double predicted_seconds = 0;
  uint64_t passes = 0;      // llamacpp:n_decode_total
  uint64_t pass_slots = 0;  // summed over passes: slots with a row in it
  uint64_t rows = 0;        // summed over passes
  int32_t tokens_max = 0;   // the most tokens one slot has held
  uint64_t requests_finished = 0;
  uint64_t requests_cancelled = 0;
  uint64_t requests_failed = 0;
  uint64_t passes_failed = 0;
  int32_t slots_busy = 0;        // gauge: llamacpp:requests_processing
  int32_t requests_waiting = 0;  // gauge: llamacpp:requests_deferred
  int64_t tokens_held = 0;       // gauge: over all slots
  ReuseCounters reuse;
  state::CacheCounters cache;
  DraftCounters drafts;
};

class Engine {
 public:
  // Runner and tokenizer must outlive the engine; from now on only the engine's thread calls the
  // runner. Throws Error(kUsage) for options out of range (below 1, n_predict below -1),
  // Error(kUnsupported) for drafts that the runner cannot make or verify, and Error(kBadModel) when
  // vocabulary and logits rows differ in length.
  Engine(exec::PassRunner& runner, const text::Tokenizer& tokenizer, EngineOptions options = {});
  ~Engine();  // Stop(0)

  // Checks a request and queues it. Everything that can be refused is refused here, on the caller's
  // thread: Error(kBadRequest) naming the field; ContextError; QueueFullError; Error(kUnavailable)
  // when stopping, or with the reason when the engine has failed.
  std::shared_ptr<Generation> Submit(GenerateRequest request, Generation::Wake wake = {});

  // Queues a slot action. Throws Error(kBadRequest) for a slot that does not exist, and
  // Error(kUnavailable) when stopping or when limits::kSlotActionsMax wait already.
  void Submit(SlotAction action);

  std::vector<SlotInfo> SlotsSnapshot() const;
  Metrics ReadMetrics() const;

  // Asks the engine's thread for a sign of life and returns how many rounds it has made so far: a
  // number that has not grown since the last call, some time ago, is that of a thread which hangs
  // or is still in the same pass.
  uint64_t Beat();

  // Why the engine has failed for good (/health 503); nothing while it works.
  std::optional<std::string> failure() const;

  // Refuses new requests, fails the waiting ones, lets the running ones go on for `drain`, fails
  // the rest (all with kUnavailable), and returns when the engine's thread has ended: at most one
  // pass after the deadline, and where states are kept in a folder, after at most
  // limits::kStateFlushSecondsMax more for them. A second call may shorten the deadline.
  void Stop(std::chrono::milliseconds drain);

  const exec::SeatLimits& limits() const;
  const EngineOptions& options() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace bloomery::engine
