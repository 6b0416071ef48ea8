// Routing with known statistics, for tests: picks of one row after the other from a process whose
// skew and persistence are given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/memory/residency/policy.h"

namespace bloomery::memory {

// As `stay`: every row draws its topic anew, and some are more frequent than others.
constexpr double kFrequent = -1;

// Each bank has hot sets of `used` experts; a row's picks are, each with probability `share`, of
// the hot set of the present topic, the rest uniform. The topic stays with probability `stay`.
class Routing {
 public:
  Routing(std::vector<BankFrames> banks, double share, double stay, uint64_t seed = 1)
      : banks_(std::move(banks)), share_(share), stay_(stay), random_(seed) {
    for (const BankFrames& bank : banks_) {
      std::vector<uint16_t> order(bank.experts);
      std::iota(order.begin(), order.end(), uint16_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      order_.push_back(order);
      rows_.emplace_back();
    }
  }

  // Views of the next `rows` rows' picks.
  PassPicks Next(int32_t rows = 1) {
    for (auto& picks : rows_) picks.clear();
    for (int32_t row = 0; row < rows; ++row) {
      if (stay_ == kFrequent) {
        topic_ = Frequent();
      } else if (Uniform() >= stay_) {
        topic_ = random_();
      }
      for (size_t bank = 0; bank < banks_.size(); ++bank) AddRow(bank);
    }
    spans_.assign(rows_.begin(), rows_.end());
    return {.rows = rows, .experts = spans_};
  }

 private:
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  // Topic t has a share of rows in proportion to 1/(t + 1).
  uint64_t Frequent() {
    const size_t topics = banks_[0].experts / banks_[0].used;
    double sum = 0;
    for (size_t t = 0; t < topics; ++t) sum += 1.0 / static_cast<double>(t + 1);
    double at = Uniform() * sum;
    size_t topic = 0;
    while (topic + 1 < topics && (at -= 1.0 / static_cast<double>(topic + 1)) >= 0) ++topic;
    return topic;
  }

  void AddRow(size_t bank) {
    const BankFrames& shape = banks_[bank];
    const size_t topics = shape.experts / shape.used;
    const size_t hot = topic_ % topics * shape.used;
    std::vector<uint16_t>& picks = rows_[bank];
    const size_t first = picks.size();
    while (picks.size() < first + shape.used) {
      const size_t at =
          Uniform() < share_ ? hot + random_() % shape.used : random_() % shape.experts;
      const uint16_t expert = order_[bank][at];
      if (std::find(picks.begin() + static_cast<ptrdiff_t>(first), picks.end(), expert) ==
          picks.end()) {
        picks.push_back(expert);
      }
    }
  }

  std::vector<BankFrames> banks_;
  double share_;
  double stay_;
  std::mt19937_64 random_;
  uint64_t topic_ = 0;
  std::vector<std::vector<uint16_t>> order_;
  std::vector<std::vector<uint16_t>> rows_;
  std::vector<std::span<const uint16_t>> spans_;
};

}  // namespace bloomery::memory
