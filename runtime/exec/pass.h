// One pass of a seat: the line between the engine, which decides what rows run, and exec, which
// runs them. The engine hands rows to a PassRunner, which computes them and leaves the logits of
// the rows that asked for them. One thread (the engine's) calls a runner; a runner owns the seat's
// planes, worker pool and buffers, and allocates nothing from the heap inside Run. It never
// samples, never schedules, never talks to clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace bloomery::exec {

// One row: a token position of one slot. Rows of a slot are contiguous in a pass and in ascending
// order, the first at the slot's present length.
struct PassRow {
  int32_t slot = 0;
  int32_t index = 0;  // causality and storage: 0 is the slot's first token
  int32_t token = 0;
  bool logits = false;  // whether this row's logits are wanted
  // Whether the slot may be cut back to behind this row once the pass has run (a row of a draft's
  // window). It may always be cut to behind its last row, and to before the pass.
  bool keep = false;
};

// What is fixed once a seat is loaded.
struct SeatLimits {
  int32_t slots = 0;
  int32_t slot_context = 0;  // rows a slot can hold
  // Rows of one pass: the ubatch, or more where the runner takes it in parts of the ubatch that
  // are under way at once.
  int32_t rows_max = 0;
  int32_t vocabulary = 0;      // length of a logits row
  int32_t logit_rows_max = 0;  // rows of one pass whose logits may be wanted; 0: all of them
  int32_t window_rows = 1;     // rows of a slot in one pass of which all but the last may be `keep`
  // Rows of a pass up to which drafts may fill it: beyond, rows need not have the bits that they
  // have alone. 0: rows_max.
  int32_t draft_pass_rows = 0;
  bool drafts = false;  // whether RunDraft may be called
};

// A row of the model's own draft: guesses what follows `token`, which comes `depth` tokens behind
// what the slot holds. A slot's draft starts at depth 0 and goes on one deeper a call.
struct DraftRow {
  int32_t slot = 0;
  int32_t depth = 0;
  int32_t token = 0;
};
struct Drafted {
  int32_t token = 0;       // the best one, the lower id on a tie
  float probability = -1;  // of it, where that was asked for
};

// One of the best logits of a row.
struct BestLogit {
  int32_t token = 0;
  float logit = 0;
};

// Rows of a slot as bytes outside of it: plane after plane, the rows of each together. What leaves
// is what comes back, so a slot that got them goes on bit for bit as the one they came from.
struct RowChunk {
  static constexpr int32_t kRowsMax = 128;
  int32_t rows = 0;                  // 1..kRowsMax
  std::span<const std::byte> bytes;  // rows * StateRowBytes()
};

class PassRunner {
 public:
  virtual ~PassRunner() = default;
  virtual const SeatLimits& limits() const = 0;

  // Runs 1..rows_max rows. Throws Error(kInternal) naming operator, layer and row when a row fails
  // numerically or a kernel returns a failure, Error(kDevice) when a card fails; the caller then
  // cuts every slot of the pass back to its length before the pass.
  virtual void Run(std::span<const PassRow> rows) = 0;

  // Logits of the i-th row of the last pass that had `logits` set: f32 [vocabulary]. Valid until
  // the next Run.
  virtual std::span<const float> Logits(int32_t i) const = 0;

  // The best logits of that row, by descending logit and the lower id on a tie, where the runner
  // has them without fetching the whole row: all that greedy and top-k choices need. Empty
  // otherwise. Valid until the next call.
  virtual std::span<const BestLogit> BestLogits(int32_t /*i*/) const { return {}; }

  // One step of the model's own draft, at most a row a slot; `probabilities`: say how sure it is.
  // Changes no slot's length or state. Valid until the next call; the logits of the last pass are
  // gone. Throws as Run does, and there is nothing to cut then.
  virtual std::span<const Drafted> RunDraft(std::span<const DraftRow> /*rows*/,
                                            bool /*probabilities*/) {
    return {};
  }

  // Forgets the slot's rows from `length` on (0 empties it). Where Keepable says less, a checkpoint
  // must be restored before the slot goes on.
  virtual void Cut(int32_t slot, int32_t length) = 0;

  // The longest length <= `length` that the slot can be cut back to exactly: `length` itself for
  // append planes; a checkpoint's position where a plane cannot be cut by position.
  virtual int32_t Keepable(int32_t slot, int32_t length) const = 0;

  // Makes slot `to` hold the first `length` rows of slot `from` (the choices of one request). `to`
  // was cut to 0 before.
  virtual void CopySlot(int32_t from, int32_t to, int32_t length) = 0;

  // Bytes of one row over all append planes; 0: rows cannot leave this runner's slots.
  virtual uint64_t StateRowBytes() const { return 0; }

  // Bytes of the state that rows overwrite (a checkpoint); 0: there is none, and rows are all of a
  // slot's state.
  virtual uint64_t CheckpointBytes() const { return 0; }
  // Copies the slot's state behind its last row into `bytes`. Throws Error(kDevice).
  virtual void ReadCheckpoint(int32_t /*slot*/, std::span<std::byte> /*bytes*/) {}
  // Makes the slot, which holds at least `length` rows, hold exactly those and the state that was
  // read behind them. Throws Error(kDevice).
  virtual void RestoreCheckpoint(int32_t /*slot*/, int32_t /*length*/,
                                 std::span<const std::byte> /*bytes*/) {}

  // What the bytes of a chunk and of a checkpoint mean: runners with the same text read each
  // other's.
  virtual std::string StateFormat() const { return {}; }
  // Copies rows [first, first + rows) of the slot, which it holds, into `bytes` (the layout of a
  // RowChunk). Throws Error(kDevice).
  virtual void ReadRows(int32_t /*slot*/, int32_t /*first*/, int32_t /*rows*/,
                        std::span<std::byte> /*bytes*/) {}
  // Appends rows [skip, skip + count) of `chunk` to what the slot holds. Where there are
  // checkpoints one must be restored before the slot can go on. Throws Error(kDevice); the slot
  // then holds what it held before.
  virtual void AppendRows(int32_t /*slot*/, const RowChunk& /*chunk*/, int32_t /*skip*/,
                          int32_t /*count*/) {}
};

}  // namespace bloomery::exec
