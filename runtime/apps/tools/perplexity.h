// How well a seat predicts given ids: the negative log likelihood of each id after those before it,
// and how far the predictions are from saved ones. Uses slot 0 and leaves it empty. The runner's
// thread. A base is a safetensors file: "ids" i32 [rows, width] and "logprobs" f32 [rows,
// width - 1, vocabulary], the natural logarithms of all probabilities after each id but the last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/output_file.h"
#include "runtime/exec/pass.h"
#include "runtime/model/safetensors.h"

namespace bloomery::apps {

// Sequences of equal width, each scored from an empty slot.
struct IdRows {
  size_t width = 0;  // at least 2
  std::vector<int32_t> ids;

  size_t rows() const { return ids.size() / width; }
  std::span<const int32_t> Row(size_t i) const { return std::span(ids).subspan(i * width, width); }
};

// Throws Error(kBadModel) naming file and tensor when it is no i32 matrix of at least two columns.
IdRows ReadIdRows(const model::SafetensorsFile& file, std::string_view tensor);

// `ids` cut to rows of `width`, what is left over dropped; fewer ids than that make one row.
// Throws Error(kUsage) for fewer than two.
IdRows CutIdRows(std::span<const int32_t> ids, size_t width);

// The natural logarithms of the probabilities that logits stand for, into `out` of the same size.
void LogProbabilities(std::span<const float> logits, std::span<float> out);

// Sees the log probabilities after each id but a row's last, in order.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  virtual void Take(std::span<const float> log_probabilities) = 0;
};

// Writes a base.
class BaseWriter final : public PredictionSink {
 public:
  BaseWriter(const std::string& path, const IdRows& rows, size_t vocabulary);
  void Take(std::span<const float> log_probabilities) override;
  void Finish();

 private:
  OutputFile out_;
};

// Kullback-Leibler divergence of the predictions seen from the base's: the mean over positions of
// the sum over ids of p_base * (log p_base - log p).
class BaseComparison final : public PredictionSink {
 public:
  // Throws Error(kBadModel) when the base is of other ids or of another vocabulary.
  BaseComparison(const std::string& path, const IdRows& rows, size_t vocabulary);
  void Take(std::span<const float> log_probabilities) override;

  double mean() const { return sum_ / static_cast<double>(positions_); }
  double largest() const { return largest_; }
  // Share of positions whose likeliest id is the base's.
  double same_first() const {
    return static_cast<double>(same_first_) / static_cast<double>(positions_);
  }

 private:
  model::SafetensorsFile file_;
  const model::SafeTensor& tensor_;
  std::vector<float> base_;
  uint64_t at_ = 0;  // bytes of the tensor
  uint64_t positions_ = 0;
  uint64_t same_first_ = 0;
  double sum_ = 0;
  double largest_ = 0;
};

struct PerplexityResult {
  std::vector<double> row_nll;  // mean over the row's positions
  double mean_nll = 0;
  double perplexity = 0;
};

// Scores every row. Throws Error(kUsage) for an id outside the vocabulary. `progress` gets the rows
// done and in all after each.
PerplexityResult RunPerplexity(exec::PassRunner& runner, const IdRows& rows,
                               std::span<PredictionSink* const> sinks,
                               const std::function<void(size_t, size_t)>& progress);

}  // namespace bloomery::apps
