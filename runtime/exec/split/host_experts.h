// The host's side of banks that are split between a card and the host: the weights of their
// experts in host memory, as in the file; the pool of threads that computes the host's picks with
// the kernels of the CPU; the twin of the card's maps of frames. The passes' thread calls it and
// computes with the pool; nothing here knows a card, so that a test can play one.
//
// A pass of few rows is served bank by bank: wait for the card's ring, compute, answer. What goes
// wrong (a deadline, a failing row) drains the page and is thrown; the next pass starts anew once
// the pool is idle.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/exec/cpu/pool.h"
#include "runtime/exec/residency.h"
#include "runtime/exec/seat.h"
#include "runtime/exec/split/bank_steps.h"
#include "runtime/exec/split/hand_off_page.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/residency/sharing.h"
#include "runtime/memory/weights.h"
#include "runtime/ops/backend.h"
#include "runtime/ops/moe.h"

namespace bloomery::exec {

// What a pass of split banks failed of, and where.
class HandOffError : public Error {
 public:
  explicit HandOffError(const std::string& message) : Error(ErrorKind::kDevice, message) {}
};

class HostExperts {
 public:
  // Throws Error(kUnsupported) naming a weight whose bits would tell where it was computed.
  static void Check(const plugin::Description& description);

  // What all of this takes in host memory beside the page: its experts, and the rest by term.
  static uint64_t ExpertBytes(const model::ModelFile& model,
                              const plugin::Description& description);
  static std::vector<memory::PlanTerm> Terms(const plugin::Description& description,
                                             const SeatOptions& options, int32_t rows_max);

  // Loads the weights. Experts 0 … frames - 1 of each bank have the frames of their number.
  HostExperts(const model::ModelFile& model, const plugin::Description& description,
              const SeatOptions& options, std::span<const uint32_t> frames, int32_t rows_max);
  ~HostExperts();

  // Where hand-offs go, before the first pass.
  void Bind(const HandOffPage& page);

  // By expert, its frame or -1. Between passes whoever moves experts writes here and on the card.
  std::span<int32_t> Map(size_t bank) { return maps_[bank]; }
  std::span<const int32_t> Map(size_t bank) const { return maps_[bank]; }
  int32_t Frames(size_t bank) const;

  // Before a pass. Throws HandOffError where threads are still at a pass that was late.
  void Begin();

  // Serves the hand-offs of a pass of `rows` rows, the banks in the order given. `check` is called
  // now and then while the card is waited for: it throws where the card has failed, and returns
  // whether the pass still runs. Throws HandOffError and what `check` throws, the page drained.
  void ServePass(std::span<const uint32_t> banks, int32_t rows, const std::function<bool()>& check);

  // Computes the host's picks of one bank from the page's ids, weights and input into its sums;
  // false where there are none: nothing is written then. Throws HandOffError. `count`: the card's
  // launches do not count these picks. `frames` takes the place of the bank's map for this pass.
  bool Compute(uint32_t bank, int32_t rows, bool count = true,
               std::span<const int32_t> frames = {});

  // The host's part of memory::ShareRates for an expert of `bank`: computes some, of rows of zeros,
  // in some ten milliseconds; between passes, once bound.
  memory::ShareRates MeasureComputing(uint32_t bank);

  // The lowest row of the pass with a pick that is not finite or too large; -1: none.
  int64_t failed_row() const { return failed_row_; }

  // First byte of one matrix (gate, up, down) of an expert, as in the file, and its bytes.
  std::span<const std::byte> Matrix(uint32_t weight, int32_t expert) const;
  // The memory that holds all of them, for a driver that copies from it.
  std::span<std::byte> memory() const { return weights_->region(); }

  const memory::WeightStore& weights() const { return *weights_; }
  int32_t threads() const { return pool_->threads(); }
  // What computing an expert takes of a pass of one row, in seconds, measured now with rows of
  // zeros: between passes. The mean over the banks, each with as many picks of the host as a row
  // can have. 0 where there are none. Throws HandOffError.
  double MeasureExpert();
  std::string_view kernels() const { return backend_.name; }

  // What the host computed since loading.
  struct Counts {
    uint64_t experts = 0;    // distinct ones, over all banks and passes
    uint64_t bytes = 0;      // of their weights, each read once
    uint64_t hand_offs = 0;  // banks and passes with a pick of the host
    double seconds = 0;      // computing
    double waiting = 0;      // for the card's rings
  };
  const Counts& counts() const { return counts_; }
  // Rows of each expert that the host computed and the card did not count; any thread.
  const PickCounts& picks() const { return picks_; }
  // Distinct experts of a bank in passes of several rows, that the card did not count.
  uint64_t Distinct(size_t bank) const { return distinct_[bank]; }

 private:
  using Clock = std::chrono::steady_clock;

  void MakeSteps(size_t bank);
  bool Group(uint32_t bank, int32_t rows, bool count, std::span<const int32_t> frames);
  void RunStep(uint32_t bank, const ops::Step& step);
  bool WaitForRing(uint32_t bank, const std::function<bool()>& check);
  std::string NameOf(uint32_t bank) const;

  const plugin::Description& description_;
  const ops::Backend& backend_;
  int32_t rows_max_;
  std::chrono::nanoseconds deadline_;
  SplitHooks hooks_;
  std::unique_ptr<memory::WeightStore> weights_;
  std::vector<std::vector<int32_t>> maps_;
  PickCounts picks_;
  std::vector<uint64_t> distinct_;
  memory::HostBuffer arena_;  // groups, h, its codes, y: shared by the banks
  HandOffPage page_;
  int32_t live_ = 0;  // rows of the pass
  int32_t* host_ids_ = nullptr;
  std::vector<std::unique_ptr<BankSteps>> steps_;
  Counts counts_;
  int64_t failed_row_ = -1;
  Clock::time_point until_{};
  std::shared_ptr<FewRowsExperts::Counts> few_rows_counts_;
  std::unique_ptr<Pool> pool_;  // last: its threads end before what they use
};

}  // namespace bloomery::exec
