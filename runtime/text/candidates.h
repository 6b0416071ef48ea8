// The tokens still in play for one draw. Begins dense (a whole row of logits, nothing copied unless
// it is edited) and becomes a list at the first cut. The list is ordered by logit, best first with
// ties to the lower id, or ascending by id: never in an order that a standard library chose, so
// that sums and draws are the same everywhere. Tokens at -infinity or NaN are never in it. One
// thread; buffers are reserved at construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/text/grammar/grammar.h"
#include "runtime/text/vocabulary.h"

namespace bloomery::text {

struct Candidate {
  float logit;
  TokenId token;
};

// Whether `a` comes before `b`: higher logit, then lower id.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The index of the largest value: ties to the lowest index, NaN never wins; -1 where no value is
// above -infinity.
TokenId ArgMax(std::span<const float> logits);

// The `count` best of a row, best first (fewer where fewer are above -infinity), into `out`.
void SelectBest(std::span<const float> row, size_t count, std::vector<Candidate>& out);

class Candidates {
 public:
  explicit Candidates(size_t vocabulary_size);

  // Begins with a row, which must stay until the next Load; all of it is in play.
  void Load(std::span<const float> row);

  // Begins with the best of a row, best first with ties to the lower id, where no more can matter.
  void LoadBest(std::span<const Candidate> best);

  // The row as a copy that may be changed; dense only.
  std::span<float> EditRow();

  bool dense() const { return dense_; }
  std::span<const float> row() const { return row_; }
  std::span<const Candidate> list() const { return list_; }  // not dense
  size_t size() const { return dense_ ? row_.size() : list_.size(); }

  // The highest logit; -infinity where nothing is in play.
  double MaxLogit() const;

  // Calls `visit(logit)` for each logit above -infinity, in the present order.
  template <typename Visit>
  void ForEachLogit(Visit visit) const {
    if (dense_) {
      for (const float logit : row_) {
        if (logit > -std::numeric_limits<float>::infinity()) visit(logit);
      }
    } else {
      for (const Candidate& candidate : list_) visit(candidate.logit);
    }
  }

  // Replaces the logit of each token of `touched` by `change(token, logit)`. `is_touched(token)`
  // tells whether a token is one of them.
  template <typename Touched, typename Change>
  void ChangeLogits(std::span<const TokenId> touched, Touched is_touched, Change change) {
    if (dense_) {
      const std::span<float> row = EditRow();
      for (const TokenId token : touched) {
        float& logit = row[static_cast<size_t>(token)];
        logit = change(token, logit);
      }
      return;
    }
    for (Candidate& candidate : list_) {
      if (is_touched(candidate.token)) candidate.logit = change(candidate.token, candidate.logit);
    }
    OrderLost();
  }

  // Divides every logit of the list by `divisor`, which is positive.
  void Divide(double divisor);

  void MakeList() { KeepAbove(-std::numeric_limits<double>::infinity()); }

  // Keeps the tokens of a mask; dense only, and perhaps dense after it.
  void KeepAllowed(const TokenMask& mask);

  // Keeps the logits at or above a floor, in their order.
  void KeepAbove(double floor);

  // Keeps the `count` best, in descending order. No effect where there are no more.
  void KeepBest(size_t count);

  // Keeps the tokens at the given places of the list, which are ascending.
  void KeepPlaces(std::span<const size_t> places);

  // Drops the first tokens of a list whose first `count` are sorted.
  void DropFirst(size_t count);

  // Puts the `count` best first, best first. The rest is behind them in no defined order.
  void SortFirst(size_t count);

  // Puts the list in a defined order if it is in none.
  void Settle();

  // exp(logit - highest) of each token of the settled list, and their sum. Valid until the list
  // changes.
  std::span<const double> Weights();
  double WeightSum() const { return weight_sum_; }

 private:
  void OrderLost();

  std::span<const float> row_;
  bool dense_ = true;
  std::vector<float> edited_;
  std::vector<Candidate> list_;
  size_t sorted_ = 0;   // so many at the front are in descending order and better than the rest
  bool by_id_ = false;  // the list is ascending by id
  std::vector<double> weights_;
  double weight_sum_ = 0.0;
};

}  // namespace bloomery::text
