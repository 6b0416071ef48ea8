#include "runtime/exec/split/expert_rate.h"

#include <algorithm>
#include <array>

#include "runtime/exec/cpu/relax.h"
#include "runtime/exec/split/computing_rate.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;

// A common shape of today's models, in the type that most files have most of: 2.65 MB an expert.
constexpr size_t kWidth = 2048;
constexpr size_t kFf = 768;
constexpr int32_t kExpertsMost = 4096;
constexpr int32_t kPromptExperts =
    ExpertRate::kLeast;  // of a prompt's pass: as many as one may leave to the host
constexpr int32_t kRowsMax = kPromptExperts * ExpertRate::kPromptRows / ExpertRate::kUsed;
constexpr size_t kPicks = size_t{kRowsMax} * ExpertRate::kUsed;

const kernels::FormatTraits& Format() {
  return *kernels::FindFormat(static_cast<int>(model::TensorType::kQ4_K));
}
// A card's part of a layer of one row.
constexpr std::chrono::microseconds kBetween{35};

size_t GateBytes() { return kernels::RowBytes(Format(), kWidth) * kFf; }
size_t DownBytes() { return kernels::RowBytes(Format(), kFf) * kWidth; }

int32_t ExpertsOf(uint64_t bytes) {
  const uint64_t wanted = bytes / (2 * GateBytes() + DownBytes());
  return static_cast<int32_t>(std::clamp<uint64_t>(wanted, ExpertRate::kLeast, kExpertsMost));
}

// One array after another, from zero on.
struct Layout {
  explicit Layout(int32_t experts)
      : ints(Place(BankSteps::Ints(static_cast<size_t>(experts), kPicks) * sizeof(int32_t))) {}

  size_t bytes = 0;
  size_t Place(size_t more) {
    const size_t at = bytes;
    bytes = kernels::QuantisedRows::Align64(bytes + more);
    return at;
  }
  size_t input = Place(kRowsMax * kernels::QuantisedRowBytes(kWidth, Format().activation_group));
  size_t h = Place(kPicks * kFf * sizeof(float));
  size_t codes = Place(kPicks * kernels::QuantisedRowBytes(kFf, Format().activation_group));
  size_t y = Place(kPicks * kWidth * sizeof(float));
  size_t weights = Place(kPicks * sizeof(float));
  size_t sums = Place(kRowsMax * kWidth * sizeof(int64_t));
  size_t ints;
};

}  // namespace

ExpertRate::ExpertRate(const ops::Backend& backend, int32_t threads, uint64_t bytes)
    : backend_(backend),
      experts_(ExpertsOf(bytes)),
      weights_(static_cast<size_t>(experts_) * (2 * GateBytes() + DownBytes()),
               "experts to measure the host with"),
      rows_(Layout(experts_).bytes, "rows to measure the host with"),
      ids_(kPicks, -1) {
  // Scales next to nothing, but numbers; written, so that there are pages.
  std::fill_n(weights_.data(), weights_.size(), std::byte{1});
  std::fill_n(rows_.data(), rows_.size(), std::byte{0});
  const Layout at(experts_);
  const auto experts = static_cast<size_t>(experts_);
  std::byte* const base = rows_.data();
  const auto rows_of = [](std::byte* data, size_t k) {
    return kernels::WeightRows{&Format(), data, kernels::RowBytes(Format(), k), k};
  };
  steps_ = std::make_unique<BankSteps>(
      BankSteps::Args{.backend = &backend,
                      .bank = {.gate = rows_of(weights_.data(), kWidth),
                               .up = rows_of(weights_.data() + experts * GateBytes(), kWidth),
                               .down = rows_of(weights_.data() + 2 * experts * GateBytes(), kFf),
                               .gate_expert_bytes = GateBytes(),
                               .up_expert_bytes = GateBytes(),
                               .down_expert_bytes = DownBytes(),
                               .experts = experts,
                               .ff = kFf,
                               .width = kWidth},
                      .used = kUsed,
                      .rows_max = kRowsMax,
                      .arrays = {.ints = reinterpret_cast<int32_t*>(base + at.ints),
                                 .h = reinterpret_cast<float*>(base + at.h),
                                 .codes = base + at.codes,
                                 .y = reinterpret_cast<float*>(base + at.y),
                                 .input = base + at.input,
                                 .weights = reinterpret_cast<const float*>(base + at.weights),
                                 .sums = reinterpret_cast<int64_t*>(base + at.sums)},
                      .live = &live_,
                      .threads = threads,
                      .counts = std::make_shared<FewRowsExperts::Counts>(
                          threads, BankSteps::CountedExperts(experts, kUsed)),
                      .until = &until_});
}

uint64_t ExpertRate::scratch_bytes() const {
  return kernels::QuantisedRows::Align64(
      std::max({backend_.gate_up_scratch(kWidth, kRowsMax), backend_.linear_scratch(kFf),
                backend_.linear_scratch(kWidth)}));
}

void ExpertRate::Compute(Pool& pool, int32_t rows) {
  live_ = rows;
  steps_->Begin(ids_.data(), rows);
  for (const std::unique_ptr<ops::Step>& step : steps_->Steps()) pool.Run(*step);
}

double ExpertRate::Measure(Pool& pool, int32_t experts) {
  const int32_t dispatches = experts_ / experts;
  std::fill_n(ids_.begin(), kUsed, -1);
  pool.StayAwake(true);  // as within a pass
  Clock::duration took{};
  for (int32_t i = 0; i < dispatches; ++i) {
    for (int32_t j = 0; j < experts; ++j) ids_[static_cast<size_t>(j)] = j * dispatches + i;
    const Clock::time_point begin = Clock::now();
    Compute(pool, 1);
    const Clock::time_point end = Clock::now();
    took += end - begin;
    while (Clock::now() - end < kBetween) Relax();
  }
  pool.StayAwake(false);
  return std::chrono::duration<double>(took).count() / dispatches;
}

void ExpertRate::PickForPrompts() {
  prompts_ = (prompts_ + 1) % (experts_ / kPromptExperts);
  const int32_t first = prompts_ * kPromptExperts;
  for (size_t i = 0; i < ids_.size(); ++i) {
    ids_[i] = first + static_cast<int32_t>(i % kPromptExperts);
  }
}

double ExpertRate::MeasurePrompt(Pool& pool) {
  PickForPrompts();
  const Clock::time_point begin = Clock::now();
  Compute(pool, kRowsMax);
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  return seconds.count() / kPromptExperts;
}

memory::HostExpertRates ExpertRate::MeasureRates(Pool& pool) {
  constexpr int32_t kFew = 2;
  constexpr size_t kTimes = 3;
  const auto usual = [&](int32_t experts) {
    std::array<double, kTimes> seconds{};
    for (double& of : seconds) of = Measure(pool, experts);
    std::ranges::sort(seconds);
    return seconds[kTimes / 2];
  };
  Measure(pool, kUsed);  // the first may meet threads asleep
  const double few = usual(kFew);
  const double many = usual(kUsed);
  // Noise may make few dispatches dear: an expert takes at least half of the mean.
  const double each = std::max((many - few) / (kUsed - kFew), many / kUsed / 2);
  memory::HostExpertRates rates{.bytes = expert_bytes(),
                                .dispatch_us = 1e6 * std::max(0.0, many - kUsed * each),
                                .expert_us = 1e6 * each};
  const ComputingCase prompts{.experts = kPromptExperts, .used = kUsed, .rows_max = kRowsMax};
  const memory::ShareRates share = ComputingRates(prompts, [&](int32_t rows) {
    PickForPrompts();
    Compute(pool, rows);
  });
  rates.read_us = share.read_us;
  rates.fixed_us = share.fixed_us;
  rates.row_us = share.row_us;
  return rates;
}

}  // namespace bloomery::exec
