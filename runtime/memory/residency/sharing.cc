#include "runtime/memory/residency/sharing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bloomery::memory {
namespace {

// Rows after which a pick counts for half: about a prompt's subject, not a conversation's.
constexpr double kHalfLifeRows = 256;

// A lead of picks that is taken for more than chance: so many standard deviations of the
// difference. With even picks some two experts of a bank come in at a prompt, for no better and no
// worse; at four none would, and decoding would begin with fewer hits (docs/measurements/split.md).
constexpr double kBeyondChance = 2.5;

// Rows an expert, in the largest passes of a seat, from which on there are places for experts that
// come: about where the host's time for one is the link's (docs/measurements/split.md). With fewer
// the places would take more from the frames than passes gain.
constexpr int64_t kPlacesRows = 16;

// The hottest first, ties by number.
void SortByHeat(std::span<const double> heat, std::vector<int32_t>* experts) {
  std::ranges::sort(*experts, [&](int32_t a, int32_t b) {
    const double of_a = heat[static_cast<size_t>(a)];
    const double of_b = heat[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
}

struct Cut {
  std::vector<int32_t> experts;  // with rows and no frame, the hottest first
  size_t link = 0;               // so many of them come over the link
};

// Both sides end together as nearly as whole experts allow: one more goes over the link as long as
// the later of the two ends earlier by that. All of them do where the host's sums, for which the
// card waits and which keep the link from the next bank's experts, cost more than that saves.
Cut CutOf(const ShareRates& rates, std::span<const double> counts, std::span<const int32_t> frames,
          int32_t rows, double link_us, size_t most) {
  Cut cut;
  double host_us = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] <= 0 || frames[expert] >= 0) continue;
    cut.experts.push_back(static_cast<int32_t>(expert));
    host_us += rates.HostUs(counts[expert]);
  }
  SortByHeat(counts, &cut.experts);
  const size_t all = cut.experts.size();
  const double without_host = link_us + rates.copy_us * static_cast<double>(all);
  while (cut.link < std::min(most, all)) {
    const double left = host_us - rates.HostUs(counts[static_cast<size_t>(cut.experts[cut.link])]);
    if (std::max(link_us + rates.copy_us, left) >= std::max(link_us, host_us)) break;
    link_us += rates.copy_us;
    host_us = left;
    ++cut.link;
  }
  const double with_host = std::max(link_us, host_us) + 2 * rates.answer_us * rows;
  if (all <= most && without_host <= with_host) cut.link = all;
  return cut;
}

}  // namespace

double ShareRates::HostUs(double rows) const { return std::max(read_us, fixed_us + row_us * rows); }

ShareRates ShareRates::Scaled(double bytes) const {
  return {.copy_us = copy_us * bytes,
          .read_us = read_us * bytes,
          .fixed_us = fixed_us * bytes,
          .row_us = row_us * bytes,
          .answer_us = answer_us};
}

PromptSharing::PromptSharing(std::span<const Bank> banks) {
  for (const Bank& bank : banks) {
    used_.push_back(bank.used);
    heat_.emplace_back(bank.experts, 0.0);
  }
}

bool PromptSharing::HasPlaces(const Bank& bank, int32_t rows_max) {
  return int64_t{rows_max} * bank.used >= kPlacesRows * bank.experts;
}

std::vector<int32_t> PromptSharing::Ahead(size_t bank, const ShareRates& rates,
                                          std::span<const int32_t> frames, int32_t rows,
                                          size_t most) const {
  std::vector<double> expected = heat_[bank];
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  const double picks = static_cast<double>(rows) * used_[bank];
  for (double& of : expected) {
    of = sum > 0 ? of / sum * picks : picks / static_cast<double>(expected.size());
  }
  Cut cut = CutOf(rates, expected, frames, rows, 0, most);
  // Who is hot is a guess: room is left to put it right, and for copies that nobody needs.
  constexpr double kSurely = 3;  // rows: one expert in twenty is not picked
  const bool host = cut.link < cut.experts.size();
  cut.experts.resize(host ? cut.link * 3 / 4 : cut.link);
  std::erase_if(cut.experts,
                [&](int32_t expert) { return expected[static_cast<size_t>(expert)] < kSurely; });
  std::ranges::sort(cut.experts);
  return cut.experts;
}

PromptSharing::Division PromptSharing::Divide(const ShareRates& rates,
                                              std::span<const int32_t> counts,
                                              std::span<const int32_t> frames, int32_t rows,
                                              double link_us, size_t most) {
  const std::vector<double> of_experts(counts.begin(), counts.end());
  const Cut cut = CutOf(rates, of_experts, frames, rows, link_us, most);
  const auto middle = cut.experts.begin() + static_cast<ptrdiff_t>(cut.link);
  Division division{.link = {cut.experts.begin(), middle}, .host = {middle, cut.experts.end()}};
  std::ranges::sort(division.link);
  std::ranges::sort(division.host);
  return division;
}

void PromptSharing::Count(size_t bank, std::span<const int32_t> counts, int32_t rows) {
  const double kept = std::exp2(-static_cast<double>(rows) / kHalfLifeRows);
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    heat_[bank][expert] = heat_[bank][expert] * kept + counts[expert];
  }
}

std::vector<ExpertMove> PromptSharing::Seats(size_t bank, std::span<const int32_t> frames,
                                             std::span<const int32_t> came) const {
  const std::vector<double>& heat = heat_[bank];
  std::vector<int32_t> hot(came.begin(), came.end());
  std::vector<int32_t> seated;
  for (size_t expert = 0; expert < frames.size(); ++expert) {
    if (frames[expert] >= 0) seated.push_back(static_cast<int32_t>(expert));
  }
  SortByHeat(heat, &hot);
  SortByHeat(heat, &seated);
  std::vector<ExpertMove> moves;
  for (size_t i = 0; i < std::min(hot.size(), seated.size()); ++i) {
    const int32_t in = hot[i];
    const int32_t out = seated[seated.size() - 1 - i];
    const double of_in = heat[static_cast<size_t>(in)];
    const double of_out = heat[static_cast<size_t>(out)];
    if (of_in - of_out <= kBeyondChance * std::sqrt(of_in + of_out)) break;
    moves.push_back({.bank = static_cast<uint32_t>(bank), .in = in, .out = out});
  }
  return moves;
}

}  // namespace bloomery::memory
