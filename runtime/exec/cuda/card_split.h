// The card's side of banks that are split between it and the host: the maps of frames on the card,
// the hand-off page that both see, and moves of experts into frames by a copy stream of its own,
// from the host's registered memory (no copy by the CPU). Owns the host's side (HostExperts). The
// passes' thread calls it between passes, but for Frames.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels-common/moe/cuda/hand_off.h"
#include "kernels-common/moe/cuda/picks.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/exec/cuda/card_weights.h"
#include "runtime/exec/split/host_experts.h"

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

class CardSplit {
 public:
  // Whether the host's experts of a bank come to the card for a pass of `rows` rows, rather than
  // that the host computes them.
  static bool Streams(const plugin::Bank& bank, int32_t rows);
  // On the card: maps, words, the room of copies, and places for experts that come for a pass.
  static uint64_t CardBytes(const plugin::Description& description,
                            std::span<const uint32_t> frames, int32_t rows_max);
  // In pinned host memory.
  static uint64_t PinnedBytes(const plugin::Description& description, int32_t rows_max);

  // Loads the host's weights and registers them. `frames` by bank.
  CardSplit(const model::ModelFile& model, const plugin::Description& description,
            const SeatOptions& options, std::vector<uint32_t> frames, int32_t rows_max,
            const kernels::cuda::Launch& launch);
  ~CardSplit();

  // Where frames are, once the card's weights are there; before the first move.
  void Bind(const CardWeights& weights) { card_weights_ = &weights; }

  kernels::cuda::FrameMap frame_of(size_t bank) const { return maps_ + first_[bank]; }
  kernels::cuda::HandOff hand_off(size_t bank) const;
  HostExperts& host() { return *host_; }
  const HostExperts& host() const { return *host_; }
  const HandOffPage& page() const { return page_; }

  // Before a pass: a clean page, the maps as they are now in `stream`. Throws HandOffError.
  void BeginPass(cudaStream_t stream);
  // After a pass has ended: throws HandOffError where the card has given up waiting.
  void EndPass() const;

  // Prompts, whose launches the passes' thread enqueues one by one: a launch copies what the host
  // needs to the page and records this event; the host computes once it is there.
  void Published(cudaStream_t stream) const;
  // Waits for it, computes. Throws HandOffError; `check` as HostExperts::ServePass has it.
  void ServePrompt(uint32_t bank, int32_t rows, const std::function<bool()>& check);
  // The host's sums of the last ServePrompt as the card sees them; null: no pick was the host's.
  const int64_t* prompt_sums() const { return prompt_sums_; }

  // Prompts for which the host's experts come to the card (Streams): `streamed_frame_of` gives
  // every expert a frame, from `frames` of the bank on in one of two places that banks take in
  // turns.
  kernels::cuda::FrameMap streamed_frame_of(size_t bank) const {
    return maps_ + first_.back() + first_[bank];
  }
  // A matrix of the bank with that place, for the `number`-th streamed bank of a program.
  kernels::cuda::CardWeight Streamed(kernels::cuda::CardWeight matrix, size_t bank, uint32_t weight,
                                     int32_t number) const;
  // Before the first launch that reads the `number`-th of `banks`: lets `stream` wait for it, and
  // enqueues the copies of the next.
  void BeginStreamed(std::span<const uint32_t> banks, size_t number, cudaStream_t stream);
  // After the last.
  void EndStreamed(size_t number, cudaStream_t stream);

  // As Seat has them.
  void BeginMove(const ExpertMove& move);
  int32_t LandMoves(bool wait);
  // What an expert of the first bank costs, from what host and link do now: between passes.
  memory::ResidencyRates MeasureRates() const;
  std::span<const int32_t> Map(size_t bank) const { return host_->Map(bank); }
  std::span<const uint32_t> frames() const { return frames_; }  // by bank
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

  // Where the places of a bank's streamed experts begin, from the place's first byte.
  uint64_t PlaceOf(size_t bank, uint32_t weight) const;
  void MakeStreamed();
  void CopyStreamed(uint32_t bank, size_t number);
  // Consecutive experts to consecutive frames at `to`.
  void CopyRun(uint32_t weight, int32_t expert, int32_t count, std::byte* to) const;
  // After copies: `done` is recorded once they are all in their frames.
  void RecordCopies(cudaEvent_t done) const;
  int32_t FreeFrame(uint32_t bank) const;
  void Set(uint32_t bank, int32_t expert, int32_t frame);

  const plugin::Description& description_;
  kernels::cuda::Launch launch_;
  std::vector<uint32_t> frames_;  // by bank
  std::chrono::milliseconds deadline_;
  SplitHooks hooks_;
  const CardWeights* card_weights_ = nullptr;
  std::unique_ptr<HostExperts> host_;
  RegisteredMemory registered_;
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
  std::array<CardEvent, 2> arrived_;
  std::array<CardEvent, 2> read_;
  PinnedBuffer map_twin_;
  PinnedBuffer page_memory_;
  HandOffPage page_;
  std::vector<std::vector<int32_t>> streamed_;  // by bank and expert: its frame in such a pass
  CardEvent published_;
  const int64_t* prompt_sums_ = nullptr;
  CardStream copies_;
  CardStream packs_{true};  // short launches beside the long ones of a prompt
  CardEvent copied_;
  std::deque<Move> moves_;
  bool maps_changed_ = true;
  mutable std::mutex mutex_;  // of writing the host's maps, and reading them on another thread
};

}  // namespace bloomery::exec
