#include "runtime/apps/tools/perplexity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

constexpr const char* kIds = "ids";
constexpr const char* kLogProbabilities = "logprobs";

size_t First(std::span<const float> values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

// Negative log likelihoods of one row's ids, summed.
class RowScorer {
 public:
  RowScorer(exec::PassRunner& runner, std::span<PredictionSink* const> sinks)
      : runner_(runner),
        sinks_(sinks),
        log_probabilities_(static_cast<size_t>(runner.limits().vocabulary)) {}

  double Score(std::span<const int32_t> ids) {
    runner_.Cut(0, 0);
    double sum = 0;
    const size_t last = ids.size() - 1;  // predicts nothing that is known
    const exec::SeatLimits& limits = runner_.limits();
    const auto batch =
        static_cast<size_t>(limits.logit_rows_max == 0 ? limits.rows_max : limits.logit_rows_max);
    for (size_t begin = 0; begin < last; begin += batch) {
      const size_t end = std::min(begin + batch, last);
      pass_.clear();
      for (size_t i = begin; i < end; ++i) {
        pass_.push_back(
            {.slot = 0, .index = static_cast<int32_t>(i), .token = ids[i], .logits = true});
      }
      runner_.Run(pass_);
      for (size_t i = begin; i < end; ++i) {
        LogProbabilities(runner_.Logits(static_cast<int32_t>(i - begin)), log_probabilities_);
        for (PredictionSink* sink : sinks_) sink->Take(log_probabilities_);
        sum -= double{log_probabilities_[static_cast<size_t>(ids[i + 1])]};
      }
    }
    return sum;
  }

 private:
  exec::PassRunner& runner_;
  std::span<PredictionSink* const> sinks_;
  std::vector<float> log_probabilities_;
  std::vector<exec::PassRow> pass_;
};

void CheckIds(const IdRows& rows, int32_t vocabulary) {
  for (const int32_t id : rows.ids) {
    if (id < 0 || id >= vocabulary) {
      throw Error(ErrorKind::kUsage, "id " + std::to_string(id) + " is not in the vocabulary of " +
                                         std::to_string(vocabulary));
    }
  }
}

}  // namespace

IdRows ReadIdRows(const model::SafetensorsFile& file, std::string_view tensor) {
  const model::SafeTensor& found = file.Get(tensor);
  if (found.shape.size() != 2 || found.shape[0] == 0 || found.shape[1] < 2) {
    throw Error(ErrorKind::kBadModel, file.path() + ": tensor '" + Printable(tensor) +
                                          "' is no matrix of at least one row of two ids");
  }
  return {.width = found.shape[1], .ids = file.ReadI32(found)};
}

IdRows CutIdRows(std::span<const int32_t> ids, size_t width) {
  if (ids.size() < 2) {
    throw Error(ErrorKind::kUsage, "a text of " + std::to_string(ids.size()) +
                                       " ids predicts nothing; at least 2 are needed");
  }
  const size_t taken = std::min(width, ids.size());
  const auto whole = ids.first(ids.size() / taken * taken);
  return {.width = taken, .ids = {whole.begin(), whole.end()}};
}

void LogProbabilities(std::span<const float> logits, std::span<float> out) {
  const double largest = double{*std::ranges::max_element(logits)};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  const double normaliser = largest + std::log(sum);
  for (size_t i = 0; i < logits.size(); ++i) {
    out[i] = static_cast<float>(double{logits[i]} - normaliser);
  }
}

BaseWriter::BaseWriter(const std::string& path, const IdRows& rows, size_t vocabulary)
    : out_(path) {
  const std::array<model::SafeTensor, 2> tensors{
      model::SafeTensor{kIds, "I32", {rows.rows(), rows.width}, 0, 0},
      model::SafeTensor{kLogProbabilities, "F32", {rows.rows(), rows.width - 1, vocabulary}, 0, 0}};
  const std::string header = model::SafetensorsHeader(tensors);
  out_.Write(std::as_bytes(std::span(header)));
  out_.Write(std::as_bytes(std::span(rows.ids)));
}

void BaseWriter::Take(std::span<const float> log_probabilities) {
  out_.Write(std::as_bytes(log_probabilities));
}

void BaseWriter::Finish() { out_.Commit(); }

BaseComparison::BaseComparison(const std::string& path, const IdRows& rows, size_t vocabulary)
    : file_(RealFileSystem(), path), tensor_(file_.Get(kLogProbabilities)), base_(vocabulary) {
  const std::vector<uint64_t> shape{rows.rows(), rows.width - 1, vocabulary};
  if (tensor_.dtype != "F32" || tensor_.shape != shape ||
      file_.ReadI32(file_.Get(kIds)) != rows.ids) {
    throw Error(ErrorKind::kBadModel, path +
                                          ": this base is of other ids or another vocabulary; "
                                          "save one with --base-out and the same text");
  }
}

void BaseComparison::Take(std::span<const float> log_probabilities) {
  const auto bytes = std::as_writable_bytes(std::span(base_));
  file_.Read(tensor_, at_, bytes);
  at_ += bytes.size();
  double divergence = 0;
  for (size_t i = 0; i < base_.size(); ++i) {
    const double base = double{base_[i]};
    divergence += std::exp(base) * (base - double{log_probabilities[i]});
  }
  sum_ += divergence;
  largest_ = std::max(largest_, divergence);
  same_first_ += First(base_) == First(log_probabilities) ? 1 : 0;
  ++positions_;
}

PerplexityResult RunPerplexity(exec::PassRunner& runner, const IdRows& rows,
                               std::span<PredictionSink* const> sinks,
                               const std::function<void(size_t, size_t)>& progress) {
  CheckIds(rows, runner.limits().vocabulary);
  PerplexityResult result;
  RowScorer scorer(runner, sinks);
  for (size_t i = 0; i < rows.rows(); ++i) {
    const double sum = scorer.Score(rows.Row(i));
    result.row_nll.push_back(sum / static_cast<double>(rows.width - 1));
    result.mean_nll += result.row_nll.back() / static_cast<double>(rows.rows());
    if (progress) progress(i + 1, rows.rows());
  }
  runner.Cut(0, 0);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace bloomery::apps
