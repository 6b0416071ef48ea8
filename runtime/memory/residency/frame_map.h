// Where the experts of split banks lie: each has a frame on the card or is the host's. One map of
// expert → frame a bank, and its twin frame → expert. Plain values and no policy: who moves experts
// decides, and the bytes are somebody else's. One thread; allocates only when made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bloomery::memory {

constexpr int32_t kOnHost = -1;
constexpr int32_t kNoExpert = -1;
constexpr int32_t kFilling = -2;  // a frame whose expert's bytes are on their way

// A bank whose experts share frames of a card; the rest of them are the host's.
struct BankFrames {
  uint32_t experts = 0;
  uint32_t used = 0;    // experts that a row picks
  uint32_t frames = 0;  // at most `experts`; all of them: nothing is left on the host
};

// An expert of a bank that gets the frame of another. `out` kNoExpert: it takes a free frame.
struct ExpertMove {
  uint32_t bank = 0;
  int32_t in = kNoExpert;
  int32_t out = kNoExpert;

  bool operator==(const ExpertMove&) const = default;
};

class FrameMap {
 public:
  // Experts 0 … frames-1 of each bank are seated. Throws Error(kInternal) for a bank with more
  // frames than experts, or none.
  explicit FrameMap(std::span<const BankFrames> banks);

  size_t banks() const { return banks_.size(); }
  const BankFrames& bank(size_t bank) const { return banks_[bank]; }
  // By expert: its frame, or kOnHost.
  std::span<const int32_t> FramesOf(size_t bank) const;
  bool Seated(size_t bank, int32_t expert) const {
    return FramesOf(bank)[static_cast<size_t>(expert)] != kOnHost;
  }
  // By frame: its expert, kNoExpert where it is free, or kFilling.
  std::span<const int32_t> ExpertsOf(size_t bank) const;
  // The lowest free frame of a bank; -1 where there is none.
  int32_t FreeFrame(size_t bank) const;

  // The expert is the host's from now on; its frame, which is free now. Throws Error(kInternal)
  // where it has none.
  int32_t Unseat(size_t bank, int32_t expert);
  // A free frame is kept for bytes under way. Throws Error(kInternal) where it is not free.
  void Reserve(size_t bank, int32_t frame);
  // A frame kept so is free again. Throws Error(kInternal) where it was not kept.
  void Release(size_t bank, int32_t frame);
  // Gives a frame that is free to an expert of the host. Throws Error(kInternal) otherwise.
  void Seat(size_t bank, int32_t expert, int32_t frame);

 private:
  int32_t& Expert(size_t bank, int32_t frame);

  std::vector<BankFrames> banks_;
  std::vector<size_t> expert_first_;  // of each bank
  std::vector<size_t> frame_first_;
  std::vector<int32_t> frame_of_;
  std::vector<int32_t> expert_of_;
};

}  // namespace bloomery::memory
