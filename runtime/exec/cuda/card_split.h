// The card's side of banks that are split between it and the host: the maps of frames on the card
// and moves of experts into frames by a copy stream of its own, from the host's registered memory
// (no copy by the CPU). SplitHost is the host's side, one for all cards of a seat: the experts and
// the hand-off page. The passes' thread calls both between passes, but for Frames.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "kernels-common/moe/cuda/hand_off.h"
#include "kernels-common/moe/cuda/picks.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/split/host_experts.h"
#include "runtime/memory/residency/sharing.h"

namespace bloomery::exec {

// `description` as the card's weights hold it: each bank has its `frames` where else experts are.
plugin::Description OfFrames(const plugin::Description& description,
                             std::span<const uint32_t> frames);

// Host memory that a driver knows: copies from it need none of the CPU. Unregisters at its end.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  explicit RegisteredMemory(std::span<std::byte> memory);
  ~RegisteredMemory();
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

 private:
  std::byte* data_ = nullptr;
};

class SplitHost {
 public:
  // In pinned host memory.
  static uint64_t PinnedBytes(const plugin::Description& description, int32_t rows_max) {
    return HandOffPage::Bytes(description, rows_max);
  }

  // Loads the host's weights and registers them with the driver, for every card. `frames` by bank.
  SplitHost(const model::ModelFile& model, const plugin::Description& description,
            const SeatOptions& options, std::span<const uint32_t> frames, int32_t rows_max);

  HostExperts& experts() { return experts_; }
  const HostExperts& experts() const { return experts_; }
  const HandOffPage& page() const { return page_; }
  // After a pass has ended: throws HandOffError where a card has given up waiting.
  void EndPass() const;

 private:
  HostExperts experts_;
  RegisteredMemory registered_;
  PinnedBuffer page_memory_;
  HandOffPage page_;
};

class CardSplit {
 public:
  // Whether a seat of such passes has places for experts of the bank that come for one.
  static bool HasPlaces(const plugin::Bank& bank, int32_t rows_max);
  // On the card: maps, words, the room of copies, and places for experts that come for a pass.
  // `banks` are those that have frames there, ascending; `frames` by bank of the seat.
  static uint64_t CardBytes(const plugin::Description& description, std::span<const uint32_t> banks,
                            std::span<const uint32_t> frames, int32_t rows_max);
  // In pinned host memory.
  static uint64_t PinnedBytes(const plugin::Description& description);

  CardSplit(const plugin::Description& description, const SeatOptions& options,
            std::span<const uint32_t> banks, std::vector<uint32_t> frames, int32_t rows_max,
            const kernels::cuda::Launch& launch, SplitHost* host);
  ~CardSplit();

  // Where frames are, once the card's weights are there; before the first move.
  void Bind(const CardWeights& weights) { card_weights_ = &weights; }

  kernels::cuda::FrameMap frame_of(size_t bank) const { return maps_ + first_[bank]; }
  kernels::cuda::HandOff hand_off(size_t bank) const;
  const HandOffPage& page() const { return host_->page(); }

  // Before a pass, once HostExperts::Begin has made the page clean: the maps as they are now in
  // `stream`.
  void BeginPass(cudaStream_t stream);

  // Prompts, whose launches the passes' thread enqueues one by one. Of the experts without a frame
  // some come to the card for the pass, into one of two places that banks take in turns, and the
  // host computes the others (memory/residency/sharing.h); `number` counts the program's banks. In
  // order:
  //
  //   BeginPrompt                           the first bank's likely ones set out
  //   launch: picks to the page, PicksPublished
  //   Share(number)                         who takes what; the link's part sets out
  //   launch: the map, rows to the page, RowsPublished
  //   AwaitArrived(number), launches of the card's experts
  //   EndStreamed(number)                   the next bank's likely ones set out
  //   ComputeShare(number)                  the host, beside all of that
  //   launch: sums, with prompt_sums()
  //   Share(number + 1)                     first some of this bank's stay in frames
  //
  // `check` as HostExperts::ServePass has it; all may throw HandOffError. `seats`: experts that
  // came may take frames of others (TakeSeated).
  void BeginPrompt(std::span<const uint32_t> banks, int32_t rows, bool seats);
  void PicksPublished(cudaStream_t stream) const;
  void Share(size_t number, const std::function<bool()>& check);
  cudaError_t PublishMap(size_t bank, cudaStream_t stream) const;
  // Whether the host has a part of the bank that was shared last.
  bool host_share() const { return host_share_; }
  void RowsPublished(cudaStream_t stream) const;
  void AwaitArrived(size_t number, cudaStream_t stream) const;
  void EndStreamed(size_t number, cudaStream_t stream);
  void ComputeShare(size_t number, const std::function<bool()>& check);
  // The host's sums of the last ComputeShare as the card sees them; null: no pick was the host's.
  const int64_t* prompt_sums() const { return prompt_sums_; }
  // Every expert's frame for such a pass, from `frames` of the bank on in the place, or -1.
  kernels::cuda::FrameMap streamed_frame_of(size_t bank) const {
    return maps_ + first_.back() + first_[bank];
  }
  // A matrix of the bank with its place, for the `number`-th bank of a program.
  kernels::cuda::CardWeight Streamed(kernels::cuda::CardWeight matrix, size_t bank, uint32_t weight,
                                     int32_t number) const;
  // As ExpertMover has it.
  std::vector<ExpertMove> TakeSeated();
  // How prompts are shared: of an expert of the first bank, measured unless given. Once weights are
  // bound; takes some ten milliseconds.
  void SetShareRates(const std::optional<memory::ShareRates>& given);
  const memory::ShareRates& share_rates() const { return share_rates_; }

  // As Seat has them.
  void BeginMove(const ExpertMove& move);
  int32_t LandMoves(bool wait);
  // Whether any bank has frames here.
  bool HasFrames() const {
    return std::ranges::any_of(banks_, [&](uint32_t bank) { return frames_[bank] > 0; });
  }
  // Whether any bank has places here, so that prompts bring experts.
  bool HasPlaces() const { return std::ranges::find(has_places_, true) != has_places_.end(); }
  // What an expert of the first bank costs, from what host and link do now: between passes.
  memory::ResidencyRates MeasureRates() const;
  std::span<const int32_t> Map(size_t bank) const { return experts().Map(bank); }
  std::span<const uint32_t> frames() const { return frames_; }  // by bank of the seat
  // A copy, for any thread.
  std::vector<int32_t> Frames(size_t bank) const;

 private:
  struct Move {
    uint32_t bank = 0;
    int32_t expert = -1;
    int32_t frame = -1;
    bool failed = false;
    std::unique_ptr<CardEvent> done;
  };

  // A bank on its way through a place.
  struct Coming {
    uint32_t bank = 0;
    std::vector<int32_t> frames;   // by expert: its frame in the pass, or -1
    std::vector<int32_t> experts;  // that come, in the order of the place
    bool seated = false;           // some stayed: the place is free once those are copied
    CardEvent arrived;
    CardEvent read;
    CardEvent stayed;
  };

  // Where the places of a bank's streamed experts begin, from the place's first byte.
  uint64_t PlaceOf(size_t bank, uint32_t weight) const;
  HostExperts& experts() const { return host_->experts(); }
  uint64_t PlacePartBytes(size_t bank, uint32_t weight) const;
  // Of an expert's matrix on the card.
  uint64_t FrameBytesOf(uint32_t weight) const;
  // So many experts have room in a place of the bank.
  size_t Places(size_t bank) const;
  memory::ShareRates RatesOf(size_t bank) const;
  uint64_t ExpertBytes(size_t bank) const;
  void SetOut(size_t number);
  void Bring(Coming* coming, size_t number, std::span<const int32_t> experts);
  void SeatSome();
  void CountPicks(uint32_t bank);
  void Await(const CardEvent& event, uint32_t bank, const std::function<bool()>& check) const;
  double MeasureLink();
  // Experts, ascending, to consecutive frames at `to`.
  void CopyExperts(uint32_t weight, std::span<const int32_t> experts, std::byte* to) const;
  // Of experts that follow one another in the file: straight into what lies at `to`.
  void CopyRuns(uint32_t weight, std::span<const int32_t> experts, std::byte* to) const;
  // After copies: `done` is recorded once they are all in their frames.
  void RecordCopies(cudaEvent_t done) const;
  double MeasureCard() const;
  int32_t FreeFrame(uint32_t bank) const;
  void Set(uint32_t bank, int32_t expert, int32_t frame);

  const plugin::Description& description_;
  kernels::cuda::Launch launch_;
  std::vector<uint32_t> banks_;   // that have frames here
  std::vector<uint32_t> frames_;  // by bank of the seat
  std::vector<bool> has_places_;  // the same; of other cards' banks: no
  std::chrono::milliseconds deadline_;
  SplitHooks hooks_;
  const CardWeights* card_weights_ = nullptr;
  SplitHost* host_;
  std::vector<size_t> first_;  // of each bank in the maps, and the end
  CardBuffer memory_;          // both maps, a word a bank, the room of copies, two places
  int32_t* maps_ = nullptr;
  uint32_t* pending_ = nullptr;
  // Copies of one room and repacking of the other go on together.
  struct Room {
    std::byte* at = nullptr;
    CardEvent full;
    CardEvent free;
  };
  std::array<Room, 2> rooms_;
  mutable size_t next_room_ = 0;
  std::array<std::byte*, 2> places_{};
  std::array<Coming, 2> coming_;
  PinnedBuffer map_twin_;
  // Of the prompt in progress.
  std::span<const uint32_t> prompt_banks_;
  int32_t prompt_rows_ = 0;
  bool seats_ = false;
  std::optional<size_t> to_seat_ = {};  // the bank that ended last, some of whose experts may stay
  bool host_share_ = false;
  const int64_t* prompt_sums_ = nullptr;
  std::vector<int32_t> counts_;  // rows of each expert of the bank that was shared last
  std::chrono::steady_clock::time_point link_until_{};  // it is busy so long, by the rates
  CardEvent picks_published_;
  CardEvent rows_published_;
  memory::PromptSharing sharing_;
  memory::ShareRates share_rates_;
  uint64_t share_bytes_ = 1;  // of the expert that they are of
  std::vector<ExpertMove> seated_;
  CardStream copies_;
  CardStream packs_{true};  // short launches beside the long ones of a prompt
  CardStream stays_;        // from places to frames
  CardEvent copied_;
  std::deque<Move> moves_;
  bool maps_changed_ = true;
  mutable std::mutex mutex_;  // of writing the host's maps, and reading them on another thread
};

}  // namespace bloomery::exec
