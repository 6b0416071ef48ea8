// Who takes the experts of a prompt's pass that have no frame: each is computed by the host, or its
// weights come over the link and the card computes it. By bank: which weights set out before its
// picks are known (by what earlier prompts picked), how the rest is divided once they are (the
// hottest over the link, the coldest to the host, so that both end together), and which of those
// that came stay in the frame of a colder one. Plain numbers: knows no card and no thread, and
// changes no result. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/memory/residency/frame_map.h"

namespace bloomery::memory {

// What an expert takes on this machine, in microseconds; measured when loading.
struct ShareRates {
  double copy_us = 0;   // its weights over the link and into the card's form, one after another
  double read_us = 0;   // the host computing it: at least this, the time to read its weights
  double fixed_us = 0;  // or this, and row_us for each of its rows
  double row_us = 0;
  // A row of the pass, where the host has any part: its sums come over the link.
  double answer_us = 0;

  double HostUs(double rows) const;
  // Of an expert of so many times the bytes, in rows of the same width.
  ShareRates Scaled(double bytes) const;
};

class PromptSharing {
 public:
  // Experts of the banks, and how many of each a row picks.
  struct Bank {
    uint32_t experts = 0;
    uint32_t used = 0;
  };
  explicit PromptSharing(std::span<const Bank> banks);

  // Whether a seat whose largest passes have so many rows has places for experts that come.
  static bool HasPlaces(const Bank& bank, int32_t rows_max);

  // A bank's experts that should be on their way before the picks of a pass of `rows` rows are
  // known, ascending: of those without a frame (`frames` by expert, negative: none) at most `most`.
  std::vector<int32_t> Ahead(size_t bank, const ShareRates& rates, std::span<const int32_t> frames,
                             int32_t rows, size_t most) const;

  // Both ascending; together all experts that have rows and no frame.
  struct Division {
    std::vector<int32_t> link;
    std::vector<int32_t> host;
  };
  // Of a pass of `rows` rows; `counts` are those of each expert. The link is busy for `link_us`
  // before it takes more, of which it takes at most `most`.
  static Division Divide(const ShareRates& rates, std::span<const int32_t> counts,
                         std::span<const int32_t> frames, int32_t rows, double link_us,
                         size_t most);

  // Remembers what a pass of `rows` rows picked of a bank.
  void Count(size_t bank, std::span<const int32_t> counts, int32_t rows);

  // Of the experts that came for a pass, those that take the frame of one that has one in `frames`:
  // the hottest for the coldest, where the difference of their picks is beyond chance.
  std::vector<ExpertMove> Seats(size_t bank, std::span<const int32_t> frames,
                                std::span<const int32_t> came) const;

 private:
  std::vector<uint32_t> used_;
  std::vector<std::vector<double>> heat_;  // by bank and expert: picks, older ones for less
};

}  // namespace bloomery::memory
