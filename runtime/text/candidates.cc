#include "runtime/text/candidates.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>

namespace bloomery::text {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;  // two AVX2 registers: enough to hide the compare's latency

}  // namespace

TokenId ArgMax(std::span<const float> logits) {
  std::array<float, kLanes> best;
  best.fill(kNothing);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      best[lane] = logit > best[lane] ? logit : best[lane];  // false for NaN
    }
  }
  float highest = kNothing;
  for (const float lane : best) highest = lane > highest ? lane : highest;
  for (; i < logits.size(); ++i) highest = logits[i] > highest ? logits[i] : highest;
  if (highest == kNothing) return -1;
  const auto first = std::find(logits.begin(), logits.end(), highest);
  return static_cast<TokenId>(first - logits.begin());
}

void SelectBest(std::span<const float> row, size_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count == 0) return;
  // A later token must beat the worst of the best so far: at a tie its id is higher.
  float floor = kNothing;
  const size_t room = 2 * count;
  const auto consider = [&](size_t id) {
    if (!(row[id] > floor)) return;
    out.push_back({row[id], static_cast<TokenId>(id)});
    if (out.size() < room) return;
    const auto last = out.begin() + static_cast<ptrdiff_t>(count) - 1;
    std::nth_element(out.begin(), last, out.end(), Better);
    floor = last->logit;
    out.resize(count);
  };
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    int above = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) above |= row[i + lane] > floor ? 1 : 0;
    if (above == 0) continue;
    for (size_t lane = 0; lane < kLanes; ++lane) consider(i + lane);
  }
  for (; i < row.size(); ++i) consider(i);
  const size_t kept = std::min(count, out.size());
  std::partial_sort(out.begin(), out.begin() + static_cast<ptrdiff_t>(kept), out.end(), Better);
  out.resize(kept);
}

Candidates::Candidates(size_t vocabulary_size) {
  // Untouched pages of a reservation cost address space only.
  edited_.reserve(vocabulary_size);
  list_.reserve(2 * vocabulary_size);  // SelectBest works in twice what it keeps
  weights_.reserve(vocabulary_size);
}

void Candidates::Load(std::span<const float> row) {
  row_ = row;
  dense_ = true;
  list_.clear();
  OrderLost();
}

std::span<float> Candidates::EditRow() {
  assert(dense_);
  if (row_.data() != edited_.data()) {
    edited_.assign(row_.begin(), row_.end());
    row_ = edited_;
  }
  return edited_;
}

double Candidates::MaxLogit() const {
  if (dense_) {
    const TokenId best = ArgMax(row_);
    return best < 0 ? kNothing : row_[static_cast<size_t>(best)];
  }
  if (sorted_ > 0) return list_.front().logit;
  float highest = kNothing;
  for (const Candidate& candidate : list_) highest = std::max(highest, candidate.logit);
  return highest;
}

void Candidates::OrderLost() {
  sorted_ = 0;
  by_id_ = false;
}

void Candidates::Divide(double divisor) {
  for (Candidate& candidate : list_) {
    candidate.logit = static_cast<float>(candidate.logit / divisor);
  }
}

void Candidates::KeepAbove(double floor) {
  if (dense_) {
    dense_ = false;
    list_.clear();
    for (size_t id = 0; id < row_.size(); ++id) {
      if (row_[id] >= floor && row_[id] > kNothing) {
        list_.push_back({row_[id], static_cast<TokenId>(id)});
      }
    }
    sorted_ = 0;
    by_id_ = true;
    return;
  }
  std::erase_if(list_, [floor](const Candidate& c) { return !(c.logit >= floor); });
  sorted_ = std::min(sorted_, list_.size());
}

void Candidates::KeepAllowed(const TokenMask& mask) {
  assert(dense_);
  if (2 * mask.allowed > row_.size()) {
    // Few are out of play: a copy of the row without them is cheaper than a list of the others.
    const std::span<float> row = EditRow();
    for (size_t word = 0; word < mask.bits.size(); ++word) {
      for (uint64_t barred = ~mask.bits[word]; barred != 0; barred &= barred - 1) {
        const size_t id = 64 * word + static_cast<size_t>(std::countr_zero(barred));
        if (id < row.size()) row[id] = kNothing;
      }
    }
    return;
  }
  list_.clear();
  const auto keep = [this](size_t id) {
    if (id < row_.size() && row_[id] > kNothing) {
      list_.push_back({row_[id], static_cast<TokenId>(id)});
    }
  };
  for (const TokenId token : mask.few) keep(static_cast<size_t>(token));
  for (size_t word = 0; word < mask.bits.size(); ++word) {
    for (uint64_t bits = mask.bits[word]; bits != 0; bits &= bits - 1) {
      keep(64 * word + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  dense_ = false;
  sorted_ = 0;
  by_id_ = true;
}

void Candidates::LoadBest(std::span<const Candidate> best) {
  row_ = {};
  dense_ = false;
  list_.clear();
  for (const Candidate& candidate : best) {
    if (candidate.logit > -std::numeric_limits<float>::infinity()) list_.push_back(candidate);
  }
  by_id_ = false;
  sorted_ = list_.size();
}

void Candidates::KeepBest(size_t count) {
  if (dense_ && count < row_.size()) {
    SelectBest(row_, count, list_);
    dense_ = false;
    by_id_ = false;
    sorted_ = list_.size();
    return;
  }
  if (count >= size()) return;
  SortFirst(count);
  list_.resize(count);
}

void Candidates::KeepPlaces(std::span<const size_t> places) {
  size_t kept = 0;
  size_t kept_sorted = 0;
  for (const size_t place : places) {
    if (place < sorted_) ++kept_sorted;
    list_[kept++] = list_[place];
  }
  list_.resize(kept);
  sorted_ = kept_sorted;
}

void Candidates::DropFirst(size_t count) {
  assert(count <= sorted_);
  list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(count));
  sorted_ -= count;
}

void Candidates::SortFirst(size_t count) {
  count = std::min(count, list_.size());
  if (sorted_ >= count) return;
  const auto begin = list_.begin() + static_cast<ptrdiff_t>(sorted_);
  std::partial_sort(begin, list_.begin() + static_cast<ptrdiff_t>(count), list_.end(), Better);
  sorted_ = count;
  by_id_ = false;
}

void Candidates::Settle() {
  if (!by_id_) SortFirst(list_.size());
}

std::span<const double> Candidates::Weights() {
  Settle();
  const double highest = MaxLogit();
  weights_.clear();
  weight_sum_ = 0.0;
  for (const Candidate& candidate : list_) {
    const double weight = std::exp(candidate.logit - highest);
    weights_.push_back(weight);
    weight_sum_ += weight;
  }
  return weights_;
}

}  // namespace bloomery::text
