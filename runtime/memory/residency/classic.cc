// LRU and LFU, as caches are: what was missed comes in.
#include <algorithm>
#include <tuple>

#include "runtime/memory/residency/choosers.h"

namespace bloomery::memory {
namespace {

// Both keep one number an expert, the larger the better to have, and what was missed since the last
// moves.
class Classic : public MoveChooser {
 public:
  Classic(const FrameMap& map, bool frequency) : frequency_(frequency) {
    for (size_t bank = 0; bank < map.banks(); ++bank) {
      worth_.emplace_back(map.bank(bank).experts, 0);
      missed_.emplace_back(map.bank(bank).experts, uint8_t{0});
      taken_.emplace_back(map.bank(bank).experts, uint8_t{0});
      candidates_ += map.bank(bank).experts;
    }
    wanted_.reserve(candidates_);
  }

  void Pick(size_t bank, std::span<const uint16_t> experts, const FrameMap& map) override {
    for (const uint16_t expert : experts) {
      worth_[bank][expert] = frequency_ ? worth_[bank][expert] + 1 : row_;
      if (!map.Seated(bank, expert)) missed_[bank][expert] = 1;
    }
  }

  void RowDone(const FrameMap& /*map*/) override { ++row_; }

  void Choose(const FrameMap& map, size_t most, std::vector<ExpertMove>* moves) override {
    wanted_.clear();
    for (uint32_t bank = 0; bank < map.banks(); ++bank) {
      for (uint32_t expert = 0; expert < map.bank(bank).experts; ++expert) {
        // One that was under way when it was missed has its frame now.
        if (missed_[bank][expert] != 0 && !map.Seated(bank, static_cast<int32_t>(expert)))
          wanted_.push_back({worth_[bank][expert], bank, expert});
        missed_[bank][expert] = 0;
        taken_[bank][expert] = 0;
      }
    }
    std::ranges::sort(wanted_, [](const Wanted& a, const Wanted& b) {
      return std::tie(b.worth, a.bank, a.expert) < std::tie(a.worth, b.bank, b.expert);
    });
    for (const Wanted& wanted : wanted_) {
      if (moves->size() == most) return;
      const int32_t out = Victim(map, wanted.bank);
      if (out == kNoExpert) continue;
      const uint64_t victim_worth = worth_[wanted.bank][static_cast<size_t>(out)];
      if (frequency_ && victim_worth >= wanted.worth) continue;
      taken_[wanted.bank][static_cast<size_t>(out)] = 1;
      moves->push_back(
          {.bank = wanted.bank, .in = static_cast<int32_t>(wanted.expert), .out = out});
    }
  }

  void Forget() override {
    for (auto& bank : worth_) std::ranges::fill(bank, 0);
    for (auto& bank : missed_) std::ranges::fill(bank, uint8_t{0});
    row_ = 1;
  }

 private:
  struct Wanted {
    uint64_t worth;
    uint32_t bank;
    uint32_t expert;
  };

  // The seated expert of least worth, the lower on a tie; kNoExpert where all are taken.
  int32_t Victim(const FrameMap& map, uint32_t bank) const {
    const std::span<const int32_t> frames = map.FramesOf(bank);
    int32_t victim = kNoExpert;
    for (size_t expert = 0; expert < frames.size(); ++expert) {
      if (frames[expert] == kOnHost || taken_[bank][expert] != 0) continue;
      if (victim == kNoExpert || worth_[bank][expert] < worth_[bank][static_cast<size_t>(victim)]) {
        victim = static_cast<int32_t>(expert);
      }
    }
    return victim;
  }

  const bool frequency_;
  size_t candidates_ = 0;
  uint64_t row_ = 1;
  std::vector<std::vector<uint64_t>> worth_;  // by bank and expert: the last row, or how many
  std::vector<std::vector<uint8_t>> missed_;
  std::vector<std::vector<uint8_t>> taken_;  // victims of the moves being chosen
  std::vector<Wanted> wanted_;
};

}  // namespace

std::unique_ptr<MoveChooser> MakeLru(const FrameMap& map) {
  return std::make_unique<Classic>(map, false);
}

std::unique_ptr<MoveChooser> MakeLfu(const FrameMap& map) {
  return std::make_unique<Classic>(map, true);
}

}  // namespace bloomery::memory
