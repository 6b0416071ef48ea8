// Steps: what a program is made of. A step has the shape of the ABI's CPU kernels (tasks, run): it
// says how many independent pieces of work there are now and does one of them; no barriers, no
// locks, no allocation, and bits that do not depend on who runs which piece. The host's own steps
// are made with their pointers resolved and their attributes parsed; a plugin's kernel is wrapped
// as one.
#pragma once

#include <bloomery/op.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace bloomery::ops {

// What one thread of the pool brings to a task.
struct Worker {
  std::span<std::byte> scratch;    // 64-byte aligned, at least the program's scratch bytes
  uint64_t weight_bytes_read = 0;  // counted up by tasks
  uint64_t experts_picked = 0;     // distinct ones of each bank and pass, counted up by tasks
  uint64_t expert_bytes = 0;       // what reading each of those once takes
  int64_t failed_row = -1;         // set by a task that returns another status than BL_OK
};

class Step {
 public:
  virtual ~Step() = default;
  // [pass] Pieces of work for the rows that live now; 0 skips the step.
  virtual int32_t Tasks() const = 0;
  // [task] Does piece `task`. A failure names its row in worker->failed_row where there is one.
  virtual bl_status Run(int32_t task, Worker* worker) const = 0;
  // [task] The weights that tasks [begin, end) will read, for a thread that waits and may ask for
  // them early: writes up to out.size() stretches and returns how many; none where reading does not
  // bound the step. Says nothing of the step's other inputs, which may not be there yet.
  virtual size_t Foresee(int32_t /*begin*/, int32_t /*end*/,
                         std::span<std::span<const std::byte>> /*out*/) const {
    return 0;
  }
};

// Who runs which of a step's tasks first: each thread a stretch of its own, so that it reads on
// where it stopped; the first threads have one more where they do not divide.
struct Shares {
  int32_t tasks = 0;
  int32_t threads = 1;

  int32_t begin(int32_t thread) const {
    const int32_t extra = tasks % threads;
    return thread * (tasks / threads) + (thread < extra ? thread : extra);
  }
  // The place of a task where threads take turns: the first task of each thread, the second of
  // each, and so on.
  int32_t InTurns(int32_t task) const {
    const int32_t least = tasks / threads;
    const int32_t longer = tasks % threads * (least + 1);
    const int32_t thread =
        task < longer ? task / (least + 1) : tasks % threads + (task - longer) / least;
    return (task - begin(thread)) * threads + thread;
  }
};

// How many rows live in the pass that runs: written before it starts, read by steps. `per_row`
// counts things that a row has several of (its picks).
struct RowCount {
  const int32_t* live = nullptr;
  int32_t per_row = 1;
  int32_t Get() const { return *live * per_row; }
};

// Cuts `count` things into pieces: multiples of `unit`, at least `least` (so that a piece is worth
// handing over), and not more pieces than `pieces_max`.
struct Split {
  int64_t count = 0;
  int64_t per_piece = 1;

  static Split Of(int64_t count, int64_t unit, int64_t least, int64_t pieces_max) {
    int64_t per = (count + pieces_max - 1) / pieces_max;
    per = per > least ? per : least;
    per = (per + unit - 1) / unit * unit;
    return {count, per > 0 ? per : 1};
  }
  int32_t pieces() const { return static_cast<int32_t>((count + per_piece - 1) / per_piece); }
  int64_t begin(int64_t piece) const { return piece * per_piece; }
  int64_t end(int64_t piece) const {
    const int64_t e = (piece + 1) * per_piece;
    return e < count ? e : count;
  }
};

// Multiply-adds that make a task worth its hand-over to another core (about 1 µs): some 3 µs of
// vector work on quantised weights.
inline constexpr int64_t kTaskWorkMin = 131072;
// Pieces a thread: enough that a late thread costs a fraction of the step.
inline constexpr int64_t kPiecesPerThread = 4;
// Up to so many activation rows a linear's time is that of reading its weights, a few weight rows
// at a time; from there it grows with the rows, which meet weight rows in tiles.
inline constexpr int64_t kReadBoundRows = 4;

}  // namespace bloomery::ops
